"""Replay an episode context by context: every reachable context, or sampled contexts and one order of each class.

Up to ``MAX_COMPLETE`` operations, every operation runs in every reachable context, after up to four of the sequences
that lead there; then some whole orders are walked at random. Merging contexts is sound if all of these get the same
answers. Beyond, and where it is requested, contexts are sampled (:mod:`vcrt.certificates.sampling`). The replayed
sequences depend on the episode and the verifier's answers alone, so a second replay in another succession gives the
same tree.

Merged replay continues each context once, for all orders of few operations: it takes at most ``n 2^(n-1)`` transitions
if everything commutes, where exhaustive replay takes ``n! n``. It is sound if equal canonical hashes imply equal
futures, which the conformance kit tests; frozen datasets are not built from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from math import inf
from time import monotonic
from typing import NamedTuple, TypeAlias

from vcrt.certificates.lattice import Lattice
from vcrt.certificates.replay_tree import Answers, EpisodeReplays, Reached, ReplayTree
from vcrt.certificates.sampling import sampled_sequences
from vcrt.environments.contexts import ContextWalk, Merge, first_only
from vcrt.environments.contract import (
    Environment,
    Episode,
    Rejected,
    Replay,
    ReplayRequest,
    StepEnvironment,
)
from vcrt.environments.guarding import checks_advice
from vcrt.environments.shared_prefixes import as_values
from vcrt.errors import TooLargeError, VerifierFailure
from vcrt.hashing import sha256_hex
from vcrt.limits import MAX_COMPLETE, MAX_CONTEXTS, MAX_EXHAUSTIVE, MAX_OPERATIONS, MAX_SEQUENCES
from vcrt.orders import Order, all_orders
from vcrt.printable import counted
from vcrt.randomness import generator
from vcrt.replay.replay import replay_all

#: Sequences of a level that are requested at a time.
AT_A_TIME = 1_000
#: Whole orders walked at random through a complete lattice.
WHOLE_ORDERS = 64
#: An iterator of batches of requested sequences; the answers so far are in the mapping that it was made with.
Asking: TypeAlias = Iterator[list[Order]]


@dataclass(slots=True)
class Work:
    """One episode with the answers so far.

    Where steps run one by one, no sequence begins later than ``until``, by the monotonic clock; ``stopped`` says
    whether one would have.
    """

    episode: Episode
    complete: bool
    answered: Answers = field(default_factory=Answers)
    until: float = inf
    stopped: bool = False

    @property
    def answers(self) -> Mapping[Order, Reached]:
        """The answers so far, by sequence."""
        return self.answered.by_sequence

    def note(self, replay: Replay) -> None:
        """Add the answers of a replay; raise :class:`TooLargeError` if there are too many."""
        self.answered.note_replay(replay)
        self.require_room()

    def require_room(self) -> None:
        """Raise :class:`TooLargeError` if there are too many answers."""
        ways_out = [_SAMPLE] * self.complete + [_SHORTER]
        _require_room(len(self.answers), MAX_SEQUENCES, "sequences", self.episode, ways_out)

    def tree(self) -> ReplayTree:
        """Return the answers as a tree."""
        return self.answered.tree(self.episode.num_operations)


def replay_lattices(
    environment: Environment,
    episodes: Sequence[Episode],
    *,
    backwards: bool = False,
    sampled: bool = False,
    until: float = inf,
    whole_orders: int = WHOLE_ORDERS,
) -> list[EpisodeReplays]:
    """Replay the episodes, all at once, batch by batch; where steps run one by one, ``until`` this time at the latest.

    With ``sampled``, contexts are sampled for any number of operations. ``backwards`` requests the same sequences in
    another succession, each as a whole from its initial state. Raise :class:`TooLargeError` for an episode of more than
    64 operations or too many contexts or sequences, and whatever the environment raises.
    """
    works = []
    for episode in episodes:
        if episode.num_operations > MAX_OPERATIONS:
            raise TooLargeError(
                "an episode of too many operations",
                where=episode.episode_id,
                found=f"{counted(episode.num_operations, 'operation')}",
                expected=f"2 to {MAX_OPERATIONS}",
                remedy="lift shorter windows",
            )
        complete = not sampled and episode.num_operations <= MAX_COMPLETE
        works.append(Work(episode, complete, until=until))
    asking = [
        (
            work,
            _all_contexts(work, MAX_CONTEXTS, _four) if work.complete else sampled_contexts(work),
        )
        for work in works
    ]
    run_asked(environment, asking, backwards=backwards)
    whole = [
        (work, order)
        for work in works
        if work.complete
        for order in _whole_orders(work, whole_orders)
    ]
    for some in [whole] if until == inf else [[one] for one in whole]:
        if monotonic() <= until:
            _replay_sequences(environment, some, backwards=backwards)
    return [EpisodeReplays(work.episode, work.tree()) for work in works]


def replay_merged(environment: Environment, episodes: Sequence[Episode]) -> list[EpisodeReplays]:
    """Return the replays of all orders of each episode, assembled from contexts that are continued once.

    Raise whatever the environment raises, and :class:`VerifierFailure` if it answers a sequence in two ways.
    """
    works = [Work(episode, complete=True) for episode in episodes]
    run_asked(environment, [(w, _all_contexts(w, MAX_SEQUENCES, first_only)) for w in works])
    return [_merged(work) for work in works]


def _merged(work: Work) -> EpisodeReplays:
    if work.answered.contradiction is not None:
        raise VerifierFailure(
            "a sequence that was accepted before is answered differently",
            where=work.episode.episode_id,
            found=work.answered.contradiction,
            expected="one answer to each sequence",
        )
    tree = work.tree()
    lattice = Lattice.of(tree)
    orders = all_orders(tree.num_operations)
    return EpisodeReplays.of_every_order(
        work.episode, [lattice.replay(tree, order) for order in orders]
    )


class _Entry(NamedTuple):
    """A sequence that entered a context, and a digest that decides its lot."""

    sequence: Order
    lot: bytes

    @classmethod
    def of(cls, sequence: Order, key: str) -> _Entry:
        return cls(sequence, sha256(f"{key} {sequence}".encode()).digest())


def _four(entries: tuple[_Entry, ...], entry: _Entry) -> tuple[_Entry, ...]:
    """Keep up to four sequences of a context: the least, the greatest, and the two extremes by lot."""
    every = (*entries, entry)
    by_lot = sorted(every, key=lambda each: (each.lot, each.sequence))
    return tuple(dict.fromkeys((min(every), max(every), by_lot[0], by_lot[-1])))


def _whole_orders(work: Work, number: int) -> list[Order]:
    """Walk orders at random through the lattice until nothing is accepted; return none if it is contradictory."""
    lattice = Lattice.of(work.tree())
    if work.answered.contradiction is not None or lattice.unequal is not None:
        return []
    draw = generator(0, "whole orders", work.episode.content_hash())
    found: dict[Order, None] = {}
    for _ in range(number):
        context, sequence = 0, list[int]()
        while len(sequence) < lattice.num_operations:
            accepted = {
                operation: answer
                for operation in range(lattice.num_operations)
                if isinstance(answer := lattice.transitions.get((context, operation)), int)
            }
            if not accepted:
                break
            operation = list(accepted)[int(draw.integers(len(accepted)))]
            context = accepted[operation]
            sequence.append(operation)
        found[tuple(sequence)] = None
    return list(found)


def _replay_sequences(
    environment: Environment, asked: Sequence[tuple[Work, Order]], *, backwards: bool
) -> None:
    """Replay whole sequences together, and note the answers."""
    requests = [ReplayRequest(work.episode, sequence) for work, sequence in asked]
    answers = replay_all(environment, requests, backwards=backwards)
    for (work, _), answer in zip(asked, answers, strict=True):
        work.note(answer)


def _all_contexts(work: Work, max_contexts: int, merge: Merge[_Entry]) -> Asking:
    """Request every operation in every context, after those of its sequences that ``merge`` keeps."""
    answers, key = work.answers, work.episode.content_hash()

    def take(entry: _Entry, operation: int) -> _Entry | None:
        sequence = (*entry.sequence, operation)
        reached = answers.get(sequence)
        accepted = reached is not None and reached.state_hash is not None
        return _Entry.of(sequence, key) if accepted else None

    walk = ContextWalk(
        num_steps=work.episode.num_operations,
        start=_Entry.of((), key),
        take=take,
        key=lambda entry: answers[entry.sequence].state_hash,
        merge=merge,
    )
    yield [()]
    # Part by part, so that an excess is known before everything was replayed.
    for part in chain(walk.parts(AT_A_TIME), [[]]):
        _require_room(
            len(walk.transitions), max_contexts, "contexts", work.episode, (_SAMPLE, _SHORTER)
        )
        yield [(*entry.sequence, operation) for entry, operation in part]


def sampled_contexts(work: Work, *, whole: bool = True) -> Asking:
    """Request sampled contexts, and one order of each class.

    If there are too many classes, request none; the evidence itself then shows that it certifies nothing. Unless
    ``whole``, request fewer contexts, legal ones only, and no order of each class.
    """
    draw = generator(0, "sampled contexts", work.episode.content_hash())
    num_operations = work.episode.num_operations
    with suppress(TooLargeError):
        yield from sampled_sequences(work.answers, num_operations, draw, whole=whole)


def contexts_in_time(work: Work, within: float) -> Asking:
    """Request the reference order and, ``within`` so many seconds, contexts of each pair, and then all there are.

    All orders of up to ``MAX_EXHAUSTIVE`` operations, and all contexts of up to ``MAX_COMPLETE``; of more, sampled ones
    and one order of each class. An episode of more than ``MAX_CONTEXTS`` contexts counts as stopped.
    """
    num_operations = work.episode.num_operations
    yield [tuple(range(num_operations))]
    work.until = monotonic() + within
    yield from sampled_contexts(work, whole=num_operations > MAX_COMPLETE)
    if num_operations <= MAX_EXHAUSTIVE:
        yield list(all_orders(num_operations))
    elif num_operations <= MAX_COMPLETE:
        work.complete = True
        try:
            yield from _all_contexts(work, MAX_CONTEXTS, _four)
            yield _whole_orders(work, WHOLE_ORDERS)
        except TooLargeError:
            work.stopped = True


def run_asked(
    environment: Environment, asking: Sequence[tuple[Work, Asking]], *, backwards: bool = False
) -> None:
    """Replay what each episode's iterator requests, batch by batch; raise whatever the environment raises."""
    if isinstance(environment, StepEnvironment) and not backwards:
        for work, more in asking:
            _run_by_steps(as_values(environment), work, more)
    else:
        _run_by_batches(environment, asking, backwards=backwards)


