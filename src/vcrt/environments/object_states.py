"""Write the state of Python objects as canonical bytes: attributes, containers, and how they refer to each other.

It serves environments whose native state is objects of somebody's own classes. Two states have equal bytes if their
objects have the same classes, equal values, and the same objects in the same places (cycles and sharing count). The
order of a mapping's keys and of a set does not. Not covered: state that lives outside of the objects (open files,
databases, C code), which is refused, never passed over.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Set
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, auto
from functools import lru_cache
from json.encoder import encode_basestring
from operator import itemgetter
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType
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
    *(type, FunctionType, BuiltinFunctionType, MethodType),
)


def canonical_objects(state: object, *, ignored: Collection[str] = ()) -> bytes:
    """The canonical bytes of a state; attributes named in ``ignored`` are left out.

    Raises :class:`vcrt.errors.MalformedInputError` naming the attribute that holds something without a value of its
    own, such as a lock or a connection.

    >>> canonical_objects({"b": {2, 1}, "a": (1, None)}) == canonical_objects({"a": (1, None), "b": {1, 2}})
    True
    """
    return canonical_json(_Writer(frozenset(ignored)).form(state, None))


class _Writer:
    """Numbers objects as it meets them, so that a second reference to one is told from an equal object."""

    def __init__(self, ignored: frozenset[str]) -> None:
        self.ignored = ignored
        self.met: dict[int, int] = {}
        # Numbers are those of living objects alone: what is made on the way is kept until the end.
        self.kept: list[object] = []

    def form(self, value: Any, where: _Place) -> Json:
        """The JSON form of a value; ``where`` is how one comes to it from the state."""
        kind: Any = type(value)
        if kind in _AS_JSON:
            return value  # type: ignore[no-any-return]
        shape, name = _shape(kind)
        if shape is _Shape.TEXT:
            return value  # type: ignore[no-any-return]
        if shape is _Shape.SIMPLE:
            return _simple(value, name)
        if id(value) in self.met:
            return {"again": self.met[id(value)]}
        if not isinstance(value, tuple | frozenset):
            self.met[id(value)] = len(self.met)
            self.kept.append(value)
        if shape is _Shape.MAPPING:
            return {name: self._entries(value, where)}
        if shape is _Shape.SEQUENCE:
            return {
                name: [
                    v if type(v) in _AS_JSON else self.form(v, (where, "[{!r}]", i))
                    for i, v in enumerate(value)
                ]
            }
        if shape is _Shape.SET:
            return {name: sorted(self._texts(value, (where, ": a member", None)))}
        return {name: self._attributes(value, where)}

    def _entries(self, value: Mapping[Any, Any], where: _Place) -> list[Json]:
        """Keys, as JSON, and forms of the values, in the order of the keys."""
        keys = zip(self._texts(value, (where, ": a key", None)), value, strict=True)
        return [
            [text, v if type(v := value[key]) in _AS_JSON else self.form(v, (where, "[{!r}]", key))]
            for text, key in sorted(keys, key=itemgetter(0))
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

    def _attributes(self, value: Any, where: _Place) -> Json:
        found = dict(getattr(value, "__dict__", {}))
        kind: Any = type(value)
        for name in slots_of(kind):
            if hasattr(value, name):
                found[name] = getattr(value, name)
        if not found and not hasattr(value, "__dict__"):
            raise MalformedInputError(
                "a state that holds something without a canonical form",
                where=_path(where),
                found=f"{type(value).__module__}.{type(value).__qualname__}",
                expected="values, containers and objects with attributes",
                remedy="override canonical(), or name the attribute in the environment's `ignored`",
            )
        return {
            name: v if type(v := found[name]) in _AS_JSON else self.form(v, (where, ".{}", name))
            for name in sorted(found)
            if name not in self.ignored
        }


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
    MAPPING = auto()
    SEQUENCE = auto()
    SET = auto()
    ATTRIBUTES = auto()


@lru_cache(maxsize=4096)
def _shape(kind: Any) -> tuple[_Shape, str]:
    """How the values of a class are written, and the name that is written of it."""
    shapes = {
        _Shape.TEXT: (str,),
        _Shape.SIMPLE: _SIMPLE,
        _Shape.MAPPING: (Mapping,),
        _Shape.SEQUENCE: (list, tuple, deque),
        _Shape.SET: (Set,),
    }
    found = (shape for shape, classes in shapes.items() if issubclass(kind, classes))
    return next(found, _Shape.ATTRIBUTES), _name(kind)


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
    if isinstance(value, type | FunctionType | BuiltinFunctionType):
        return {"name": _name(value)}
    if isinstance(value, MethodType):
        return {"method": _name(value)}
    return {name: repr(value)}


def _name(value: Any) -> str:
    """The name of a class or function; that of a built-in class is short."""
    module = getattr(value, "__module__", None)
    return value.__qualname__ if module in (None, "builtins") else f"{module}.{value.__qualname__}"
