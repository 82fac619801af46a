"""Write the state of Python objects as canonical bytes: attributes, containers, and how they refer to each other.

It serves environments whose native state is objects of somebody's own classes. Two states have equal bytes if their
objects have the same classes, equal values, and the same objects in the same places (cycles and sharing count). The
order of a mapping's keys does not, but for an ``OrderedDict``, nor does that of a set. Not covered: state that lives
outside of the objects (open files, databases, C code), which is refused, never passed over.
"""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, auto
from functools import lru_cache
from io import BytesIO, StringIO
from json.encoder import encode_basestring
from logging import Logger
from operator import itemgetter
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np

from vcrt.environments.object_copies import slots_of
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json

#: Classes whose values are their own form.
_AS_JSON = frozenset({type(None), bool, int, str})
#: How one comes to a value: from where, by what kind of step, and which.
_Place: TypeAlias = "tuple[_Place, str, Any] | None"
_AS_TEXT = (datetime, date, time, timedelta, timezone, Decimal, PurePath, UUID, complex)
#: Those whose values refer to nothing else.
_SIMPLE = (
    *(Enum, int, float, bytes, bytearray, tzinfo, *_AS_TEXT),
    *(random.Random, np.random.Generator, np.ndarray, np.generic),
    *(StringIO, BytesIO),
)

#: Those of them, and texts, whose objects have attributes where a class derives from them.
_WITH_ATTRIBUTES = (str, int, float, complex, bytes, bytearray, date, time, timedelta)


def canonical_objects(
    state: object, *, ignored: Collection[str] = (), key_order: bool = False
) -> bytes:
    """The canonical bytes of a state; attributes named in ``ignored`` are left out.

    With ``key_order`` the order of a mapping's keys counts. Raises :class:`vcrt.errors.MalformedInputError` naming the
    attribute that holds something whose value cannot be read: a lock or a connection, an iterator, a function that is
    no module's, an object of a class of C.

    >>> canonical_objects({"b": {2, 1}, "a": (1, None)}) == canonical_objects({"a": (1, None), "b": {1, 2}})
    True
    """
    return canonical_json(StateWriter(frozenset(ignored), key_order).form(state, None))


def form_of(state: object, *, set_order: bool = False) -> Json:
    """What a state holds as JSON, keys in their order (members of sets too, if asked for); a text if it is unread."""
    try:
        return StateWriter(frozenset(), True, set_order).form(state, None)
    except (MalformedInputError, RecursionError):
        return "unread"


def first_difference(one: Any, other: Any, path: str = "state") -> str | None:
    """Where two forms of states differ first, such as ``state.shelf["a"]``; None if nowhere.

    Keys may be anything that calls were given: :func:`without_keys` takes them out.

    >>> first_difference(form_of({"a": [1, 2]}), form_of({"a": [1, 3]}))
    'state["a"][1]'
    """
    if canonical_json(one) == canonical_json(other):
        return None
    if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
        for parts, others in zip(one.values(), other.values(), strict=True):
            for step, value, now in _paired(parts, others):
                found = first_difference(value, now, path + step[:50])
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