def _run_by_steps(environment: StepEnvironment[object], work: Work, asking: Asking) -> None:
    """Run step by step, each sequence from the state of its longest prefix that has run."""
    states: dict[Order, object] = {}
    for wanted in asking:
        if work.complete:
            # Keep the first state, those from which these begin, and later ones: there may be very many.
            length = min((_length_of_known(sequence, states) for sequence in wanted), default=0)
            if any(0 < len(sequence) < length for sequence in states):
                states = {s: state for s, state in states.items() if len(s) >= length or not s}
        for sequence in wanted:
            if monotonic() > work.until:
                work.stopped = True
                return
            first = _length_of_known(sequence, states) + 1
            for length in range(first, len(sequence) + 1):
                prefix = sequence[:length]
                known = work.answers.get(prefix)
                if known is not None and known.state_hash is None:
                    break
                reached = _reached(environment, work.episode, prefix, states)
                work.answered.note(prefix, reached)
                if reached.state_hash is None:
                    break
        work.require_room()


def _length_of_known(sequence: Order, states: Mapping[Order, object]) -> int:
    """Return the length of the longest part of a sequence, from its beginning, whose state is there; -1 if none is."""
    return next((k for k in range(len(sequence), -1, -1) if sequence[:k] in states), -1)


def _reached(
    environment: StepEnvironment[object],
    episode: Episode,
    sequence: Order,
    states: dict[Order, object],
) -> Reached:
    """Return the answer to a sequence's last step; add the state that it leads to."""
    output = None
    if not sequence:
        state = environment.initial_state(episode)
    else:
        answer = environment.step(states[sequence[:-1]], episode.operations[sequence[-1]])
        if isinstance(answer, Rejected):
            return Reached(None, _reason(environment, episode, sequence, answer))
        state, output = answer.state, answer.output
    states[sequence] = state
    return Reached(sha256_hex(environment.canonical(state)), None, output=output)


