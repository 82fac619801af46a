"""Values in Thrift's compact protocol, as far as Apache Parquet uses it, read from untrusted bytes without a library.

Arrow's Python bindings end the process for some broken footers, so these are read here first. Not covered: writing,
and the names of fields; a struct is a mapping from field numbers.
"""

from __future__ import annotations

from typing import TypeAlias

#: A field's value: structs are mappings from field numbers, maps are left out.
Value: TypeAlias = "int | bool | float | bytes | list[Value] | dict[int, Value]"

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_MAX_DEPTH = 16


class Reader:
    """Reads structs from ``data``, from ``position`` on; raises ``ValueError`` for what is broken or cut off."""

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self._data = data
        self._end = len(data) if end is None else min(end, len(data))
        self.position = position

    def struct(self, depth: int = 0) -> dict[int, Value]:
        """The next struct; of fields that stand there twice, the last."""
        fields: dict[int, Value] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else _unzigzag(self._varint())
            kind = header & 15
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Value:
        if depth > _MAX_DEPTH:
            raise ValueError(f"values nested more than {_MAX_DEPTH} deep")
        if kind in (_I16, _I32, _I64):
            return _unzigzag(self._varint())
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        if kind == _DOUBLE:
            self._advance(8)
            return 0.0
        if kind == _BINARY:
            size = self._varint()
            self._advance(size)
            return bytes(self._data[self.position - size : self.position])
        if kind in (_LIST, _SET):
            header = self._byte()
            size = header >> 4 if header >> 4 < 15 else self._varint()
            if size > self._end - self.position:
                # An element has a byte at least.
                raise ValueError("a list that is cut off")
            return [self._value(header & 15, depth + 1) for _ in range(size)]
        if kind == _STRUCT:
            return self.struct(depth + 1)
        raise ValueError(f"a field of type {kind}")

    def _advance(self, count: int) -> None:
        self.position += count
        if self.position > self._end:
            raise ValueError("a header that is cut off")

    def _byte(self) -> int:
        self._advance(1)
        return self._data[self.position - 1]

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            part = self._byte()
            value |= (part & 127) << shift
            if part < 128:
                return value
        raise ValueError("a number without end in a header")


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
