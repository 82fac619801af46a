"""Canonical bytes of objects: which states are told apart, which are not, and what is refused."""

from __future__ import annotations

import itertools
import logging
import math
import random
import re
import sys
import threading
import weakref
from array import array
from collections import OrderedDict, UserDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import KEEP, Enum, IntFlag, StrEnum
from fractions import Fraction
from functools import partial
from hashlib import sha256
from io import BytesIO, StringIO
from json import dumps
from types import MappingProxyType, MethodType, ModuleType
from typing import Any
from uuid import UUID, SafeUUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from vcrt.environments.states.object_copies import copied
from vcrt.environments.states.object_states import canonical_objects, first_difference, form_of
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


class Suit(StrEnum):
    RED = "RED"


class Access(IntFlag, boundary=KEEP):
    READ = 1


class Money(Decimal):
    def __new__(cls, value, currency):
        made = super().__new__(cls, value)
        made.currency = currency
        return made


class Labelled(np.ndarray):
    @classmethod
    def of(cls, values, label):
        made = np.array(values).view(cls)
        made.label = label
        return made


def in_zone(zone):
    return datetime(2026, 1, 1, tzinfo=zone)


def masked(hidden):
    return np.ma.MaskedArray([hidden, 3], mask=[True, False])


def read_only(values):
    values.flags.writeable = False
    return values


def moved(stream, place):
    stream.seek(place)
    return stream


def closed(stream):
    stream.close()
    return stream


def spawned(generator):
    generator.spawn(1)
    return generator


def local_class(number):
    class Made:
        def give(self):
            return number

    return Made


def in_a_class(number):
    class Inner:
        held = number

    class Outer:
        def give(self):
            return Inner.held

    return Outer()


def with_body(**body):
    return type("Made", (Shelf,), {"__module__": __name__, **body})()


def in_an_enumeration(number):
    return Enum("Level", {"LOW": number}, module=__name__).LOW


class Given:
    """A descriptor: what it gives is in it."""

    def __init__(self, value):
        self.value = value

    def __get__(self, instance, owner):
        return self.value


def of_a_metaclass(rate):
    meter: Any = type("Meter", (type,), {"__module__": __name__, "rates": [rate]})
    return meter("Made", (), {"__module__": __name__})()


def of_the_program(source, name="__main__"):
    """What a program that is no module would make, or a loader that keeps its modules to itself."""
    made = {"__name__": name}
    exec(source, made)
    return made["made"]


class Below(Slots):
    """One that has the slot of the class above once more."""

    __slots__ = ("left",)

    def __init__(self, above, left):
        super().__init__(above)
        Slots.left.__set__(self, above)
        self.left = left


class Hidden(Slots):
    """One that hides a slot behind a property that cannot be set."""

    __slots__ = ()

    @property
    def left(self):
        return 0

    def __init__(self, value):
        Slots.left.__set__(self, value)


