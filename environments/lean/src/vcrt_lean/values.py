"""Handle Lean's run-time values in this process, through ctypes: libraries, reference counts, fields and texts.

A :class:`Value` owns one reference to a Lean object and gives it up when Python forgets it. Covers 64-bit machines and
the object layout of Lean 4.35; not covered: what the objects mean. Imports only the standard library and ``embedded``,
as it is used by a process without any other package (see :mod:`vcrt_lean.worker`).
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from vcrt_lean.embedded import LIBRARIES

_Address = Callable[..., int]
#: The parts of a Lean name, from the outside in.
Parts: TypeAlias = tuple[str | int, ...]
#: An object starts with its count (4 bytes), its size (2), its number of fields (1) and its tag (1).
_HEADER = 8
_WORD = 8
_CLOSURE_TAG = 245
_ARRAY_TAG = 246
_LARGEST_CONSTRUCTOR_TAG = 244
_STRING_NAME = 1


class Value:
    """One reference to a Lean object; ``address`` is odd if it is a small number instead of a pointer."""

    __slots__ = ("address",)
    #: Set by :func:`load`: add one to an object's count; take one off a count that is not above one.
    retain: Callable[[int, int], None]
    release: Callable[[int], None]
    allocate: _Address

    def __init__(self, address: int) -> None:
        """Take over a reference that the caller owns."""
        self.address = address

    @classmethod
    def shared(cls, address: int) -> Value:
        """A reference of its own to an object that something else keeps alive."""
        if not address & 1:
            cls.retain(address, 1)
        return cls(address)

    def __del__(self) -> None:
        address = self.address
        if address & 1:
            return
        count = ctypes.c_int32.from_address(address)
        if count.value > 1:
            count.value -= 1
        else:
            self.release(address)

    def give(self) -> int:
        """The address together with a reference for a function that consumes its argument."""
        if not self.address & 1:
            self.retain(self.address, 1)
        return self.address

    @property
    def tag(self) -> int:
        """Which constructor made it."""
        if self.address & 1:
            return self.address >> 1
        return ctypes.c_uint8.from_address(self.address + 7).value

    @property
    def num_fields(self) -> int:
        """How many fields a constructor's object has; 0 for anything else."""
        if self.address & 1 or self.tag > _LARGEST_CONSTRUCTOR_TAG:
            return 0
        return ctypes.c_uint8.from_address(self.address + 6).value

    def field(self, index: int) -> Value:
        """A field of a constructor's object."""
        return Value.shared(self._word(index))

    def byte(self, index: int) -> int:
        """One of the small values that follow the fields."""
        offset = _HEADER + _WORD * self.num_fields + index
        return ctypes.c_uint8.from_address(self.address + offset).value

    def number(self) -> int:
        """The value of a small natural number."""
        if not self.address & 1:
            raise ValueError("not a small number")
        return self.address >> 1

    def items(self) -> list[Value]:
        """The elements of an array."""
        if self.tag != _ARRAY_TAG:
            raise ValueError("not an array")
        return [Value.shared(self._word(2 + index)) for index in range(self._word(0))]

    def text(self) -> str:
        """The characters of a string."""
        return ctypes.string_at(self.address + 32, self._word(0) - 1).decode()

    def replaced(self, index: int, value: Value) -> Value:
        """A copy of a constructor's object (without small values) with one field changed."""
        count = self.num_fields
        words = list(
            struct.unpack(f"={count}Q", ctypes.string_at(self.address + _HEADER, _WORD * count))
        )
        words[index] = value.address
        for word in words:
            if not word & 1:
                self.retain(word, 1)
        copy = _object(_HEADER + _WORD * count, fields=count, tag=self.tag)
        _fill(copy, words)
        return Value(copy)

    def _word(self, index: int) -> int:
        return ctypes.c_uint64.from_address(self.address + _HEADER + _WORD * index).value


def number(value: int) -> Value:
    """A small natural number, or a constructor without fields."""
    return Value(value << 1 | 1)


def construct(tag: int, *fields: Value, small: int = 0) -> Value:
    """A constructor's object; ``small`` is how many words of small values, all zero, follow the fields."""
    size = _HEADER + _WORD * (len(fields) + small)
    address = _object(size, fields=len(fields), tag=tag)
    _fill(address, [field.give() for field in fields] + [0] * small)
    return Value(address)


