"""Write and read the files of both views: a row is a line of canonical JSON, the lines are compressed by gzip.

A row is an object of texts by the names of its columns. The SHA-256 of its line, without the line feed, is the row's
digest. The same rows give the same bytes, as no name and no time is written. Whoever reads may have been handed
anything: a file is unfolded line by line, to no more than a bound. Source of the format: RFC 1952.
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
#: How many times its own size a file may unfold to, above a first allowance in bytes: certificates compress well.
MAX_RATIO, MAX_UNFOLDED = 100, 64 * 2**20
#: The longest line, in bytes.
MAX_LINE = 64 * 2**20
_LEVEL = 6
_DECODER = JSONDecoder()
#: How a file begins: no name, time, comment or field of its own (RFC 1952, section 2.3).
HEADER = b"\x1f\x8b\x08" + bytes(6) + b"\xff"


def write_rows(rows: Iterable[Mapping[str, str]], path: Path) -> None:
    """Write rows, one at a time; raises :class:`TooLargeError` for what :func:`read_lines` would refuse."""
    number = unfolded = longest = 0
    with path.open("wb") as file, gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as stream:
        for row in rows:
            size = stream.write(canonical_json(row) + b"\n")
            number, unfolded, longest = number + 1, unfolded + size, max(longest, size)
    excess = _excess(number, unfolded, longest, path.stat().st_size)
    if excess is not None:
        raise TooLargeError("rows that could not be read again", where=str(path), found=excess)


def read_rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """All rows of a file; raises as :func:`read_digested` does."""
    return [row for _, row in read_digested(path, columns)]


def read_digested(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a file, each after its digest.

    Raises :class:`DatasetError` naming the file and the row, from 0 on, that cannot be read.
    """
    for number, line in enumerate(read_lines(path)):
        try:
            row = row_of(line, columns)
        except ValueError as error:
            raise _unreadable(path, number, error) from error
        yield sha256_hex(line), row


def read_lines(path: Path) -> Iterator[bytes]:
    """The rows' lines without their line feeds; raises :class:`DatasetError` at the first that cannot be unfolded."""
    number = unfolded = 0
    try:
        size = path.stat().st_size
        with gzip.open(path) as stream:
            while line := stream.readline(MAX_LINE + 1):
                unfolded += len(line)
                excess = _excess(number + 1, unfolded, len(line), size)
                if excess is not None:
                    raise DatasetError(
                        "a dataset file would unfold to more than any dataset does",
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
    """The row that a line is; raises ``ValueError`` for any other than the one line of its row.

    Nothing but texts is read, so that it takes no more memory than a few times the line's.
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
    """What is more than any file of this size has; None if nothing is."""
    # A row has an identity of its own, so that no file of a dataset has more rows than an eighth of its bytes.
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
