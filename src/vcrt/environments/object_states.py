"""Write the state of Python objects as canonical bytes: values, attributes, and how they refer to each other.

It serves environments whose native state is objects of somebody's own classes. Two states have equal bytes if their
objects have the same classes, equal values, and the same objects in the same places (cycles and sharing count). The
order of a mapping's keys does not, but for an ``OrderedDict``, nor does that of a set.

Values of built-in types are written by their own form, objects of Python classes by their attributes, and objects of
classes in C by what rebuilds them (``__reduce_ex__``, ``copyreg``). What can change has an identity: a second reference
to it is told from an equal one. Not covered: state outside of the objects (open files, databases, C code without a
protocol), which is refused by its place, never passed over.
"""

from __future__ import annotations

import copyreg
import dis
import gc
import random
import struct
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from functools import cached_property, lru_cache
from io import BytesIO, StringIO
from itertools import groupby
from json.encoder import encode_basestring
from logging import Logger, getLogger
from operator import itemgetter
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, TypeAlias
from uuid import UUID, SafeUUID

import numpy as np

from vcrt.environments.object_copies import deeply, own_slots
from vcrt.environments.registry import own_module_name
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, json_text, sha256_hex

#: Classes whose values are their own form; whole numbers too, unless they are very long.
_AS_JSON = frozenset({type(None), bool, str})
_LONG = 1 << 4096
#: How one comes to a value: from where, by what kind of step, and which.
_Place: TypeAlias = "tuple[_Place, str, Any] | None"
#: What shows a mapping, and its changes.
_VIEWS: tuple[type, ...] = (MappingProxyType, type({}.keys()), type({}.values()), type({}.items()))
#: The flag of classes that a program made.
_MADE_BY_PYTHON = 1 << 9
_NAN = struct.pack(">d", float("nan"))


def canonical_objects(
    state: object, *, ignored: Collection[str] = (), key_order: bool = False
) -> bytes:
    """The canonical bytes of a state; attributes named in ``ignored`` are left out.

    With ``key_order`` the order of a mapping's keys counts. Raises :class:`vcrt.errors.MalformedInputError` naming the
    attribute that holds something whose value cannot be read: a lock or a connection, an iterator, a function with
    variables of its own, an object of a class of C that nothing rebuilds; or a state that is nested too deeply.

    >>> canonical_objects({"b": {2, 1}, "a": (1, None)}) == canonical_objects({"a": (1, None), "b": {1, 2}})
    True
    """
    return _written(_form(state, frozenset(ignored), key_order))


def form_of(state: object, *, ignored: Collection[str] = (), set_order: bool = False) -> Json:
    """What a state holds as JSON, keys in their order (members of sets too, if asked for); a text if it is unread."""
    try:
        return _form(state, frozenset(ignored), True, set_order)
    except MalformedInputError:
        return "unread"


def first_difference(one: Any, other: Any, path: str = "state") -> str | None:
    """Where two forms of states differ first, such as ``state.shelf["a"]``; None if nowhere.

    Keys may be anything that calls were given: :func:`without_keys` takes them out.

    >>> first_difference(form_of({"a": [1, 2]}), form_of({"a": [1, 3]}))
    'state["a"][1]'
    """
    with deeply():
        return _first_difference(one, other, path)


def _first_difference(one: Any, other: Any, path: str) -> str | None:
    if _written(one) == _written(other):
        return None
    if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
        for parts, others in zip(one.values(), other.values(), strict=True):
            for step, value, now in _paired(parts, others):
                found = _first_difference(value, now, path + step[:50])
                if found is not None:
                    return found
    return path


def without_keys(path: str) -> str:
    """A path as :func:`first_difference` gives it, up to the first key, which may hold anything.

    >>> without_keys('state.shelf["a"].of[1]')
    'state.shelf[...]'
    """
    start, bracket, _ = path.partition("[")
    return f"{start}[...]" if bracket else start


def _paired(parts: Any, others: Any) -> Iterable[tuple[str, Any, Any]]:
    """What stands at one place in attributes, in the items of a mapping or in those of a sequence."""
    if isinstance(parts, dict) and isinstance(others, dict):
        return [(f".{name}", parts[name], others[name]) for name in parts if name in others]
    if not isinstance(parts, list) or not isinstance(others, list) or len(parts) != len(others):
        return ()
    if not all(isinstance(each, list) for each in (*parts, *others)):
        return [(f"[{n}]", *pair) for n, pair in enumerate(zip(parts, others, strict=True))]
    same = [key for key, _ in parts] == [key for key, _ in others]
    pairs = zip(parts, others, strict=True) if same else ()
    return [(f"[{key}]", value, now) for (key, value), (_, now) in pairs]


