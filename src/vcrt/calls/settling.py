"""Replay the contexts that a schedule's order allows, and no others: that settles which steps may run at once.

The order is looked for first: one context of each pair shows most of it (:mod:`vcrt.certificates.sampling`). Then, in
each context that it allows, all steps that may come next are run, and each two of them in both orders. Two that do not
commute there keep the reference order from then on; a step that is refused waits for all that stands before it. So
contexts that only other orders reach are never replayed: in a log whose calls mostly wait for each other these are
nearly all. :func:`vcrt.calls.schedules.checked_schedule` tests with whole orders from fresh states that
equal states have equal futures.

Steps that only read lead to no new state: contexts that differ in nothing but these are one, and a step that reads runs
in each of them. That a state is the same after it as before is taken from its canonical form, and tested: each other
step is made right after it once, where both may come next.

If the order allows too many contexts, they are sampled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic

from vcrt.certificates.lattice import still_reading
from vcrt.certificates.replay_tree import EpisodeReplays, Reached
from vcrt.certificates.sampling import find_relations
from vcrt.environments.contract import Environment, Episode
from vcrt.orders import Order, transitive_reduction
from vcrt.partial_orders import PartialOrder, members
from vcrt.replay.lattice_replay import AT_A_TIME, Asking, Work, run_asked, sampled_contexts

#: Up to so many sequences, each context goes on from two of those that lead there; beyond, from one.
TWICE = 2_000
#: Sequences beyond which contexts are sampled.
MOST = 6_000


def settle(
    environment: Environment, episode: Episode, *, within: float | None = None
) -> EpisodeReplays:
    """Replay what settles the schedule of an episode, or what can be ``within`` so many seconds.

    The reference order is replayed in any case. Raises whatever the environment raises.
    """
    walk = _Walk(Work(episode, complete=True))
    run_asked(environment, [(walk.work, walk.asking(within))])
    tree, reads = walk.work.tree(), _reads(walk.work.answers)
    if walk.work.stopped:
        return EpisodeReplays(
            episode, tree, reads=walk.reads, settled=walk.order, stopped_after=within
        )
    return EpisodeReplays(episode, tree, reads=reads, settled=None if walk.too_many else walk.order)


_Pair = tuple[int, int]
#: Sequences that lead to one set of steps, by the hash of their state; the least of each comes first.
_States = dict[str, tuple[Order, ...]]


def _reads(answers: Mapping[Order, Reached]) -> int:
    """Return the steps that never changed the state."""
    return still_reading(answers, sum(1 << step for step in max(answers, key=len)))


@dataclass(slots=True)
class _Walk:
    """The contexts of one episode, level by level, and the pairs that keep the reference order so far.

    A context is reached by the steps that write; ``_whole`` adds the steps that read which the order puts before them.
    """

    work: Work
    reads: int = 0
    pairs: set[_Pair] = field(default_factory=set)
    order: PartialOrder = field(init=False)
    #: The sequence after which a pair was seen not to commute.
    shown_after: dict[_Pair, Order] = field(default_factory=dict)
    #: The pairs that were made one right after the other.
    direct: set[_Pair] = field(default_factory=set)
    #: How many sequences were replayed before those of the first level.
    num_before: int = 0
    too_many: bool = False
    failed: bool = False
    _wholes: dict[Order, tuple[Order, int]] = field(init=False)

    def __post_init__(self) -> None:
        self._put_in_order()

    def asking(self, within: float | None = None) -> Asking:
        """Request the reference order and, ``within`` so many seconds, what settles which pairs must keep it.

        First come contexts of each pair; then the sequences of each level; then those that show which pairs need not
        keep their order. If there are too many, what is sampled comes last.
        """
        reference = tuple(range(self.work.episode.num_operations))
        yield [reference]
        if within is not None:
            self.work.until = monotonic() + within
        self.reads = _reads(self.work.answers)
        if self._is_accepted(reference):
            found = yield from find_relations(self.work.answers, len(reference), whole=False)
            self.pairs, self.reads = {*found.order.pairs}, _reads(self.work.answers)
            self.num_before = len(self.work.answers)
            for pair, context in found.shown.items():
                self.shown_after[pair] = tuple(k for k in context if not self.reads >> k & 1)
        while not self.too_many:
            self.reads = _reads(self.work.answers)
            self._put_in_order()
            self.too_many = self._num_sequences() > MOST
            if not self.too_many:
                yield from self._levels()
            if not (self.too_many or self._is_stale()):
                yield from self._without_needless()
            if not (self.too_many or self._is_stale()):
                yield self._shortest()
                return
        self.work.complete = False
        yield from sampled_contexts(self.work, whole=False)
        yield self._shortest()

    def _shortest(self) -> list[Order]:
        """Return both orders of each pair that follows from no others, as early as they may come: easiest to read."""
        found = []
        for pair in sorted(transitive_reduction(self.order.pairs)):
            before = self.order.predecessors[pair[0]] | self.order.predecessors[pair[1]]
            context = tuple(k for k in members(before) if k not in pair)
            found += [(*context, *pair), (*context, *pair[::-1])]
        return found

    def _is_accepted(self, sequence: Order) -> bool:
        return self.work.answers.get(sequence, _UNKNOWN).state_hash is not None

    def _num_sequences(self) -> int:
        """Return how many contexts and steps there the order allows, or some number beyond what may be replayed."""
        found, number, unseen = {0}, 0, [0]
        while unseen and number <= MOST:
            done = unseen.pop()
            moves = self._moves(done)
            number += 1 + len(moves)
            later = {done | 1 << step for step in moves if not self.reads >> step & 1} - found
            found |= later
            unseen += later
        return number

    def _is_stale(self) -> bool:
        """Tell whether a step that was taken to read only has changed a state."""
        return still_reading(self.work.answers, self.reads) != self.reads

    def _without_needless(self) -> Asking:
        tried: set[_Pair] = set()
        while not self.too_many and (
            untried := sorted(transitive_reduction(self.order.pairs) - tried)
        ):
            pair = untried[0]
            tried.add(pair)
            pairs = set(self.order.pairs) - {pair}
            fewer = _Walk(
                self.work, self.reads, pairs, direct=self.direct, num_before=self.num_before
            )
            # What was found in a context that another pair rules out may be needless.
            if not fewer._still_shows(pair, self.shown_after.get(pair)):
                yield from fewer._levels(growing=False)
                if not (fewer.failed or fewer.too_many):
                    self.pairs, tried = fewer.pairs, set()
                    self._put_in_order()

    def _levels(self, *, growing: bool = True) -> Asking:
        """Request the sequences of each level; unless the pairs are ``growing``, until one more would be needed."""
        start: dict[int, _States] = {0: {str(self.work.answers[()].state_hash): ((),)}}
        before, level = dict[int, _States](), start
        while level:
            while True:
                num_pairs = len(self.pairs)
                yield from self._ask(before)
                level = self._next(before) if before else start
                yield from self._ask(level)
                if self.too_many:
                    return
                self._see_refusals(level)
                self._see_conflicts(before, level)
                if len(self.pairs) == num_pairs:
                    break
                if not growing:
                    self.failed = True
                    return
            before, level = level, self._next(level)

    def _ask(self, level: dict[int, _States]) -> Asking:
        """Request what the order allows next in the contexts of a level, and each two moves once in a row."""
        answers, wanted = self.work.answers, dict[Order, None]()
        for done, sequence in self._legal(level):
            moves = self._moves(done)
            wanted |= dict.fromkeys(self._whole((*sequence, step))[0] for step in moves)
            for pair in (o for p in self.order.unordered(moves) for o in (p, p[::-1])):
                if self.reads >> pair[0] & 1 and pair not in self.direct:
                    self.direct.add(pair)
                    wanted[self._whole((*sequence, *pair))[0]] = None
        new = [sequence for sequence in wanted if sequence not in answers]
        self.too_many = self.too_many or len(answers) + len(new) > self.num_before + MOST
        for begin in range(0, 0 if self.too_many else len(new), AT_A_TIME):
            yield new[begin : begin + AT_A_TIME]

    def _put_in_order(self) -> None:
        self._wholes = {(): ((), 0)}
        self.order = PartialOrder.of(self.work.episode.num_operations, self.pairs)

    def _moves(self, done: int) -> list[int]:
        return self.order.moves(done, self.reads)

    def _see_refusals(self, level: dict[int, _States]) -> None:
        for done, sequence in self._legal(level):
            for step in self._moves(done):
                if self._answer(sequence, step).state_hash is None:
                    self.pairs |= {
                        (i, step) for i in range(step) if not (done | self.reads) >> i & 1
                    }
        self._put_in_order()

    def _see_conflicts(self, before: dict[int, _States], level: dict[int, _States]) -> None:
        found: dict[_Pair, Order] = {}
        for done, sequence in self._legal(before):
            for pair in self.order.unordered(self._moves(done)):
                if pair not in found and self._apart(done, sequence, pair, level):
                    found[pair] = sequence
        self.pairs |= found.keys()
        self.shown_after |= found
        self._put_in_order()

    def _apart(self, done: int, sequence: Order, pair: _Pair, level: dict[int, _States]) -> bool:
        """Tell whether two steps do not commute after a sequence."""
        alone = [self._answer(sequence, step) for step in pair]
        ends = []
        for step, other, reached in zip(pair, pair[::-1], alone, strict=True):
            between: Sequence[Order] | None = (sequence,)
            if not self.reads >> step & 1:
                between = level.get(done | 1 << step, {}).get(str(reached.state_hash))
            if between is None:
                return True
            ends.append(self._answer(between[0], other))
        after_first, after_second = ends
        # Where one of the two reads only, the state after both is that after the other.
        is_reading = self.reads & (1 << pair[0] | 1 << pair[1])
        return (
            after_first.state_hash is None
            or after_second.state_hash is None
            or not (is_reading or after_first.state_hash == after_second.state_hash)
            or after_first.output != alone[1].output
            or after_second.output != alone[0].output
        )

    def _next(self, level: dict[int, _States]) -> dict[int, _States]:
        """Return the contexts one step on that the order allows, with the sequences that go on."""
        found: dict[int, _States] = {}
        kept = 2 if len(self.work.answers) <= self.num_before + TWICE else 1
        for done, sequence in self._legal(level):
            for step in self._moves(done):
                reached = self._answer(sequence, step)
                if reached.state_hash is None or self.reads >> step & 1:
                    continue
                states = found.setdefault(done | 1 << step, {})
                every = {*states.get(reached.state_hash, ()), (*sequence, step)}
                states[reached.state_hash] = tuple(dict.fromkeys((min(every), max(every))))[:kept]
        return found

    def _still_shows(self, pair: _Pair, sequence: Order | None) -> bool:
        """Tell whether the order allows a sequence after which two steps were seen not to commute, and both of them."""
        if sequence is None or not self._allows(sequence):
            return False
        return pair in self.order.unordered(self._moves(sum(1 << step for step in sequence)))

    def _legal(self, level: dict[int, _States]) -> Iterator[tuple[int, Order]]:
        """Give the sequences of a level that keep the order, as it is when each is given, with their sets of steps."""
        for done, states in level.items():
            for sequence in (each for sequences in states.values() for each in sequences):
                if self._allows(sequence):
                    yield done, sequence

    def _allows(self, sequence: Order) -> bool:
        done = self.reads
        for step in sequence:
            if self.order.predecessors[step] & ~done:
                return False
            done |= 1 << step
        return True

    def _whole(self, sequence: Order) -> tuple[Order, int]:
        """Return a sequence with the steps that read which the order puts before its own, and the set of all."""
        found = self._wholes.get(sequence)
        if found is None:
            *_, step = sequence
            whole, done = self._whole(sequence[:-1])
            reads = self.order.predecessors[step] & self.reads & ~done
            found = (*whole, *members(reads), step), done | reads | 1 << step
            self._wholes[sequence] = found
        return found

    def _answer(self, sequence: Order, step: int) -> Reached:
        return self.work.answers.get(self._whole((*sequence, step))[0], _UNKNOWN)


_UNKNOWN = Reached(None, "not replayed")
