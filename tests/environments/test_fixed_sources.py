"""Draws, clocks and sets that answer alike in every process, and copies of states that hold them."""

from __future__ import annotations

import datetime
import random
from dataclasses import dataclass, field

import pytest
from pydantic import BaseModel

from vcrt.environments.fixed_sources import NOW, CountedRandom, SortedSet, fixed_datetime
from vcrt.environments.object_copies import copied


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


class Node:
    def __init__(self, name, parent=None):
        self.name, self.parent, self.children = name, parent, []


@dataclass(slots=True)
class Slotted:
    items: list = field(default_factory=list)


class Model(BaseModel):
    values: list[int] = []
    other: Model | None = None


def test_copies_keep_how_objects_refer_to_each_other() -> None:
    root = Node("root")
    root.children.append(Node("leaf", root))
    made, place = copied((root, root.children))
    assert made is not root
    assert made.children is place
    assert place[0].parent is made


def test_copies_share_nothing_that_changes() -> None:
    model = Model(values=[1], other=Model())
    for value in (Slotted([1]), model, {"a": [1, {2}]}, [model, (model,)]):
        twin = copied(value)
        assert twin == value
        assert twin is not value
    twin = copied(model)
    twin.values.append(2)
    twin.other = None
    assert model.values == [1]
    assert model.model_fields_set == {"values", "other"} == twin.model_fields_set
