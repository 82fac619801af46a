"""Load Lean's shared libraries into this process, through ctypes, and handle its run-time values.

A :class:`Value` owns one reference to a Lean object and releases it when Python deletes the value. Run as a script,
``python values.py FOLDER ARGUMENT...`` behaves like ``lean ARGUMENT...`` with the libraries in ``FOLDER``. This
supports 64-bit machines and the object layout of Lean 4.35. It imports only the standard library, as processes without
any other package use it (``python -I -S``).
"""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

_SUFFIX = "dylib" if sys.platform == "darwin" else "so"
#: The library that holds Lean itself.
MAIN_LIBRARY = f"libleanshared.{_SUFFIX}"
#: All libraries to load, in the order of their dependencies.
_LIBRARIES = (
    *(f"lib{name}.{_SUFFIX}" for name in ("Init_shared", "leanshared_2", "leanshared_1")),
    MAIN_LIBRARY,
)
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
    #: Set by :class:`Library`: add to an object's count; release an object whose count is not above one.
    retain: Callable[[int, int], None]
    release: Callable[[int], None]
    allocate: _Address

    def __init__(self, address: int) -> None:
        """Take over a reference that the caller owns."""
        self.address = address

    @classmethod
    def shared(cls, address: int) -> Value:
        """Return a new reference to an object that something else keeps alive."""
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
        """Return the address together with a reference for a function that consumes its argument."""
        if not self.address & 1:
            self.retain(self.address, 1)
        return self.address

    @property
    def tag(self) -> int:
        """The number of the constructor that made it."""
        if self.address & 1:
            return self.address >> 1
        return ctypes.c_uint8.from_address(self.address + 7).value

    @property
    def num_fields(self) -> int:
        """The number of fields of a constructor's object; 0 for anything else."""
        if self.address & 1 or self.tag > _LARGEST_CONSTRUCTOR_TAG:
            return 0
        return ctypes.c_uint8.from_address(self.address + 6).value

    def field(self, index: int) -> Value:
        """Return a field of a constructor's object."""
        return Value.shared(self._word(index))

    def byte(self, index: int) -> int:
        """Return one of the small values that follow the fields."""
        offset = _HEADER + _WORD * self.num_fields + index
        return ctypes.c_uint8.from_address(self.address + offset).value

    def number(self) -> int:
        """Return the value of a small natural number."""
        if not self.address & 1:
            raise ValueError("not a small number")
        return self.address >> 1

    def items(self) -> list[Value]:
        """Return the elements of an array."""
        if self.tag != _ARRAY_TAG:
            raise ValueError("not an array")
        return [Value.shared(self._word(2 + index)) for index in range(self._word(0))]

    def text(self) -> str:
        """Return the characters of a string."""
        return ctypes.string_at(self.address + 32, self._word(0) - 1).decode()

    def replaced(self, index: int, value: Value) -> Value:
        """Return a copy of a constructor's object (without small values) with one field changed."""
        fields = [value if k == index else self.field(k) for k in range(self.num_fields)]
        return construct(self.tag, *fields)

    def _word(self, index: int) -> int:
        return ctypes.c_uint64.from_address(self.address + _HEADER + _WORD * index).value


def number(value: int) -> Value:
    """Return a small natural number, or a constructor without fields."""
    return Value(value << 1 | 1)


def construct(tag: int, *fields: Value, small: int = 0) -> Value:
    """Return a constructor's object; ``small`` is the number of words of small values, all zero, after the fields."""
    words = [*(field.give() for field in fields), *[0] * small]
    return _object(words, num_fields=len(fields), tag=tag)


def empty_array() -> Value:
    """Return an array without elements."""
    return _object([0, 0], num_fields=0, tag=_ARRAY_TAG)


def listed(items: Sequence[Value]) -> Value:
    """Return a list."""
    made = number(0)
    for item in reversed(items):
        made = construct(1, item, made)
    return made


def elements(items: Value) -> Iterator[Value]:
    """Yield the elements of a list."""
    while items.num_fields:
        yield items.field(0)
        items = items.field(1)


def name_parts(name: Value) -> Parts:
    """Return the parts of a name."""
    parts: list[str | int] = []
    while name.num_fields:
        last = name.field(1)
        parts.append(last.text() if name.tag == _STRING_NAME else last.number())
        name = name.field(0)
    return tuple(reversed(parts))


def dotted(name: Value) -> str:
    """Return a name in its usual notation."""
    return ".".join(map(str, name_parts(name)))


def _object(words: list[int], *, num_fields: int, tag: int) -> Value:
    """Return a new object that holds ``words`` behind its header."""
    size = _HEADER + _WORD * len(words)
    address = Value.allocate(size)
    header = 1 | size << 32 | num_fields << 48 | tag << 56
    ctypes.memmove(address, struct.pack(f"={1 + len(words)}Q", header, *words), size)
    return Value(address)


def _loaded(folder: Path) -> ctypes.CDLL:
    """Return Lean's main library; load the libraries that it needs first."""
    return [ctypes.CDLL(str(folder / name), mode=ctypes.RTLD_GLOBAL) for name in _LIBRARIES][-1]


class Library:
    """Lean's shared libraries, loaded into this process and initialised."""

    def __init__(self, folder: Path) -> None:
        self._main = _loaded(folder)
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
        """Return an exported function that gives an address."""
        found = getattr(self._main, name)
        found.argtypes, found.restype = arguments, ctypes.c_size_t
        return found  # type: ignore[no-any-return]

    def on_objects(self, name: str, arity: int) -> _Address:
        """Return an exported function from ``arity`` addresses of objects to one."""
        return self.function(name, *[ctypes.c_void_p] * arity)

    def procedure(self, name: str, *arguments: type) -> Callable[..., None]:
        """Return an exported function that gives nothing."""
        found = getattr(self._main, name)
        found.argtypes, found.restype = arguments, None
        return found  # type: ignore[no-any-return]

    def variable(self, name: str) -> Value:
        """Return the object in an exported variable."""
        return Value.shared(ctypes.c_size_t.in_dll(self._main, name).value)

    def register(
        self, attribute: str, kind: Sequence[str], name: str, function: Any, arity: int
    ) -> None:
        """Register a C function of ``arity`` objects, all consumed, as an attribute's entry for ``kind``."""
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        self.on_objects("l_Lean_KeyedDeclsAttribute_addBuiltin___redArg", 4)(
            self.variable(attribute).address,
            self.name(*kind).give(),
            self.name(name).give(),
            _object([address, arity], num_fields=0, tag=_CLOSURE_TAG).give(),
        )

    def string(self, text: str) -> Value:
        """Return a Lean string; raise ``ValueError`` for a text with a NUL, which would end it early."""
        if "\0" in text:
            raise ValueError("a text with a NUL")
        return Value(self._string(text.encode()))

    def name(self, *parts: str) -> Value:
        """Return a Lean name."""
        made = number(0)
        for part in parts:
            made = Value(self._name(made.give(), self.string(part).give()))
        return made


def lean_main(folder: Path, arguments: Sequence[str]) -> int:
    """Run Lean's command line in this process; return its exit status."""
    argv = [b"lean", *(argument.encode() for argument in arguments)]
    main = _loaded(folder).lean_main
    main.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p)]
    main.restype = ctypes.c_int
    return int(main(len(argv), (ctypes.c_char_p * (len(argv) + 1))(*argv, None)))


if __name__ == "__main__":
    sys.exit(lean_main(Path(sys.argv[1]), sys.argv[2:]))
