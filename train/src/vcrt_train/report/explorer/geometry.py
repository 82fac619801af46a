"""Place the orders of n steps in a picture: the permutohedron up to four steps, layers of a graph for five.

The coordinate of an order's vertex along a step's axis is the step's place in the order. Neighbours differ by one swap
of adjacent steps, and all edges are equally long. Four steps give the truncated octahedron, three a hexagon. Every
required pair is a plane through the midpoints of the edges that swap it. It cuts the solid into two congruent halves,
and *apart* is the displacement of each vertex when the halves are separated. Pure; nothing here draws.

Source: the permutohedron as in Ziegler, Lectures on Polytopes, example 0.10.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import atan2, cos, radians, sin
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from vcrt.limits import MAX_DRAWN
from vcrt.orders import Order, all_orders, order_columns, swap_adjacent

#: x to the right, y down, z towards the viewer.
Point: TypeAlias = tuple[float, float, float]
Pairs: TypeAlias = tuple[tuple[int, int], ...]
FloatArray: TypeAlias = npt.NDArray[np.float64]

#: Steps whose permutohedron has three dimensions.
_SOLID = 4
#: The displacement of each half of one required pair, in units in which an edge has length sqrt(2).
_APART = 0.5
#: Half the width and half the height of a layered graph, in the same units.
_WIDE, _HIGH = 2.6, 1.9
#: Degrees about the vertical and the horizontal axis. A search found them: projected vertices are furthest apart.
_TURN, _TILT = 12.0, 48.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """The vertices of one picture; the columns are those of :func:`vcrt.orders.all_orders`."""

    points: tuple[Point, ...]
    #: The displacement of each point when the halves are separated.
    apart: tuple[Point, ...]
    #: Whether the picture is a solid that can be turned.
    turns: bool


def drawn_steps(num_operations: int | None) -> int | None:
    """Return the number of steps of drawn episodes; None if there are too many to draw, or different numbers."""
    return None if num_operations is None or num_operations > MAX_DRAWN else num_operations


def swaps(num_operations: int) -> tuple[tuple[int, int, int], ...]:
    """List each adjacent swap once: the columns of its two orders, the smaller first, and the swap's position."""
    column = order_columns(num_operations)
    return tuple(
        (here, there, position)
        for order, here in column.items()
        for position in range(num_operations - 1)
        if (there := column[swap_adjacent(order, position)]) > here
    )


def faces(num_operations: int) -> tuple[tuple[int, ...], ...]:
    """Return the faces of the solid as cycles of columns: six squares and eight hexagons for four steps, else none."""
    if num_operations != _SOLID:
        return ()
    column = order_columns(num_operations)
    found: dict[frozenset[int], tuple[int, ...]] = {}
    for order in all_orders(num_operations):
        for one, other in combinations(range(num_operations - 1), 2):
            cycle = tuple(column[each] for each in _cycle(order, one, other))
            found.setdefault(frozenset(cycle), cycle)
    return tuple(sorted(found.values()))


def _cycle(start: Order, one: int, other: int) -> list[Order]:
    """Return the orders from ``start`` under alternate swaps at two positions, until ``start`` returns."""
    cycle, order = [start], swap_adjacent(start, one)
    while order != start:
        cycle.append(order)
        order = swap_adjacent(order, one if len(cycle) % 2 else other)
    return cycle


@lru_cache(maxsize=256)
def drawing(num_operations: int, required: Pairs) -> Drawing:
    """Make the picture for an episode in which the first step of each ``required`` pair is before the second.

    The first pair is horizontal, its required order on the left. Raises ``ValueError`` above ``MAX_DRAWN`` steps.
    """
    if not 2 <= num_operations <= MAX_DRAWN:
        raise ValueError(f"{num_operations} steps are not drawn")
    # [orders, steps]: the place of each step in the order.
    places = np.argsort(all_orders(num_operations), axis=1)
    firsts, seconds = np.array(required, dtype=int).reshape(-1, 2).T
    # [orders, pairs]: 1 if the order violates the pair, else -1.
    sides = np.where(places[:, firsts] > places[:, seconds], 1, -1)
    if num_operations > _SOLID:
        return _layers(num_operations, sides)
    away = np.zeros(places.shape)
    for pair, side in zip(required, sides.T, strict=True):
        away[:, pair] += side[:, np.newaxis] * (1, -1)
    away *= _APART / np.sqrt(2 * max(1, len(required)))
    seen = _basis(num_operations, required[0] if required else (0, 1))
    if num_operations == _SOLID:
        seen = _default_view() @ seen
    middle = (num_operations - 1) / 2
    return Drawing(
        points=_points((places - middle) @ seen.T),
        apart=_points(away @ seen.T),
        turns=num_operations == _SOLID,
    )


def _points(vectors: FloatArray) -> tuple[Point, ...]:
    return tuple((float(x), float(y), float(z)) for x, y, z in vectors)


def _basis(num_operations: int, pair: tuple[int, int]) -> FloatArray:
    """Return ``[3, steps]``: orthonormal directions in the orders' hyperplane, the pair's first; other rows are 0."""
    others = [step for step in range(num_operations) if step not in pair]
    basis = np.zeros((3, num_operations))
    basis[0, pair] = 1, -1
    if len(others) == 1:
        basis[1] = 1
        basis[1, others] = -2
    if len(others) == 2:
        basis[1, others] = 1, -1
        basis[2] = 1
        basis[2, others] = -1
    basis /= np.maximum(np.linalg.norm(basis, axis=1, keepdims=True), 1)
    return basis


def _default_view() -> FloatArray:
    """Return the rotation that turns, tilts, and then rolls until the first axis is horizontal again."""
    turn, tilt = radians(_TURN), radians(_TILT)
    roll = -atan2(sin(tilt) * sin(turn), cos(turn))
    turned = [[cos(turn), 0, sin(turn)], [0, 1, 0], [-sin(turn), 0, cos(turn)]]
    tilted = [[1, 0, 0], [0, cos(tilt), -sin(tilt)], [0, sin(tilt), cos(tilt)]]
    rolled = [[cos(roll), -sin(roll), 0], [sin(roll), cos(roll), 0], [0, 0, 1]]
    view: FloatArray = np.array(rolled) @ tilted @ turned
    return view


def _layers(num_operations: int, sides: npt.NDArray[np.int_]) -> Drawing:
    """Make a layer for each number of inversions: the reference order on top, orders that keep every pair at left."""
    violated = (sides > 0).sum(axis=1)
    depths = [
        sum(one > other for one, other in combinations(order, 2))
        for order in all_orders(num_operations)
    ]
    above: dict[int, list[int]] = defaultdict(list)
    for here, there, _ in swaps(num_operations):
        above[there].append(here)
    x = [0.0] * len(depths)
    widest = max(Counter(depths).values())

    def place(column: int) -> tuple[int, float, int]:
        """Return an order's sort key in its layer, so that it is below its neighbours with one inversion less."""
        known = [x[neighbour] for neighbour in above[column]]
        return int(violated[column]), sum(known) / max(1, len(known)), column

    for depth in range(max(depths) + 1):
        layer = sorted((k for k, of in enumerate(depths) if of == depth), key=place)
        for number, column in enumerate(layer):
            x[column] = _WIDE * (2 * number - len(layer) + 1) / (widest - 1)
    pulled = _WIDE / 3 * bool(sides.size)
    return Drawing(
        points=tuple(
            (x[k], _HIGH * (2 * of / max(depths) - 1), 0.0) for k, of in enumerate(depths)
        ),
        apart=tuple((pulled if number else -pulled, 0.0, 0.0) for number in violated),
        turns=False,
    )