def _form(state: object, ignored: frozenset[str], key_order: bool, set_order: bool = False) -> Json:
    """The form of a state, the same whatever order its sets have in this process."""
    try:
        with deeply():
            writer = StateWriter(ignored, key_order, set_order)
            form = writer.form(state, None)
            if not writer.tied:
                return form
            # Members that look alike are told apart by who else refers to them; those that are not, by nothing.
            again = [
                StateWriter(ignored, key_order, set_order, references=writer.references, last=last)
                for last in (False, True)
            ]
            forms = [each.form(state, None) for each in again]
    except RecursionError as error:
        raise MalformedInputError(
            "a state that is nested too deeply",
            where="state",
            found="objects that hold each other some thousands deep",
            expected="at most about two thousand objects, one in the other",
            remedy="keep them in a list or a dictionary; or override canonical, snapshot and restore",
        ) from error
    if _written(forms[0]) != _written(forms[1]):
        raise MalformedInputError(
            "a state with members of a set, or keys, that only their identity tells apart",
            where=again[0].tied,
            expected="members that differ in what they hold",
            remedy="give them a name or a number; or override canonical()",
        )
    return forms[0]


def _written(form: Json) -> bytes:
    """Canonical JSON, of texts with lone surrogates too."""
    with deeply():
        return json_text(form).encode("utf-8", "surrogatepass")