of_nobody = ModuleType("of_nobody")
sys.modules["of_nobody"] = of_nobody
for each in (Shelf, Slots, Colour, Word):
    each.__module__ = "of_nobody"
    setattr(of_nobody, each.__name__, each)


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
        "564f2c3e251eb4c8d4fe96e779c3e0c470584147261a2146b584a2225e225954"
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
        (b"a", bytearray(b"a")),
        ("w", Word("w")),
        ("RED", Suit.RED),
        (1, Number(1)),
        (Money("1", "EUR"), Money("1", "USD")),
        (Money("1", "EUR"), Decimal("1")),
        (defaultdict(int), defaultdict(list)),
        (defaultdict(int), defaultdict(None)),
        (defaultdict(lambda: 1), defaultdict(lambda: 2)),
        (Access(0), Access(4)),
        (Access(1 | 8), Access(8)),
        (datetime(2026, 1, 1), datetime(2026, 1, 1, fold=1)),
        (in_zone(UTC), in_zone(None)),
        (in_zone(ZoneInfo("Europe/Berlin")), in_zone(timezone(timedelta(hours=1)))),
        (in_zone(ZoneInfo("Europe/Berlin")), in_zone(ZoneInfo("Europe/Paris"))),
        (timezone(timedelta(hours=1), "local"), timezone(timedelta(hours=2), "local")),
        (time(1, tzinfo=UTC), time(1)),
        (time(1, fold=1), time(1)),
        (masked(1), masked(2)),
        (np.zeros(2), read_only(np.zeros(2))),
        (np.zeros((2, 2)), np.asfortranarray(np.zeros((2, 2)))),
        (Labelled.of([1.0], "a"), Labelled.of([1.0], "b")),
        (np.array([float("nan")]), -np.array([float("nan")])),
        (float("nan"), math.copysign(float("nan"), -1)),
        (UUID(int=1), UUID(int=1, is_safe=SafeUUID.safe)),
        (re.compile("a"), re.compile("a", re.IGNORECASE)),
        (array("i", [1]), array("i", [2])),
        (array("i", [1]), array("l", [1])),
        (partial(print, 1), partial(print, 2)),
        (Fraction(1, 2), Fraction(1, 3)),
        (StringIO("a\n", newline=""), StringIO("a\n", newline="\n")),
        (moved(StringIO("ab"), 1), StringIO("ab")),
        (closed(BytesIO()), BytesIO()),
        (np.random.default_rng(1), spawned(np.random.default_rng(1))),
        (np.random.RandomState(1), np.random.RandomState(2)),
        (MappingProxyType(OrderedDict(a=1, b=2)), MappingProxyType(OrderedDict(b=2, a=1))),
        (local_class(1)(), local_class(2)()),
        (MethodType(lambda self: 1, "a"), MethodType(lambda self: 2, "a")),
        (MethodType(partial(max, 1), 0), MethodType(partial(max, 2), 0)),
        (lambda x: x, lambda x, /: x),
        (lambda x, y=1: x, lambda x, *, y=1: x),
        (in_a_class(1), in_a_class(2)),
        (with_body(rates=[1]), with_body(rates=[2])),
        (with_body(nested={"a": Shelf(b=1)}), with_body(nested={"a": Shelf(b=2)})),
        (with_body(given=Given(1)), with_body(given=Given(2))),
        (in_an_enumeration(1), in_an_enumeration(2)),
        (of_a_metaclass(1), of_a_metaclass(2)),
        (of_the_program("def made(): return 1"), of_the_program("def made(): return 2")),
        *(
            (of_the_program(source.format(1), name), of_the_program(source.format(2), name))
            for source in (
                "class Row:\n def give(self): return {}\nmade = Row()",
                "class Row:\n give = {}\nmade = Row()",
            )
            for name in ("__main__", "kept_by_a_loader")
        ),
        (Below(1, 0), Below(2, 0)),
        (Hidden(1), Hidden(2)),
        (["\ud800"], ["\ud801"]),
        ([10**5000], [10**5000 + 1]),
    ],
)
def test_what_differs_is_told_apart(one, other) -> None:
    assert canonical_objects(one) != canonical_objects(other)
    assert canonical_objects({"in": [one]}) != canonical_objects({"in": [other]})


@pytest.mark.parametrize(
    "made",
    [
        list,
        bytearray,
        deque,
        Shelf,
        BytesIO,
        StringIO,
        lambda: defaultdict(int),
        lambda: Money("1", "EUR"),
        lambda: Number(1),
        lambda: random.Random(1),
        lambda: np.random.default_rng(1),
        lambda: np.random.PCG64(1),
        lambda: np.random.RandomState(1),
        lambda: np.zeros(2),
        lambda: masked(1),
        lambda: array("i", [1]),
        lambda: partial(print, 1),
        lambda: MappingProxyType({}),
    ],
)
def test_what_can_change_is_one_where_two_names_share_it(made) -> None:
    one = made()
    assert canonical_objects([one, one]) != canonical_objects([made(), made()])
    assert canonical_objects([one, one]) == canonical_objects([other := made(), other])


def test_two_generators_of_one_source_are_not_two_sources() -> None:
    def pair(shared):
        first = np.random.PCG64(1)
        return [np.random.Generator(b) for b in (first, first if shared else np.random.PCG64(1))]

    assert canonical_objects(pair(True)) != canonical_objects(pair(False))


def test_values_have_no_identity() -> None:
    for made in (lambda: (1, "a"), lambda: 10**40, lambda: Decimal(1), lambda: date(2026, 1, 1)):
        one = made()
        assert canonical_objects([one, one]) == canonical_objects([made(), made()])


