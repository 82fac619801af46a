"""Copy the state of Python objects as :func:`copy.deepcopy` does, in a fraction of the time.

For objects of plain classes: attributes, containers, and how they refer to each other. Values that do not change are
shared between original and copy. Not covered: classes with a copy protocol of their own, whose objects must be values.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

from vcrt.environments.fixed_sources import CountedRandom, FixedClock

Value = TypeVar("Value")

_VALUES = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        date,
        datetime,
        time,
        timedelta,
        Decimal,
        type,
        FixedClock,
    }
)


def copied(value: Value) -> Value:
    """A copy that shares nothing with the original that could change.

    >>> inner = [1]
    >>> one, other = copied([inner, inner])
    >>> one is other, one is inner
    (True, False)
    """
    made: Value = _copied(value, {})
    return made


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    kind: Any = type(value)
    if kind in _VALUES:
        return value
    made = memo.get(id(value))
    if made is not None:
        return made
    if kind is dict:
        made = memo[id(value)] = {}
        for key, item in value.items():
            made[key] = item if type(item) in _VALUES else _copied(item, memo)
    elif kind is list:
        made = memo[id(value)] = []
        made += [item if type(item) in _VALUES else _copied(item, memo) for item in value]
    elif isinstance(value, set | frozenset):
        made = memo[id(value)] = kind(value)
    elif kind is tuple:
        made = tuple([_copied(item, memo) for item in value])
    elif isinstance(value, Enum):
        made = value
    elif isinstance(value, CountedRandom):
        made = memo[id(value)] = value.again()
    else:
        made = memo[id(value)] = kind.__new__(kind)
        for name in _slots(kind):
            if hasattr(value, name):
                object.__setattr__(made, name, _copied(getattr(value, name), memo))
        if hasattr(value, "__dict__"):
            object.__setattr__(made, "__dict__", _copied(value.__dict__, memo))
    return made


@lru_cache(maxsize=1024)
def _slots(kind: Any) -> tuple[str, ...]:
    """The names of a class's attributes that do not lie in ``__dict__``."""
    found: list[str] = []
    for each in kind.__mro__:
        slots = each.__dict__.get("__slots__", ())
        found += [slots] if isinstance(slots, str) else slots
    return tuple(name for name in found if name not in ("__dict__", "__weakref__"))