class StateWriter:
    """Numbers objects as it meets them, so that a second reference to one is told from an equal object."""

    def __init__(self, ignored: frozenset[str], key_order: bool, set_order: bool = False) -> None:
        self.ignored = ignored
        self.key_order = key_order
        self.set_order = set_order
        self.met: dict[int, int] = {}
        # Numbers are those of living objects alone: what is made on the way is kept until the end.
        self.kept: list[object] = []

    def form(self, value: Any, where: _Place) -> Json:
        """The JSON form of a value; ``where`` is how one comes to it from the state."""
        kind: Any = type(value)
        if kind in _AS_JSON:
            return value  # type: ignore[no-any-return]
        shape, name, has_more = _shape(kind)
        if shape is _Shape.SIMPLE and issubclass(kind, np.ndarray) and value.dtype.hasobject:
            return self._elements(value, name, where)
        if shape is _Shape.TEXT or shape is _Shape.SIMPLE:
            plain = value if shape is _Shape.TEXT else _simple(value, name)
            more = self._attributes(value, where) if has_more else None
            return {name: plain, "attributes": more} if more else plain
        if shape is _Shape.HIDDEN or (shape is _Shape.NAMED and not _is_found(value)):
            raise _without_form(value, where)
        if shape is _Shape.NAMED or (
            shape is _Shape.METHOD and isinstance(value.__self__, ModuleType | None)
        ):
            return {"name": _name(value)}
        if id(value) in self.met:
            return {"again": self.met[id(value)]}
        if not isinstance(value, tuple | frozenset):
            self.met[id(value)] = len(self.met)
            self.kept.append(value)
        if shape is _Shape.ATTRIBUTES:
            found = self._attributes(value, where)
            if not found and not hasattr(value, "__dict__"):
                raise _without_form(value, where)
            return {name: found}
        if shape is _Shape.METHOD:
            return {"method": _name(value), "of": self.form(value.__self__, (where, ".{}", "self"))}
        parts = self._parts(value, shape, where)
        more = self._attributes(value, where) if has_more else None
        return {name: parts, "attributes": more} if more else {name: parts}

    def _elements(self, value: Any, name: str, where: _Place) -> Json:
        """An array of objects."""
        if id(value) in self.met:
            return {"again": self.met[id(value)]}
        self.met[id(value)] = len(self.met)
        elements = value.ravel().tolist()
        self.kept += [value, elements]
        shape: Json = [str(value.dtype), list(value.shape)]
        parts = [self.form(v, (where, ".flat[{!r}]", i)) for i, v in enumerate(elements)]
        return {name: [shape, parts]}

    def _parts(self, value: Any, shape: _Shape, where: _Place) -> Sequence[Json]:
        """What a container holds."""
        if shape is _Shape.MAPPING:
            return self._entries(value, where)
        if shape is _Shape.SET:
            texts = self._texts(value, (where, ": a member", None))
            return texts if self.set_order else sorted(texts)
        return [
            v if type(v) in _AS_JSON else self.form(v, (where, "[{!r}]", i))
            for i, v in enumerate(value)
        ]

    def _entries(self, value: Mapping[Any, Any], where: _Place) -> list[Json]:
        """Keys, as JSON, and forms of the values, sorted by the keys, or in their order where that counts."""
        pairs = zip(self._texts(value, (where, ": a key", None)), value, strict=True)
        # As for Python, which says that two of another order are not equal.
        in_order = self.key_order or isinstance(value, OrderedDict)
        return [
            [text, v if type(v := value[key]) in _AS_JSON else self.form(v, (where, "[{!r}]", key))]
            for text, key in (pairs if in_order else sorted(pairs, key=itemgetter(0)))
        ]

    def _texts(self, values: Iterable[Any], where: _Place) -> list[str]:
        """Their forms as JSON; texts are ordered as their UTF-8 is."""
        return [
            encode_basestring(v)
            if type(v) is str
            else repr(v)
            if type(v) is int
            else canonical_json(self.form(v, where)).decode()
            for v in values
        ]

    def _attributes(self, value: Any, where: _Place) -> dict[str, Json]:
        found = dict(getattr(value, "__dict__", {}))
        kind: Any = type(value)
        for name in slots_of(kind):
            if hasattr(value, name):
                found[name] = getattr(value, name)
        if isinstance(value, deque) and value.maxlen is not None:
            found["maxlen"] = value.maxlen
        return {
            name: v if type(v := found[name]) in _AS_JSON else self.form(v, (where, ".{}", name))
            for name in sorted(found)
            if name not in self.ignored
        }


def _without_form(value: object, where: _Place) -> MalformedInputError:
    kind = type(value)
    return MalformedInputError(
        "a state that holds something without a canonical form",
        where=_path(where),
        found=f"{kind.__module__}.{kind.__qualname__}",
        expected="values, containers, objects with attributes, functions and classes of a module",
        remedy="override canonical(), or name the attribute in the environment's `ignored`",
    )


