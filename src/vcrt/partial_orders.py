"""Count in strict partial orders of up to 64 operations: legal moves, legal prefixes, linear extensions.

A set of operations is a bit mask. Nothing here enumerates orders one by one unless it says so; counts are exact and by
dynamic programming over down-sets (sets that hold every predecessor of their members). Pure NumPy. Not covered: what
the operations are, and how their relations were certified.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from vcrt.errors import MalformedInputError, TooLargeError
from vcrt.limits import MAX_COUNTED, MAX_OPERATIONS
from vcrt.orders import Order
from vcrt.printable import counted

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class PartialOrder:
    """Which operations must stand before which, transitively closed.

    ``predecessors[i]`` has bit ``j`` set if ``j`` must stand before ``i``. Made by :meth:`of`.
    """

    predecessors: tuple[int, ...]

    @classmethod
    def of(cls, num_operations: int, pairs: Iterable[tuple[int, int]]) -> PartialOrder:
        """The closure of ``pairs`` (before, after), which need not be closed.

        Raises :class:`MalformedInputError` naming a cycle or a foreign operation, and :class:`TooLargeError` for more
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
        # Warshall: whatever stands before an operation's predecessor stands before it.
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
        """``n``."""
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

    def moves(self, done: int) -> list[int]:
        """The operations that may come next when those of ``done`` have run, ascending."""
        return [
            operation
            for operation, before in enumerate(self.predecessors)
            if not done >> operation & 1 and not before & ~done
        ]

    def legal_moves(self, used: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """``[..., n] -> [..., n]``: the operations that may come next after each set of ``used`` ones."""
        import numpy as np

        waits = np.zeros((self.num_operations, self.num_operations), np.bool_)
        for first, second in self.pairs:
            waits[second, first] = True
        blocked = (waits & ~used[..., None, :]).any(-1)
        return np.asarray(~used & ~blocked)

    def allows(self, order: Sequence[int]) -> bool:
        """Whether ``order``, whole or a prefix of one, keeps every pair."""
        done = 0
        for operation in order:
            if self.predecessors[operation] & ~done:
                return False
            done |= 1 << operation
        return True


def members(operations: int) -> Iterator[int]:
    """The operations of a set, ascending.

    >>> list(members(0b101))
    [0, 2]
    """
    while operations:
        lowest = operations & -operations
        yield lowest.bit_length() - 1
        operations ^= lowest


def num_linear_extensions(order: PartialOrder) -> int:
    """How many orders keep every pair: exact, up to ``MAX_COUNTED`` operations; raises :class:`TooLargeError` beyond.

    The work is the number of down-sets times ``n``, at most ``n 2^n`` without any pair.

    >>> num_linear_extensions(PartialOrder.of(16, [(0, 1)]))
    10461394944000
    """
    return len(LinearExtensions(order))


class LinearExtensions:
    """All orders that keep every pair, by rank and without listing them; limits as :func:`num_linear_extensions`.

    >>> [LinearExtensions(PartialOrder.of(3, [(0, 1)]))[rank] for rank in range(3)]
    [(2, 0, 1), (0, 2, 1), (0, 1, 2)]
    """

    def __init__(self, order: PartialOrder) -> None:
        remedy = "estimate the share of legal orders from draws of a uniform policy instead"
        _require_few(order, "their linear extensions", remedy)
        import numpy as np

        start = np.zeros(1, np.uint64), np.ones(1, np.int64)
        self._everything = order.everything
        self._levels = [start, *_levels(order)]

    def __len__(self) -> int:
        return int(self._levels[-1][1][0])

    def __getitem__(self, rank: int) -> Order:
        """The order of a rank from 0 on; ranks go by the last operation, then the one before it, and so on."""
        if not 0 <= rank < len(self):
            raise IndexError(rank)
        import numpy as np

        left, backwards = self._everything, list[int]()
        for sets, counts in reversed(self._levels[:-1]):
            for operation in members(left):
                before = left & ~(1 << operation)
                place = int(np.searchsorted(sets, np.uint64(before)))
                ways = int(counts[place]) if place < len(sets) and sets[place] == before else 0
                if rank < ways:
                    break
                rank -= ways
            backwards.append(operation)
            left = before
        return tuple(reversed(backwards))


def linear_extensions_up_to(order: PartialOrder, limit: int) -> list[Order] | None:
    """All orders that keep every pair, in lexicographic order; None if there are more than ``limit``, of any number.

    >>> linear_extensions_up_to(PartialOrder.of(3, [(0, 2)]), 3)
    [(0, 1, 2), (0, 2, 1), (1, 0, 2)]
    >>> linear_extensions_up_to(PartialOrder.of(64, []), 1000)
    """
    found: list[Order] = []
    # Every legal prefix goes on to an order, so that none is begun in vain.
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


def num_contexts_of_pairs(order: PartialOrder) -> NDArray[np.int64]:
    """``[n, n]``: how many down-sets hold neither of two operations; limits as :func:`num_linear_extensions`.

    They are the contexts in which a pair can be compared. On the diagonal: those without that operation.

    >>> int(num_contexts_of_pairs(PartialOrder.of(3, [(0, 1)]))[0, 2])
    1
    """
    import numpy as np

    num_operations = order.num_operations
    _require_few(order, "the contexts of a pair")
    # The empty set first; float64 counts exactly up to 2^53.
    counts = np.ones((num_operations, num_operations))
    bits = np.uint64(1) << np.arange(num_operations, dtype=np.uint64)
    for sets, _ in _levels(order):
        missing = ((sets[:, None] & bits) == 0).astype(np.float64)
        counts += missing.T @ missing
    return counts.astype(np.int64)


def _require_few(order: PartialOrder, what: str, remedy: str | None = None) -> None:
    if order.num_operations > MAX_COUNTED:
        raise TooLargeError(
            f"too many operations to count {what}",
            found=counted(order.num_operations, "operation"),
            expected=f"at most {MAX_COUNTED}",
            remedy=remedy,
        )


def _levels(order: PartialOrder) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    """For each size from 1 to n, the down-sets of that size and how many legal prefixes end in each."""
    import numpy as np

    sets, counts = np.zeros(1, np.uint64), np.ones(1, np.int64)
    for _ in range(order.num_operations):
        grown, ways = [], []
        for operation, before in enumerate(order.predecessors):
            bit, needed = np.uint64(1 << operation), np.uint64(before)
            may = ((sets & bit) == 0) & ((sets & needed) == needed)
            grown.append(sets[may] | bit)
            ways.append(counts[may])
        sets, places = np.unique(np.concatenate(grown), return_inverse=True)
        counts = np.zeros(len(sets), np.int64)
        np.add.at(counts, places, np.concatenate(ways))
        yield sets, counts


@lru_cache(maxsize=4096)
def num_legal_prefixes(order: PartialOrder, depth: int, limit: int) -> int | None:
    """How many legal prefixes have at most ``depth`` operations, the empty one included; None if more than ``limit``.

    It stops at ``limit``, so it is quick for any number of operations.
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
    """All legal prefixes of at most ``depth`` operations, by length and then lexicographically.

    Ask :func:`num_legal_prefixes` first whether there is room for them.
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
    """Operations of one cycle of (before, after), the first repeated at its end; none if there is no cycle."""
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