def test_arrays_that_lie_in_one_memory_are_refused() -> None:
    whole = np.arange(4)
    with pytest.raises(MalformedInputError) as refused:
        canonical_objects(Shelf(grid=whole, row=whole[:2]))
    assert refused.value.where == "state.row"
    assert "shares its memory" in str(refused.value)
    # What nothing else holds is the array's own.
    assert canonical_objects(np.arange(4).reshape(2, 2)) == canonical_objects(
        np.array([[0, 1], [2, 3]])
    )
    with pytest.raises(MalformedInputError, match="in the memory of"):
        canonical_objects(np.frombuffer(bytearray(b"ab"), dtype="u1"))


class Item:
    def __init__(self, name, next_one=None):
        self.name, self.next_one = name, next_one


def test_objects_as_keys_and_members_are_known_by_what_they_hold() -> None:
    def stock(names, winner):
        items = {name: Item(name) for name in names}
        return Shelf(stock=dict.fromkeys(items.values(), 1), winner=items[winner])

    for names in (["tea", "rice", "salt"], ["salt", "rice", "tea"], ["rice", "tea", "salt"]):
        assert canonical_objects(stock(names, "tea")) == canonical_objects(
            stock(["tea", "rice", "salt"], "tea")
        )
        assert canonical_objects(stock(names, "rice")) != canonical_objects(stock(names, "tea"))
    members = [{Item(n) for n in names} for names in (["a", "b", "c"], ["c", "b", "a"])]
    assert canonical_objects(members[0]) == canonical_objects(members[1])


def test_members_that_look_alike_are_told_apart_by_what_refers_to_them() -> None:
    def rings(place):
        """Two chains that look alike; another attribute names the end of one of them."""
        ends = [Item("end"), Item("end")]
        items = [Item("link", end) for end in ends]
        return Shelf(links=set(items), then=(Shelf(end=ends[place]),), other=ends[1 - place])

    assert len({canonical_objects(rings(place)) for _ in range(40) for place in (0, 1)}) == 1
    alike = [Item("end") for _ in range(3)]
    assert canonical_objects(set(alike)) == canonical_objects({Item("end") for _ in range(3)})
    shared, own = Item("end"), Item("end")
    one = {Item("a", shared), Item("a", shared), Item("a", own)}
    other = {Item("a", shared), Item("a", own), Item("a", Item("end"))}
    assert canonical_objects(one) != canonical_objects(other)


def test_rings_of_members_that_look_alike_have_one_form_each() -> None:
    def cycle(length):
        items = [Item("a") for _ in range(length)]
        for item, following in zip(items, items[1:] + items[:1], strict=True):
            item.next_one = following
        return items

    def forms(*lengths):
        rings = [{item for n in lengths for item in cycle(n)} for _ in range(20)]
        return {canonical_objects(ring) for ring in rings}

    assert len(forms(6)) == len(forms(3, 3)) == 1
    assert not forms(6) & forms(3, 3)


def friends(number: int, names: str = "abcdefghijklmnopqrstuvwxyz") -> dict[str, Shelf]:
    """As many people, each with the set of the others."""
    people = {name: Shelf(name=name, friends=set()) for name in names[:number]}
    for each, other in itertools.permutations(people.values(), 2):
        each.friends.add(other)
    return people


def test_objects_that_hold_each_other_in_sets_have_a_form_or_are_refused_at_once() -> None:
    """Each set of objects within others doubles the looks: eight friends took 13 s, seven 1.7 s."""
    assert canonical_objects(friends(5)) == canonical_objects(friends(5, "edcba"))
    apart = friends(5)
    apart["a"].friends.discard(apart["b"])
    assert canonical_objects(friends(5)) != canonical_objects(apart)
    for number in (8, 26):
        with pytest.raises(MalformedInputError, match="whose sets, or keys, are objects that hold"):
            canonical_objects(friends(number))
    # Where their order counts, nothing is looked at, and no text is written within texts.
    assert len(dumps(form_of(friends(26), set_order=True))) < 100_000
    people = friends(26)
    for one in people.values():
        one.friends = dict.fromkeys(one.friends)
    assert len(dumps(form_of(people, set_order=True))) < 100_000
    with pytest.raises(MalformedInputError, match="whose sets, or keys, are objects that hold"):
        canonical_objects(people, key_order=True)
    many = {Shelf(name=f"{n}", of={Shelf(name=f"{n}.{m}") for m in range(3)}) for n in range(4000)}
    assert len(canonical_objects(many)) > 4000


