"""Canonical bytes of objects: which states are told apart, which are not, and what is refused."""

from __future__ import annotations

import random
import threading
from collections import OrderedDict
from datetime import date
from decimal import Decimal
from enum import Enum
from hashlib import sha256

import numpy as np
import pytest

from vcrt.environments.object_states import canonical_objects
from vcrt.errors import MalformedInputError


class Shelf:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)


class Slots:
    __slots__ = ("left", "right")

    def __init__(self, left):
        self.left = left


class Colour(Enum):
    RED = 1


class Word(str):
    """Text of a class of its own."""


for each in (Shelf, Slots, Colour, Word):
    each.__module__ = "shop"


def test_the_bytes_are_those_that_certificates_hold() -> None:
    """They go into state hashes: other bytes make certified datasets unverifiable."""
    inner = [1, "ü\n", None, True]
    state = {
        "list": inner,
        "again": inner,
        3: (1.5, -0.0, 2**70),
        (1, "k"): frozenset({"b", "a", "c", 2}),
        None: {"set", "of", "words"},
        "object": Shelf(red=Colour.RED, day=date(2026, 1, 2), price=Decimal("1.20"), raw=b"\xff"),
        "slots": Slots(OrderedDict(z=1, a=Word("w"))),
        "array": np.arange(4).reshape(2, 2),
        "class": Shelf,
        "draws": random.Random(1).__class__,
    }
    assert sha256(canonical_objects(state)).hexdigest() == (
        "0526d158b919e1312e2e6a9702562708c7f974400a93a03ef9acc510a0a51c09"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (1, "1"),
        ([1], (1,)),
        ({1}, frozenset({1})),
        ({1: 2}, {"1": 2}),
        ({"a": 1}, {"a": 1, "b": None}),
        (0.0, -0.0),
        ([1, 2], [2, 1]),
        (Shelf(a=1), Shelf(b=1)),
        (Shelf(a=1), {"a": 1}),
        (Slots(1), Slots(2)),
        (b"a", "a"),
        (random.Random(1), random.Random(2)),
        (np.zeros(2), np.zeros((2, 1))),
        (np.float32(1), np.float64(1)),
        (float("nan"), float("inf")),
        (len, max),
    ],
)
def test_what_differs_is_told_apart(one, other) -> None:
    assert canonical_objects(one) != canonical_objects(other)
    assert canonical_objects({"in": [one]}) != canonical_objects({"in": [other]})


def test_one_object_twice_is_not_two_equal_ones() -> None:
    inner: list[int] = []
    assert canonical_objects([inner, inner]) != canonical_objects([[], []])
    around: list = []
    around.append(around)
    assert canonical_objects(around) == b'{"list":[{"again":0}]}'


def test_the_order_of_keys_and_members_does_not_count() -> None:
    words = [f"w{number}" for number in range(50)]
    assert canonical_objects(dict.fromkeys(words)) == canonical_objects(dict.fromkeys(words[::-1]))
    assert canonical_objects(set(words)) == canonical_objects({*words[::-1]})
    mixed = {1: "a", "1": "b", None: "c", (1,): "d"}
    assert canonical_objects(mixed) == canonical_objects(dict(reversed(mixed.items())))


def test_attributes_can_be_left_out() -> None:
    assert canonical_objects(Shelf(a=1, b=2), ignored=["b"]) == canonical_objects(Shelf(a=1))


def test_what_has_no_value_is_refused_by_its_place() -> None:
    state = {"shop": Shelf(rooms=[1, {"door": threading.Lock()}])}
    with pytest.raises(MalformedInputError) as refused:
        canonical_objects(state)
    assert refused.value.where == "state['shop'].rooms[1]['door']"
    assert "lock" in str(refused.value)
    with pytest.raises(MalformedInputError, match="a member"):
        canonical_objects([{threading.Lock()}])
