"""The permutohedron: its vertices, edges and faces, its two halves, and a view in which nothing hides another."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from math import comb, dist, factorial, sqrt

import pytest

from vcrt.limits import MAX_DRAWN
from vcrt.orders import all_orders, linear_extensions, order_columns, swap_adjacent
from vcrt_train.report.explorer.geometry import drawing, faces, swaps

PAIRS = list(combinations(range(4), 2))
#: Edges have length sqrt(2).
CLOSEST = 0.6


def moved(drawn, pull=1.0):
    return [
        tuple(x + pull * d for x, d in zip(point, away, strict=True))
        for point, away in zip(drawn.points, drawn.apart, strict=True)
    ]


def closest(points):
    return min(dist(a[:2], b[:2]) for a, b in combinations(points, 2))


def test_the_truncated_octahedron_has_24_vertices_and_36_edges_three_at_each():
    edges = swaps(4)
    assert len(drawing(4, ((0, 1),)).points) == 24
    assert len(edges) == len({edge[:2] for edge in edges}) == 36
    degree = Counter(column for edge in edges for column in edge[:2])
    assert set(degree.values()) == {3}
    assert len(degree) == 24


def test_it_has_six_squares_and_eight_hexagons_on_every_edge_two():
    found = faces(4)
    assert Counter(map(len, found)) == {4: 6, 6: 8}
    sides = Counter(
        frozenset(side) for face in found for side in zip(face, (*face[1:], face[0]), strict=True)
    )
    assert set(sides) == {frozenset(edge[:2]) for edge in swaps(4)}
    assert set(sides.values()) == {2}


@pytest.mark.parametrize("n", range(2, MAX_DRAWN + 1))
def test_there_is_an_edge_exactly_where_two_orders_differ_by_an_adjacent_swap(n):
    column = order_columns(n)
    expected = {
        (frozenset((column[order], column[swap_adjacent(order, position)])), position)
        for order in all_orders(n)
        for position in range(n - 1)
    }
    assert {(frozenset(edge[:2]), edge[2]) for edge in swaps(n)} == expected
    assert len(swaps(n)) == factorial(n) * (n - 1) // 2


@pytest.mark.parametrize("n", [2, 3, 4])
def test_edges_are_the_only_shortest_lines_of_the_permutohedron(n):
    points = drawing(n, ((0, n - 1),)).points
    edges = {edge[:2] for edge in swaps(n)}
    for pair in combinations(range(len(points)), 2):
        length = dist(points[pair[0]], points[pair[1]])
        assert (length == pytest.approx(sqrt(2))) == (pair in edges)
        assert length > sqrt(2) - 1e-9


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("pull", [0.0, 0.35, 1.0])
def test_no_two_vertices_lie_on_each_other_in_the_default_view(pair, pull):
    assert closest(moved(drawing(4, (pair,)), pull)) > CLOSEST


@pytest.mark.parametrize("n", range(2, MAX_DRAWN + 1))
def test_other_numbers_of_steps_have_no_overlap_either(n):
    drawn = drawing(n, ((0, n - 1),))
    for pull in (0.0, 0.35, 1.0):
        assert closest(moved(drawn, pull)) > (0.2 if n == 5 else CLOSEST)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_required_pair_cuts_it_into_two_congruent_halves_that_move_straight_apart(pair):
    drawn = drawing(4, (pair,))
    legal = set(linear_extensions(4, [pair]))
    halves = {True: [], False: []}
    for order, point, away in zip(all_orders(4), drawn.points, drawn.apart, strict=True):
        halves[order in legal].append(point)
        # Level, the required order to the left.
        assert away[0] == pytest.approx(-0.4951 if order in legal else 0.4951, abs=1e-3)
        assert away[1] == pytest.approx(0, abs=1e-9)
    assert len(halves[True]) == len(halves[False]) == 12
    lengths = [
        sorted(round(dist(a, b), 6) for a, b in combinations(half, 2)) for half in halves.values()
    ]
    assert lengths[0] == lengths[1]
    assert len(lengths[0]) == comb(12, 2)


@pytest.mark.parametrize("required", [((0, 1), (2, 3)), ((0, 1), (1, 2)), ((0, 3), (1, 3), (2, 3))])
def test_pieces_of_several_pairs_stay_rigid(required):
    drawn = drawing(4, required)
    orders, apart = all_orders(4), drawn.apart
    cut = {frozenset(pair) for pair in required}
    for here, there, position in swaps(4):
        torn = frozenset(orders[here][position : position + 2]) in cut
        assert (dist(apart[here], apart[there]) > 0.1) == torn
    assert closest(moved(drawn, 0.35)) > 0.25


def test_layers_hold_the_orders_by_their_inversions_the_legal_ones_first():
    drawn = drawing(5, ((1, 3),))
    legal = set(linear_extensions(5, [(1, 3)]))
    layers = {}
    for order, point in zip(all_orders(5), drawn.points, strict=True):
        inversions = sum(a > b for a, b in combinations(order, 2))
        layers.setdefault(round(point[1], 6), []).append((point[0], order in legal, inversions))
    assert len(layers) == 11
    for layer in layers.values():
        assert len({inversions for _, _, inversions in layer}) == 1
        assert [is_legal for _, is_legal, _ in sorted(layer)] == sorted(
            (is_legal for _, is_legal, _ in layer), reverse=True
        )


@pytest.mark.parametrize("n", [1, MAX_DRAWN + 1])
def test_more_steps_than_can_be_seen_are_not_drawn(n):
    with pytest.raises(ValueError, match="not drawn"):
        drawing(n, ())


def test_without_a_required_pair_nothing_moves():
    assert set(drawing(4, ()).apart) == {(0.0, 0.0, 0.0)}
    assert all(point[0] == 0 for point in drawing(5, ()).apart)