def test_what_a_class_leaves_out_of_what_it_is_rebuilt_with_is_no_part_of_it() -> None:
    class Guarded:
        def __init__(self, stock):
            self.stock, self.lock = stock, threading.Lock()

        def __getstate__(self):
            return {"stock": self.stock}

    assert canonical_objects(Guarded(1)) == canonical_objects(Guarded(1))
    assert canonical_objects(Guarded(1)) != canonical_objects(Guarded(2))

    class Careless(Guarded):
        def __init__(self, stock, price):
            super().__init__(stock)
            self.price = price

    class Renamed:
        def __init__(self, stock):
            self._held = {"stock": stock, "lock": threading.Lock()}

        def __getstate__(self):
            return {"stock": self._held["stock"]}

    # What it is rebuilt with counts, under whatever name.
    assert canonical_objects(Renamed(1)) == canonical_objects(Renamed(1))
    assert canonical_objects(Renamed(1)) != canonical_objects(Renamed(2))

    # What has a form counts all the same.
    assert canonical_objects(Careless(1, 1)) != canonical_objects(Careless(1, 2))


def test_states_may_be_nested_deeply() -> None:
    def chain(length):
        first = None
        for number in range(length):
            first = Item(number, first)
        return first

    # Python 3.12 writes JSON of at most 1,500 levels.
    deep = 400 if sys.version_info[:2] == (3, 12) else 900
    assert canonical_objects(chain(deep)) != canonical_objects(chain(deep + 1))
    assert canonical_objects(copied(chain(deep))) == canonical_objects(chain(deep))
    with pytest.raises(MalformedInputError, match="nested too deeply"):
        canonical_objects(chain(50_000))


@pytest.mark.parametrize("length", [600, 900, 1500, 5000])
def test_a_state_nested_too_deeply_to_be_written_is_refused_by_name(length) -> None:
    inside: object = None
    for number in range(length):
        inside = Item(number, inside)
    found: bytes | str = ""
    try:
        found = canonical_objects(inside)
    except MalformedInputError as error:
        found = str(error)
    assert isinstance(found, bytes) or "nested too deeply" in found


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
        partial(adder(1), 1),
        adder(1),
        lambda given=[]: given,
        defaultdict(adder(1)),
        counted,
        iter([1]),
        itertools.count(),
        memoryview(bytearray(b"a")),
        eval("lambda: K", {"K": 1, "__name__": __name__}),
        eval("lambda: 1", {"__name__": "of_no_module"}),
        local_class([])(),
        random.SystemRandom(),
        KeyError("a"),
        type("Made", (), {}),
        (number for number in (1, 2)),
        weakref.ref(Shelf),
        logging.Logger("of nobody"),
        np.array([object()]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_read_is_refused_and_never_taken_for_equal(hidden) -> None:
    with pytest.raises(MalformedInputError, match="without a canonical form"):
        canonical_objects({"in": [hidden]})


def test_a_logger_is_its_name() -> None:
    log = logging.getLogger("shop")
    assert canonical_objects(Shelf(log=log)) == canonical_objects(copied(Shelf(log=log)))
    assert canonical_objects(log) != canonical_objects(logging.getLogger("shop.till"))


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


def test_tables_of_pandas_are_read_without_their_caches() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")

    def bytes_of(state):
        return canonical_objects({"of": state}, ignored=["_cache"])

    for make in (
        lambda v: pandas.Timestamp(f"2026-01-0{v}"),
        lambda v: pandas.DataFrame({"a": [v, 2], "b": ["x", "y"]}),
        lambda v: pandas.DataFrame({"a": ["x", str(v)]}).set_index("a"),
        lambda v: pandas.Series([v, 2], index=["p", "q"]),
        lambda v: pandas.Categorical(["a", str(v)]),
    ):
        assert bytes_of(make(1)) == bytes_of(make(1)) == bytes_of(copied(make(1)))
        assert bytes_of(make(1)) != bytes_of(make(2))
