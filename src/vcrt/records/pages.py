"""How much a Parquet file would unfold to, by the headers of its pages, before any of them is unfolded.

A file's own summary may say less than its pages do, and the library sets memory aside for what a page says. Format:
Apache Parquet's ``PageHeader`` in Thrift's compact protocol. Not covered: what is in the pages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: Thrift's compact types.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY = range(1, 9)
_STRUCT = 12
_MAX_DEPTH = 8
#: The longest header of a page that is read, in bytes; it may hold the least and the greatest of a page's texts.
_MAX_HEADER = 2**20


def unfolded_bytes(path: Path, metadata: Any) -> int:
    """The sizes that all pages of a file say they unfold to, added up; raises ``ValueError`` for broken headers."""
    total = 0
    with path.open("rb") as stream:
        for group in range(metadata.num_row_groups):
            for place in range(metadata.num_columns):
                column = metadata.row_group(group).column(place)
                position = column.data_page_offset
                if column.has_dictionary_page and column.dictionary_page_offset is not None:
                    position = min(position, column.dictionary_page_offset)
                end = position + column.total_compressed_size
                while position < end:
                    stream.seek(position)
                    reader = _Reader(stream.read(min(_MAX_HEADER, end - position)))
                    unfolded, folded = reader.page_sizes()
                    total += unfolded
                    position += reader.position + folded
    return total


class _Reader:
    """Reads one header."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def page_sizes(self) -> tuple[int, int]:
        """``uncompressed_page_size`` and ``compressed_page_size``, the fields 2 and 3; all others are passed over."""
        sizes: dict[int, int] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else _unzigzag(self._varint())
            if number in (2, 3) and header & 15 == _I32:
                sizes[number] = _unzigzag(self._varint())
            else:
                self._skip(header & 15, 0)
        if len(sizes) < 2 or min(sizes.values()) < 0:
            raise ValueError("a page without sizes")
        return sizes[2], sizes[3]

    def _skip(self, kind: int, depth: int) -> None:
        if kind in (_I16, _I32, _I64):
            self._varint()
        elif kind == _BYTE:
            self._advance(1)
        elif kind == _DOUBLE:
            self._advance(8)
        elif kind == _BINARY:
            self._advance(self._varint())
        elif kind == _STRUCT and depth < _MAX_DEPTH:
            while header := self._byte():
                if not header >> 4:
                    self._varint()
                self._skip(header & 15, depth + 1)
        elif kind not in (_TRUE, _FALSE):
            # Pages have no lists, sets or maps.
            raise ValueError(f"a page header with a field of type {kind}")

    def _advance(self, count: int) -> None:
        self.position += count
        if self.position > len(self._data):
            raise ValueError("a page header that is cut off")

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
        raise ValueError("a number without end in a page header")


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