class StateWriter:
    """Numbers objects as it meets them, so that a second reference to one is told from an equal object.

    ``tied`` is the place of the first set, or mapping, of which members look alike in all that they hold. Where
    ``references`` are given (from where each object was referred to again), they order such members; ``last`` orders
    those that are alike then, too, the other way round.
    """

    def __init__(
        self,
        ignored: frozenset[str],
        key_order: bool,
        set_order: bool = False,
        *,
        references: Mapping[int, list[str]] | None = None,
        last: bool = False,
    ) -> None:
        self.ignored = ignored
        self.key_order = key_order
        self.set_order = set_order
        self.met: dict[int, int] = {}
        # Numbers are those of living objects alone: what is made on the way is kept until the end.
        self.kept: list[object] = []
        self.owners: dict[int, object] = {}
        self.codes: dict[Any, str] = {}
        self.tied: str | None = None
        self.references: dict[int, list[str]] = {}
        self.known_references, self.last = references, last

    def form(self, value: Any, where: _Place) -> Json:
        """The JSON form of a value; ``where`` is how one comes to it from the state."""
        kind: Any = type(value)
        if kind in _AS_JSON or (kind is int and -_LONG < value < _LONG):
            return value  # type: ignore[no-any-return]
        write, base, can_change = _writing(kind)
        if can_change:
            number = self.met.get(id(value))
            if number is not None:
                self.references.setdefault(id(value), []).append(_path(where, exact=False))
                return {"again": number}
            self.met[id(value)] = len(self.met)
            self.kept.append(value)
        form = write(self, value, where)
        if base is kind:
            return form
        more = self._attributes(value, base, where)
        parts: dict[str, Json] = {_name(kind): more if write is _attributes_alone else form}
        if more and write is not _attributes_alone:
            parts["attributes"] = more
        return parts | self._what_it_does(kind, where)

    def _what_it_does(self, kind: Any, where: _Place) -> dict[str, Json]:
        """What a class does, unless its name says it; of one that another process may have sent here, a digest."""
        if not kind.__flags__ & _MADE_BY_PYTHON:
            return {}
        if not _is_found(kind):
            return {"class": self._class(kind, where)}
        if kind.__module__ != "__main__":
            return {}
        if kind not in self.codes:
            self.codes[kind] = _digest_of(kind)
        return {"code": self.codes[kind]}

    def _attributes(self, value: Any, base: Any, where: _Place) -> dict[str, Json]:
        """The attributes that an object of a class derived from ``base`` has beside what that holds."""
        kind: Any = type(value)
        found = dict(getattr(value, "__dict__", {}))
        for name, slot in own_slots(kind, base):
            if name in self.ignored:
                continue
            while name in found:  # of a class above, which this one hides
                name += "'"
            with suppress(AttributeError):  # not set
                found[name] = slot.__get__(value)
        forms: dict[str, Json] = {}
        for name in sorted(found, key=str):
            if name in self.ignored:
                continue
            checkpoint = len(self.met)
            try:
                forms[name] = self.form(found[name], (where, ".{}", name))
            except MalformedInputError:
                # What a class says that it is rebuilt without, such as a lock, is no part of it.
                rebuilt = _own_state(value)
                if rebuilt is None or rebuilt.get(name) is found[name]:
                    raise
                self._forget(checkpoint)
                if name in rebuilt:
                    self.kept.append(rebuilt)
                    forms[name] = self.form(rebuilt[name], (where, ".{}", name))
        return forms

    def _class(self, kind: Any, where: _Place) -> Json:
        """What a class that no module has under its name does: its bases, and the code of its functions."""
        if id(kind) in self.met:
            return {"again": self.met[id(kind)]}
        self.met[id(kind)] = len(self.met)
        bases = [
            _name(each) if _is_found(each) else self._class(each, where) for each in kind.__bases__
        ]
        body = {
            name: self._code(each, (where, " (class, {})", name))
            for name, each in sorted(vars(kind).items())
            if name not in _SAYS_NOTHING and name not in self.ignored
        }
        made = {} if _is_found(type(kind)) else {"made by": self._class(type(kind), where)}
        return {"bases": bases, "body": body, **made}

    def _code(self, value: Any, where: _Place) -> Json:
        """What stands in the body of a class: code, values, and of what C has made for it the kind alone."""
        inner = [value]
        if isinstance(value, property):
            inner = [value.fget, value.fset, value.fdel]
        elif isinstance(value, staticmethod | classmethod):
            inner = [value.__func__]
        elif isinstance(value, cached_property):
            inner = [value.func]
        if type(value) in _OF_C:
            return _name(type(value))
        return [self._part_of_class(each, where) for each in inner]

    def _part_of_class(self, value: Any, where: _Place) -> Json:
        if isinstance(value, FunctionType):
            return self._function(value, where, of_class=True)
        if isinstance(value, type):
            return _name(value) if _is_found(value) else self._class(value, where)
        return self.form(value, where)

    def _function(self, value: FunctionType, where: _Place, *, of_class: bool = False) -> Json:
        """A function: its name if a module has it, else its code, if it holds nothing that can change.

        What is around it may hold values only if it is ``of_class``: elsewhere another function may set them anew.
        """
        found = _is_found(value)
        if found and value.__module__.partition(".")[0] in sys.stdlib_module_names:
            return {"name": _name(value)}
        if value.__dict__.keys() - {"__wrapped__"}:
            raise _without_form(value, where)
        module = sys.modules.get(value.__module__ or "")
        if value.__module__ != "__main__" and not of_class:
            space = None if module is None else vars(module)
            if value.__globals__ is not space:
                # It may depend on variables that nobody else can see.
                raise _without_form(value, where)
        if found:
            sent = {"code": _digest_of(value)} if value.__module__ == "__main__" else {}
            return {"name": _name(value), **sent}
        held: list[Json] = []
        for cell in value.__closure__ or ():
            inner = cell.cell_contents if cell != _EMPTY else None
            if isinstance(inner, type):  # such as the class that `super()` means
                held.append(_name(inner) if _is_found(inner) else self._class(inner, where))
            elif is_fixed(inner) and of_class and not _sets_variables(value.__code__):
                held.append(self.form(inner, where))
            elif not isinstance(inner, FunctionType) or not _is_found(inner):
                raise _without_form(value, where)
        for each in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
            if not is_fixed(each):
                raise _without_form(value, where)
            held.append(self.form(each, where))
        return {"function": _name(value), "code": _digest(value.__code__), "held": held}

    def _forget(self, checkpoint: int) -> None:
        """Give up the numbers that were given since, with what was written of their objects."""
        while len(self.met) > checkpoint:
            self.met.popitem()

    def _looked_at(self, *values: tuple[Any, _Place]) -> str:
        """The form of values by themselves, as text; what is met on the way is forgotten."""
        checkpoint, references = len(self.met), self.references
        self.references = {}
        try:
            text = json_text([self.form(*each) for each in values])
        finally:
            known = self.known_references or {}
            marks: Json = [
                [number - checkpoint, sorted(known[each])]
                for each, number in self.met.items()
                if number >= checkpoint and each in known
            ]
            self._forget(checkpoint)
            self.references = references
        return f"{text} {json_text(marks)}" if marks else text

    def _in_order(
        self, values: Iterable[Any], where: _Place, look: Callable[[Any], str]
    ) -> list[Any]:
        """Values in an order that depends on what they hold, and on who else refers to them, alone."""
        looked = [(look(each), each) for each in values]
        looked.sort(key=itemgetter(0))
        ordered: list[Any] = []
        for _, some in groupby(looked, key=itemgetter(0)):
            alike = [each for _, each in some]
            if len(alike) > 1 and self.tied is None:
                self.tied = _path(where)
            ordered += reversed(alike) if self.last else alike
        return ordered

    def _members(self, values: Iterable[Any], where: _Place) -> list[str]:
        """The forms of a set's members, as text."""
        place = (where, ": a member", None)
        members = list(values)
        if self.set_order:
            return [_text(each) or json_text(self.form(each, place)) for each in members]
        others = [each for each in members if _text(each) is None]
        if len(others) > 1:
            others = self._in_order(others, place, lambda each: self._looked_at((each, place)))
        texts = [json_text(self.form(each, place)) for each in others]
        return sorted([*texts, *(text for each in members if (text := _text(each)) is not None)])

    def _entries(
        self, pairs: Iterable[tuple[Any, Any]], where: _Place, *, in_order: bool = False
    ) -> list[Json]:
        """Keys, as JSON, and forms of the values, sorted by the keys, or in their order where that counts."""
        place = (where, ": a key", None)
        entries = list(pairs)
        # As for Python, which says that two of another order are not equal.
        if not (in_order or self.key_order):
            others = [pair for pair in entries if _text(pair[0]) is None]
            if len(others) > 1:
                others = self._entries_in_order(others, where)
            if others:
                entries = [pair for pair in entries if _text(pair[0]) is not None] + others
        texts = [_text(key) or json_text(self.form(key, place)) for key, _ in entries]
        keyed = [(text, *pair) for text, pair in zip(texts, entries, strict=True)]
        if not (in_order or self.key_order):
            keyed.sort(key=itemgetter(0))
        return [
            [text, v if type(v) in _AS_JSON else self.form(v, (where, "[{!r}]", key))]
            for text, key, v in keyed
        ]

    def _entries_in_order(self, pairs: list[tuple[Any, Any]], where: _Place) -> list[Any]:
        """Entries whose keys are objects: by the keys, and where those look alike by the values."""
        place = (where, ": a key", None)
        keys = [self._looked_at((key, place)) for key, _ in pairs]
        alone = {id(pair): text for pair, text in zip(pairs, keys, strict=True)}
        number = Counter(keys)

        def look(pair: tuple[Any, Any]) -> str:
            text = alone[id(pair)]
            if number[text] == 1:
                return text
            inner = (where, "[{!r}]", pair[0])
            return text + self._looked_at((pair[0], place), (pair[1], inner))

        return self._in_order(pairs, place, look)

    def _sequence(self, values: Iterable[Any], where: _Place) -> list[Json]:
        return [
            v if type(v) in _AS_JSON else self.form(v, (where, "[{!r}]", i))
            for i, v in enumerate(values)
        ]


