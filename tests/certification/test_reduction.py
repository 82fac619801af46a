"""One representative of every class of orders, against brute force."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest

from reductions import classes
from vcrt.certificates.long_episodes import dependence, representatives
from vcrt.errors import TooLargeError
from vcrt.randomness import generator


def graphs(num_operations):
    pairs = list(combinations(range(num_operations), 2))
    for bits in range(2 ** len(pairs)):
        yield {pair for k, pair in enumerate(pairs) if bits >> k & 1}


def check(num_operations, pairs):
    def independent(a, b):
        return (min(a, b), max(a, b)) not in pairs

    expected = classes(permutations(range(num_operations)), independent)
    found = representatives(dependence(num_operations, pairs))
    assert found == [members[0] for members in expected]


@pytest.mark.parametrize("num_operations", [1, 2, 3, 4])
def test_every_dependence_of_up_to_four_steps(num_operations):
    for pairs in graphs(num_operations):
        check(num_operations, pairs)


@pytest.mark.parametrize(("num_operations", "seed"), [(5, s) for s in range(20)] + [(6, 0), (6, 1)])
def test_random_dependences_of_more_steps(num_operations, seed):
    draw = generator(seed, "dependence", num_operations)
    all_pairs = list(combinations(range(num_operations), 2))
    share = draw.random()
    check(num_operations, {pair for pair in all_pairs if draw.random() < share})


def test_every_step_alike_gives_one_class_or_all_orders():
    assert representatives(dependence(40, ())) == [tuple(range(40))]
    everything = combinations(range(5), 2)
    assert representatives(dependence(5, everything)) == list(permutations(range(5)))


def test_a_refused_order_ends_at_the_refusal():
    """Forty steps, of which every second needs the one before: one order that runs, and few that do not."""
    pairs = [(i, i + 1) for i in range(0, 12, 2)]
    needs = {b: 1 << a for a, b in pairs}
    found = representatives(
        dependence(40, pairs), lambda done, step: bool(needs.get(step, 0) & ~done)
    )
    assert [order for order in found if len(order) == 40] == [tuple(range(40))]
    for order in found[1:]:
        *before, last = order
        assert last in needs
        assert last - 1 not in before
        assert all(step not in needs or step - 1 in before[: before.index(step)] for step in before)
    assert len(found) == len(set(found)) <= 2**6


def test_too_many_classes_are_named_with_a_way_out(monkeypatch):
    monkeypatch.setattr("vcrt.certificates.long_episodes.MAX_REPRESENTATIVES", 1000)
    with pytest.raises(TooLargeError, match="classes of orders") as caught:
        representatives(dependence(9, combinations(range(9), 2)))
    assert caught.value.remedy