def _reason(environment: Environment, episode: Episode, sequence: Order, refusal: Rejected) -> str:
    if not isinstance(refusal.reason, str) or not refusal.reason.strip():
        raise VerifierFailure(
            "a rejection without a reason",
            where=f"environment {environment.name!r}, episode {episode.episode_id}, after {list(sequence[:-1])}: step "
            f"{sequence[-1]}",
            found=repr(refusal)[:120],
            expected="the verifier's own message",
            remedy=checks_advice(environment),
        )
    return refusal.reason


def _run_by_batches(
    environment: Environment, asking: Sequence[tuple[Work, Asking]], *, backwards: bool
) -> None:
    """Run whole sequences; together those that all episodes request at a time."""
    running = list(asking)
    while running:
        wanted = [(work, more, next(more, None)) for work, more in running]
        running = [(work, more) for work, more, batch in wanted if batch is not None]
        asked = [(work, sequence) for work, _, batch in wanted for sequence in batch or ()]
        _replay_sequences(environment, asked, backwards=backwards)


_SAMPLE = "sample the contexts (`vcrt certify --sampled`)"
_SHORTER = "lift shorter windows"


def _require_room(
    found: int, most: int, what: str, episode: Episode, ways_out: Sequence[str]
) -> None:
    if found > most:
        raise TooLargeError(
            f"an episode has too many {what} to replay all of them",
            where=episode.episode_id,
            found=f"more than {most:,} {what} of {counted(episode.num_operations, 'operation')}",
            expected=f"at most {most:,}",
            remedy=", or ".join(ways_out),
        )
