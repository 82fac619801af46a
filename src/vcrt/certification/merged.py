"""Merged replay: contexts with the same operations and equal canonical states are continued once for all of them.

Where exhaustive replay of ``n`` operations runs ``n! * n`` transitions, merged replay runs at most ``n * 2^(n-1)`` if
everything commutes. It is sound if equal canonical hashes imply equal futures and a step leaves its state as it was,
which the conformance kit tests and :mod:`vcrt.certification.futures` checks on every exhaustive replay; frozen datasets
are built from exhaustive replay alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vcrt.certification.replay import EpisodeReplays, replay_all
from vcrt.environments.contract import (
    Environment,
    Episode,
    Rejected,
    Replay,
    ReplayRequest,
    StepEnvironment,
)
from vcrt.environments.shared_prefixes import as_values
from vcrt.errors import VerifierFailure
from vcrt.hashing import sha256_hex
from vcrt.orders import Order, all_orders

#: The operations that have run, and the canonical hash that they led to.
_Context: TypeAlias = tuple[frozenset[int], str]


@dataclass(frozen=True, slots=True)
class MergedReplays:
    """The replays of all orders as merged replay knows them, and how many transitions the verifier ran for it."""

    evidence: EpisodeReplays
    num_transitions: int


@dataclass(frozen=True, slots=True)
class _Edge:
    """A transition: the context it leads to, or the refusal; of a replay refused at its end, both."""

    state_hash: str | None
    rejection: Rejected | None


@dataclass(slots=True)
class _Lattice:
    """What is known of one episode: the hash of the initial state and the transitions out of each context."""

    episode: Episode
    initial_hash: str
    edges: dict[tuple[_Context, int], _Edge]

    def replay(self, order: Order) -> Replay:
        """The replay of one order, put together from the transitions."""
        hashes = [self.initial_hash]
        done: frozenset[int] = frozenset()
        for operation in order:
            edge = self.edges[((done, hashes[-1]), operation)]
            if edge.state_hash is not None:
                hashes.append(edge.state_hash)
            if edge.rejection is not None:
                return Replay(order, tuple(hashes), edge.rejection)
            done |= {operation}
        return Replay(order, tuple(hashes))

    def to_merged(self) -> MergedReplays:
        orders = all_orders(self.episode.num_operations)
        replays = tuple(self.replay(order) for order in orders)
        return MergedReplays(EpisodeReplays(self.episode, replays), len(self.edges))


def replay_merged(environment: Environment, episodes: Sequence[Episode]) -> list[MergedReplays]:
    """Replay the episodes context by context; raises what the environment raises."""
    if isinstance(environment, StepEnvironment):
        values = as_values(environment)
        return [_by_steps(values, episode).to_merged() for episode in episodes]
    return [lattice.to_merged() for lattice in _by_batches(environment, episodes)]


def _by_steps(environment: StepEnvironment[object], episode: Episode) -> _Lattice:
    state = environment.initial_state(episode)
    initial_hash = sha256_hex(environment.canonical(state))
    lattice = _Lattice(episode, initial_hash, {})
    level: dict[_Context, object] = {(frozenset(), initial_hash): state}
    for _ in range(episode.num_operations):
        following: dict[_Context, object] = {}
        for context, state in level.items():
            done, _ = context
            for operation in range(episode.num_operations):
                if operation in done:
                    continue
                answer = environment.step(state, episode.operations[operation])
                if isinstance(answer, Rejected):
                    lattice.edges[context, operation] = _Edge(None, answer)
                    continue
                reached = sha256_hex(environment.canonical(answer.state))
                lattice.edges[context, operation] = _Edge(reached, None)
                following.setdefault((done | {operation}, reached), answer.state)
        level = following
    return lattice


def _by_batches(environment: Environment, episodes: Sequence[Episode]) -> list[_Lattice]:
    """Level by level, all episodes at once: every context is reached by the first sequence that led to it."""
    starts = replay_all(environment, [ReplayRequest(episode, ()) for episode in episodes])
    lattices = [_Lattice(e, s.state_hashes[0], {}) for e, s in zip(episodes, starts, strict=True)]
    level: list[tuple[int, _Context, Order]] = [
        (index, (frozenset(), lattice.initial_hash), ()) for index, lattice in enumerate(lattices)
    ]
    while level:
        pieces = [
            (index, context, (*prefix, operation))
            for index, context, prefix in level
            for operation in range(episodes[index].num_operations)
            if operation not in context[0]
        ]
        requests = [ReplayRequest(episodes[index], sequence) for index, _, sequence in pieces]
        answers = replay_all(environment, requests)
        following: dict[tuple[int, _Context], Order] = {}
        for (index, context, sequence), answer in zip(pieces, answers, strict=True):
            edge = _last_edge(context, sequence, answer)
            lattices[index].edges[context, sequence[-1]] = edge
            if edge.rejection is None and edge.state_hash is not None:
                reached = (context[0] | {sequence[-1]}, edge.state_hash)
                following.setdefault((index, reached), sequence)
        level = [(index, context, prefix) for (index, context), prefix in following.items()]
    return lattices


def _last_edge(context: _Context, sequence: Order, answer: Replay) -> _Edge:
    """The transition of a sequence's last operation; its earlier ones must be accepted as they were before."""
    before = len(sequence) - 1
    hashes = answer.state_hashes
    if answer.sequence != sequence or len(hashes) <= before or hashes[before] != context[1]:
        raise VerifierFailure(
            "a sequence that was accepted before is answered differently",
            where=f"after the operations {list(sequence[:before])}",
            found=str(answer),
            expected=f"the state {context[1]}",
        )
    reached = hashes[before + 1] if len(hashes) > before + 1 else None
    return _Edge(reached, answer.rejection)
