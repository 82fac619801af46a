"""Replay many sequences of an episode and run each prefix once: from immutable states, or from snapshots.

It gives the result of :meth:`StepEnvironment.replay` with fewer calls, if a step leaves its state unchanged and a
restored state has the same future as the one that was kept. This is never taken on trust: certification repeats every
replay in another process from fresh initial states, as ``vcrt verify`` does, and the conformance kit compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from vcrt.environments.contract import (
    Accepted,
    Environment,
    Episode,
    FormedSnapshot,
    Operation,
    Rejected,
    Replay,
    ReplayRequest,
    StepEnvironment,
    Transition,
    Versions,
    some_outputs,
)
from vcrt.errors import MalformedInputError

#: The answer after a sequence: the hash of the state and the last operation's output, or the refusal of that operation.
_Answer: TypeAlias = tuple[str, str | None] | Rejected
_Order: TypeAlias = tuple[int, ...]
#: A tree of the sequences to run: what follows each step.
_Following: TypeAlias = "dict[int, _Following]"


def offers_snapshots(environment: StepEnvironment[object]) -> bool:
    """Return whether it has snapshots; raise :class:`MalformedInputError` for one of the two methods alone."""
    kind = type(environment)
    given = [
        kind.snapshot is not StepEnvironment.snapshot,
        kind.restore is not StepEnvironment.restore,
    ]
    if any(given) and not all(given):
        raise MalformedInputError(
            "an environment has only one of snapshot and restore",
            where=f"{kind.__module__}.{kind.__qualname__}",
            found="snapshot" if given[0] else "restore",
            expected="both, or neither",
        )
    return all(given)


def shares_prefixes(environment: Environment) -> bool:
    """Return whether its replays consist of its steps alone, so that sequences may share prefixes."""
    return (
        isinstance(environment, StepEnvironment)
        and type(environment).replay is StepEnvironment.replay
        and type(environment)._replay_one is StepEnvironment._replay_one
    )


def replay_sharing(environment: Environment, requests: Sequence[ReplayRequest]) -> list[Replay]:
    """Answer ``requests`` in their order; run shared prefixes of one episode once where the environment allows it."""
    if not isinstance(environment, StepEnvironment) or not shares_prefixes(environment):
        return environment.replay(requests)
    return replay_by_episode(requests, partial(_run_sharing, environment))


def replay_by_episode(
    requests: Sequence[ReplayRequest],
    answered: Callable[[Episode, list[_Order]], Sequence[Replay]],
) -> list[Replay]:
    """Answer ``requests`` in their order; ``answered`` replays all sequences of one episode together."""
    places: dict[int, list[int]] = {}
    for place, request in enumerate(requests):
        places.setdefault(id(request.episode), []).append(place)
    replays: dict[int, Replay] = {}
    for some in places.values():
        sequences = [tuple(requests[place].sequence) for place in some]
        found = answered(requests[some[0]].episode, sequences)
        replays.update(zip(some, found, strict=True))
    return [replays[place] for place in range(len(requests))]


def _run_sharing(
    environment: StepEnvironment[object], episode: Episode, sequences: Sequence[_Order]
) -> list[Replay]:
    """Return the replays of these sequences; run each of their prefixes once, up to the first refused operation."""
    beginnings: _Following = {}
    for sequence in sequences:
        following = beginnings
        for index in sequence:
            following = following.setdefault(index, {})
    answers: dict[_Order, _Answer] = {}

    def walk(prefix: _Order, state: object, following: _Following) -> None:
        # A step may change the state: only the first continuation starts from it, the others from its snapshot.
        keeps = len(following) > 1 and offers_snapshots(environment)
        kept = environment.snapshot(state) if keeps else None
        for place, (index, more) in enumerate(following.items()):
            if keeps and place:
                state = environment.restore(kept)
            answer = environment._answer(state, episode.operations[index])
            sequence = (*prefix, index)
            if isinstance(answer, Rejected):
                answers[sequence] = answer
            else:
                answers[sequence] = environment._hash(answer.state), answer.output
                walk(sequence, answer.state, more)

    state = environment.initial_state(episode)
    answers[()] = environment._hash(state), None
    walk((), state, beginnings)
    return [_replay(sequence, answers) for sequence in sequences]


def _replay(sequence: _Order, answers: dict[_Order, _Answer]) -> Replay:
    hashes, outputs, rejection = list[str](), list[str | None](), None
    for length in range(len(sequence) + 1):
        answer = answers[sequence[:length]]
        if isinstance(answer, Rejected):
            rejection = answer
            break
        hashes.append(answer[0])
        outputs.append(answer[1])
    return Replay(sequence, tuple(hashes), rejection, some_outputs(outputs[1:]))


def state_after(
    environment: StepEnvironment[object],
    episode: Episode,
    sequence: Sequence[int],
    start: object = None,
) -> object:
    """Return the state after these operations, from a snapshot or a fresh start; pass over refused operations."""
    fresh = start is None
    state = environment.initial_state(episode) if fresh else environment.restore(start)
    for index in sequence:
        answer = environment.step(state, episode.operations[index])
        state = answer.state if isinstance(answer, Accepted) else state
    return state


def as_values(environment: StepEnvironment[object]) -> StepEnvironment[object]:
    """Return an environment whose states are values: itself, or, if it offers snapshots, one whose states they are."""
    return _Restoring(environment) if offers_snapshots(environment) else environment


@dataclass(frozen=True, slots=True)
class _Kept:
    """A snapshot and the canonical form of the state it was taken from."""

    snapshot: object
    form: bytes


class _Restoring(StepEnvironment[object]):
    """Each step starts from a restored snapshot and ends with another."""

    def __init__(self, environment: StepEnvironment[object]) -> None:
        self._of = environment
        self.name = environment.name  # type: ignore[misc]
        self.schemas = environment.schemas  # type: ignore[misc]

    def versions(self) -> Versions:
        return self._of.versions()

    def sample(self, schema: str, seed: int) -> Episode:
        return self._of.sample(schema, seed)

    def initial_state(self, episode: Episode) -> object:
        return self._kept(self._of.initial_state(episode))

    def step(self, state: object, operation: Operation) -> Transition[object]:
        assert isinstance(state, _Kept)
        answer = self._of._answer(self._of.restore(state.snapshot), operation)
        if isinstance(answer, Rejected):
            return answer
        return Accepted(self._kept(answer.state), answer.output)

    def canonical(self, state: object) -> bytes:
        """Return the form that the state had when its snapshot was taken."""
        assert isinstance(state, _Kept)
        return state.form

    def _kept(self, state: object) -> _Kept:
        kept = self._of.snapshot(state)
        form = kept.form if isinstance(kept, FormedSnapshot) else self._of.canonical(state)
        return _Kept(kept, form)
