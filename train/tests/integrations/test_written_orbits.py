"""Which orders of a written completion are scored: all that fit, whatever the order in which they were written."""

from __future__ import annotations

from itertools import permutations

import pytest

from vcrt.partial_orders import PartialOrder
from vcrt.replay.completions import Judgement, Segments, illegal_orders
from vcrt_train.integrations.written_orbits import OrbitLimits, written_orbit
from vcrt_train.randomness import generator

#: Steps of 6 tokens each, a token a letter; the second needs the first.
STEPS = ("aaaaaa", "bbbbbb", "cccccc", "dddddd")
NEEDED = (0, 1)
END = 0


def encode(text):
    return [ord(letter) for letter in text]


def orbit_of(written, limits, *, update=0, failing=lambda each: True):
    """What is scored of the steps written in this order, if such illegal orders fail."""
    place = {step: at for at, step in enumerate(written)}
    text = [STEPS[step] for step in written]
    order = PartialOrder.of(4, [tuple(place[step] for step in NEEDED)])
    illegal = illegal_orders(order, most=limits.max_illegal)
    judgement = Judgement(
        failure=None,
        num_steps=4,
        segments=Segments(fixed=("", "\n", "\n", "\n", ""), moved=tuple(text)),
        copies=(0, 1, 2, 3),
        order=order,
        failing=tuple(
            each for each in illegal if failing(tuple(written[number] for number in each))
        ),
    )
    return written_orbit(
        (1, 2),
        (*encode("\n".join(text)), END),
        judgement,
        encode=encode,
        ends=[END],
        limits=limits,
        draw=generator(0, "orbit windows", update),
    )


LEGAL = [order for order in permutations(range(4)) if order.index(0) < order.index(1)]


def tokens(order):
    return (*encode("\n".join(STEPS[step] for step in order)), END)


def tree_size(orders):
    """The tokens of a tree in which equal beginnings are one, ends left out."""
    return len({tokens(order)[:count] for order in orders for count in range(1, 28)})


def test_orders_that_share_what_they_begin_with_count_it_once():
    size = tree_size(LEGAL)
    # Alone they would be 12 x 27 tokens.
    assert size < 0.8 * 12 * 27
    enough = OrbitLimits(max_members=12, max_illegal=12, max_tokens=size, max_length=99)
    found = orbit_of((0, 1, 2, 3), enough)
    assert set(found.candidates.orbit) == set(map(tokens, LEGAL))
    assert not found.is_partial
    fewer = OrbitLimits(max_members=12, max_illegal=12, max_tokens=size - 1, max_length=99)
    found = orbit_of((0, 1, 2, 3), fewer)
    assert found.is_partial
    assert len(found.candidates.orbit) < 12


@pytest.mark.parametrize("max_tokens", [10_000, 300, 130, 60, 1])
def test_what_is_scored_does_not_depend_on_the_order_that_was_written(max_tokens):
    limits = OrbitLimits(max_members=24, max_illegal=24, max_tokens=max_tokens, max_length=99)
    for update in range(4):
        found = {order: orbit_of(order, limits, update=update) for order in LEGAL}
        for order, one in found.items():
            assert tokens(order) in one.candidates.orbit
            assert set(one.candidates.orbit) <= set(map(tokens, LEGAL))
            # The blocks are a partition: who is in a block has the same block.
            for other in LEGAL:
                if tokens(other) in one.candidates.orbit:
                    assert found[other].candidates.orbit == one.candidates.orbit
        assert len({one.is_partial for one in found.values()}) == 1


def test_an_orbit_of_which_one_order_fits_is_said_to_be_partial():
    limits = OrbitLimits(max_members=24, max_illegal=24, max_tokens=27, max_length=99)
    found = orbit_of((2, 0, 1, 3), limits)
    assert found.candidates.orbit == (tokens((2, 0, 1, 3)),)
    assert found.is_partial
    assert found.missed is None


def test_illegal_orders_that_all_fit_are_all_scored_though_the_orbit_is_not():
    limits = OrbitLimits(max_members=2, max_illegal=24, max_tokens=10_000, max_length=99)
    found = orbit_of((0, 1, 2, 3), limits)
    assert found.is_partial
    assert 0 < len(found.candidates.orbit) <= 2
    assert not set(found.candidates.illegal) & set(map(tokens, LEGAL))
    assert found.candidates.illegal


def test_an_illegal_order_that_solves_the_task_all_the_same_is_not_set_against():
    """Only orders that begin with the second step fail; the others end otherwise and are as right."""
    for max_tokens in (10_000, 100):
        limits = OrbitLimits(max_illegal=24, max_tokens=max_tokens, max_length=99)
        found = orbit_of((0, 1, 2, 3), limits, failing=lambda each: each[0] == 1)
        assert found.candidates.illegal
        assert all(ids[0] == ord("b") for ids in found.candidates.illegal)
    none = orbit_of((0, 1, 2, 3), limits, failing=lambda each: False)
    assert none.candidates.illegal == ()
    assert none.candidates.orbit


def test_a_masked_completion_stands_for_itself():
    limits = OrbitLimits(max_length=99)
    judgement = Judgement(
        failure=None,
        num_steps=2,
        segments=Segments(fixed=("", "\n", ""), moved=("a", "b")),
        copies=(0, 1),
        order=PartialOrder.of(2, []),
    )
    found = written_orbit(
        (1,), (), judgement, encode=encode, ends=[END], limits=limits, draw=generator(0, "x")
    )
    assert (found.missed, found.candidates.orbit) == ("cut_off", ())
