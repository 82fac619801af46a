"""Read files of ProofWriter theories: JSON lines, structured or English as each row shows.

Promised: every line of a file gives either its theory or the reason why it has none, in the order of the file, one
line in memory at a time. Not covered: what the theories say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vcrt.environments.proofwriter.english import english_theory
from vcrt.environments.proofwriter.rows import LabelledTheory, json_row
from vcrt.environments.proofwriter.structured import structured_theory
from vcrt.environments.proofwriter.theory import Assumption
from vcrt.errors import MalformedInputError


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A line or theory that cannot be used: its place, its id (None if it has none) and why."""

    where: str
    id: str | None
    error: MalformedInputError


#: The longest line that is read, in characters.
MAX_LINE = 2**24
Row: TypeAlias = LabelledTheory | Refused


def read_rows(path: Path, *, assumption: Assumption | None = None) -> Iterator[Row]:
    """A theory or a refusal for each line of a file; ``assumption`` is read from each id unless it is given.

    A file that cannot be read (to its end) gives a refusal in place of what is missing.
    """
    lines = _lines(path)
    number = 0
    while True:
        try:
            line = next(lines, None)
        except (OSError, UnicodeDecodeError) as error:
            yield Refused(where=str(path), id=None, error=_unreadable(path, error))
            return
        if line is None and number > 0:
            return
        number += 1
        # A file without a line is one empty line: it is refused, not passed over.
        yield read_row(line or "", f"{path}, line {number}", assumption=assumption)


def read_row(line: str, where: str, *, assumption: Assumption | None = None) -> Row:
    """The theory in one line, or why there is none."""
    identity = None
    try:
        row = json_row(line, where)
        named = row.get("id")
        identity = named if isinstance(named, str) else None
        read = structured_theory if "triples" in row else english_theory
        return read(row, where, assumption=assumption)
    except MalformedInputError as error:
        return Refused(where=where, id=identity, error=error)


def read_theories(path: Path, *, assumption: Assumption | None = None) -> Iterator[LabelledTheory]:
    """The theories of a file; raises the error of the first line that has none, so that none is skipped."""
    for row in read_rows(path, assumption=assumption):
        if isinstance(row, Refused):
            raise row.error
        yield row


def _lines(path: Path) -> Iterator[str]:
    # Not splitlines(): JSON strings may hold U+2028 and its kind unescaped.
    with path.open(encoding="utf-8", newline="\n") as stream:
        while line := stream.readline(MAX_LINE + 1):
            if len(line) > MAX_LINE:
                raise OSError(f"a line of more than {MAX_LINE:,} characters")
            yield line.removesuffix("\n")


def _unreadable(path: Path, error: Exception) -> MalformedInputError:
    return MalformedInputError(
        "cannot read the file",
        where=str(path),
        found=str(error),
        expected="a readable UTF-8 file",
    )
