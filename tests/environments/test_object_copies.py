"""Copies of states: as deepcopy makes them, whatever classes they hold."""

from __future__ import annotations

import copy
import random
import threading
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from vcrt.environments.states.object_copies import copied
from vcrt.environments.states.object_states import canonical_objects


class Node:
    def __init__(self, name, parent=None):
        self.name, self.parent, self.children = name, parent, []


class Leaf(Node):
    pass


@dataclass(slots=True)
class Slotted:
    items: list = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    items: list


class Model(BaseModel):
    values: list[int] = []
    other: Model | None = None


class Counted:
    """A class that says itself how it is copied."""

    def __init__(self):
        self.copies = 0
        self.items = []

    def __deepcopy__(self, memo):
        made = Counted()
        made.copies = self.copies + 1
        return made


class Twice(Slotted):
    """One that has the slot of the class above once more."""

    __slots__ = ("items",)


class Fixed(Slotted):
    """One that hides a slot behind a property that cannot be set."""

    __slots__ = ()
    items = property(lambda self: None)


class Guarded:
    def __init__(self):
        self.lock = threading.Lock()


class Kind(Enum):
    ONE = 1


Pair = namedtuple("Pair", "first second")


def test_copies_keep_how_objects_refer_to_each_other() -> None:
    root = Node("root")
    root.children.append(Leaf("leaf", root))
    made, place = copied((root, root.children))
    assert made is not root
    assert made.children is place
    assert type(place[0]) is Leaf
    assert place[0].parent is made


def test_copies_share_nothing_that_changes() -> None:
    model = Model(values=[1], other=Model())
    for value in (Slotted([1]), model, {"a": [1, {2}]}, [model, (model,)]):
        twin = copied(value, by_attributes=True)
        assert twin == value
        assert twin is not value
    twin = copied(model, by_attributes=True)
    twin.values.append(2)
    twin.other = None
    assert model.values == [1]
    assert model.model_fields_set == {"values", "other"} == twin.model_fields_set


def test_a_class_is_copied_as_it_wants() -> None:
    shared = [1]
    values = [
        defaultdict(list, a=shared),
        OrderedDict(b=shared),
        deque([shared]),
        Pair(shared, {"x": shared}),
        Frozen(shared),
        Model(values=[1]),
        np.arange(3),
        random.Random(3),
        bytearray(b"x"),
    ]
    made = copied(values)
    assert canonical_objects(made) == canonical_objects(values) != canonical_objects(made[:-1])
    assert [type(each) for each in made] == [type(each) for each in values]
    assert all(one is not other for one, other in zip(made, values, strict=True))
    assert made[0]["a"] is made[1]["b"] is made[2][0] is made[3].first is made[4].items
    assert made[0]["a"] is not shared
    made[0]["new"].append(2)
    assert "new" not in values[0]
    assert copied(Counted()).copies == 1
    assert copied([Kind.ONE, len])[0] is Kind.ONE


def test_keys_and_members_are_copied_with_what_refers_to_them() -> None:
    node = Node("key")
    made = copied({"by": {node: node}, "all": {node}})
    ((key, value),) = made["by"].items()
    assert key is value is next(iter(made["all"]))
    assert key is not node


def test_a_cycle_through_a_tuple() -> None:
    items: list = []
    items.append((items, 1))
    made = copied(items)
    assert made is not items
    assert made[0][0] is made
    whole = copied(items[0])
    assert whole[0][0] is whole


def test_what_cannot_be_copied_is_refused() -> None:
    with pytest.raises(TypeError, match="lock"):
        copied({"a": Guarded()})


@st.composite
def objects(draw):
    """Containers and objects that refer to each other at random."""
    made: list = [draw(st.sampled_from([1, "a", None, 2.5, b"x"]))]
    for _ in range(draw(st.integers(1, 12))):
        some = draw(st.lists(st.sampled_from(range(len(made))), max_size=4))
        parts = [made[place] for place in some]
        kind = draw(st.sampled_from(["list", "tuple", "dict", "node", "slotted", "default"]))
        if kind == "node":
            node = Node("n")
            node.children = parts
            new: object = node
        elif kind == "slotted":
            new = Slotted(parts)
        elif kind == "default":
            new = defaultdict(list, {str(i): part for i, part in enumerate(parts)})
        elif kind == "dict":
            new = {str(i): part for i, part in enumerate(parts)}
        else:
            new = parts if kind == "list" else tuple(parts)
        made.append(new)
        for earlier in made:
            if isinstance(earlier, Node) and draw(st.booleans()):
                earlier.parent = new
    return made


@given(objects())
def test_it_does_as_deepcopy_does(state) -> None:
    before = canonical_objects(state)
    made = copied(state)
    assert canonical_objects(made) == before == canonical_objects(copy.deepcopy(state))
    for each in made:
        if isinstance(each, Node):
            each.children.append("more")
        elif isinstance(each, dict):
            each["more"] = 1
    assert canonical_objects(state) == before


def test_a_tuple_whose_parts_are_the_same_is_the_same():
    missing, changing = ("missing", 1), ([],)
    assert copied({"a": missing})["a"] is missing
    assert copied({"a": changing})["a"] is not changing


@pytest.mark.parametrize("kind", [Twice, Fixed])
def test_a_slot_that_another_hides_is_copied(kind) -> None:
    slot = vars(Slotted)["items"]
    original = kind.__new__(kind)
    slot.__set__(original, [1])
    if kind is Twice:
        original.items = [2]
    made = copied(original)
    assert slot.__get__(made) == [1]
    assert slot.__get__(made) is not slot.__get__(original)
    assert made.items == original.items
    assert canonical_objects(made) == canonical_objects(original)