_Write: TypeAlias = "Callable[[StateWriter, Any, _Place], Json]"
_EMPTY = CellType()
#: What the body of a class has beside what it does.
_SAYS_NOTHING = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__annotations__"),
        "_abc_impl",
    )
)
#: What C makes for the body of a class.
_OF_C = frozenset(
    (
        *(GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType),
        ClassMethodDescriptorType,
    )
)


def _text(key: Any) -> str | None:
    """The form of a key that is a text or a number, as JSON; None of others."""
    if type(key) is str:
        return encode_basestring(key)
    return repr(key) if type(key) is int and -_LONG < key < _LONG else None


def _without_form(value: object, where: _Place, found: str | None = None) -> MalformedInputError:
    kind = type(value)
    return MalformedInputError(
        "a state that holds something without a canonical form",
        where=_path(where),
        found=found or f"{kind.__module__}.{kind.__qualname__}",
        expected="values, containers, objects with attributes or that pickle, functions and classes of a module",
        remedy="override canonical(), or name the attribute in the environment's `ignored`",
    )


def _path(where: _Place, *, exact: bool = True) -> str:
    """A place as one would write it in Python; unless ``exact``, without what keys and members are."""
    steps: list[str] = []
    while where is not None:
        where, step, name = where
        if exact or step == ".{}":
            steps.append(step.format(name)[:50])
        else:
            steps.append("[]")
    return "".join(["state", *reversed(steps)])


# How the values of each built-in class are written.


def _enum(writer: StateWriter, value: Enum, where: _Place) -> Json:
    kind = type(value)
    more = writer._what_it_does(kind, where)
    if isinstance(value, Flag):
        return {_name(kind): ["flag", repr(value._value_)], **more}
    return {_name(kind): value._name_, **more}


