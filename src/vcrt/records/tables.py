"""The one way into a table of texts that somebody else may have written: no part of it unfolds unless it may.

The footer and the headers of all pages are read first (:mod:`vcrt.records.pages`); Arrow then reads one row group at a
time, texts that stand there twice only once, and these are spelled out if that is not too much either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vcrt.errors import DatasetError
from vcrt.printable import counted
from vcrt.records.pages import RowGroup, bytes_of, row_groups, unfolded_bytes

#: How many times its own size a file may unfold to, above a first allowance in bytes: certificates compress well.
MAX_RATIO, MAX_UNFOLDED = 100, 64 * 2**20
#: What a broken file raises, according to where it is broken: Arrow's own errors, Python's and those of the system.
BROKEN = (OSError, pa.ArrowException, ValueError, MemoryError, OverflowError, KeyError, TypeError)


@dataclass(kw_only=True, slots=True)
class Table:
    """An open table. ``groups`` are its row groups; a row group of which a column is broken can be read without it."""

    path: Path
    columns: tuple[str, ...]
    groups: tuple[RowGroup, ...]
    _file: pq.ParquetFile
    _size: int
    _refused: dict[tuple[int, int], ValueError] = field(default_factory=dict)
    _spelled_out: int = 0

    def rows(self, group: int) -> list[dict[str, str]]:
        """The rows of a row group, each to be read once: together they are bounded."""
        table = self._read(group, range(len(self.columns)))
        self._spelled_out += _spelled_out(table)
        _require_size(self, self._spelled_out)
        texts = [column.cast(pa.string()).to_pylist() for column in table.columns]
        return [dict(zip(self.columns, cells, strict=True)) for cells in zip(*texts, strict=True)]

    def require_column(self, group: int, column: int) -> None:
        """Raises one of :data:`BROKEN` if that column of a row group cannot be read."""
        table = self._read(group, (column,))
        _require_size(self, _spelled_out(table))
        table.column(0).cast(pa.string()).to_pylist()

    def _read(self, group: int, columns: Sequence[int]) -> pa.Table:
        for column in columns:
            if (error := self._refused.get((group, column))) is not None:
                raise error
        table = self._file.read_row_group(group, columns=[self.columns[i] for i in columns])
        table.validate(full=True)
        if any(column.null_count for column in table.columns):
            raise ValueError("an empty cell")
        if table.num_rows != self.groups[group].num_rows:
            raise ValueError(f"{counted(table.num_rows, 'row')}")
        return table


@contextmanager
def open_table(path: Path, columns: tuple[str, ...]) -> Iterator[Table]:
    """Open a file of text columns; raises :class:`DatasetError`, or another of :data:`BROKEN`, if it is not one."""
    size = path.stat().st_size
    with bytes_of(path) as data:
        groups = row_groups(data)
        with pq.ParquetFile(path, read_dictionary=list(columns)) as file:
            _require_columns(file.metadata.schema.to_arrow_schema(), columns, path)
            table = Table(path=path, columns=columns, groups=groups, _file=file, _size=size)
            unfolded = 0
            for place, group in enumerate(groups):
                if len(group.chunks) != len(columns):
                    raise ValueError(f"a row group of {counted(len(group.chunks), 'column')}")
                for column, chunk in enumerate(group.chunks):
                    try:
                        unfolded += unfolded_bytes(data, chunk)
                    except ValueError as error:
                        table._refused[place, column] = error
            _require_size(table, unfolded)
            yield table


def _require_columns(schema: pa.Schema, columns: tuple[str, ...], path: Path) -> None:
    if tuple(schema.names) != columns or any(field.type != pa.string() for field in schema):
        raise DatasetError(
            "a dataset file has other columns than it should",
            where=str(path),
            found=", ".join(schema.names)[:500],
            expected=", ".join(columns),
        )


def _spelled_out(table: pa.Table) -> int:
    """How many bytes a table's texts have, those that it holds once and names often counted each time."""
    total = 0
    for column in table.columns:
        for chunk in column.chunks:
            lengths = pc.binary_length(chunk.dictionary)
            total += pc.sum(pc.take(lengths, chunk.indices)).as_py() or 0
    return total


def _require_size(table: Table, unfolded: int) -> None:
    num_rows = sum(group.num_rows for group in table.groups)
    # A row has an identity of its own, so that no file of a dataset has more rows than an eighth of its bytes.
    if unfolded > MAX_UNFOLDED + MAX_RATIO * table._size or num_rows > table._size // 8:
        raise DatasetError(
            "a dataset file would unfold to more than any dataset does",
            where=str(table.path),
            found=f"{counted(num_rows, 'row')} and {unfolded:,} bytes in a file of {table._size:,}",
            expected=f"at most {MAX_RATIO} times its size",
        )
