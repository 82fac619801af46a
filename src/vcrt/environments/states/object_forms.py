"""Write a value of each built-in class in the canonical form of a state, or refuse it by its place.

:mod:`vcrt.environments.states.object_states` writes the whole state; each function here receives its writer, the value,
and the place of the value.
"""

from __future__ import annotations

import copyreg
import gc
import random
import struct
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from functools import lru_cache
from io import BytesIO, StringIO
from logging import Logger, getLogger
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, SafeUUID

from vcrt.environments.states.code_identity import is_found, name_of
from vcrt.environments.states.object_copies import array_class, own_slots
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json

if TYPE_CHECKING:
    from vcrt.environments.states.object_states import StateWriter

LONG = 1 << 4096
#: The path to a value: the parent's path, the kind of step, and its name.
Place: TypeAlias = "tuple[Place, str, Any] | None"
_Write: TypeAlias = "Callable[[StateWriter, Any, Place], Json]"
#: One or more classes, the tag and writer of their values' forms, and whether the values can change.
Row: TypeAlias = "tuple[Any, str | None, _Write, bool]"
#: Views of a mapping, which show its changes.
_VIEWS: tuple[type, ...] = (MappingProxyType, type({}.keys()), type({}.values()), type({}.items()))
_NAN = struct.pack(">d", float("nan"))


def without_form(value: object, where: Place, found: str | None = None) -> MalformedInputError:
    """Return the error about a value that has no canonical form."""
    kind = type(value)
    return MalformedInputError(
        "a state that holds something without a canonical form",
        where=path_of(where),
        found=found or f"{kind.__module__}.{kind.__qualname__}",
        expected="values, containers, objects with attributes or that pickle, functions and classes of a module",
        remedy="override canonical(), or name the attribute in the environment's `ignored`",
    )


def path_of(where: Place, *, exact: bool = True) -> str:
    """Return a place as a Python expression; unless ``exact``, without keys and members."""
    steps: list[str] = []
    while where is not None:
        where, step, name = where
        if exact or step == ".{}":
            steps.append(step.format(name)[:50])
        else:
            steps.append("[]")
    return "".join(["state", *reversed(steps)])


# Writers for the values of each built-in class.


def _enum(writer: StateWriter, value: Enum, where: Place) -> Json:
    kind = type(value)
    form: Json = ["flag", repr(value._value_)] if isinstance(value, Flag) else value._name_
    return {name_of(kind): form, **writer.what_it_does(kind, where)}


def _whole(writer: StateWriter, value: int, where: Place) -> Json:
    number = int.__index__(value)
    return repr(number) if -LONG < number < LONG else f"{number:x}"


def _float_text(value: float) -> str:
    number = float.__float__(value)
    packed = struct.pack(">d", number)
    return repr(number) if number == number or packed == _NAN else f"nan {packed.hex()}"


def _complex(writer: StateWriter, value: complex, where: Place) -> Json:
    if value == value:
        return complex.__repr__(value)
    return [_float_text(value.real), _float_text(value.imag)]


def _datetime(writer: StateWriter, value: datetime, where: Place) -> Json:
    text = str(datetime.combine(datetime.date(value), datetime.time(value)))
    return _zoned(writer, text, value, where)


def _time(writer: StateWriter, value: time, where: Place) -> Json:
    text = str(time(value.hour, value.minute, value.second, value.microsecond))
    return _zoned(writer, text, value, where)


def _zoned(writer: StateWriter, text: str, value: datetime | time, where: Place) -> Json:
    """Return a time by its clock, with fold and zone if it has any: equal offsets do not make zones equal."""
    if value.tzinfo is None and not value.fold:
        return text
    return [text, value.fold, writer.form(value.tzinfo, (where, ".{}", "tzinfo"))]


def _timezone(writer: StateWriter, value: timezone, where: Place) -> Json:
    offset, *name = value.__getinitargs__()  # type: ignore[attr-defined]
    return [str(offset), *name]


def _uuid(writer: StateWriter, value: UUID, where: Place) -> Json:
    text = UUID.__str__(value)
    return text if value.is_safe is SafeUUID.unknown else [text, value.is_safe.name]