def _whole(writer: StateWriter, value: int, where: _Place) -> Json:
    number = int.__index__(value)
    return {"int": repr(number) if -_LONG < number < _LONG else f"{number:x}"}


def _float_text(value: float) -> str:
    number = float.__float__(value)
    packed = struct.pack(">d", number)
    return repr(number) if number == number or packed == _NAN else f"nan {packed.hex()}"


def _real(writer: StateWriter, value: float, where: _Place) -> Json:
    return {"float": _float_text(value)}


def _complex(writer: StateWriter, value: complex, where: _Place) -> Json:
    if value == value:
        return {"complex": complex.__repr__(value)}
    return {"complex": [_float_text(value.real), _float_text(value.imag)]}


def _datetime(writer: StateWriter, value: datetime, where: _Place) -> Json:
    text = str(datetime.combine(datetime.date(value), datetime.time(value)))
    return {"datetime.datetime": _zoned(writer, text, value, where)}


def _time(writer: StateWriter, value: time, where: _Place) -> Json:
    text = str(time(value.hour, value.minute, value.second, value.microsecond))
    return {"datetime.time": _zoned(writer, text, value, where)}


def _zoned(writer: StateWriter, text: str, value: datetime | time, where: _Place) -> Json:
    """A time by its clock; with fold and zone if it has them: zones of one offset are not one."""
    if value.tzinfo is None and not value.fold:
        return text
    return [text, value.fold, writer.form(value.tzinfo, (where, ".{}", "tzinfo"))]


def _timezone(writer: StateWriter, value: timezone, where: _Place) -> Json:
    offset, *name = value.__getinitargs__()  # type: ignore[attr-defined]
    return {"datetime.timezone": [str(offset), *name]}


def _uuid(writer: StateWriter, value: UUID, where: _Place) -> Json:
    safe = [] if value.is_safe is SafeUUID.unknown else [value.is_safe.name]
    text = UUID.__str__(value)
    return {"uuid.UUID": [text, *safe] if safe else text}


def _list(writer: StateWriter, value: list[Any], where: _Place) -> Json:
    return {"list": writer._sequence(list.__iter__(value), where)}


def _tuple(writer: StateWriter, value: tuple[Any, ...], where: _Place) -> Json:
    return {"tuple": writer._sequence(tuple.__iter__(value), where)}


def _deque(writer: StateWriter, value: deque[Any], where: _Place) -> Json:
    form: dict[str, Json] = {"collections.deque": writer._sequence(deque.__iter__(value), where)}
    if value.maxlen is not None:
        form["attributes"] = {"maxlen": value.maxlen}
    return form


def _dict(writer: StateWriter, value: dict[Any, Any], where: _Place) -> Json:
    return {"dict": writer._entries(dict.items(value), where)}


def _ordered(writer: StateWriter, value: OrderedDict[Any, Any], where: _Place) -> Json:
    entries = writer._entries(OrderedDict.items(value), where, in_order=True)
    return {"collections.OrderedDict": entries}


def _default(writer: StateWriter, value: defaultdict[Any, Any], where: _Place) -> Json:
    factory = writer.form(value.default_factory, (where, ".{}", "default_factory"))
    entries = writer._entries(dict.items(value), where)
    return {"collections.defaultdict": entries, "default_factory": factory}


def _set(writer: StateWriter, value: set[Any], where: _Place) -> Json:
    return {"set": writer._members(set.__iter__(value), where)}


def _frozenset(writer: StateWriter, value: frozenset[Any], where: _Place) -> Json:
    return {"frozenset": writer._members(frozenset.__iter__(value), where)}


def _view(writer: StateWriter, value: Any, where: _Place) -> Json:
    """What looks at a mapping and shows its changes."""
    (viewed,) = gc.get_referents(value)
    return {type(value).__qualname__: writer.form(viewed, where)}


def _random(writer: StateWriter, value: random.Random, where: _Place) -> Json:
    if isinstance(value, random.SystemRandom):
        raise _without_form(value, where)
    return {"random": repr(random.Random.getstate(value))}


def _generator(writer: StateWriter, value: np.random.Generator, where: _Place) -> Json:
    return {"random": writer.form(value.bit_generator, (where, ".{}", "bit_generator"))}


