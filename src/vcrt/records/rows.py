"""Write and read the files of both views: a row is a line of canonical JSON, and gzip compresses the lines.

A row is an object of texts by column name. The SHA-256 of its line, without the line feed, is the row's digest. Equal
rows give equal bytes, since neither a name nor a time is written. A file may come from anywhere, so it is decompressed
line by line, up to a bound. Source of the format: RFC 1952.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from json import JSONDecoder
from pathlib import Path

from vcrt.errors import DatasetError, TooLargeError
from vcrt.hashing import canonical_json, sha256_hex
from vcrt.printable import counted

SUFFIX = ".jsonl.gz"
#: The most that a file may decompress to: a multiple of its size, above a first allowance in bytes.
MAX_RATIO, MAX_UNFOLDED = 100, 64 * 2**20
#: The longest line, in bytes.
MAX_LINE = 64 * 2**20
_LEVEL = 6
_DECODER = JSONDecoder()
#: The beginning of a file: no name, time, comment or extra field (RFC 1952, section 2.3).
HEADER = b"\x1f\x8b\x08" + bytes(6) + b"\xff"


def write_rows(rows: Iterable[Mapping[str, str]], path: Path) -> None:
    """Write rows, one at a time; raise :class:`TooLargeError` if :func:`read_lines` would refuse the file."""
    number = unfolded = longest = 0
    with path.open("wb") as file, gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as stream:
        for row in rows:
            size = stream.write(canonical_json(row) + b"\n")
            number, unfolded, longest = number + 1, unfolded + size, max(longest, size)
    excess = _excess(number, unfolded, longest, path.stat().st_size)
    if excess is not None:
        raise TooLargeError("rows too large to be read again", where=str(path), found=excess)


def read_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Return all rows of a file; raise as :func:`read_digested` does."""
    return [row for _, row in read_digested(path, columns)]


def read_digested(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of a file, each after its digest.

    Raise :class:`DatasetError` naming the file and the unreadable row, counted from 0.
    """
    for number, line in enumerate(read_lines(path)):
        try:
            row = row_of(line, columns)
        except ValueError as error:
            raise _unreadable(path, number, error) from error
        yield sha256_hex(line), row


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the rows' lines without line feeds; raise :class:`DatasetError` at the first unreadable one."""
    number = unfolded = 0
    try:
        size = path.stat().st_size
        with gzip.open(path) as stream:
            while line := stream.readline(MAX_LINE + 1):
                unfolded += len(line)
                excess = _excess(number + 1, unfolded, len(line), size)
                if excess is not None:
                    raise DatasetError(
                        "a dataset file would unpack to more data than any dataset has",
                        where=f"{path}, row {number}",
                        found=f"{excess} in a file of {size:,} bytes",
                        expected=f"at most {MAX_RATIO} times its size",
                    )
                if not line.endswith(b"\n"):
                    raise ValueError("a line that is cut off")
                yield line[:-1]
                number += 1
    except DatasetError:
        raise
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise _unreadable(path, number, error) from error


def row_of(line: bytes, columns: tuple[str, ...]) -> dict[str, str]:
    """Return the row of a line; raise ``ValueError`` unless the line is the canonical one of its row.

    It reads texts alone, so it needs no more memory than a few times the line's.
    """
    text = line.decode()
    row: dict[str, str] = {}
    place = 0
    for name in sorted(columns):
        opening = f'{"," if row else "{"}"{name}":'
        if not text.startswith(f'{opening}"', place):
            raise ValueError(f"no text of column {name} where it should be")
        row[name], place = _DECODER.raw_decode(text, place + len(opening))
    if canonical_json(row) != line:
        raise ValueError("not the canonical JSON of a row")
    return {name: row[name] for name in columns}


def _excess(rows: int, unfolded: int, longest: int, size: int) -> str | None:
    """Return what exceeds the limits for a file of this size; None if nothing does."""
    # Each row has its own identity, so a dataset's file has at most one row for eight bytes.
    if rows <= size // 8 and unfolded <= MAX_UNFOLDED + MAX_RATIO * size and longest <= MAX_LINE:
        return None
    return f"{counted(rows, 'row')} of {unfolded:,} bytes or more"


def _unreadable(path: Path, number: int, error: Exception) -> DatasetError:
    return DatasetError(
        "a dataset file cannot be read",
        where=f"{path}, row {number}",
        found=next(iter(str(error).splitlines()), "")[:160] or type(error).__name__,
        remedy="restore the original, or make the dataset again with `vcrt certify`",
    )
