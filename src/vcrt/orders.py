"""Enumerate orders of n operations: permutations, adjacent swaps, linear extensions, and orbits.

An order is a tuple of operation indices. Everything here is exact and enumerates; nothing here knows what the
operations are. Not covered: estimates for operation counts at which n! orders no longer fit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from itertools import permutations
from types import MappingProxyType
from typing import TypeAlias, TypeVar

Order: TypeAlias = tuple[int, ...]
Item = TypeVar("Item")
#: ``is_certified(prefix, a, b)``: may the adjacent operations a and b be swapped after ``prefix``?
SwapCertified: TypeAlias = Callable[[Order, int, int], bool]


def all_orders(num_operations: int) -> tuple[Order, ...]:
    """Return all ``n!`` orders in lexicographic order, the column order of every ``[..., n!]`` array in vcrt.

    >>> all_orders(3)[:3]
    ((0, 1, 2), (0, 2, 1), (1, 0, 2))
    """
    return tuple(permutations(range(num_operations)))


@cache
def order_columns(num_operations: int) -> Mapping[Order, int]:
    """Return the column of each order in :func:`all_orders`."""
    columns = {order: column for column, order in enumerate(all_orders(num_operations))}
    return MappingProxyType(columns)


def swap_adjacent(order: Order, position: int) -> Order:
    """The order with the operations at ``position`` and ``position + 1`` exchanged."""
    if not 0 <= position < len(order) - 1:
        raise ValueError(f"position {position} has no right neighbour in an order of {len(order)}")
    return (
        *order[:position],
        order[position + 1],
        order[position],
        *order[position + 2 :],
    )


def linear_extensions(num_operations: int, precedence: Iterable[tuple[int, int]]) -> list[Order]:
    """Return all orders in which ``a`` stands before ``b`` for each pair ``(a, b)``, in lexicographic order.

    The pairs need not be transitively closed. Raises ``ValueError`` if they contain a cycle or a foreign index.

    >>> linear_extensions(3, [(0, 2)])
    [(0, 1, 2), (0, 2, 1), (1, 0, 2)]
    """
    predecessors: list[set[int]] = [set() for _ in range(num_operations)]
    for before, after in precedence:
        if not (0 <= before < num_operations and 0 <= after < num_operations):
            raise ValueError(f"pair ({before}, {after}) is outside 0..{num_operations - 1}")
        predecessors[after].add(before)
    extensions: list[Order] = []

    def extend(prefix: Order, placed: frozenset[int]) -> None:
        if len(prefix) == num_operations:
            extensions.append(prefix)
        for operation in range(num_operations):
            if operation not in placed and predecessors[operation] <= placed:
                extend((*prefix, operation), placed | {operation})

    extend((), frozenset())
    if not extensions:
        raise ValueError("the precedence pairs contain a cycle, so no order satisfies them")
    return extensions


def first_before_second(items: Sequence[Item], places: Sequence[int]) -> list[Item]:
    """Sort the items by these places; if the second item would stand before the first, exchange these two.

    >>> first_before_second("abc", [1, 2, 0])
    ['a', 'c', 'b']
    """
    order = list(places)
    first, second = order.index(0), order.index(1)
    if second < first:
        order[first], order[second] = 1, 0
    return [items[place] for place in order]


def transitive_closure(pairs: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Return all pairs that follow from the given pairs; a cycle gives pairs of an operation with itself."""
    return frozenset((a, b) for a, after in _followers(pairs).items() for b in after)


def _followers(pairs: Iterable[tuple[int, int]]) -> dict[int, set[int]]:
    """Return, for each operation of a pair, all that follow it (Warshall's algorithm)."""
    after: dict[int, set[int]] = {}
    for a, b in pairs:
        after.setdefault(a, set()).add(b)
        after.setdefault(b, set())
    for middle, behind in after.items():
        for found in after.values():
            if middle in found:
                found |= behind
    return after


def transitive_reduction(pairs: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Return the pairs that do not follow from the others: the unique smallest set with the same closure.

    Raises ``ValueError`` if the pairs contain a cycle.
    """
    given = frozenset(pairs)
    after = _followers(given)
    if any(a in behind for a, behind in after.items()):
        raise ValueError("the precedence pairs contain a cycle, so no reduction of them is unique")
    return frozenset((a, d) for a, d in given if not any(d in after[b] for b in after[a]))


def orbit_of(start: Order, orders: Collection[Order], is_certified: SwapCertified) -> list[Order]:
    """The orbit of ``start``: its connected component among ``orders`` under certified adjacent swaps, sorted.

    Source: the equivalence relation of the paper's Section "Diamonds and Anti-Diamonds". If ``start`` is not among
    ``orders`` (a failure), the orbit is ``start`` alone.
    """
    members = set(orders)
    if start not in members:
        return [start]
    reached = {start}
    frontier = [start]
    while frontier:
        order = frontier.pop()
        for position in range(len(order) - 1):
            neighbour = swap_adjacent(order, position)
            if neighbour in reached or neighbour not in members:
                continue
            if is_certified(order[:position], order[position], order[position + 1]):
                reached.add(neighbour)
                frontier.append(neighbour)
    return sorted(reached)