def _random_state(writer: StateWriter, value: np.random.RandomState, where: _Place) -> Json:
    state: Any = value.get_state(legacy=False)
    bits = writer.form(value._bit_generator, (where, ".{}", "_bit_generator"))
    return {"random": [repr(state["has_gauss"]), repr(state["gauss"]), bits]}


def _bits(writer: StateWriter, value: np.random.BitGenerator, where: _Place) -> Json:
    seeds: Any = value.seed_seq
    spawned = writer.form(seeds, (where, ".{}", "seed_seq"))
    return {"bits": [type(value).__name__, repr(value.state), spawned]}


def _seeds(writer: StateWriter, value: np.random.SeedSequence, where: _Place) -> Json:
    return {"seeds": repr(value.state)}


def _array(writer: StateWriter, value: np.ndarray[Any, Any], where: _Place) -> Json:
    """An array of numbers by its elements, one of objects by their forms."""
    flags = _memory(writer, value, where)
    if value.dtype.hasobject:
        elements = value.ravel().tolist()
        writer.kept.append(elements)
        parts: Json = [writer.form(v, (where, ".flat[{!r}]", i)) for i, v in enumerate(elements)]
        return {"numpy.ndarray": [[str(value.dtype), list(value.shape)], parts, *flags]}
    return {"array": [str(value.dtype), list(value.shape), _elements(value), *flags]}


def _memory(writer: StateWriter, value: np.ndarray[Any, Any], where: _Place) -> list[Json]:
    """How an array lies in its memory, where that is not as usual.

    One whose memory another in the state has too, or something that is no array, is refused: copies part them.
    """
    owner: Any = value
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    foreign = owner.base if isinstance(owner, np.ndarray) else owner
    if foreign is not None and (not isinstance(foreign, bytes) or value.flags.writeable):
        raise _without_form(
            value, where, f"an array in the memory of a {type(foreign).__qualname__}"
        )
    if writer.owners.setdefault(id(owner), value) is not value:
        raise _without_form(value, where, "an array that shares its memory with another")
    writer.kept.append(owner)
    flags: list[Json] = [] if value.flags.writeable else ["read-only"]
    if value.ndim > 1 and not value.flags.c_contiguous:
        flags.append("F" if value.flags.f_contiguous else list(value.strides))
    if value.dtype.metadata:
        flags.append(repr(dict(value.dtype.metadata)))
    return flags


def _elements(value: Any) -> str:
    """The elements of an array, or a scalar, exactly: numbers that are none by their bytes."""
    if value.dtype.kind in "fc" and bool(np.isnan(value).any()) and value.dtype.char not in "gG":
        return f"bytes {np.asarray(value).tobytes().hex()}"
    return repr(value.tolist())


def _dtype(writer: StateWriter, value: np.dtype[Any], where: _Place) -> Json:
    return {"numpy.dtype": [repr(value), repr(dict(value.metadata or {}))]}


def _scalar(writer: StateWriter, value: np.generic, where: _Place) -> Json:
    if isinstance(value, np.void) and (value.base is not None or value.dtype.hasobject):
        raise _without_form(value, where, "an element of a structured array")
    return {"array": [str(value.dtype), list(np.shape(value)), _elements(value)]}


def _stream(writer: StateWriter, value: StringIO | BytesIO, where: _Place) -> Json:
    name = _name(StringIO if isinstance(value, StringIO) else BytesIO)
    if value.closed:
        return {name: "closed"}
    state: Any = value.__getstate__()
    return {name: [repr(each) for each in state[:-1]]}


def _method(writer: StateWriter, value: Any, where: _Place) -> Json:
    of = value.__self__
    if isinstance(of, ModuleType | None):
        return {"name": _name(value)}
    function = value.__func__ if isinstance(value, MethodType) else None
    if isinstance(function, FunctionType) and not _is_found(function):
        what: Json = writer.form(function, (where, ".{}", "__func__"))
    elif function is None or isinstance(function, FunctionType):
        what = _name(value)
    else:
        what = writer.form(function, (where, ".{}", "__func__"))
    return {"method": what, "of": writer.form(of, (where, ".{}", "self"))}


def _function(writer: StateWriter, value: FunctionType, where: _Place) -> Json:
    return writer._function(value, where)


def _type(writer: StateWriter, value: type, where: _Place) -> Json:
    if not _is_found(value):
        raise _without_form(value, where)
    return {"name": _name(value)}


def _logger(writer: StateWriter, value: Logger, where: _Place) -> Json:
    """A logger by its name, as it is copied; what it does is not in the state."""
    if getLogger(value.name) is not value:
        raise _without_form(value, where)
    return {"logger": value.name}


