"""Values in Thrift's compact protocol, as far as Apache Parquet uses it, read from untrusted bytes without a library.

Arrow's Python bindings end the process for some broken footers, so these are read here first. Whatever two readers
could take for different things is refused: fields that do not ascend, fields of another type than theirs, numbers that
do not fit, and lists in fields that are not asked for. Not covered: writing, maps, and the names of fields.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT = range(1, 13)
_BITS = {I16: 16, I32: 32, I64: 64}
_MAX_DEPTH = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Items:
    """A list of at most ``most`` elements; their values are kept if there is a ``build`` that makes them of structs."""

    of: Kind
    most: int
    build: Callable[[dict[int, Any]], Any] | None = None


#: What a field must be: a type's number, a struct of such fields (others are passed over), or a list.
Kind: TypeAlias = "int | dict[int, Kind] | Items"
Form: TypeAlias = dict[int, Kind]


class Reader:
    """Reads structs from ``data``, from ``position`` on; raises ``ValueError`` for what is broken or cut off."""

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self._data = data
        self._end = len(data) if end is None else min(end, len(data))
        self.position = position

    def struct(self, form: Form, depth: int = 0) -> dict[int, Any]:
        """The next struct: the values of those fields that ``form`` names, as far as they are there."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"values nested more than {_MAX_DEPTH} deep")
        fields: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            before, kind = number, header & 15
            number = number + (header >> 4) if header >> 4 else self._number(I16)
            if number <= before:
                raise ValueError("fields that do not ascend")
            wanted = form.get(number)
            if wanted is None:
                self._pass_over(kind, depth + 1)
            elif kind != _type(wanted):
                raise ValueError(f"field {number} is of type {kind}, not {_type(wanted)}")
            else:
                fields[number] = self._value(wanted, depth + 1)
        return fields

    def _value(self, wanted: Kind, depth: int) -> Any:
        if isinstance(wanted, dict):
            return self.struct(wanted, depth)
        if isinstance(wanted, Items):
            return self._items(wanted, depth)
        if wanted in _BITS:
            return self._number(wanted)
        self._pass_over(wanted, depth)
        return None

    def _items(self, wanted: Items, depth: int) -> list[Any]:
        header = self._byte()
        size = header >> 4 if header >> 4 < 15 else self._varint()
        # An element has a byte at least.
        if size > min(wanted.most, self._end - self.position):
            raise ValueError(f"a list of {size} elements, or one that is cut off")
        if header & 15 != _type(wanted.of):
            raise ValueError(f"a list of elements of type {header & 15}, not {_type(wanted.of)}")
        kept = []
        for _ in range(size):
            value = self._value(wanted.of, depth)
            if wanted.build is not None:
                kept.append(wanted.build(value))
        return kept

    def _pass_over(self, kind: int, depth: int) -> None:
        if kind in _BITS:
            self._number(kind)
        elif kind == BYTE:
            self._advance(1)
        elif kind == DOUBLE:
            self._advance(8)
        elif kind == BINARY:
            self._advance(self._varint())
        elif kind == STRUCT:
            self.struct({}, depth)
        elif kind not in (TRUE, FALSE):
            raise ValueError(f"a field of type {kind}")

    def _advance(self, count: int) -> None:
        self.position += count
        if self.position > self._end:
            raise ValueError("a header that is cut off")

    def _byte(self) -> int:
        self._advance(1)
        return self._data[self.position - 1]

    def _number(self, kind: int) -> int:
        value = self._varint()
        # Other readers keep the lowest bits of a number that does not fit.
        if value >> _BITS[kind]:
            raise ValueError("a number that does not fit its type")
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            part = self._byte()
            value |= (part & 127) << shift
            if part < 128:
                return value
        raise ValueError("a number without end in a header")


def _type(kind: Kind) -> int:
    if isinstance(kind, int):
        return kind
    return STRUCT if isinstance(kind, dict) else LIST
