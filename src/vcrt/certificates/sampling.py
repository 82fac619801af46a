"""Choose the sequences to replay for an episode with too many contexts: some for every pair, one of each class.

The reference order comes first. Then each pair is compared in one context that legal orders reach according to the
answers so far, operation by operation: this finds the certified order if every pair has one relation in all contexts.
Then each pair is compared in more contexts, prefixes of random legal orders: this detects a pair that has several
relations. Last comes one representative of every class of orders (:mod:`vcrt.certificates.long_episodes`), as a whole.
Steps that no context has shown to commute count as dependent.

Pure: it reads the answers to its earlier requests, and gives the next requests. Not covered: what the answers
certify.
"""

from __future__ import annotations

from collections.abc import Generator as Requests
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from vcrt.certificates.certificates import Certificate, UncertifiedError, Verdict, path_after
from vcrt.certificates.lattice import Lattice
from vcrt.certificates.long_episodes import certified_order, expected_representatives
from vcrt.certificates.replay_tree import Reached, ReplayTree
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder, members
from vcrt.randomness import Generator

#: In how many contexts that begin legal orders each pair is compared, and in how many that begin accepted ones, if
#: there are as many. What finds the relations, and what other pairs are compared in, comes on top.
CONTEXTS_PER_PAIR = 8
#: After how many draws in a row that give no new context a pair is taken to have no more.
_MISSES = 8
_UNKNOWN = Reached(None, "not replayed")

_Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Known:
    """The operations known to stand before and after each operation, itself included; transitively closed."""

    before: list[int]
    after: list[int]

    @classmethod
    def nothing(cls, num_operations: int) -> _Known:
        return cls(*([1 << i for i in range(num_operations)] for _ in range(2)))

    def put_last(self, operation: int, direct: int) -> None:
        """Put ``operation``, which no operation follows yet, behind those of ``direct``."""
        for first in members(direct):
            self.before[operation] |= self.before[first]
        for first in members(self.before[operation]):
            self.after[first] |= 1 << operation

    def implied(self, pair: _Pair) -> bool:
        """Tell whether a third operation stands between the two."""
        first, second = pair
        return bool(self.after[first] & self.before[second] & ~(1 << first | 1 << second))

    def comparable(self, done: int, pair: _Pair) -> bool:
        """Tell whether the first of the pair may run after ``done``, and then the second."""
        first, second = pair
        return (
            not done & (1 << first | 1 << second)
            and not self.before[first] & ~(done | 1 << first)
            and not self.before[second] & ~(done | 1 << first | 1 << second)
        )


@dataclass(frozen=True, slots=True)
class Relations:
    """What one context of each pair shows."""

    legal: _Known
    accepted: _Known
    #: For each pair whose order matters and follows from no others, the context that shows it.
    shown: dict[_Pair, Order] = field(default_factory=dict)

    @property
    def order(self) -> PartialOrder:
        """The order of the operations that legal orders keep."""
        return PartialOrder(tuple(b & ~(1 << k) for k, b in enumerate(self.legal.before)))


def find_relations(
    answers: Mapping[Order, Reached], num_operations: int, *, whole: bool = True
) -> Requests[list[Order], None, Relations]:
    """Give batches of sequences that compare each pair in one context; return what they show.

    ``answers`` must hold the reference order, which was accepted, and a batch's answers before the next is taken.
    Unless ``whole``, the contexts are those that legal orders reach.
    """
    found = Relations(_Known.nothing(num_operations), _Known.nothing(num_operations))
    for last in range(1, num_operations):
        yield from _place(answers, last, found, whole=whole)
    return found


def sampled_sequences(
    answers: Mapping[Order, Reached], num_operations: int, draw: Generator, *, whole: bool = True
) -> Iterator[list[Order]]:
    """Give batches of sequences to replay; ``answers`` must hold a batch's answers before the next batch is taken.

    Unless ``whole``, that is what finds the relations in legal orders, and one context more of each pair there.
    """
    reference = tuple(range(num_operations))
    yield [reference]
    if answers.get(reference, _UNKNOWN).state_hash is None:
        return
    found = yield from find_relations(answers, num_operations, whole=whole)
    yield _more_contexts(found, draw, whole=whole)
    if whole:
        yield _one_of_each_class(answers, num_operations)


