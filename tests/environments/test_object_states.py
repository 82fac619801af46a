"""Canonical bytes of objects: which states are told apart, which are not, and what is refused."""

from __future__ import annotations

import itertools
import logging
import random
import re
import threading
import weakref
from array import array
from collections import OrderedDict, UserDict, defaultdict, deque
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import partial
from hashlib import sha256
from io import BytesIO, StringIO
from json import dumps
from types import MappingProxyType

import numpy as np
import pytest

from vcrt.environments.object_states import canonical_objects, first_difference, form_of
from vcrt.errors import MalformedInputError


class Shelf:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def same(self):
        return self


class Tagged(list):
    def __init__(self, items, tag):
        super().__init__(items)
        self.tag = tag


class Number(int):
    def __new__(cls, value, unit=None):
        made = super().__new__(cls, value)
        if unit:
            made.unit = unit
        return made


class Private:
    __slots__ = ("__hidden",)

    def __init__(self, value):
        self.__hidden = value


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
        "slots": Slots(OrderedDict(a=Word("w"), z=1)),
        "array": np.arange(4).reshape(2, 2),
        "class": Decimal,
        "function": dumps,
        "built in": len,
    }
    assert sha256(canonical_objects(state)).hexdigest() == (
        "785236c02ec572fe3d78cc3d9b98339005378c0ed6c1ffa6b3b6ad4c66ae243f"
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
        (Tagged([1], 1), Tagged([1], 2)),
        (Number(1), Number(1, "m")),
        (Shelf(a=1).same, Shelf(a=2).same),
        ([].append, [1].append),
        (StringIO("a"), StringIO("b")),
        (BytesIO(b"a"), BytesIO()),
        (deque([1]), deque([1], maxlen=1)),
        (Private(1), Private(2)),
        (UserDict(a=1), UserDict(a=2)),
        (MappingProxyType({"a": 1}), MappingProxyType({"a": 2})),
        (defaultdict(int, a=1), defaultdict(int)),
        (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
        (np.array([Shelf(a=1)], dtype=object), np.array([Shelf(a=2)], dtype=object)),
        (np.array([[]], dtype=object), np.array([], dtype=object)),
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


def test_arrays_of_objects_are_read_by_their_elements() -> None:
    def array_of(value):
        return np.array([Shelf(a=value), None], dtype=object)

    assert canonical_objects(array_of(1)) == canonical_objects(array_of(1))
    one = array_of(1)
    assert canonical_objects([one, one]) != canonical_objects([one, array_of(1)])
    with pytest.raises(MalformedInputError) as refused:
        canonical_objects(Shelf(a=np.array([1, object()])))
    assert refused.value.where == "state.a.flat[1]"


@pytest.mark.parametrize(
    ("one", "other", "where"),
    [
        (Shelf(a=1), Shelf(a=None), "state.a"),
        ({"k": [1, Shelf(b=(1, 2))]}, {"k": [1, Shelf(b=(1, 3))]}, 'state["k"][1].b[1]'),
        ({"k": {"a": 1, "b": 2}}, {"k": {"b": 2, "a": 1}}, 'state["k"]'),
        (Tagged([1], 1), Tagged([1], 2), "state.tag"),
        ([1], [1, 2], "state"),
        ([1], [True], "state[0]"),
        ({2, 1}, {1, 2}, None),
        (Shelf(a=1), Shelf(a=1), None),
    ],
)
def test_where_two_states_differ_is_a_place(one, other, where) -> None:
    assert first_difference(form_of(one), form_of(other)) == where


def test_attributes_can_be_left_out() -> None:
    assert canonical_objects(Shelf(a=1, b=2), ignored=["b"]) == canonical_objects(Shelf(a=1))


def adder(number):
    def add(other):
        return number + other

    return add


def counted():
    """A function that counts in an attribute of its own."""


counted.calls = 1


@pytest.mark.parametrize(
    "hidden",
    [
        object(),
        partial(print, 1),
        adder(1),
        lambda: 1,
        counted,
        iter([1]),
        itertools.count(),
        re.compile("a"),
        array("i", [1]),
        KeyError("a"),
        type("Made", (), {}),
        (number for number in (1, 2)),
        weakref.ref(Shelf),
        logging.getLogger("shop"),
        np.array([object()]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_read_is_refused_and_never_taken_for_equal(hidden) -> None:
    with pytest.raises(MalformedInputError, match="without a canonical form"):
        canonical_objects({"in": [hidden]})


def test_files_are_refused(tmp_path) -> None:
    with open(tmp_path / "a", "w") as file, pytest.raises(MalformedInputError, match="canonical"):
        canonical_objects({"file": file})


def test_the_order_of_keys_counts_where_it_is_asked_for() -> None:
    one, other = {"a": 1, "b": {"c": 2}}, {"b": {"c": 2}, "a": 1}
    assert canonical_objects(one) == canonical_objects(other)
    assert canonical_objects(one, key_order=True) != canonical_objects(other, key_order=True)


def test_what_has_no_value_is_refused_by_its_place() -> None:
    state = {"shop": Shelf(rooms=[1, {"door": threading.Lock()}])}
    with pytest.raises(MalformedInputError) as refused:
        canonical_objects(state)
    assert refused.value.where == "state['shop'].rooms[1]['door']"
    assert "lock" in str(refused.value)
    with pytest.raises(MalformedInputError, match="a member"):
        canonical_objects([{threading.Lock()}])
