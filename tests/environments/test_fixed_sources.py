"""Draws, clocks and sets that answer alike in every process, and are copied with the state."""

from __future__ import annotations

import datetime
import random

import pytest

from vcrt.environments.fixed_sources import NOW, CountedRandom, SortedSet, fixed_datetime
from vcrt.environments.states.object_copies import copied


@pytest.mark.parametrize("seed", [0, 200191, "text", 1.5])
def test_draws_are_those_of_the_seed_and_can_be_taken_up(seed) -> None:
    ours, theirs = CountedRandom(seed), random.Random(seed)
    for _ in range(40):
        for draw in (
            lambda source: source.randint(10, 10**12),
            lambda source: source.uniform(-1, 1),
            lambda source: source.choice("abcde"),
            lambda source: source.getrandbits(70),
        ):
            assert draw(ours) == draw(theirs)
    again = copied(ours)
    assert again is not ours
    assert again.getstate() == ours.getstate() == theirs.getstate()


@pytest.mark.parametrize("seed", [None, [1]])
def test_draws_have_a_seed(seed) -> None:
    with pytest.raises(TypeError, match="a seed of random draws"):
        CountedRandom(seed)


def test_the_clock_stands_still() -> None:
    clock = fixed_datetime(datetime).datetime
    assert clock.now() == clock.today() == NOW == fixed_datetime(datetime.datetime).now()
    assert fixed_datetime(datetime).timedelta is datetime.timedelta
    assert clock.strptime("2024-05-01", "%Y-%m-%d").month == 5


def test_sets_come_sorted() -> None:
    found = SortedSet(["b", "c", "a"])
    assert list(found) == ["a", "b", "c"]
    assert list(found - {"b"}) == ["a", "c"]
