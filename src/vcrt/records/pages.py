"""What a Parquet file says of its row groups and pages, read before Arrow sees it.

Arrow's Python bindings end the process for some broken descriptions of a column, a file's summary may say less than its
pages do, and Arrow sets memory aside for what a page says. Only what :func:`vcrt.records.audit.write_rows` makes is
taken: data pages of version 1 and dictionaries, in plain texts or numbers of a dictionary, compressed by Zstandard; of
these, what a page unfolds to follows from its header. Format: Apache Parquet's ``FileMetaData`` and ``PageHeader`` in
Thrift's compact protocol. Not covered: what is in the pages.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vcrt.printable import counted
from vcrt.records.thrift import BINARY, I32, I64, Form, Items, Reader

_MAGIC = b"PAR1"
#: The longest header of a page, in bytes; Arrow keeps no least and greatest text of more than 4096 bytes each.
MAX_HEADER = 2**16
#: The longest footer, in bytes: so much, and so much for each column of each row group.
MAX_FOOTER, MAX_FOOTER_COLUMN = 2**20, 2**14
#: The most elements of a list of a footer; the row groups have their bound in the file's size.
_FEW = 64
_ZSTD = 6
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_PLAIN, _RLE, _RLE_DICTIONARY = 0, 3, 8


@dataclass(frozen=True, slots=True)
class Chunk:
    """Where the pages of one column of a row group begin and end, in bytes, and how many values they should have."""

    start: int
    end: int
    num_values: int


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The rows of a group, and the pages of each of its columns."""

    num_rows: int
    chunks: tuple[Chunk, ...]


@contextmanager
def bytes_of(path: Path) -> Iterator[bytes]:
    """The bytes of a file, as they are asked for; raises ``ValueError`` for one that is too short for Parquet."""
    with path.open("rb") as stream:
        if path.stat().st_size < 12:
            raise ValueError("not a Parquet file")
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data  # type: ignore[misc]


def row_groups(data: bytes) -> tuple[RowGroup, ...]:
    """The row groups that a file's footer names; raises ``ValueError`` for a footer that is not one of ours."""
    size = len(data)
    footer = size - 8 - int.from_bytes(data[size - 8 : size - 4], "little")
    if data[:4] != _MAGIC or data[size - 4 :] != _MAGIC or footer < 4:
        raise ValueError("not a Parquet file")
    fields = Reader(data, footer, size - 8).struct(_FOOTER)
    groups: list[RowGroup] = fields.get(4) or []
    if 4 not in fields:
        raise ValueError("a file without row groups")
    chunks = [chunk for group in groups for chunk in group.chunks]
    if size - footer > MAX_FOOTER + MAX_FOOTER_COLUMN * len(chunks):
        raise ValueError(
            f"a footer of {size - footer:,} bytes for {counted(len(chunks), 'column')}"
        )
    if _number(fields, 3, "a number of rows") != sum(group.num_rows for group in groups):
        raise ValueError("another number of rows than that of the row groups")
    if any(chunk.start < 4 or chunk.end > footer for chunk in chunks):
        raise ValueError("columns outside the file")
    if sum(chunk.end - chunk.start for chunk in chunks) > size:
        raise ValueError("columns that are longer together than the file")
    return tuple(groups)


def unfolded_bytes(data: bytes, chunk: Chunk) -> int:
    """The sizes that all pages of a column say they unfold to, added up, and those of the numbers of their texts.

    Raises ``ValueError`` for pages that are not of our making, or have another number of values than the column.
    """
    total, values, position = 0, 0, chunk.start
    while position < chunk.end:
        reader = Reader(data, position, min(chunk.end, position + MAX_HEADER))
        header = reader.struct(_PAGE)
        unfolded = _number(header, 2, "a page's size")
        if header.get(1) == _DICTIONARY_PAGE and position == chunk.start:
            # The length of each text has four bytes.
            if _page(header, 7, _PLAIN) > min(chunk.num_values, unfolded // 4):
                raise ValueError("a dictionary of more texts than it can have")
        elif header.get(1) == _DATA_PAGE:
            here = _page(header, 5, _PLAIN, _RLE_DICTIONARY)
            if here == 0:
                raise ValueError("a page without values")
            values += here
        else:
            raise ValueError(f"a page of type {header.get(1)}")
        total += unfolded
        position = reader.position + _number(header, 3, "a page's compressed size")
    if position != chunk.end or values != chunk.num_values:
        raise ValueError(f"pages of {values:,} values, not {chunk.num_values:,}")
    # Arrow keeps a number of four bytes for each value, and what it needs to find each text.
    return total + 4 * values


def _page(header: Mapping[int, Any], field: int, *encodings: int) -> int:
    """The number of values of a page, if it says how they are written and that is how we write."""
    details = header.get(field, {})
    if details.get(2) not in encodings or (
        field == 5 and (details.get(3), details.get(4)) != (_RLE, _RLE)
    ):
        raise ValueError(f"a page in encoding {details.get(2)}")
    return _number(details, 1, "a page's number of values")


def _row_group(group: Mapping[int, Any]) -> RowGroup:
    num_rows = _number(group, 3, "a row group's number of rows")
    chunks: list[Chunk] = group.get(1, [])
    if num_rows == 0 or not chunks or any(chunk.num_values != num_rows for chunk in chunks):
        raise ValueError("a row group that has no rows, or columns of another length")
    return RowGroup(num_rows=num_rows, chunks=tuple(chunks))


def _chunk(column: Mapping[int, Any]) -> Chunk:
    """From the first page, of data or of a dictionary, on."""
    details = column.get(3, {})
    if details.get(4) != _ZSTD:
        raise ValueError(f"a column in compression {details.get(4)}")
    start = _number(details, 9, "a column's first page")
    if details.get(11):
        start = min(start, _number(details, 11, "a column's dictionary"))
    size = _number(details, 7, "a column's size")
    if size == 0:
        raise ValueError("a column without pages")
    return Chunk(start, start + size, _number(details, 5, "a column's number of values"))


def _number(fields: Mapping[int, Any], field: int, what: str) -> int:
    value = fields.get(field, -1)
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{what} is missing or negative")
    return value


def _few(of: Any) -> Items:
    return Items(of=of, most=_FEW)


#: Fields by their numbers in ``parquet.thrift``: those that are used, and the lists that Arrow writes.
_PAGE: Form = {
    1: I32,
    2: I32,
    3: I32,
    5: {1: I32, 2: I32, 3: I32, 4: I32},
    7: {1: I32, 2: I32},
}
_COLUMN: Form = {
    1: I32,
    2: _few(I32),
    3: _few(BINARY),
    4: I32,
    5: I64,
    7: I64,
    9: I64,
    11: I64,
    13: _few({1: I32, 2: I32, 3: I32}),
    16: {1: I64, 2: _few(I64), 3: _few(I64)},
}
_GROUP: Form = {1: Items(of={3: _COLUMN}, most=_FEW, build=_chunk), 3: I64}
_FOOTER: Form = {
    1: I32,
    2: _few({1: I32, 3: I32, 4: BINARY, 5: I32, 6: I32}),
    3: I64,
    4: Items(of=_GROUP, most=2**31, build=_row_group),
    5: _few({1: BINARY, 2: BINARY}),
    7: _few({}),
}