def _deque(writer: StateWriter, value: deque[Any], where: Place) -> Json:
    items = writer.sequence(deque.__iter__(value), where)
    if value.maxlen is None:
        return {"collections.deque": items} if type(value) is deque else items
    return {"collections.deque": items, "attributes": {"maxlen": value.maxlen}}


def _default(writer: StateWriter, value: defaultdict[Any, Any], where: Place) -> Json:
    factory = writer.form(value.default_factory, (where, ".{}", "default_factory"))
    entries = writer.entries(dict.items(value), where)
    return {"collections.defaultdict": entries, "default_factory": factory}


def _view(writer: StateWriter, value: Any, where: Place) -> Json:
    """Return the form of a view by that of its mapping."""
    (viewed,) = gc.get_referents(value)
    return {type(value).__qualname__: writer.form(viewed, where)}


def _random(writer: StateWriter, value: random.Random, where: Place) -> Json:
    if isinstance(value, random.SystemRandom):
        raise without_form(value, where)
    return repr(random.Random.getstate(value))


def _stream(writer: StateWriter, value: StringIO | BytesIO, where: Place) -> Json:
    state: Any = () if value.closed else value.__getstate__()
    return "closed" if value.closed else [repr(each) for each in state[:-1]]


def _method(writer: StateWriter, value: Any, where: Place) -> Json:
    of = value.__self__
    if isinstance(of, ModuleType | None):
        return {"name": name_of(value)}
    function = value.__func__ if isinstance(value, MethodType) else None
    if function is None or (isinstance(function, FunctionType) and is_found(function)):
        what: Json = name_of(value)
    else:
        what = writer.form(function, (where, ".{}", "__func__"))
    return {"method": what, "of": writer.form(of, (where, ".{}", "self"))}


def _type(writer: StateWriter, value: type, where: Place) -> Json:
    if not is_found(value):
        raise without_form(value, where)
    return {"name": name_of(value)}


def _logger(writer: StateWriter, value: Logger, where: Place) -> Json:
    """Return the form of a logger by its name, as copies do; its behaviour is not in the state."""
    if getLogger(value.name) is not value:
        raise without_form(value, where)
    return {"logger": value.name}


def _refused(writer: StateWriter, value: object, where: Place) -> Json:
    raise without_form(value, where)


def attributes_alone(writer: StateWriter, value: object, where: Place) -> Json:
    """Return an empty form: the attributes of an object of a Python class are all of it."""
    return {}


def rebuilt(writer: StateWriter, value: Any, where: Place) -> Json:
    """Return the form of an object of a C class by what rebuilds it: a function or class, its arguments, its state."""
    getattr(value, "__dict__", None)  # the first access creates it; __reduce_ex__ then returns it
    try:
        reducer = copyreg.dispatch_table.get(type(value))
        reduced = reducer(value) if reducer else value.__reduce_ex__(4)
    except Exception as error:
        raise without_form(value, where) from error
    if isinstance(reduced, str):
        module = getattr(value, "__module__", None) or type(value).__module__
        found: Any = sys.modules.get(module)
        for name in reduced.split("."):
            found = getattr(found, name, None)
        if found is not value:
            raise without_form(value, where)
        return {"name": reduced if module == type(value).__module__ else f"{module}.{reduced}"}
    writer.kept.append(reduced)
    parts: list[Any] = [*reduced, None, None, None]
    make, arguments, state, items, pairs = parts[:5]
    memory: list[Json] = []
    if (arrays := array_class()) and isinstance(value, arrays):
        from vcrt.environments.states.numpy_forms import memory_of

        memory = [memory_of(writer, value, where)]
    return {
        **({"memory": memory} if memory else {}),
        "made": writer.form(make, where),
        # The object's form already names its class.
        "of": [
            {"name": name_of(each)} if each is type(value) else writer.form(each, where)
            for each in arguments
        ],
        "state": writer.form(state, where),
        "items": writer.sequence(items or (), where),
        "pairs": writer.entries(pairs or (), where),
    }