def _place(
    answers: Mapping[Order, Reached], last: int, found: Relations, *, whole: bool
) -> Iterator[list[Order]]:
    """Compare an operation with each one before it in the reference order, using only these operations."""
    legal, accepted = found.legal, found.accepted

    def context(known: _Known, first: int) -> Order:
        return tuple(k for k in range(last) if not known.after[first] >> k & 1)

    def runs_early(known: _Known, first: int) -> bool:
        """Whether the operation is accepted without the first one, which is then refused because it comes too late."""
        reached = answers.get((*context(known, first), last), _UNKNOWN)
        return reached.state_hash is not None

    yield [s for first in range(last) for s in _both((first, last), context(legal, first))]
    direct = needed = 0
    for first in reversed(range(last)):
        # One that stands before another which must be first is implied; its own relation comes later.
        if not legal.after[first] & direct:
            verdict = _verdict(answers, context(legal, first), (first, last))
            if verdict != "diamond":
                direct |= 1 << first
                found.shown[first, last] = context(legal, first)
            if verdict not in ("diamond", "conflicts", "observes") and not runs_early(legal, first):
                needed |= 1 << first
    legal.put_last(last, direct)
    if not whole:
        return
    # Where a conflict implies an order, illegal orders that are accepted show the pair's own relation.
    open_pairs = [
        first
        for first in range(last)
        if legal.implied((first, last)) and not accepted.after[first] & needed
    ]
    yield [s for first in open_pairs for s in _both((first, last), context(accepted, first))]
    for first in reversed(open_pairs):
        if not accepted.after[first] & needed:
            verdict = _verdict(answers, context(accepted, first), (first, last))
            needed |= (verdict == "precedes" and not runs_early(accepted, first)) << first
    accepted.put_last(last, needed)


def _more_contexts(relations: Relations, draw: Generator, *, whole: bool) -> list[Order]:
    """Choose random contexts for every pair; each serves all pairs that can be compared there."""
    num_operations, most = len(relations.legal.before), CONTEXTS_PER_PAIR if whole else 1
    pairs = list(combinations(range(num_operations), 2))
    wanted: dict[Order, None] = {}
    # What only accepted orders reach: after a reversed conflict, a pair may show something else.
    for known in (relations.legal, relations.accepted) if whole else (relations.legal,):
        usable = [pair for pair in pairs if not known.implied(pair)]
        found: dict[_Pair, set[int]] = {pair: set() for pair in usable}
        for pair in usable:
            misses = 0
            while len(found[pair]) < most and misses < _MISSES:
                context = _context(known, pair, num_operations, draw)
                done = sum(1 << operation for operation in context)
                if done in found[pair]:
                    misses += 1
                    continue
                misses = 0
                for other in usable:
                    lacks = len(found[other]) < most and done not in found[other]
                    if lacks and known.comparable(done, other):
                        found[other].add(done)
                        wanted.update(dict.fromkeys(_both(other, context)))
    return list(wanted)


def _context(known: _Known, pair: _Pair, num_operations: int, draw: Generator) -> Order:
    """Return a prefix of a random order that ``known`` allows, after which the pair can be compared."""
    first, second = pair
    both = 1 << first | 1 << second
    remaining = (1 << num_operations) - 1 & ~(known.after[first] | known.after[second])
    needed = (known.before[first] | known.before[second]) & ~both
    order: list[int] = []
    done = 0
    while remaining & ~done:
        ready = [i for i in members(remaining & ~done) if not known.before[i] & ~(done | 1 << i)]
        operation = ready[int(draw.integers(len(ready)))]
        order.append(operation)
        done |= 1 << operation
    cut = int(draw.integers(len(order) + 1))
    return tuple(k for place, k in enumerate(order) if place < cut or needed >> k & 1)


def _one_of_each_class(answers: Mapping[Order, Reached], num_operations: int) -> list[Order]:
    """Return the representatives under the relations that all answers give; none if they give no relations."""
    lattice = Lattice.of(ReplayTree.of(num_operations, answers))
    try:
        relations, order = certified_order(num_operations, lattice.certificates())
    except UncertifiedError:
        return []
    return [expected.sequence for expected in expected_representatives(relations, order)]


def _both(pair: _Pair, context: Order) -> tuple[Order, Order]:
    first, second = pair
    return (*context, first, second), (*context, second, first)


def _verdict(answers: Mapping[Order, Reached], context: Order, pair: _Pair) -> Verdict | None:
    """Return a pair's verdict after a context; None if the context itself was refused."""
    if answers.get(context, _UNKNOWN).state_hash is None:
        return None
    forward, reverse = (path_after(answers, context, each) for each in (pair, pair[::-1]))
    return Certificate(context=context, context_hash="", forward=forward, reverse=reverse).verdict
