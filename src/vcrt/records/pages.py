"""What a Parquet file says of its row groups and pages, read before Arrow sees it.

Arrow's Python bindings end the process for some broken descriptions of a column, a file's summary may say less than its
pages do, and Arrow sets memory aside for what a page says. Format: Apache Parquet's ``FileMetaData`` and ``PageHeader``
in Thrift's compact protocol. Not covered: what is in the pages.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vcrt.records.thrift import Reader, Value

_MAGIC = b"PAR1"
#: The longest header of a page, in bytes; it may hold the least and the greatest of a page's texts.
_MAX_HEADER = 2**20


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The rows of a group, and where the pages of each of its columns begin and end, in bytes."""

    num_rows: int
    chunks: tuple[tuple[int, int], ...]


def row_groups(path: Path) -> list[RowGroup]:
    """The row groups that a file's footer names; raises ``ValueError`` for a broken one."""
    with _bytes_of(path) as data:
        return _row_groups(data)


def unfolded_bytes(path: Path) -> int:
    """The sizes that all pages of a file say they unfold to, added up; raises ``ValueError`` for broken headers."""
    total = 0
    with _bytes_of(path) as data:
        chunks = [chunk for group in _row_groups(data) for chunk in group.chunks]
        if sum(end - start for start, end in chunks) > len(data):
            raise ValueError("columns that are longer together than the file")
        for start, end in chunks:
            position = start
            while position < end:
                reader = Reader(data, position, min(end, position + _MAX_HEADER))
                header = reader.struct()
                total += _number(header, 2, "a page without sizes")
                position = reader.position + _number(header, 3, "a page without sizes")
    return total


@contextmanager
def _bytes_of(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        if path.stat().st_size < 12:
            raise ValueError("not a Parquet file")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data  # type: ignore[misc]


def _row_groups(data: bytes) -> list[RowGroup]:
    size = len(data)
    footer = size - 8 - int.from_bytes(data[size - 8 : size - 4], "little")
    if data[:4] != _MAGIC or data[size - 4 :] != _MAGIC or footer < 4:
        raise ValueError("not a Parquet file")
    groups = Reader(data, footer, size - 8).struct().get(4)
    return [_row_group(group) for group in _list(groups, "a file without row groups")]


def _row_group(value: Value) -> RowGroup:
    group = _struct(value)
    columns = _list(group.get(1), "a row group without columns")
    return RowGroup(
        num_rows=_number(group, 3, "a row group without a number of rows"),
        chunks=tuple(_chunk(_struct(_struct(column).get(3))) for column in columns),
    )


def _chunk(column: dict[int, Value]) -> tuple[int, int]:
    """From the first page, of data or of a dictionary, on."""
    start = _number(column, 9, "a column without pages")
    if column.get(11):
        start = min(start, _number(column, 11, "a column without pages"))
    return start, start + _number(column, 7, "a column without a size")


def _struct(value: Value | None) -> dict[int, Value]:
    if not isinstance(value, dict):
        raise ValueError("a footer of another form")
    return value


def _list(value: Value | None, missing: str) -> list[Value]:
    if not isinstance(value, list):
        raise ValueError(missing)
    return value


def _number(fields: dict[int, Value], field: int, missing: str) -> int:
    value = fields.get(field)
    if not isinstance(value, int) or value < 0:
        raise ValueError(missing)
    return value
