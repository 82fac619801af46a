"""Write the state of Python objects as canonical bytes: attributes, containers, and how they refer to each other.

It serves environments whose native state is objects of somebody's own classes. Two states have equal bytes if their
objects have the same classes, equal values, and the same objects in the same places (cycles and sharing count). The
order of a mapping's keys and of a set does not. Not covered: state that lives outside of the objects (open files,
databases, C code), which is refused, never passed over.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Set
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any
from uuid import UUID

import numpy as np

from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json

_AS_TEXT = (datetime, date, time, timedelta, timezone, Decimal, PurePath, UUID, complex)


def canonical_objects(state: object, *, ignored: Collection[str] = ()) -> bytes:
    """The canonical bytes of a state; attributes named in ``ignored`` are left out.

    Raises :class:`vcrt.errors.MalformedInputError` naming the attribute that holds something without a value of its
    own, such as a lock or a connection.

    >>> canonical_objects({"b": {2, 1}, "a": (1, None)}) == canonical_objects({"a": (1, None), "b": {1, 2}})
    True
    """
    return canonical_json(_Writer(frozenset(ignored)).form(state, "state"))


class _Writer:
    """Numbers objects as it meets them, so that a second reference to one is told from an equal object."""

    def __init__(self, ignored: frozenset[str]) -> None:
        self.ignored = ignored
        self.met: dict[int, int] = {}
        # Numbers are those of living objects alone: what is made on the way is kept until the end.
        self.kept: list[object] = []

    def form(self, value: Any, where: str) -> Json:
        """The JSON form of a value; ``where`` is how one comes to it from the state."""
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        simple = _simple(value)
        if simple is not None:
            return simple
        if id(value) in self.met:
            return {"again": self.met[id(value)]}
        if not isinstance(value, tuple | frozenset):
            self.met[id(value)] = len(self.met)
            self.kept.append(value)
        return self._parts(value, where)

    def _parts(self, value: Any, where: str) -> Json:
        kind = _name(type(value))
        if isinstance(value, Mapping):
            pairs = [(canonical_json(self.form(key, f"a key of {where}")), key) for key in value]
            entries = sorted(pairs, key=lambda pair: pair[0])
            return {
                kind: [
                    [k.decode(), self.form(value[key], f"{where}[{key!r:.40}]")]
                    for k, key in entries
                ]
            }
        if isinstance(value, list | tuple):
            return {kind: [self.form(v, f"{where}[{i}]") for i, v in enumerate(value)]}
        if isinstance(value, Set):
            members = [canonical_json(self.form(v, f"a member of {where}")) for v in value]
            return {kind: [member.decode() for member in sorted(members)]}
        return {kind: self._attributes(value, where)}

    def _attributes(self, value: Any, where: str) -> Json:
        found = dict(getattr(value, "__dict__", {}))
        for each in type(value).__mro__:
            slots = each.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    found[name] = getattr(value, name)
        if not found and not hasattr(value, "__dict__"):
            raise MalformedInputError(
                "a state that holds something without a canonical form",
                where=where,
                found=f"{type(value).__module__}.{type(value).__qualname__}",
                expected="values, containers and objects with attributes",
                remedy="override canonical(), or name the attribute in the environment's `ignored`",
            )
        return {
            name: self.form(found[name], f"{where}.{name}")
            for name in sorted(found)
            if name not in self.ignored
        }


def _simple(value: Any) -> Json:
    """The form of a value that refers to nothing else; None for any other."""
    if isinstance(value, Enum):
        return {_name(type(value)): value.name}
    if isinstance(value, int | float):
        return {_name(type(value)): repr(value)}
    if isinstance(value, bytes | bytearray):
        return {"bytes": value.hex()}
    if isinstance(value, _AS_TEXT):
        return {_name(type(value)): str(value)}
    if isinstance(value, tzinfo):
        return {_name(type(value)): repr(value)}
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
    return None


def _name(value: Any) -> str:
    """The name of a class or function; that of a built-in class is short."""
    module = getattr(value, "__module__", None)
    return value.__qualname__ if module in (None, "builtins") else f"{module}.{value.__qualname__}"
