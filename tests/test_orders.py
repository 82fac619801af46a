"""Orders against brute force, for every poset with up to five elements."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcrt.orders import all_orders, linear_extensions, orbit_of, swap_adjacent

NUM_UNLABELLED_POSETS = {1: 1, 2: 2, 3: 5, 4: 16, 5: 63}


def orbits(orders, is_certified):
    """The partition of orders into orbits, each sorted, the list sorted by first member."""
    remaining, parts = set(orders), []
    while remaining:
        parts.append(orbit_of(min(remaining), orders, is_certified))
        remaining.difference_update(parts[-1])
    return sorted(parts)


def transitive_closure(n, pairs):
    closed = set(pairs)
    for middle in range(n):
        for a in range(n):
            for b in range(n):
                if (a, middle) in closed and (middle, b) in closed:
                    closed.add((a, b))
    return frozenset(closed)


def unlabelled_posets(n):
    """One labelled representative (0..n-1 is a linear extension) of each poset with n elements."""
    seen = {}
    possible = list(combinations(range(n), 2))
    for bits in range(2 ** len(possible)):
        pairs = frozenset(p for k, p in enumerate(possible) if bits >> k & 1)
        if transitive_closure(n, pairs) != pairs:
            continue
        canonical = min(
            tuple(sorted((perm[a], perm[b]) for a, b in pairs)) for perm in permutations(range(n))
        )
        seen.setdefault(canonical, pairs)
    return list(seen.values())


def brute_force_extensions(n, pairs):
    return [
        order
        for order in permutations(range(n))
        if all(order.index(a) < order.index(b) for a, b in pairs)
    ]


@pytest.mark.parametrize("n", sorted(NUM_UNLABELLED_POSETS))
def test_every_poset_against_brute_force(n):
    posets = unlabelled_posets(n)
    assert len(posets) == NUM_UNLABELLED_POSETS[n]
    for pairs in posets:
        extensions = linear_extensions(n, pairs)
        assert extensions == brute_force_extensions(n, pairs)

        def incomparable(_prefix, a, b, pairs=pairs):
            return (a, b) not in pairs and (b, a) not in pairs

        assert orbits(extensions, incomparable) == [extensions]
        assert orbit_of(extensions[-1], extensions, incomparable) == extensions


def test_twelve_of_twenty_four_is_exactly_one_poset():
    counts = [len(linear_extensions(4, pairs)) for pairs in unlabelled_posets(4)]
    assert counts.count(12) == 1
    (only,) = [p for p in unlabelled_posets(4) if len(linear_extensions(4, p)) == 12]
    assert len(only) == 1


def test_extensions_do_not_need_the_transitive_closure():
    assert linear_extensions(3, [(0, 1), (1, 2)]) == [(0, 1, 2)]


def test_cycles_and_foreign_indices_are_refused():
    with pytest.raises(ValueError, match="cycle"):
        linear_extensions(3, [(0, 1), (1, 2), (2, 0)])
    with pytest.raises(ValueError, match="outside"):
        linear_extensions(2, [(0, 2)])


def test_orders_are_lexicographic_and_complete():
    assert all_orders(0) == ((),)
    assert len(set(all_orders(4))) == 24
    assert list(all_orders(4)) == sorted(all_orders(4))


@given(st.permutations(range(5)), st.integers(0, 3))
def test_adjacent_swap_is_an_involution(order, position):
    order = tuple(order)
    swapped = swap_adjacent(order, position)
    assert swapped != order
    assert swap_adjacent(swapped, position) == order
    assert sorted(swapped) == sorted(order)


def test_swap_without_right_neighbour_is_refused():
    for position in (-1, 2):
        with pytest.raises(ValueError, match="right neighbour"):
            swap_adjacent((0, 1, 2), position)


def test_orbits_are_components_of_certified_swaps_only():
    orders = all_orders(3)
    # Nothing certified: every order is alone.
    assert orbits(orders, lambda *_: False) == [[o] for o in orders]
    # Only the first two positions may be swapped: pairs.
    parts = orbits(orders, lambda prefix, _a, _b: prefix == ())
    assert sorted(map(len, parts)) == [2, 2, 2]
    # A failure is a singleton even if swaps would lead away from it.
    assert orbit_of((2, 1, 0), orders[:-1], lambda *_: True) == [(2, 1, 0)]


@given(st.integers(2, 4), st.data())
def test_orbits_equal_brute_force_components(n, data):
    orders = data.draw(st.sets(st.sampled_from(all_orders(n))))
    edges = data.draw(st.sets(st.frozensets(st.integers(0, n - 1), min_size=2, max_size=2)))

    def certified(_prefix, a, b):
        return frozenset((a, b)) in edges

    component = {order: order for order in orders}
    changed = True
    while changed:
        changed = False
        for order in orders:
            for position in range(n - 1):
                other = swap_adjacent(order, position)
                if other in orders and certified((), order[position], order[position + 1]):
                    least = min(component[order], component[other])
                    changed |= component[order] != least or component[other] != least
                    component[order] = component[other] = least
    expected = {}
    for order, root in component.items():
        expected.setdefault(root, []).append(order)
    assert orbits(orders, certified) == sorted(sorted(part) for part in expected.values())