def _path(where: _Place) -> str:
    """A place as one would write it in Python."""
    steps: list[str] = []
    while where is not None:
        where, step, name = where
        steps.append(step.format(name)[:50])
    return "".join(["state", *reversed(steps)])


class _Shape(Enum):
    """How the values of a class are written."""

    TEXT = auto()
    SIMPLE = auto()
    NAMED = auto()
    METHOD = auto()
    MAPPING = auto()
    SEQUENCE = auto()
    SET = auto()
    ATTRIBUTES = auto()
    HIDDEN = auto()


#: The classes of each shape, the narrower ones first, with those whose objects hold no more than is written of them.
_SHAPES: tuple[tuple[_Shape, tuple[Any, ...]], ...] = (
    (_Shape.TEXT, (str,)),
    (_Shape.SIMPLE, _SIMPLE),
    (_Shape.HIDDEN, (Logger,)),
    (_Shape.NAMED, (type, FunctionType)),
    (_Shape.METHOD, (MethodType, BuiltinFunctionType)),
    (_Shape.MAPPING, (OrderedDict, defaultdict, dict, MappingProxyType)),
    (_Shape.SEQUENCE, (list, tuple, deque)),
    (_Shape.SET, (set, frozenset, type({}.keys()), type({}.items()))),
    (_Shape.ATTRIBUTES, (object,)),
)


@lru_cache(maxsize=4096)
def _shape(kind: Any) -> tuple[_Shape, str, bool]:
    """How the values of a class are written, the name that is written of it, and whether they may have attributes."""
    shape, base = next(
        (shape, each) for shape, classes in _SHAPES for each in classes if issubclass(kind, each)
    )
    if shape in (_Shape.MAPPING, _Shape.SEQUENCE, _Shape.SET, _Shape.ATTRIBUTES):
        shape = _Shape.HIDDEN if _is_of_c(kind, base) else shape
        return shape, _name(kind), kind is not base or kind is deque
    has_more = kind not in _SIMPLE and issubclass(kind, _WITH_ATTRIBUTES)
    return shape, _name(kind), has_more and not issubclass(kind, Enum)


def _is_of_c(kind: Any, base: Any) -> bool:
    """Whether objects of a class have room for more than ``base``, their attributes and weak references.

    As :meth:`object.__reduce_ex__` asks it: such room belongs to code in C, and cannot be read.
    """
    pointers = len(slots_of(kind)) + (kind.__dictoffset__ > 0) + (kind.__weakrefoffset__ > 0)
    room = base.__basicsize__ + pointers * tuple.__itemsize__
    return bool(kind is not base and kind.__basicsize__ > room)


def _is_found(value: Any) -> bool:
    """Whether a function or class is the one that its module has under its name, and nothing but that."""
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value and (isinstance(value, type) or not value.__dict__)


def _simple(value: Any, name: str) -> Json:
    """The form of a value that refers to nothing else."""
    if isinstance(value, Enum):
        return {name: value.name}
    if isinstance(value, int | float):
        return {name: repr(value)}
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    if isinstance(value, _AS_TEXT):
        return {name: str(value)}
    if isinstance(value, random.Random):
        return {"random": repr(value.getstate())}
    if isinstance(value, np.random.Generator):
        return {"random": repr(value.bit_generator.state)}
    if isinstance(value, np.ndarray | np.generic):
        return {"array": [str(value.dtype), list(np.shape(value)), repr(value.tolist())]}
    if isinstance(value, StringIO | BytesIO):
        return {name: [repr(value.getvalue()), value.tell()]}
    return {name: repr(value)}


def _name(value: Any) -> str:
    """The name of a class or function; that of a built-in class is short."""
    module = getattr(value, "__module__", None)
    return value.__qualname__ if module in (None, "builtins") else f"{module}.{value.__qualname__}"
