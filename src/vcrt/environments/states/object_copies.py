"""Copy the state of Python objects as :func:`copy.deepcopy` does, in a fraction of the time.

The fast path covers containers and objects of plain classes; original and copy share immutable values. By default, a
class with a copy protocol of its own is left to :func:`copy.deepcopy`.
"""

from __future__ import annotations

import copy
import copyreg
import sys
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any, TypeVar

from vcrt.environments.fixed_sources import CountedRandom, FixedClock

Value = TypeVar("Value")
#: The recursion limit, in calls, for copies and forms of states.
_DEEP = 12_000

_VALUES = frozenset(
    (
        *(type(None), bool, int, float, complex, str, bytes, type),
        *(date, datetime, time, timedelta, Decimal, FixedClock),
    )
)


def copied(value: Value, *, by_attributes: bool = False) -> Value:
    """Return a copy that shares nothing mutable with the original.

    With ``by_attributes``, objects of every class are copied by their attributes alone, whatever the copy protocol:
    this is correct, and much faster, for pydantic models. Raise the errors of :func:`copy.deepcopy`.

    >>> inner = [1]
    >>> one, other = copied([inner, inner])
    >>> one is other, one is inner
    (True, False)
    """
    with deeply():
        made: Value = _copied(value, {}, by_attributes)
    return made


def _copied(value: Any, memo: dict[int, Any], by_attributes: bool) -> Any:
    kind: Any = type(value)
    if kind in _VALUES:
        return value
    made = memo.get(id(value))
    if made is not None:
        return made
    if kind is dict:
        made = memo[id(value)] = {}
        for key, item in value.items():
            if type(key) not in _VALUES:
                key = _copied(key, memo, by_attributes)
            made[key] = item if type(item) in _VALUES else _copied(item, memo, by_attributes)
    elif kind is list:
        made = memo[id(value)] = []
        made += [
            item if type(item) in _VALUES else _copied(item, memo, by_attributes) for item in value
        ]
    elif kind is tuple:
        made = tuple([_copied(item, memo, by_attributes) for item in value])
        if all(one is other for one, other in zip(made, value, strict=True)):
            made = value  # as copy.deepcopy does, so that `is` still holds
        # A cycle through the tuple may have made it already.
        made = memo.setdefault(id(value), made)
    elif kind is set or (by_attributes and isinstance(value, set | frozenset)):
        made = memo[id(value)] = kind([_copied(item, memo, by_attributes) for item in value])
    elif isinstance(value, Enum):
        made = value
    elif isinstance(value, CountedRandom):
        made = memo[id(value)] = value.again()
    elif isinstance(value, Decimal) and kind.__deepcopy__ is Decimal.__deepcopy__:
        # Its own protocol returns the same object, whose attributes may change.
        made = memo[id(value)] = Decimal.__new__(kind, value)
        _copy_attributes(value, made, memo, by_attributes)
    elif kind is array_class() and not value.dtype.hasobject:
        # NumPy's own copy is writable, whatever the original is.
        made = memo[id(value)] = value.copy(order="K")
        made.flags.writeable = value.flags.writeable
    elif by_attributes or _is_plain(kind):
        made = memo[id(value)] = kind.__new__(kind)
        _copy_attributes(value, made, memo, by_attributes)
    else:
        made = copy.deepcopy(value, memo)
    return made


def _copy_attributes(value: Any, made: Any, memo: dict[int, Any], by_attributes: bool) -> None:
    kind: Any = type(value)
    for _, slot in own_slots(kind, object):
        with suppress(AttributeError):  # not set
            found = slot.__get__(value)
            slot.__set__(made, _copied(found, memo, by_attributes))
    if hasattr(value, "__dict__"):
        attributes = _copied(value.__dict__, memo, by_attributes)
        object.__setattr__(made, "__dict__", attributes)


def array_class() -> Any:
    """Return NumPy's array class; None if nothing has loaded NumPy, since then no value is an array."""
    return getattr(sys.modules.get("numpy"), "ndarray", None)


@lru_cache(maxsize=1024)
def has_protocol(kind: Any) -> bool:
    """Return whether a class defines how its objects are rebuilt."""
    protocol = ("__reduce__", "__reduce_ex__", "__getstate__")
    own = any(getattr(kind, name, None) is not getattr(object, name, None) for name in protocol)
    return own or kind in copyreg.dispatch_table


@lru_cache(maxsize=1024)
def _is_plain(kind: Any) -> bool:
    """Return whether the attributes of a class's objects are all of them, and no protocol copies them otherwise."""
    if has_protocol(kind) or kind.__new__ is not object.__new__:
        return False
    if hasattr(kind, "__deepcopy__") or hasattr(kind, "__setstate__"):
        return False
    try:
        object.__new__(kind).__reduce_ex__(4)
    except TypeError:  # a class of C that holds more than attributes
        return False
    return True


class deeply:  # noqa: N801 (a context manager, in a third of a generator's time)
    """A context in which functions may nest some thousands of calls, for objects nested as deep."""

    __slots__ = ("_limit",)

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        if self._limit < _DEEP:
            sys.setrecursionlimit(_DEEP)

    def __exit__(self, *_: object) -> None:
        if self._limit < _DEEP:
            sys.setrecursionlimit(self._limit)


@lru_cache(maxsize=1024)
def own_slots(kind: Any, base: Any) -> tuple[tuple[str, MemberDescriptorType], ...]:
    """Return the slots of a class's objects that its ancestor ``base`` does not have.

    Each is a name with its descriptor: a class may define a slot again, or hide it behind a property.
    """
    return tuple(
        (name, slot)
        for each in kind.__mro__
        if each not in base.__mro__ and "__slots__" in vars(each)
        for name, slot in vars(each).items()
        if isinstance(slot, MemberDescriptorType) and slot.__objclass__ is each
    )
