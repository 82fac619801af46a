"""Write a value of each built-in class in the canonical form of a state, or refuse it by its place.

:mod:`vcrt.environments.object_states` writes the whole; each function here gets its writer, the value, and its place.
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
from types import (
    BuiltinFunctionType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID, SafeUUID

import numpy as np

from vcrt.environments.code_identity import is_found, name_of
from vcrt.environments.object_copies import own_slots
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json

if TYPE_CHECKING:
    from vcrt.environments.object_states import StateWriter

LONG = 1 << 4096
#: How one comes to a value: from where, by what kind of step, and which.
Place: TypeAlias = "tuple[Place, str, Any] | None"
_Write: TypeAlias = "Callable[[StateWriter, Any, Place], Json]"
#: What shows a mapping, and its changes.
_VIEWS: tuple[type, ...] = (MappingProxyType, type({}.keys()), type({}.values()), type({}.items()))
_NAN = struct.pack(">d", float("nan"))


def without_form(value: object, where: Place, found: str | None = None) -> MalformedInputError:
    """The error of a value that cannot be written, to be raised."""
    kind = type(value)
    return MalformedInputError(
        "a state that holds something without a canonical form",
        where=path_of(where),
        found=found or f"{kind.__module__}.{kind.__qualname__}",
        expected="values, containers, objects with attributes or that pickle, functions and classes of a module",
        remedy="override canonical(), or name the attribute in the environment's `ignored`",
    )


def path_of(where: Place, *, exact: bool = True) -> str:
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


def _enum(writer: StateWriter, value: Enum, where: Place) -> Json:
    kind = type(value)
    more = writer.what_it_does(kind, where)
    if isinstance(value, Flag):
        return {name_of(kind): ["flag", repr(value._value_)], **more}
    return {name_of(kind): value._name_, **more}


def _whole(writer: StateWriter, value: int, where: Place) -> Json:
    number = int.__index__(value)
    return {"int": repr(number) if -LONG < number < LONG else f"{number:x}"}


def _float_text(value: float) -> str:
    number = float.__float__(value)
    packed = struct.pack(">d", number)
    return repr(number) if number == number or packed == _NAN else f"nan {packed.hex()}"


def _real(writer: StateWriter, value: float, where: Place) -> Json:
    return {"float": _float_text(value)}


def _complex(writer: StateWriter, value: complex, where: Place) -> Json:
    if value == value:
        return {"complex": complex.__repr__(value)}
    return {"complex": [_float_text(value.real), _float_text(value.imag)]}


def _datetime(writer: StateWriter, value: datetime, where: Place) -> Json:
    text = str(datetime.combine(datetime.date(value), datetime.time(value)))
    return {"datetime.datetime": _zoned(writer, text, value, where)}


def _time(writer: StateWriter, value: time, where: Place) -> Json:
    text = str(time(value.hour, value.minute, value.second, value.microsecond))
    return {"datetime.time": _zoned(writer, text, value, where)}


def _zoned(writer: StateWriter, text: str, value: datetime | time, where: Place) -> Json:
    """A time by its clock; with fold and zone if it has them: zones of one offset are not one."""
    if value.tzinfo is None and not value.fold:
        return text
    return [text, value.fold, writer.form(value.tzinfo, (where, ".{}", "tzinfo"))]


def _timezone(writer: StateWriter, value: timezone, where: Place) -> Json:
    offset, *name = value.__getinitargs__()  # type: ignore[attr-defined]
    return {"datetime.timezone": [str(offset), *name]}


def _uuid(writer: StateWriter, value: UUID, where: Place) -> Json:
    safe = [] if value.is_safe is SafeUUID.unknown else [value.is_safe.name]
    text = UUID.__str__(value)
    return {"uuid.UUID": [text, *safe] if safe else text}


def _list(writer: StateWriter, value: list[Any], where: Place) -> Json:
    return {"list": writer.sequence(list.__iter__(value), where)}


def _tuple(writer: StateWriter, value: tuple[Any, ...], where: Place) -> Json:
    return {"tuple": writer.sequence(tuple.__iter__(value), where)}


def _deque(writer: StateWriter, value: deque[Any], where: Place) -> Json:
    form: dict[str, Json] = {"collections.deque": writer.sequence(deque.__iter__(value), where)}
    if value.maxlen is not None:
        form["attributes"] = {"maxlen": value.maxlen}
    return form


def _dict(writer: StateWriter, value: dict[Any, Any], where: Place) -> Json:
    return {"dict": writer.entries(dict.items(value), where)}


def _ordered(writer: StateWriter, value: OrderedDict[Any, Any], where: Place) -> Json:
    entries = writer.entries(OrderedDict.items(value), where, in_order=True)
    return {"collections.OrderedDict": entries}


def _default(writer: StateWriter, value: defaultdict[Any, Any], where: Place) -> Json:
    factory = writer.form(value.default_factory, (where, ".{}", "default_factory"))
    entries = writer.entries(dict.items(value), where)
    return {"collections.defaultdict": entries, "default_factory": factory}


def _set(writer: StateWriter, value: set[Any], where: Place) -> Json:
    return {"set": writer.members(set.__iter__(value), where)}


def _frozenset(writer: StateWriter, value: frozenset[Any], where: Place) -> Json:
    return {"frozenset": writer.members(frozenset.__iter__(value), where)}


def _view(writer: StateWriter, value: Any, where: Place) -> Json:
    """What looks at a mapping and shows its changes."""
    (viewed,) = gc.get_referents(value)
    return {type(value).__qualname__: writer.form(viewed, where)}


def _random(writer: StateWriter, value: random.Random, where: Place) -> Json:
    if isinstance(value, random.SystemRandom):
        raise without_form(value, where)
    return {"random": repr(random.Random.getstate(value))}


def _generator(writer: StateWriter, value: np.random.Generator, where: Place) -> Json:
    return {"random": writer.form(value.bit_generator, (where, ".{}", "bit_generator"))}


def _random_state(writer: StateWriter, value: np.random.RandomState, where: Place) -> Json:
    state: Any = value.get_state(legacy=False)
    bits = writer.form(value._bit_generator, (where, ".{}", "_bit_generator"))
    return {"random": [repr(state["has_gauss"]), repr(state["gauss"]), bits]}


def _bits(writer: StateWriter, value: np.random.BitGenerator, where: Place) -> Json:
    seeds: Any = value.seed_seq
    spawned = writer.form(seeds, (where, ".{}", "seed_seq"))
    return {"bits": [type(value).__name__, repr(value.state), spawned]}


def _seeds(writer: StateWriter, value: np.random.SeedSequence, where: Place) -> Json:
    return {"seeds": repr(value.state)}


def _array(writer: StateWriter, value: np.ndarray[Any, Any], where: Place) -> Json:
    """An array of numbers by its elements, one of objects by their forms."""
    flags = _memory(writer, value, where)
    if value.dtype.hasobject:
        elements = value.ravel().tolist()
        writer.kept.append(elements)
        parts: Json = [writer.form(v, (where, ".flat[{!r}]", i)) for i, v in enumerate(elements)]
        return {"numpy.ndarray": [[str(value.dtype), list(value.shape)], parts, *flags]}
    return {"array": [str(value.dtype), list(value.shape), _elements(value), *flags]}


def _memory(writer: StateWriter, value: np.ndarray[Any, Any], where: Place) -> list[Json]:
    """How an array lies in its memory, where that is not as usual.

    One whose memory another in the state has too, or something that is no array, is refused: copies part them.
    """
    owner: Any = value
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    foreign = owner.base if isinstance(owner, np.ndarray) else owner
    if foreign is not None and (not isinstance(foreign, bytes) or value.flags.writeable):
        raise without_form(
            value, where, f"an array in the memory of a {type(foreign).__qualname__}"
        )
    if writer.owners.setdefault(id(owner), value) is not value:
        raise without_form(value, where, "an array that shares its memory with another")
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


def _dtype(writer: StateWriter, value: np.dtype[Any], where: Place) -> Json:
    return {"numpy.dtype": [repr(value), repr(dict(value.metadata or {}))]}


def _scalar(writer: StateWriter, value: np.generic, where: Place) -> Json:
    if isinstance(value, np.void) and (value.base is not None or value.dtype.hasobject):
        raise without_form(value, where, "an element of a structured array")
    return {"array": [str(value.dtype), list(np.shape(value)), _elements(value)]}


def _stream(writer: StateWriter, value: StringIO | BytesIO, where: Place) -> Json:
    name = name_of(StringIO if isinstance(value, StringIO) else BytesIO)
    if value.closed:
        return {name: "closed"}
    state: Any = value.__getstate__()
    return {name: [repr(each) for each in state[:-1]]}


def _method(writer: StateWriter, value: Any, where: Place) -> Json:
    of = value.__self__
    if isinstance(of, ModuleType | None):
        return {"name": name_of(value)}
    function = value.__func__ if isinstance(value, MethodType) else None
    if isinstance(function, FunctionType) and not is_found(function):
        what: Json = writer.form(function, (where, ".{}", "__func__"))
    elif function is None or isinstance(function, FunctionType):
        what = name_of(value)
    else:
        what = writer.form(function, (where, ".{}", "__func__"))
    return {"method": what, "of": writer.form(of, (where, ".{}", "self"))}


def _function(writer: StateWriter, value: FunctionType, where: Place) -> Json:
    return writer.function(value, where)


def _type(writer: StateWriter, value: type, where: Place) -> Json:
    if not is_found(value):
        raise without_form(value, where)
    return {"name": name_of(value)}


def _logger(writer: StateWriter, value: Logger, where: Place) -> Json:
    """A logger by its name, as it is copied; what it does is not in the state."""
    if getLogger(value.name) is not value:
        raise without_form(value, where)
    return {"logger": value.name}


def _refused(writer: StateWriter, value: object, where: Place) -> Json:
    raise without_form(value, where)


def attributes_alone(writer: StateWriter, value: object, where: Place) -> Json:
    """Nothing: an object of a class in Python is its attributes."""
    return {}


def rebuilt(writer: StateWriter, value: Any, where: Place) -> Json:
    """An object of a class in C, by what rebuilds it: a function or class, its arguments, and what is set then."""
    getattr(value, "__dict__", None)  # made when it is first asked for, and then given
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
    memory = [_memory(writer, value, where)] if isinstance(value, np.ndarray) else []
    return {
        **({"memory": memory} if memory else {}),
        "made": writer.form(make, where),
        # Its class is written with it.
        "of": [
            {"name": name_of(each)} if each is type(value) else writer.form(each, where)
            for each in arguments
        ],
        "state": writer.form(state, where),
        "items": writer.sequence(items or (), where),
        "pairs": writer.entries(pairs or (), where),
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
def writing(kind: Any) -> tuple[_Write, Any, bool]:
    """How the values of a class are written, of which class it derives, and whether its objects can change."""
    if kind is np.ndarray:
        return _array, kind, True
    for bases, write, can_change in _BASES:
        if issubclass(kind, bases):
            base = bases if isinstance(bases, type) else kind
            if write in _WHOLE or base is kind:
                return write, kind, can_change
            if _is_of_c(kind, base):
                return rebuilt, object, True
            has_more = kind.__dictoffset__ != 0 or bool(own_slots(kind, base))
            return _by_name(write), base, can_change or has_more
    if _is_of_c(kind, object):
        return (_refused if hasattr(kind, "__next__") else rebuilt), object, True
    return (_refused if kind is object else attributes_alone), object, True


def can_change(kind: type) -> bool:
    """Whether objects of a class can change, so that it counts who else refers to them."""
    return writing(kind)[2]


def _by_name(write: _Write) -> _Write:
    """What the value of a derived class holds of its base, without the name of that."""

    def inner(writer: StateWriter, value: Any, where: Place) -> Json:
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
