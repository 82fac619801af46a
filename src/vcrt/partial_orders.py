"""Count in strict partial orders of up to 64 operations: legal moves, legal prefixes, linear extensions.

A set of operations is a bit mask. Only functions that say so enumerate orders one by one; counts are exact, by dynamic
programming over down-sets (sets that hold every predecessor of their members).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from math import comb, prod
from operator import or_

from vcrt.errors import MalformedInputError, TooLargeError
from vcrt.limits import MAX_COUNTED, MAX_OPERATIONS
from vcrt.orders import Order
from vcrt.printable import counted


@dataclass(frozen=True)
class PartialOrder:
    """A transitively closed relation: which operations must stand before which.

    ``predecessors[i]`` has bit ``j`` set if ``j`` must stand before ``i``. :meth:`of` makes it.
    """

    predecessors: tuple[int, ...]

    @classmethod
    def of(cls, num_operations: int, pairs: Iterable[tuple[int, int]]) -> PartialOrder:
        """Return the transitive closure of ``pairs`` (before, after).

        Raise :class:`MalformedInputError` naming a cycle or a foreign operation, and :class:`TooLargeError` for more
        than ``MAX_OPERATIONS`` operations.

        >>> PartialOrder.of(3, [(0, 1), (1, 2)]).pairs
        ((0, 1), (0, 2), (1, 2))
        """
        if not 1 <= num_operations <= MAX_OPERATIONS:
            raise TooLargeError(
                "no partial order of that many operations",
                found=counted(num_operations, "operation"),
                expected=f"1 to {MAX_OPERATIONS}",
                remedy="split the episode into shorter windows",
            )
        pairs = list(pairs)
        before = [0] * num_operations
        for first, second in pairs:
            if not (0 <= first < num_operations and 0 <= second < num_operations):
                raise MalformedInputError(
                    "a relation names an operation that does not exist",
                    found=f"({first}, {second})",
                    expected=f"operations 0 to {num_operations - 1}",
                )
            before[second] |= 1 << first
        # Warshall: whatever precedes an operation's predecessor precedes the operation.
        for middle in range(num_operations):
            for operation in range(num_operations):
                if before[operation] >> middle & 1:
                    before[operation] |= before[middle]
        if any(before[operation] >> operation & 1 for operation in range(num_operations)):
            raise MalformedInputError(
                "the relations contain a cycle, so no order keeps them all",
                found=" before ".join(map(str, cycle_of(num_operations, pairs))),
                expected="relations without a cycle",
                remedy="leave one of these relations out",
            )
        return cls(tuple(before))

    @property
    def num_operations(self) -> int:
        """The number ``n`` of operations."""
        return len(self.predecessors)

    @property
    def everything(self) -> int:
        """The set of all operations."""
        return (1 << self.num_operations) - 1

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """All pairs (before, after), implied ones included, sorted."""
        numbers = range(self.num_operations)
        return tuple((a, b) for a in numbers for b in numbers if self.predecessors[b] >> a & 1)

    @cached_property
    def related(self) -> tuple[int, ...]:
        """For each operation, the set of operations that must stand before or after it."""
        behind = [0] * self.num_operations
        for before, after in self.pairs:
            behind[before] |= 1 << after
        return tuple(map(or_, self.predecessors, behind))

    @cached_property
    def followers(self) -> tuple[int, ...]:
        """For each operation, the set of operations that must stand after it."""
        pairs = zip(self.related, self.predecessors, strict=True)
        return tuple(every & ~before for every, before in pairs)

    def moves(self, done: int, reads: int = 0) -> list[int]:
        """Return the operations that may come next after those of ``done`` have run, ascending.

        Of the operations in ``reads``, which ``done`` leaves out, those may have run that must stand before another;
        returned are those that may not have run yet.

        >>> PartialOrder.of(4, [(0, 1), (2, 3)]).moves(0b1000, 0b101)
        [0, 1]
        """
        known = done | reads
        return [
            operation
            for operation, before in enumerate(self.predecessors)
            if not done >> operation & 1
            and not before & ~known
            and not (reads >> operation & 1 and self.followers[operation] & done)
        ]

    def unordered(self, operations: Iterable[int]) -> list[tuple[int, int]]:
        """Return the pairs of some operations of which either may stand first.

        >>> PartialOrder.of(3, [(0, 1)]).unordered([0, 1, 2])
        [(0, 2), (1, 2)]
        """
        return [(a, b) for a, b in combinations(operations, 2) if not self.related[a] >> b & 1]

    def allows(self, order: Sequence[int]) -> bool:
        """Return whether ``order``, complete or a prefix, keeps every pair."""
        done = 0
        for operation in order:
            if self.predecessors[operation] & ~done:
                return False
            done |= 1 << operation
        return True


def members(operations: int) -> Iterator[int]:
    """Yield the operations of a set, ascending.

    >>> list(members(0b101))
    [0, 2]
    """
    while operations:
        lowest = operations & -operations
        yield lowest.bit_length() - 1
        operations ^= lowest


def num_linear_extensions(order: PartialOrder) -> int:
    """Return the exact number of orders that keep every pair; raise :class:`TooLargeError` above ``MAX_COUNTED``.

    >>> num_linear_extensions(PartialOrder.of(16, [(0, 1)]))
    10461394944000
    """
    remedy = "estimate the share of legal orders from draws of a uniform policy instead"
    _require_few(order, "their linear extensions", remedy)
    related, known = order.related, dict[int, int]()

    def extensions(among: int) -> int:
        if among not in known:
            known[among] = counted_anew(among)
        return known[among]

    def counted_anew(among: int) -> int:
        # Operations of parts without a pair between them interleave in every way.
        parts = _components(related, among)
        if len(parts) > 1:
            left, ways = among.bit_count(), 1
            for part in parts:
                ways *= comb(left, part.bit_count()) * extensions(part)
                left -= part.bit_count()
            return ways
        # Parts whose operations are all related to those of every other part run one after another.
        beside = [among & ~(each | 1 << operation) for operation, each in enumerate(related)]
        parts = _components(beside, among)
        if len(parts) > 1:
            return prod(map(extensions, parts))
        ready = [o for o in members(among) if not order.predecessors[o] & among]
        return sum(extensions(among & ~(1 << first)) for first in ready)

    known |= {1 << operation: 1 for operation in range(order.num_operations)}
    return extensions(order.everything)


def _components(beside: Sequence[int], among: int) -> list[int]:
    """Return the connected parts of a graph among some operations; ``beside`` has the neighbours of each."""
    found = []
    while among:
        part, new = 0, among & -among
        while new:
            part |= new
            new = union(beside[operation] for operation in members(new)) & among & ~part
        found.append(part)
        among &= ~part
    return found


def union(sets: Iterable[int]) -> int:
    """Return the operations of any of the sets.

    >>> union([1, 4])
    5
    """
    found = 0
    for each in sets:
        found |= each
    return found


def linear_extensions_up_to(order: PartialOrder, limit: int) -> list[Order] | None:
    """Return all orders that keep every pair, in lexicographic order; None if there are more than ``limit``.

    >>> linear_extensions_up_to(PartialOrder.of(3, [(0, 2)]), 3)
    [(0, 1, 2), (0, 2, 1), (1, 0, 2)]
    >>> linear_extensions_up_to(PartialOrder.of(64, []), 1000)
    """
    found: list[Order] = []
    # Every legal prefix can be completed, so none is begun in vain.
    unfinished: list[tuple[Order, int]] = [((), 0)]
    while unfinished:
        prefix, done = unfinished.pop()
        if done == order.everything:
            if len(found) == limit:
                return None
            found.append(prefix)
        for operation in reversed(order.moves(done)):
            unfinished.append(((*prefix, operation), done | 1 << operation))
    return found


def num_contexts_of_pairs(order: PartialOrder) -> dict[tuple[int, int], int]:
    """Return, for each ascending pair, the number of down-sets without either: the contexts to compare it in.

    Limits are as in :func:`num_linear_extensions`.

    >>> num_contexts_of_pairs(PartialOrder.of(3, [(0, 1)]))
    {(0, 1): 2, (0, 2): 1, (1, 2): 2}
    """
    _require_few(order, "the contexts of a pair")
    related = order.related
    # A down-set without an operation has none that must stand after it.
    without = [
        order.everything & ~(1 << one | union(1 << b for a, b in order.pairs if a == one))
        for one in range(order.num_operations)
    ]
    known: dict[int, int] = {}

    def num_down_sets(among: int) -> int:
        if among not in known:
            parts = _components(related, among)
            if len(parts) > 1:
                known[among] = prod(map(num_down_sets, parts))
            elif among & (among - 1):
                # The down-sets without the operation that has most relations, and those with it.
                one = max(members(among), key=lambda each: (related[each] & among).bit_count())
                behind = among & without[one]
                known[among] = num_down_sets(behind) + num_down_sets(
                    among & ~(1 << one | order.predecessors[one])
                )
            else:
                known[among] = 2 if among else 1
        return known[among]

    pairs = combinations(range(order.num_operations), 2)
    return {(one, other): num_down_sets(without[one] & without[other]) for one, other in pairs}


def _require_few(order: PartialOrder, what: str, remedy: str | None = None) -> None:
    if order.num_operations > MAX_COUNTED:
        raise TooLargeError(
            f"too many operations to count {what}",
            found=counted(order.num_operations, "operation"),
            expected=f"at most {MAX_COUNTED}",
            remedy=remedy,
        )


@lru_cache(maxsize=4096)
def num_legal_prefixes(order: PartialOrder, depth: int, limit: int) -> int | None:
    """Count the legal prefixes of at most ``depth`` operations, the empty one too; None if above ``limit``.

    It stops at ``limit``, so it is fast for any number of operations.
    """
    level, total = {0: 1}, 1
    for _ in range(depth):
        following: defaultdict[int, int] = defaultdict(int)
        for done, ways in level.items():
            for operation in order.moves(done):
                following[done | 1 << operation] += ways
        total += sum(following.values())
        if total > limit:
            return None
        level = following
    return total


def legal_prefixes(order: PartialOrder, depth: int) -> list[Order]:
    """Return all legal prefixes of at most ``depth`` operations, by length and then lexicographically.

    Call :func:`num_legal_prefixes` first to learn their number.
    """
    found: list[Order] = [()]
    level: list[tuple[Order, int]] = [((), 0)]
    for _ in range(depth):
        level = [
            ((*prefix, operation), done | 1 << operation)
            for prefix, done in level
            for operation in order.moves(done)
        ]
        found += [prefix for prefix, _ in level]
    return found


def cycle_of(num_operations: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return the operations of a cycle of (before, after), its first repeated at the end; none without a cycle."""
    after: dict[int, list[int]] = {operation: [] for operation in range(num_operations)}
    for first, second in pairs:
        after[first].append(second)
    finished: set[int] = set()
    for start in range(num_operations):
        path, choices = [start], [iter(after[start])]
        while path:
            step = next(choices[-1], None)
            if step is None:
                finished.add(path.pop())
                choices.pop()
            elif step in path:
                return [*path[path.index(step) :], step]
            elif step not in finished:
                path.append(step)
                choices.append(iter(after[step]))
    return []