def _refused(writer: StateWriter, value: object, where: _Place) -> Json:
    raise _without_form(value, where)


def _attributes_alone(writer: StateWriter, value: object, where: _Place) -> Json:
    """Nothing: an object of a class in Python is its attributes."""
    return {}


def _rebuilt(writer: StateWriter, value: Any, where: _Place) -> Json:
    """An object of a class in C, by what rebuilds it: a function or class, its arguments, and what is set then."""
    getattr(value, "__dict__", None)  # made when it is first asked for, and then given
    try:
        reducer = copyreg.dispatch_table.get(type(value))
        reduced = reducer(value) if reducer else value.__reduce_ex__(4)
    except Exception as error:
        raise _without_form(value, where) from error
    if isinstance(reduced, str):
        found = getattr(sys.modules.get(type(value).__module__), reduced, None)
        if found is not value:
            raise _without_form(value, where)
        return {"name": reduced}
    writer.kept.append(reduced)
    rebuilt: list[Any] = [*reduced, None, None, None]
    make, arguments, state, items, pairs = rebuilt[:5]
    memory = [_memory(writer, value, where)] if isinstance(value, np.ndarray) else []
    return {
        **({"memory": memory} if memory else {}),
        "made": writer.form(make, where),
        "of": writer._sequence(arguments, where),
        "state": writer.form(state, where),
        "items": writer._sequence(items or (), where),
        "pairs": writer._entries(pairs or (), where),
    }


#: The classes, the narrower ones first, how their values are written, and whether these can change or have attributes.
_BASES: tuple[tuple[Any, _Write, bool], ...] = (
    (Enum, _enum, False),
    (str, lambda w, value, _: str.__str__(value), False),
    (int, _whole, False),
    (float, _real, False),
    (complex, _complex, False),
    (bytes, lambda w, value, _: {"bytes": bytes.hex(value)}, False),
    (bytearray, lambda w, value, _: {"bytearray": bytearray.hex(value)}, True),
    (datetime, _datetime, False),
    (date, lambda w, value, _: {"datetime.date": date.__str__(value)}, False),
    (time, _time, False),
    (timedelta, lambda w, value, _: {"datetime.timedelta": timedelta.__str__(value)}, False),
    (timezone, _timezone, False),
    (Decimal, lambda w, value, _: {"decimal.Decimal": Decimal.__str__(value)}, False),
    (PurePath, lambda w, value, _: PurePath.__str__(value), False),
    (UUID, _uuid, False),
    (OrderedDict, _ordered, True),
    (defaultdict, _default, True),
    (dict, _dict, True),
    (list, _list, True),
    (tuple, _tuple, False),
    (deque, _deque, True),
    (set, _set, True),
    (frozenset, _frozenset, False),
    *((kind, _view, False) for kind in _VIEWS),
    (random.Random, _random, True),
    (np.random.Generator, _generator, True),
    (np.random.RandomState, _random_state, True),
    (np.random.BitGenerator, _bits, True),
    (np.random.SeedSequence, _seeds, True),
    (np.dtype, _dtype, False),
    (np.generic, _scalar, False),
    (StringIO, _stream, True),
    (BytesIO, _stream, True),
    ((MethodType, BuiltinFunctionType), _method, False),
    (FunctionType, _function, False),
    (type, _type, False),
    (Logger, _logger, False),
    ((ModuleType, BaseException), _refused, False),
)


#: What writes an object of a derived class with its class.
_WHOLE = (_enum, _logger, _type, _view, _method, _function, _dtype, _scalar, _refused)


@lru_cache(maxsize=4096)
def _writing(kind: Any) -> tuple[_Write, Any, bool]:
    """How the values of a class are written, of which class it derives, and whether its objects can change."""
    if kind is np.ndarray:
        return _array, kind, True
    for bases, write, can_change in _BASES:
        if issubclass(kind, bases):
            base = bases if isinstance(bases, type) else kind
            if write in _WHOLE or base is kind:
                return write, kind, can_change
            if _is_of_c(kind, base):
                return _rebuilt, object, True
            has_more = kind.__dictoffset__ != 0 or bool(own_slots(kind, base))
            return _by_name(write), base, can_change or has_more
    if _is_of_c(kind, object):
        return (_refused if hasattr(kind, "__next__") else _rebuilt), object, True
    return (_refused if kind is object else _attributes_alone), object, True


def can_change(kind: type) -> bool:
    """Whether objects of a class can change, so that it counts who else refers to them."""
    return _writing(kind)[2]


