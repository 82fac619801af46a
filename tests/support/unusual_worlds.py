"""Worlds of two calls over values of unusual types: what is shared, what subclasses hold, what lies hidden.

Each kind has how a value is made, what can be seen of it and how it is changed. ``differ`` is the oracle: it makes each
order anew, from the start, and lets every third call look.
"""

from __future__ import annotations

import copy
import random
from array import array
from collections import OrderedDict, UserDict, defaultdict, deque
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import KEEP, IntFlag, StrEnum
from fractions import Fraction
from functools import partial
from io import BytesIO, StringIO
from zoneinfo import ZoneInfo

import numpy as np

import vcrt


class Money(Decimal):
    """A number with a currency."""


class Word(str):
    """A text with notes."""


class Size(int):
    """A whole number, with or without a unit."""


class Tagged(list):
    tag = "none"


class Kept(dict):
    def __missing__(self, key):
        return getattr(self, "default", None)


class Suit(StrEnum):
    RED = "red"
    BLUE = "blue"


class Access(IntFlag, boundary=KEEP):
    READ = 1


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class Labelled(np.ndarray):
    label = 0


@dataclass(frozen=True)
class Item:
    name: str


class Node:
    def __init__(self, name):
        self.name = name


class Counted:
    """What it counts lies in the class."""

    number = 0

    def count(self):
        Counted.number += 1
        return Counted.number


def money(n):
    made = Money(n % 3)
    made.currency = "EUR" if n % 2 else "USD"
    return made


def word(n):
    made = Word("w")
    made.notes = [n]
    return made


def size(n):
    return n % 3 if n % 2 else Size(n % 3)


def tagged(n):
    made = Tagged([1])
    made.tag = n % 3
    return made


def kept(n):
    made = Kept(a=1)
    made.default = n % 3
    return made


def frozen_array(n):
    made = np.zeros(2)
    made.flags.writeable = bool(n % 2)
    return made


def labelled(n):
    made = np.zeros(2).view(Labelled)
    made.label = n % 3
    return made


def masked(n):
    return np.ma.MaskedArray([n % 3, 7], mask=[True, False])


def moved(n):
    made = StringIO("abcdef")
    made.seek(n % 4)
    return made


def stocked(n):
    names = ["tea", "rice", "salt"]
    random.Random(n).shuffle(names)
    items = [Item(name) for name in names]
    return [dict.fromkeys(items, 1), items[0]]


def members(n):
    nodes = [Node(name) for name in "abc"]
    return [set(nodes), nodes[n % 3]]


def put(value, n):
    value[0] = n % 7


def try_put(value, n):
    try:
        value[0] = n % 7
    except (TypeError, ValueError):
        return "sealed"
    return "written"


def in_half_a_year(value):
    later = value + timedelta(days=182)
    return [str(value), str(later.astimezone(UTC))]


ZONES = [
    UTC,
    timezone(timedelta(hours=1)),
    timezone(timedelta(hours=1), "local"),
    timezone(timedelta(hours=2), "local"),
    ZoneInfo("Europe/Berlin"),
    ZoneInfo("Europe/London"),
]