def empty_array() -> Value:
    """An array without elements."""
    address = _object(_HEADER + 2 * _WORD, fields=0, tag=_ARRAY_TAG)
    _fill(address, [0, 0])
    return Value(address)


def listed(items: Sequence[Value]) -> Value:
    """A list."""
    made = number(0)
    for item in reversed(items):
        made = construct(1, item, made)
    return made


def elements(items: Value) -> Iterator[Value]:
    """The elements of a list."""
    while items.num_fields:
        yield items.field(0)
        items = items.field(1)


def name_parts(name: Value) -> Parts:
    """The parts of a name."""
    parts: list[str | int] = []
    while name.num_fields:
        last = name.field(1)
        parts.append(last.text() if name.tag == _STRING_NAME else last.number())
        name = name.field(0)
    return tuple(reversed(parts))


def dotted(name: Value) -> str:
    """A name as it is written."""
    return ".".join(map(str, name_parts(name)))


def _object(size: int, *, fields: int, tag: int) -> int:
    address = Value.allocate(size)
    ctypes.c_uint64.from_address(address).value = 1 | size << 32 | fields << 48 | tag << 56
    return address


def _fill(address: int, words: list[int]) -> None:
    ctypes.memmove(address + _HEADER, struct.pack(f"={len(words)}Q", *words), _WORD * len(words))


def closure(function: int, arity: int) -> Value:
    """A Lean function of ``arity`` arguments, all consumed, from the address of a C function on objects."""
    address = _object(_HEADER + 2 * _WORD, fields=0, tag=_CLOSURE_TAG)
    _fill(address, [function, arity])
    return Value(address)


class Library:
    """Lean's shared libraries, loaded into this process and initialised."""

    def __init__(self, folder: Path) -> None:
        loaded = [ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL) for name in LIBRARIES]
        self._main = loaded[-1]
        Value.retain = self.procedure("lean_inc_ref_huge_n", ctypes.c_void_p, ctypes.c_size_t)
        Value.release = self.procedure("lean_dec_ref_cold", ctypes.c_void_p)
        Value.allocate = self.function("lean_alloc_object", ctypes.c_size_t)
        self._string = self.function("lean_mk_string", ctypes.c_char_p)
        self._name = self.on_objects("lean_name_mk_string", 2)
        self.procedure("lean_initialize")()
        self.procedure("lean_io_mark_end_initialization")()
        # Promises need the task manager; one thread is enough, as no task is ever started.
        self.procedure("lean_init_task_manager_using", ctypes.c_uint)(1)

    def function(self, name: str, *arguments: type) -> _Address:
        """An exported function that gives an address."""
        found = getattr(self._main, name)
        found.argtypes, found.restype = arguments, ctypes.c_size_t
        return found  # type: ignore[no-any-return]

    def on_objects(self, name: str, arity: int) -> _Address:
        """An exported function from ``arity`` addresses of objects to one."""
        return self.function(name, *[ctypes.c_void_p] * arity)

    def procedure(self, name: str, *arguments: type) -> Callable[..., None]:
        """An exported function that gives nothing."""
        found = getattr(self._main, name)
        found.argtypes, found.restype = arguments, None
        return found  # type: ignore[no-any-return]

    def variable(self, name: str) -> Value:
        """The object in an exported variable."""
        return Value.shared(ctypes.c_size_t.in_dll(self._main, name).value)

    def register(
        self, attribute: str, kind: Sequence[str], name: str, function: Any, arity: int
    ) -> None:
        """Tell Lean that a C function of ``arity`` objects is what an attribute has for the syntax ``kind``."""
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        self.on_objects("l_Lean_KeyedDeclsAttribute_addBuiltin___redArg", 4)(
            self.variable(attribute).address,
            self.name(*kind).give(),
            self.name(name).give(),
            closure(address, arity).give(),
        )

    def string(self, text: str) -> Value:
        """A Lean string; raises ``ValueError`` for what would end one early."""
        if "\0" in text:
            raise ValueError("a text with a NUL")
        return Value(self._string(text.encode()))

    def name(self, *parts: str) -> Value:
        """A Lean name."""
        made = number(0)
        for part in parts:
            made = Value(self._name(made.give(), self.string(part).give()))
        return made
