"""Where the orders of n steps stand in a picture: the permutohedron up to four steps, layers of a graph beyond.

An order's vertex has the step's place in the order as its coordinate along that step's axis. Neighbours differ by one
swap of adjacent steps, and all edges are equally long. Four steps give the truncated octahedron, three a hexagon. Every
required pair is a plane through the middle of the edges that swap it; it cuts the solid into two congruent halves, and
*apart* says where each vertex goes when they are pulled from each other. Pure; nothing here draws.

Source: the permutohedron as in Ziegler, Lectures on Polytopes, example 0.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import atan2, cos, radians, sin, sqrt
from typing import TypeAlias

from vcrt.limits import MAX_DRAWN
from vcrt.orders import Order, all_orders, order_columns, swap_adjacent

#: x to the right, y down, z towards the eye.
Point: TypeAlias = tuple[float, float, float]
Pairs: TypeAlias = tuple[tuple[int, int], ...]

#: Steps whose permutohedron has at most three dimensions.
_SOLID = 4
#: How far the halves of one required pair go, each from the middle, in units in which an edge has length sqrt(2).
_APART = 0.5
#: Half the width and half the height of a layered graph, in the same units.
_WIDE, _HIGH = 2.6, 1.9
#: Degrees about the upright and about the level axis. Found by search: it keeps projected vertices furthest apart.
_TURN, _TILT = 12.0, 48.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """The vertices of one picture; the columns are those of :func:`vcrt.orders.all_orders`."""

    points: tuple[Point, ...]
    #: What is added to each point when the halves are pulled apart.
    apart: tuple[Point, ...]
    #: Whether it is a solid that can be turned.
    turns: bool


def swaps(num_operations: int) -> tuple[tuple[int, int, int], ...]:
    """Each adjacent swap once: the columns of its two orders, the smaller first, and the position of the swap."""
    column = order_columns(num_operations)
    return tuple(
        (here, there, position)
        for order, here in column.items()
        for position in range(num_operations - 1)
        if (there := column[swap_adjacent(order, position)]) > here
    )


def faces(num_operations: int) -> tuple[tuple[int, ...], ...]:
    """The faces of the solid as cycles of columns: six squares and eight hexagons for four steps, else none."""
    if num_operations != _SOLID:
        return ()
    column = order_columns(num_operations)
    found: dict[frozenset[int], tuple[int, ...]] = {}
    for order in all_orders(num_operations):
        for one, other in combinations(range(num_operations - 1), 2):
            cycle = _cycle(order, one, other)
            found.setdefault(frozenset(column[o] for o in cycle), tuple(column[o] for o in cycle))
    return tuple(sorted(found.values()))


def drawing(num_operations: int, required: Sequence[tuple[int, int]]) -> Drawing:
    """The picture for an episode whose ``required`` pairs each keep their order, the first before the second.

    The first pair lies level: its required order is on the left. Raises ``ValueError`` beyond ``MAX_DRAWN`` steps.
    """
    if not 2 <= num_operations <= MAX_DRAWN:
        raise ValueError(f"{num_operations} steps are not drawn")
    draw = _permutohedron if num_operations <= _SOLID else _layers
    return draw(num_operations, tuple(sorted(required)))


@lru_cache(maxsize=256)
def _permutohedron(num_operations: int, required: Pairs) -> Drawing:
    basis = _basis(num_operations, required[0] if required else (0, 1))
    places = [_place_of(order) for order in all_orders(num_operations)]
    middle = (num_operations - 1) / 2
    points = [_seen([place - middle for place in of], basis) for of in places]
    step = _APART / sqrt(max(1, len(required)))
    apart = []
    for of in places:
        away = [0.0] * num_operations
        for first, second in required:
            sign = 1 if of[first] > of[second] else -1
            away[first] += sign * step / sqrt(2)
            away[second] -= sign * step / sqrt(2)
        apart.append(_seen(away, basis))
    is_solid = num_operations == _SOLID
    return Drawing(
        points=tuple(map(_default_view, points)) if is_solid else tuple(points),
        apart=tuple(map(_default_view, apart)) if is_solid else tuple(apart),
        turns=is_solid,
    )


def _basis(num_operations: int, pair: tuple[int, int]) -> list[list[float]]:
    """Up to three orthonormal directions within the orders' hyperplane; the first is the pair's own."""
    first, second = pair
    others = [step for step in range(num_operations) if step not in pair]
    directions: list[dict[int, float]] = [{first: 1, second: -1}]
    if len(others) == 1:
        directions.append({first: 1, second: 1, others[0]: -2})
    if len(others) == 2:
        directions.append({others[0]: 1, others[1]: -1})
        directions.append({first: 1, second: 1, others[0]: -1, others[1]: -1})
    basis = [[of.get(step, 0.0) for step in range(num_operations)] for of in directions]
    return [[x / sqrt(sum(y * y for y in row)) for x in row] for row in basis]


def _seen(vector: Sequence[float], basis: Sequence[Sequence[float]]) -> Point:
    x, y, z = ([sum(map(_times, row, vector)) for row in basis] + [0.0, 0.0])[:3]
    return (x, y, z)


def _times(a: float, b: float) -> float:
    return a * b


def _default_view(point: Point) -> Point:
    """Turn, tilt, and then roll until the first axis is level again."""
    turn, tilt = radians(_TURN), radians(_TILT)
    x, y, z = point
    x, z = cos(turn) * x + sin(turn) * z, cos(turn) * z - sin(turn) * x
    y, z = cos(tilt) * y - sin(tilt) * z, sin(tilt) * y + cos(tilt) * z
    roll = -atan2(sin(tilt) * sin(turn), cos(turn))
    return (cos(roll) * x - sin(roll) * y, sin(roll) * x + cos(roll) * y, z)


@lru_cache(maxsize=256)
def _layers(num_operations: int, required: Pairs) -> Drawing:
    """One layer for each number of inversions, the reference order on top, orders that keep all pairs on the left."""
    layers: dict[int, list[Order]] = {}
    for order in all_orders(num_operations):
        layers.setdefault(_inversions(order), []).append(order)
    points: dict[Order, Point] = {}
    widest = max(map(len, layers.values()))
    for depth, layer in sorted(layers.items()):
        y = _HIGH * (2 * depth / (len(layers) - 1) - 1)
        layer.sort(key=lambda order: (_num_violated(order, required), _above(order, points), order))
        for number, order in enumerate(layer):
            x = _WIDE * (2 * number - len(layer) + 1) / (widest - 1)
            points[order] = (x, y, 0.0)
    ordered = all_orders(num_operations)
    return Drawing(
        points=tuple(points[order] for order in ordered),
        apart=tuple(
            ((_WIDE / 3) * (1 if _num_violated(order, required) else -1) * bool(required), 0.0, 0.0)
            for order in ordered
        ),
        turns=False,
    )


def _above(order: Order, points: dict[Order, Point]) -> float:
    """The mean x of the neighbours with one inversion less."""
    neighbours = (swap_adjacent(order, position) for position in range(len(order) - 1))
    known = [points[n][0] for n in neighbours if n in points]
    return sum(known) / len(known) if known else 0.0


def _num_violated(order: Order, required: Pairs) -> int:
    place = _place_of(order)
    return sum(place[first] > place[second] for first, second in required)


def _inversions(order: Order) -> int:
    return sum(one > other for one, other in combinations(order, 2))


def _place_of(order: Order) -> list[int]:
    """The place of each step in the order."""
    place = [0] * len(order)
    for index, operation in enumerate(order):
        place[operation] = index
    return place


def _cycle(start: Order, one: int, other: int) -> list[Order]:
    """The orders that swaps at two positions reach by turns, from ``start`` until it comes again."""
    cycle, order = [start], swap_adjacent(start, one)
    while order != start:
        cycle.append(order)
        order = swap_adjacent(order, one if len(cycle) % 2 else other)
    return cycle