#: How it is made of a number, what is seen of it, and how it is changed by one (None: never).
KINDS = {
    "bytes": (lambda n: (bytes, bytearray)[n % 2](b"ab"), list, try_put),
    "array": (lambda n: array("il"[n % 2], [1, 2]), lambda v: [v.typecode, *v], put),
    "deque": (
        lambda n: deque([1], maxlen=(None, 1, 2)[n % 3]),
        lambda v: [*copy.copy(v), *extended(v)],
        lambda v, n: v.append(n),
    ),
    "default": (
        lambda n: defaultdict((None, int, list)[n % 3]),
        lambda v: repr(tried(v.copy(), "x")),
        lambda v, n: v.update({n: 1}),
    ),
    "lambda": (
        lambda n: defaultdict(lambda: 0) if n % 2 else defaultdict(lambda: 1),
        lambda v: repr(tried(v.copy(), "x")),
        lambda v, n: v.update({n: 1}),
    ),
    "money": (
        money,
        lambda v: f"{v} {v.currency}",
        lambda v, n: setattr(v, "currency", n),
    ),
    "word": (word, lambda v: [v, *v.notes], lambda v, n: v.notes.append(n)),
    "size": (size, lambda v: [v, type(v).__name__, getattr(v, "unit", 0)], None),
    "tagged": (tagged, lambda v: [*v, v.tag], lambda v, n: v.append(n)),
    "kept": (kept, lambda v: [sorted(v), v["missing"]], lambda v, n: v.update({str(n): 1})),
    "suit": (lambda n: list(Suit)[n % 2] if n % 3 else "red", lambda v: type(v).__name__ + v, None),
    "access": (lambda n: Access(n % 4 * 2), int, None),
    "slotted": (lambda n: Slotted(n % 3), lambda v: v.value, lambda v, n: setattr(v, "value", n)),
    "time": (
        lambda n: datetime(2026, 1, 1, tzinfo=ZONES[n % len(ZONES)]),
        in_half_a_year,
        None,
    ),
    "fold": (
        lambda n: datetime(2026, 10, 25, 2, 30, tzinfo=ZONES[4], fold=n % 2),
        lambda v: str(v.astimezone(UTC)),
        None,
    ),
    "clock": (lambda n: time(1, tzinfo=ZONES[n % 4]), lambda v: repr(v), None),
    "sealed": (frozen_array, lambda v: [*v.tolist(), v.flags.writeable], try_put),
    "order": (
        lambda n: np.array([[1, 2], [3, 4]], order="CF"[n % 2]),
        lambda v: v.ravel("K").tolist(),
        lambda v, n: v.__setitem__((0, 0), n % 7),
    ),
    "labelled": (labelled, lambda v: [*v.tolist(), v.label], put),
    "masked": (masked, lambda v: [*v.data.tolist(), *v.mask.tolist()], put),
    "random": (
        lambda n: random.Random(n % 3),
        lambda v: copy.copy(v).random(),
        lambda v, n: v.random(),
    ),
    "generator": (
        lambda n: np.random.default_rng(n % 3),
        lambda v: float(copy.deepcopy(v).random()),
        lambda v, n: v.random(),
    ),
    "stream": (moved, lambda v: [v.getvalue(), v.tell()], lambda v, n: v.write(str(n))),
    "binary": (
        lambda n: BytesIO(bytes([n % 3])),
        lambda v: [*v.getvalue(), v.tell()],
        lambda v, n: v.read(),
    ),
    "stock": (stocked, lambda v: [sorted(i.name for i in v[0]), v[1].name], None),
    "members": (members, lambda v: v[1].name, lambda v, n: setattr(v[1], "name", f"n{n % 3}")),
    "wrapped": (
        lambda n: UserDict(a=n % 3),
        lambda v: sorted(v.items()),
        lambda v, n: v.update({"b": n}),
    ),
    "ordered": (
        lambda n: OrderedDict([("a", 1), ("b", 2)][:: 1 if n % 2 else -1]),
        lambda v: list(v),
        lambda v, n: v.move_to_end("a"),
    ),
    "fraction": (lambda n: Fraction(n % 3, 2) if n % 2 else n % 3 / 2, lambda v: repr(v), None),
    "partial": (lambda n: partial(max, n % 3 + 1), lambda v: v(1), None),
    # What lies in a class, in a function's variables or in an iterator is refused by its place.
    "counted": (lambda n: Counted(), lambda v: 0, lambda v, n: v.count()),
    "closure": (lambda n: counting(), lambda v: 0, lambda v, n: v()),
    "iterator": (lambda n: iter([1, 2, 3]), lambda v: 0, lambda v, n: next(v, None)),
    "view": (lambda n: memoryview(bytearray(b"ab")), list, put),
}


def counting():
    number = 0

    def count():
        nonlocal number
        number += 1
        return number

    return count


def tried(mapping, key):
    try:
        return mapping[key], sorted(map(repr, mapping))
    except KeyError:
        return "missing", sorted(map(repr, mapping))


def extended(queue):
    longer = copy.copy(queue)
    longer.extend([8, 9])
    return longer


VALUES = (bytes, int, float, str, datetime, time, Suit, Access)


class World:
    """Two places that hold a value each, of one kind."""

    def __init__(self, kind):
        self.kind = kind
        self.a, self.b = KINDS[kind][0](0), KINDS[kind][0](1)

    def make(self, place, n):
        setattr(self, place, KINDS[self.kind][0](n))

    def link(self, place):
        """Let the other place name the same value."""
        setattr(self, place, self.a if place == "b" else self.b)

    def copy(self, place):
        """Give the other place a value of its own that is equal."""
        setattr(self, place, copy.deepcopy(self.a if place == "b" else self.b))

    def poke(self, place, n):
        change = KINDS[self.kind][2]
        if change is not None:
            change(getattr(self, place), n)

    def look(self):
        return [KINDS[self.kind][1](self.a), KINDS[self.kind][1](self.b)]

    def same(self):
        """Whether both places name one value, as far as that can be told of values that never change."""
        return self.a is self.b and type(self.a) not in VALUES

    def poke_and_look(self, place, n):
        self.poke(place, n)
        return self.look()


class Unusual(vcrt.CallEnvironment):
    """A world of the kind that the log says."""

    name = "unusual"

    def reset(self, initial):
        return World(initial)

    def call(self, state, name, arguments):
        return vcrt.call_method(state, name, arguments)


def calls_of(draw):
    """Two calls that are not the same."""
    while True:
        pair = [_call(draw), _call(draw)]
        if pair[0] != pair[1]:
            return pair


def _call(draw):
    name, place = draw.choice(["make", "make", "link", "copy", "poke"]), draw.choice("ab")
    return name, {"place": place, **({"n": draw.randrange(6)} if name in ("make", "poke") else {})}


def differ(kind, calls):
    """Whether the two orders of the calls give anything else: in what they give, or to any third call."""
    thirds = [
        ("look", {}),
        ("same", {}),
        *(("poke_and_look", {"place": p, "n": n}) for p in "ab" for n in (5, 6)),
    ]
    return any(_given(kind, calls, third) != _given(kind, calls[::-1], third) for third in thirds)


def _given(kind, calls, third):
    world = World(kind)
    given = {repr(call): repr(getattr(world, call[0])(**call[1])) for call in calls}
    return given, repr(getattr(world, third[0])(**third[1]))