def _by_name(write: _Write) -> _Write:
    """What the value of a derived class holds of its base, without the name of that."""

    def inner(writer: StateWriter, value: Any, where: _Place) -> Json:
        form = write(writer, value, where)
        if isinstance(form, dict) and len(form) == 1:
            (form,) = form.values()
        return form

    return inner


def _is_of_c(kind: Any, base: Any) -> bool:
    """Whether objects of a class have room for more than ``base``, their attributes and weak references.

    As :meth:`object.__reduce_ex__` asks it: such room belongs to code in C, and cannot be read.
    """
    pointers = len(own_slots(kind, base))
    pointers += (kind.__dictoffset__ > 0) - (base.__dictoffset__ > 0)
    pointers += (kind.__weakrefoffset__ > 0) - (base.__weakrefoffset__ > 0)
    room = base.__basicsize__ + pointers * tuple.__itemsize__
    return bool(kind is not base and kind.__basicsize__ > room)


def _is_found(value: Any) -> bool:
    """Whether a function or class is the one that its module has under its name.

    What was sent by value from the program of another process counts: this one has nothing under that name.
    """
    found = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    sent = found is None and value.__module__ == "__main__" and "<" not in value.__qualname__
    return found is value or sent


def is_fixed(value: Any) -> bool:
    """Whether a value never changes and refers to nothing that does."""
    if isinstance(value, tuple | frozenset):
        return all(map(is_fixed, value))
    if isinstance(value, FunctionType | type):
        return _is_found(value)
    if isinstance(value, BuiltinFunctionType):
        return isinstance(value.__self__, ModuleType | None)
    return isinstance(value, Enum) or type(value) in _FIXED


_FIXED = frozenset(
    (*(type(None), bool, int, float, complex, str, bytes), *(date, timedelta, Decimal, UUID))
)


def _own_state(value: Any) -> Mapping[str, Any] | None:
    """The attributes that an object's own protocol rebuilds it with; None if its class has none of its own."""
    kind: Any = type(value)
    protocol = ("__reduce__", "__reduce_ex__", "__getstate__")
    own = any(getattr(kind, n, None) is not getattr(object, n, None) for n in protocol)
    if not own and kind not in copyreg.dispatch_table:
        return None
    try:
        reducer: Any = copyreg.dispatch_table.get(kind)
        state = (reducer(value) if reducer else value.__reduce_ex__(4))[2]
    except Exception:
        return None
    if isinstance(state, tuple) and len(state) == 2:
        state = {**(state[0] or {}), **(state[1] or {})}
    return state if isinstance(state, dict) else None


def _sets_variables(code: CodeType) -> bool:
    """Whether a function sets a variable that is not its own."""
    return any(
        each.opname in ("STORE_DEREF", "DELETE_DEREF") and each.argval in code.co_freevars
        for each in dis.get_instructions(code)
    )


def _digest_of(value: Any) -> str:
    """The SHA-256 of the code of a function, or of a class's body and bases, the same where it is sent by value."""
    if isinstance(value, FunctionType):
        return _digest(value.__code__)
    parts: list[object] = [_name(each) for each in value.__bases__]
    for name, each in sorted(vars(value).items()):
        inner = [getattr(each, part, None) for part in ("fget", "fset", "fdel", "__func__", "func")]
        codes = [getattr(one, "__code__", None) for one in (each, *inner)]
        parts += [name, *(_digest(code) for code in codes if isinstance(code, CodeType))]
        if type(each) in _FIXED:
            parts.append(repr(each))
    return sha256_hex(repr(parts).encode())


def _digest(code: CodeType) -> str:
    """The SHA-256 of what a function does, the same in every process of one Python."""
    constants = [_digest(c) if isinstance(c, CodeType) else _constant(c) for c in code.co_consts]
    names: list[object] = [
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_flags,
    ]
    names += [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount]
    return sha256_hex(repr((code.co_code.hex(), constants, names)).encode())


def _constant(value: object) -> str:
    """A constant of code as text, members of sets in an order of their own."""
    if isinstance(value, tuple):
        return f"({','.join(map(_constant, value))})"
    return (
        f"{{{','.join(sorted(map(_constant, value)))}}}"
        if isinstance(value, frozenset)
        else repr(value)
    )


def _name(value: Any) -> str:
    """The name of a class or function; that of a built-in class is short."""
    module = getattr(value, "__module__", None)
    if module in (None, "builtins"):
        return str(value.__qualname__)
    return f"{own_module_name(value)}.{value.__qualname__}"
