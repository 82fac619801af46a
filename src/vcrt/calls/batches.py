"""Test the calls that a log's messages sent together: which of them conflict, and which are safe in any order.

A batch is the calls of one message, or such as were waited for at once. Its calls are compared in the state in which
they were sent, in every context that orders of them lead to. An order keeps what the log tells: a call that was made
when another had its output stays behind that one. A call is *safe* if it commutes with each other call of its batch in
all of these contexts: wherever it runs among them, states and outputs are the same.

If an order leads to a refusal, the rest of the message runs all the same. So such a batch is replayed once more with
refusals as outputs, and that replay says what is safe. If the evidence of the whole trace lacks some of these contexts,
the batch is replayed by itself, as a window of the trace, unless it is all of the trace. Not covered: schedules of
whole traces (see :mod:`vcrt.calls.schedules`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from math import inf
from time import monotonic
from typing import Any

from vcrt.calls.differences import Differing, difference_of
from vcrt.calls.log_traces import Trace
from vcrt.certificates.certificates import Certificate, UncertifiedError
from vcrt.certificates.lattice import Lattice
from vcrt.certificates.long_episodes import sound_lattice
from vcrt.certificates.replay_tree import Answers, EpisodeReplays, ReplayTree
from vcrt.environments.contract import Episode
from vcrt.environments.tool_calls import CallEnvironment, initial_of
from vcrt.limits import MAX_COMPLETE
from vcrt.partial_orders import PartialOrder
from vcrt.replay.lattice_replay import replay_lattices

#: Whole orders of a batch that are walked at random; those of the whole schedule are walked beside.
_WHOLE_ORDERS = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Conflict:
    """Two calls of a batch whose order matters: both orders, and where they end apart.

    The context of the certificate begins with the calls before the batch. A pair that differs only after a refusal, or
    in what a refused call leaves behind, has one in which refusals are outputs.
    """

    certificate: Certificate
    difference: tuple[Differing, ...]

    @property
    def calls(self) -> tuple[int, int]:
        """The two calls."""
        return self.certificate.pair


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Calls that were sent together, in the order in which they are taken, and what their order changes.

    ``place`` is the log's line. ``raced``: they are taken in another order than they were made in, which alone gives
    the log's outputs. ``num_cut`` more calls of their message lie outside of what was compared: then none is called
    safe. ``num_contexts`` counts the contexts in which its calls were compared, without those that differ in nothing
    but calls that only read: all that its orders lead to if it is ``complete``, else some. ``problem`` says why nothing
    was compared, if so.
    """

    calls: tuple[int, ...]
    place: str
    raced: bool
    num_cut: int = 0
    safe: tuple[int, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    num_contexts: int = 0
    complete: bool = False
    problem: str | None = None

    @property
    def not_compared(self) -> tuple[int, ...]:
        """The calls that are neither safe nor seen to conflict."""
        known = {*self.safe, *(call for each in self.conflicts for call in each.calls)}
        return tuple(call for call in self.calls if call not in known)


def order_of_log(trace: Trace, part: range) -> PartialOrder:
    """Return which calls of a part of a trace were sent behind which, numbered from the part's first call."""
    pairs = combinations(range(len(part)), 2)
    behind = [(i, j) for i, j in pairs if not trace.sent_together(part[i], part[j])]
    return PartialOrder.of(len(part), behind)


def batches_of(order: PartialOrder) -> tuple[range, ...]:
    """Return the batches of two calls or more, given the order in which a log's calls were sent.

    >>> batches_of(PartialOrder.of(4, [(0, 1), (0, 2), (1, 3), (2, 3)]))
    (range(1, 3),)
    """
    found: list[range] = []
    for call in range(order.num_operations):
        before = order.predecessors[call]
        start = next((k for k in range(call) if not before >> k & 1), call)
        while found and found[-1].stop > start:
            start = min(start, found.pop().start)
        found.append(range(start, call + 1))
    return tuple(batch for batch in found if len(batch) > 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """What the replays of a batch show.

    ``apart`` has the pairs that were compared, each with the first context in which its order matters, if any does.
    ``refuses``: one of the calls is refused in one of the contexts.
    """

    episode: Episode
    lattice: Lattice
    num_contexts: int
    complete: bool
    apart: dict[tuple[int, int], int | None]
    refuses: bool

    def conflicts(self) -> dict[tuple[int, int], tuple[Episode, Certificate]]:
        """The pairs whose order matters, with their certificates."""
        return {
            pair: (self.episode, self.lattice.certificate(number, pair))
            for pair, number in self.apart.items()
            if number is not None
        }


@dataclass(slots=True)
class BatchTests:
    """Tests batches of an episode whose calls were sent in ``order``; ``answers`` are those of all replays so far.

    No call is made later than ``until``, by the monotonic clock.
    """

    environment: CallEnvironment[Any]
    replays: EpisodeReplays
    order: PartialOrder
    until: float = inf
    answers: Answers = field(init=False)

    def __post_init__(self) -> None:
        self.answers = Answers(dict(self.replays.tree.answers))

    def test(self, calls: range, *, place: str, raced: bool, num_cut: int = 0) -> Batch:
        """Test a batch of which ``num_cut`` more calls are not here; raises what the environment raises."""
        batch = Batch(calls=tuple(calls), place=place, raced=raced, num_cut=num_cut)
        try:
            seen = self._seen(calls, self.answers)
            if not seen.complete and len(calls) < max(self.order.num_operations, MAX_COMPLETE + 1):
                self._replay(calls, self.replays.episode, self.answers)
                seen = self._seen(calls, self.answers)
            whole = self._going_on(calls) if seen.refuses else seen
        except UncertifiedError as error:
            return replace(batch, problem=f"{error.kind}: {error}")
        found = {**whole.conflicts(), **seen.conflicts()}
        unsafe = {
            call
            for pair in combinations(calls, 2)
            if not self.order.predecessors[pair[1]] >> pair[0] & 1
            and (pair in found or pair not in whole.apart)
            for call in pair
        }
        late = self.replays.stopped_after is not None or monotonic() > self.until
        if num_cut or (late and not whole.complete):
            unsafe = {*calls}  # Too little was tried to call any of them safe.
        return replace(
            batch,
            safe=tuple(call for call in calls if call not in unsafe),
            conflicts=tuple(
                Conflict(certificate=c, difference=difference_of(self.environment, episode, c))
                for _, (episode, c) in sorted(found.items())
            ),
            num_contexts=whole.num_contexts,
            complete=whole.complete,
        )

    def _seen(self, calls: range, answers: Answers, episode: Episode | None = None) -> _Seen:
        """Compare the calls of a batch in all replayed contexts; raises :class:`UncertifiedError` for flawed ones."""
        lattice = self._lattice(calls, answers)
        contexts, complete = self._contexts(lattice, calls)
        return _Seen(
            episode=self.replays.episode if episode is None else episode,
            lattice=lattice,
            num_contexts=len(contexts),
            complete=complete,
            apart=self._compared(lattice, calls, contexts),
            refuses=any(
                isinstance(lattice.transitions.get((number, call)), str)
                for number in contexts
                for call in self._moves(lattice, number, calls)
            ),
        )

    def _going_on(self, calls: range) -> _Seen:
        """Compare the calls of a batch as they run if each of them runs whatever was refused before."""
        operations = list(self.replays.episode.operations)
        for call in calls:
            payload: Any = operations[call].payload
            operations[call] = replace(operations[call], payload={**payload, "fails": True})
        episode = replace(self.replays.episode, operations=tuple(operations))
        prefix = tuple(range(calls.start))
        known = self.answers.by_sequence
        answers = Answers({prefix[:n]: known[prefix[:n]] for n in range(calls.start + 1)})
        self._replay(calls, episode, answers)
        return self._seen(calls, answers, episode)

    def _lattice(self, calls: range, answers: Answers) -> Lattice:
        """Build the lattice of a batch, after the calls before it; raises :class:`UncertifiedError` if it is flawed."""
        prefix, number = tuple(range(calls.start)), self.order.num_operations
        within = {
            sequence: reached
            for sequence, reached in answers.by_sequence.items()
            if sequence == prefix[: len(sequence)]
            or (sequence[: calls.start] == prefix and max(sequence) < calls.stop)
        }
        return sound_lattice(
            ReplayTree.of(number, within, answers.contradiction),
            allow_idle=True,
            reads=self.replays.reads,
        )

    def _replay(self, calls: range, episode: Episode, answers: Answers) -> None:
        """Replay a batch by itself, as a window of the trace, and note the answers."""
        initial = initial_of(episode)
        before: Any = initial.get("before", ())
        earlier = [operation.payload for operation in episode.operations[: calls.start]]
        window = replace(
            episode,
            initial={**initial, "before": [*before, *earlier]},
            operations=episode.operations[calls.start : calls.stop],
        )
        (found,) = replay_lattices(
            self.environment, [window], until=self.until, whole_orders=_WHOLE_ORDERS
        )
        for sequence, reached in found.tree.answers.items():
            if sequence:
                whole = (*range(calls.start), *(calls[n] for n in sequence))
                answers.note(whole, reached)
        if found.tree.contradiction is not None:
            raise UncertifiedError("nondeterministic", found.tree.contradiction)

    def _moves(self, lattice: Lattice, number: int, calls: range) -> list[int]:
        return [n for n in lattice.moves(number, self.order) if n in calls]

    def _contexts(self, lattice: Lattice, calls: range) -> tuple[list[int], bool]:
        """Return the contexts that orders of a batch lead to, by length, and whether all were replayed."""
        start = lattice.follow(tuple(range(calls.start)))
        reached, complete = {start}, start is not None
        for number in range(len(lattice.contexts)):  # A transition leads to a later context.
            for call in self._moves(lattice, number, calls) if number in reached else ():
                answer = lattice.transitions.get((number, call))
                complete = complete and answer is not None
                reached |= {answer} if isinstance(answer, int) else set()
        return sorted(number for number in reached if number is not None), complete

    def _compared(
        self, lattice: Lattice, calls: range, contexts: list[int]
    ) -> dict[tuple[int, int], int | None]:
        """Return the pairs that were compared, each with the first context in which its order matters, if any does."""
        found: dict[tuple[int, int], int | None] = {}
        for number in contexts:
            for pair in self.order.unordered(self._moves(lattice, number, calls)):
                shown = lattice.shown(number, pair)
                if shown is not None and shown[0] != "vacuous" and found.get(pair) is None:
                    found[pair] = None if shown[0] == "diamond" else number
        return dict(sorted(found.items()))