#: The tag of forms that name the value's class themselves, also a derived one.
WHOLE = ""
#: Rows of built-in classes, the narrower ones first; the last field says whether the values can change or have
#: attributes.
_BASES: tuple[Row, ...] = (
    (Enum, WHOLE, _enum, False),
    (str, None, lambda _, value, at: str.__str__(value), False),
    (int, "int", _whole, False),
    (float, "float", lambda _, value, at: _float_text(value), False),
    (complex, "complex", _complex, False),
    (bytes, "bytes", lambda _, value, at: bytes.hex(value), False),
    (bytearray, "bytearray", lambda _, value, at: bytearray.hex(value), True),
    (datetime, "datetime.datetime", _datetime, False),
    (date, "datetime.date", lambda _, value, at: date.__str__(value), False),
    (time, "datetime.time", _time, False),
    (timedelta, "datetime.timedelta", lambda _, value, at: timedelta.__str__(value), False),
    (timezone, "datetime.timezone", _timezone, False),
    (Decimal, "decimal.Decimal", lambda _, value, at: Decimal.__str__(value), False),
    (PurePath, None, lambda _, value, at: PurePath.__str__(value), False),
    (UUID, "uuid.UUID", _uuid, False),
    (
        OrderedDict,
        "collections.OrderedDict",
        lambda to, value, at: to.entries(OrderedDict.items(value), at, in_order=True),
        True,
    ),
    (defaultdict, None, _default, True),
    (dict, "dict", lambda to, value, at: to.entries(dict.items(value), at), True),
    (list, "list", lambda to, value, at: to.sequence(list.__iter__(value), at), True),
    (tuple, "tuple", lambda to, value, at: to.sequence(tuple.__iter__(value), at), False),
    (deque, None, _deque, True),
    (set, "set", lambda to, value, at: to.members(set.__iter__(value), at), True),
    (
        frozenset,
        "frozenset",
        lambda to, value, at: to.members(frozenset.__iter__(value), at),
        False,
    ),
    *((kind, WHOLE, _view, False) for kind in _VIEWS),
    (random.Random, "random", _random, True),
    (StringIO, name_of(StringIO), _stream, True),
    (BytesIO, name_of(BytesIO), _stream, True),
    ((MethodType, BuiltinFunctionType), WHOLE, _method, False),
    (FunctionType, WHOLE, lambda to, value, at: to.function(value, at), False),
    (type, WHOLE, _type, False),
    (Logger, WHOLE, _logger, False),
    ((ModuleType, BaseException), WHOLE, _refused, False),
)


def _all_bases() -> tuple[Row, ...]:
    """Return these rows; NumPy's too once it is loaded, since no class derives from its classes before."""
    if array_class() is None:
        return _BASES
    from vcrt.environments.states.numpy_forms import ROWS

    return _BASES + ROWS


@lru_cache(maxsize=4096)
def writing(kind: Any) -> tuple[str | None, _Write, Any, bool]:
    """Return the tag and writer of a class's values, the base class that the writer covers, and if they can change."""
    if kind is array_class():
        from vcrt.environments.states.numpy_forms import array_form

        return None, array_form, kind, True
    for bases, tag, write, can_change in _all_bases():
        if issubclass(kind, bases):
            if tag == WHOLE or kind is bases:
                return tag, write, kind, can_change
            if _is_of_c(kind, bases):
                return None, rebuilt, object, True
            has_more = kind.__dictoffset__ != 0 or bool(own_slots(kind, bases))
            return tag, write, bases, can_change or has_more
    if _is_of_c(kind, object):
        return None, _refused if hasattr(kind, "__next__") else rebuilt, object, True
    return None, _refused if kind is object else attributes_alone, object, True


def can_change(kind: type) -> bool:
    """Return whether objects of a class can change, so that other references to them matter."""
    return writing(kind)[3]


def _is_of_c(kind: Any, base: Any) -> bool:
    """Return whether objects of a class have more room than ``base``, their attributes and weak references need.

    Such room belongs to C code and cannot be read; :meth:`object.__reduce_ex__` asks the same.
    """
    pointers = len(own_slots(kind, base))
    pointers += (kind.__dictoffset__ > 0) - (base.__dictoffset__ > 0)
    pointers += (kind.__weakrefoffset__ > 0) - (base.__weakrefoffset__ > 0)
    room = base.__basicsize__ + pointers * tuple.__itemsize__
    return bool(kind is not base and kind.__basicsize__ > room)
