"""Partial-order reduction: one representative of every class of orders that differ by swaps of independent steps alone.

Two orders are equivalent if adjacent independent operations can be swapped to turn one into the other (Mazurkiewicz
traces). Sleep sets (Godefroid, *Partial-Order Methods for the Verification of Concurrent Systems*, LNCS 1032, 1996)
keep equivalent orders from being enumerated twice: once an operation was explored from a prefix, it sleeps in the
branches beside it until a dependent one runs. By themselves they still enter branches in which an operation sleeps
for ever; source sets (Abdulla, Aronis, Jonsson and Sagonas, *Optimal dynamic partial order reduction*, POPL 2014)
tell which operations must be explored at all. Here every operation runs exactly once, so what remains is known: a
branch is worth entering if and only if each sleeping operation is connected, by dependencies among the remaining
ones, to one that is awake. Every branch that is entered then ends in a representative, the lexicographically least
order of its class.

Where an order is known to be refused at some step, whatever would follow makes no difference: its representative ends
there. Pure; an operation set is a bit mask. Not covered: how dependencies are found, and replays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from vcrt.errors import TooLargeError
from vcrt.limits import MAX_REPRESENTATIVES
from vcrt.orders import Order
from vcrt.partial_orders import members
from vcrt.printable import counted


def dependence(num_operations: int, pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """For each operation, the set of those that it depends on, from unordered pairs.

    >>> dependence(3, [(0, 2)])
    (4, 0, 1)
    """
    masks = [0] * num_operations
    for one, other in pairs:
        masks[one] |= 1 << other
        masks[other] |= 1 << one
    return tuple(masks)


def representatives(
    dependent: Sequence[int],
    refuses: Callable[[int, int], bool] = lambda done, operation: False,
    *,
    limit: int = MAX_REPRESENTATIVES,
) -> list[Order]:
    """The least order of each class, lexicographically; one that is refused ends with the operation that is.

    ``dependent[i]`` is the set of operations that ``i`` depends on (see :func:`dependence`). ``refuses(done, i)`` says
    whether ``i`` is refused after the set ``done``; swapping independent operations must not change that. Raises
    :class:`TooLargeError` for more than ``limit``.

    >>> representatives(dependence(3, [(0, 2)]))
    [(0, 1, 2), (1, 2, 0)]
    >>> representatives(dependence(3, [(0, 2)]), lambda done, step: step == 2 and not done & 1)
    [(0, 1, 2), (1, 2)]
    """
    found: list[Order] = []
    for order in _explore(dependent, refuses):
        if len(found) == limit:
            raise TooLargeError(
                "too many classes of orders to replay one of each",
                found=f"more than {limit:,} among {counted(len(dependent), 'operation')}",
                expected=f"at most {limit:,}, as steps that commute give",
                remedy="lift shorter windows, or episodes in which more steps commute",
            )
        found.append(order)
    return found


def _explore(dependent: Sequence[int], refuses: Callable[[int, int], bool]) -> Iterator[Order]:
    everything = (1 << len(dependent)) - 1
    # Without recursion: a prefix, what has run, and what sleeps; the next to be explored is on top.
    stack: list[tuple[Order, int, int]] = [((), 0, 0)]
    while stack:
        prefix, done, asleep = stack.pop()
        if done == everything:
            yield prefix
            continue
        branches: list[tuple[Order, int, int]] = []
        for operation in members(everything & ~done & ~asleep):
            after = done | 1 << operation
            still_asleep = asleep & ~dependent[operation]
            if _all_wake(dependent, everything & ~after, still_asleep):
                branches.append(((*prefix, operation), after, still_asleep))
                asleep |= 1 << operation
        for branch in reversed(branches):
            order, after, still_asleep = branch
            if refuses(after & ~(1 << order[-1]), order[-1]):
                stack.append((order, everything, 0))
            else:
                stack.append(branch)


def _all_wake(dependent: Sequence[int], remaining: int, asleep: int) -> bool:
    """Whether each sleeping operation is connected to an awake one by dependencies among the remaining ones."""
    reached = remaining & ~asleep
    frontier = reached
    while frontier and asleep & ~reached:
        lowest = frontier & -frontier
        frontier ^= lowest
        more = dependent[lowest.bit_length() - 1] & remaining & ~reached
        reached |= more
        frontier |= more
    return not asleep & ~reached
