"""Copy the state of Python objects as :func:`copy.deepcopy` does, in a fraction of the time.

Fast are containers and objects of plain classes; values that do not change are shared between original and copy. A
class with a copy protocol of its own is left to :func:`copy.deepcopy`, unless told otherwise.
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
#: How many calls deep copies and forms of states may go.
_DEEP = 12_000

_VALUES = frozenset(
    (
        *(type(None), bool, int, float, complex, str, bytes, type),
        *(date, datetime, time, timedelta, Decimal, FixedClock),
    )
)


def copied(value: Value, *, by_attributes: bool = False) -> Value:
    """A copy that shares nothing with the original that could change.

    With ``by_attributes`` objects of every class are copied by their attributes alone, whatever its copy protocol:
    right, and much faster, for models of pydantic. Raises what :func:`copy.deepcopy` raises.

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
            made = value  # as copy.deepcopy does: who compares it by `is` finds it
        # A cycle through the tuple has come by here.
        made = memo.setdefault(id(value), made)
    elif kind is set or (by_attributes and isinstance(value, set | frozenset)):
        made = memo[id(value)] = kind([_copied(item, memo, by_attributes) for item in value])
    elif isinstance(value, Enum):
        made = value
    elif isinstance(value, CountedRandom):
        made = memo[id(value)] = value.again()
    elif isinstance(value, Decimal) and kind.__deepcopy__ is Decimal.__deepcopy__:
        # Its own copy is itself, with attributes that may change.
        made = memo[id(value)] = Decimal.__new__(kind, value)
        _copy_attributes(value, made, memo, by_attributes)
    elif kind is array_class() and not value.dtype.hasobject:
        # numpy's own copy may be written to, whatever the original says.
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
    """NumPy's arrays; None where nothing has loaded NumPy, so that no value is one."""
    return getattr(sys.modules.get("numpy"), "ndarray", None)


@lru_cache(maxsize=1024)
def has_protocol(kind: Any) -> bool:
    """Whether a class says itself what its objects are rebuilt with."""
    protocol = ("__reduce__", "__reduce_ex__", "__getstate__")
    own = any(getattr(kind, name, None) is not getattr(object, name, None) for name in protocol)
    return own or kind in copyreg.dispatch_table


@lru_cache(maxsize=1024)
def _is_plain(kind: Any) -> bool:
    """Whether objects of a class are their attributes, and nothing says that they are copied in another way."""
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
    """Let functions call each other some thousands deep, as for objects that hold each other so."""

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
    """The attributes of a class's objects that lie in slots ``base``, from which it derives, does not have.

    Each by its name and what reads and sets it: a class may define a slot again, or hide it behind a property.
    """
    return tuple(
        (name, slot)
        for each in kind.__mro__
        if each not in base.__mro__ and "__slots__" in vars(each)
        for name, slot in vars(each).items()
        if isinstance(slot, MemberDescriptorType) and slot.__objclass__ is each
    )
