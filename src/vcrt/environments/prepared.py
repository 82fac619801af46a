"""Replay episodes that are read once for all of their requests: for environments whose steps are fast.

Every step of every request runs from the episode's initial state; requests share only the reading of the episode and
the hashes of equal states. :mod:`vcrt.environments.shared_prefixes` runs shared prefixes once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import Any

from vcrt.environments.contract import (
    Episode,
    Operation,
    Rejected,
    Replay,
    ReplayRequest,
    State,
    StepEnvironment,
    Transition,
)
from vcrt.hashing import sha256_hex


class PreparedEnvironment(StepEnvironment[State]):
    """The step form for immutable states, whose operations have a checked form that is the same in all of them.

    States are values, and their canonical form is all that they hold. So there are no probes.
    """

    max_probes = 0

    @abstractmethod
    def prepare(self, episode: Episode) -> tuple[State, Sequence[Any]]:
        """Return the initial state, and the checked form of each operation.

        Raise :class:`vcrt.errors.MalformedInputError` if any part of the episode is malformed.
        """

    @abstractmethod
    def read(self, state: State, operation: Operation) -> Any:
        """Return the checked form of an operation; raise :class:`vcrt.errors.MalformedInputError` for another form."""

    @abstractmethod
    def take(self, state: State, step: Any) -> Transition[State]:
        """Run one operation in its checked form."""

    def key(self, state: State) -> Hashable:
        """Return a key that tells the states of one episode apart; override it if :meth:`canonical` is slower."""
        return self.canonical(state)

    def initial_state(self, episode: Episode) -> State:
        """Return the state before the first operation; raise as :meth:`prepare` does."""
        return self.prepare(episode)[0]

    def step(self, state: State, operation: Operation) -> Transition[State]:
        """Run one operation; raise as :meth:`read` does."""
        return self.take(state, self.read(state, operation))

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Replay each request by itself, step by step, from its own initial state; raise as :meth:`prepare` does."""
        replays = []
        episode: Episode | None = None
        for request in requests:
            if request.episode is not episode:
                episode = request.episode
                initial, steps = self.prepare(episode)
                digests: dict[Hashable, str] = {}
            replays.append(self._along(initial, steps, request.sequence, digests))
        return replays

    def _along(
        self,
        state: State,
        steps: Sequence[Any],
        sequence: tuple[int, ...],
        digests: dict[Hashable, str],
    ) -> Replay:
        hashes = [self._digest(state, digests)]
        for index in sequence:
            transition = self.take(state, steps[index])
            if isinstance(transition, Rejected):
                return Replay(sequence, tuple(hashes), transition)
            state = transition.state
            hashes.append(self._digest(state, digests))
        return Replay(sequence, tuple(hashes))

    def _digest(self, state: State, digests: dict[Hashable, str]) -> str:
        key = self.key(state)
        digest = digests.get(key)
        if digest is None:
            digest = digests[key] = sha256_hex(self.canonical(state))
        return digest
