"""Keep the ledger of an experiment: an append-only SQLite table whose rows are chained by hash.

It records, in the order of events, the plan, each finished run, the opening of the held-out fold, the scores, and where
training or scoring continued with other code than planned. A changed, reordered or removed row breaks the chain, unless
it is removed from the end. The file that the last rows recorded (a checkpoint, the scores) shows such a removal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from vcrt.documents import strict_json
from vcrt.errors import RunError
from vcrt.hashing import Json, canonical_json, json_digest

EntryKind: TypeAlias = Literal["plan", "run", "opening", "scores", "other-code"]
LEDGER_FILE = "ledger.sqlite"
GENESIS = "0" * 64
#: The longest row, in bytes.
_MAX_ROW = 16 * 2**20

_Kind = TypeVar("_Kind")
_TABLE = """
CREATE TABLE IF NOT EXISTS entries (
    position INTEGER PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL, hash TEXT NOT NULL)
"""

#: The remedies where the system refuses access; any other error is damage.
_REFUSALS = {
    sqlite3.SQLITE_FULL: "free some space on its disk",
    sqlite3.SQLITE_IOERR: "look for room on its disk, and for errors of it",
    sqlite3.SQLITE_READONLY: "give permission to write to it and to its folder",
    sqlite3.SQLITE_CANTOPEN: "give permission to read and write it and its folder",
    sqlite3.SQLITE_PERM: "give permission to read and write it and its folder",
    sqlite3.SQLITE_BUSY: "wait for the process that uses it",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One row: its kind, its JSON body and its hash, which covers the row before it."""

    kind: EntryKind
    body: dict[str, Any]
    hash: str


class Ledger:
    """The ledger file of one experiment; every read checks the whole chain."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, kind: EntryKind, body: dict[str, Json]) -> Entry:
        """Add a row; it is durable when this returns."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            entries = self._read(connection)
            previous = entries[-1].hash if entries else GENESIS
            entry = Entry(kind, dict(body), _hash(previous, kind, body))
            connection.execute(
                "INSERT INTO entries VALUES (?, ?, ?, ?)",
                (len(entries), kind, canonical_json(body).decode(), entry.hash),
            )
            connection.execute("COMMIT")
        return entry

    def entries(self, kind: EntryKind | None = None) -> list[Entry]:
        """Return all rows, or those of one kind; raise :class:`RunError` if the chain is broken."""
        if not self.path.is_file():
            return []
        with self._connection() as connection:
            found = self._read(connection)
        return [entry for entry in found if kind is None or entry.kind == kind]

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ROW)
                self._require_plain(connection)
                # Keep one file between calls: a write-ahead log may remain if its last merge fails.
                connection.execute("PRAGMA journal_mode=DELETE")
                connection.execute("PRAGMA synchronous=EXTRA")
                connection.execute(_TABLE)
                yield connection
        # For a text that is no UTF-8, Python or SQLite raises, depending on its place.
        except (sqlite3.Error, UnicodeError, MemoryError) as error:
            raise _unusable(self.path, error) from error

    def _require_plain(self, connection: sqlite3.Connection) -> None:
        """Raise :class:`RunError` unless the database has the one table alone: a view or trigger may bring code."""
        found = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
        table = ("table", "entries", "".join(_TABLE.replace("IF NOT EXISTS ", "").split()))
        objects = [(kind, name, "".join(str(sql).split())) for kind, name, sql in found]
        if objects not in ([], [table]):
            raise untrusted(
                "the ledger holds something else than its table of entries",
                where=str(self.path),
                found=", ".join(f"{kind} {name}" for kind, name, _ in found)[:300],
                expected="only the table that vcrt makes",
            )

    def _read(self, connection: sqlite3.Connection) -> list[Entry]:
        entries: list[Entry] = []
        previous = GENESIS
        rows = connection.execute(
            "SELECT position, kind, body, hash FROM entries ORDER BY position"
        )
        for expected, (position, kind, body, found) in enumerate(rows):
            try:
                value = strict_json(body)
            except (ValueError, TypeError):
                value = None
            is_entry = isinstance(value, dict) and kind in get_args(EntryKind)
            proper = _hash(previous, kind, value) if is_entry else None
            if position != expected or proper is None or found != proper:
                raise untrusted(
                    "the ledger was altered",
                    where=f"{self.path}, row {position}",
                    found=f"hash {found!s:.80}",
                    expected=f"row {expected} with hash {proper}" if proper else "a row of vcrt's",
                )
            entries.append(Entry(kind, value, found))
            previous = found
        return entries


def _unusable(path: Path, error: Exception) -> RunError:
    """Return the error about a ledger that the system does not let us read or write, or that is damaged."""
    # The low byte of an extended code is the primary code.
    refused = _REFUSALS.get((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF)
    damaged = "restore it, or make a new experiment with `vcrt plan`"
    return RunError(
        "the ledger cannot be read or written",
        where=str(path),
        found=str(error) or type(error).__name__,
        remedy=f"{refused}, and give the same command again" if refused else damaged,
    )


def untrusted(what: str, *, where: str, found: str, expected: str) -> RunError:
    """Return the error about a ledger with content that vcrt does not write."""
    return RunError(
        what,
        where=where,
        found=found,
        expected=expected,
        remedy="restore the original ledger; its experiment cannot be trusted otherwise",
    )


def openings_path(dataset: Path) -> Path:
    """Return the path of the ledger of a dataset's openings: beside the dataset itself, with links resolved."""
    return _beside(dataset.resolve())


def recorded_openings(dataset: Path) -> list[Entry]:
    """Return every opening beside a dataset; also those beside a link that replaced a moved dataset."""
    places = dict.fromkeys((_beside(dataset.absolute()), openings_path(dataset)))
    return [entry for place in places for entry in Ledger(place).entries("opening")]


def _beside(dataset: Path) -> Path:
    return dataset.with_name(f"{dataset.name}.openings.sqlite")


def field_of(entry: Entry, name: str, kind: type[_Kind], where: Path) -> _Kind:
    """Return a field of a row; raise :class:`RunError` if it is missing or of another type."""
    value = entry.body.get(name)
    if not isinstance(value, kind):
        raise untrusted(
            f"the ledger's row of kind {entry.kind!r} does not have the documented form",
            where=str(where),
            found=f"{name}: {value!r:.80}",
            expected=kind.__name__,
        )
    return value


def _hash(previous: str, kind: str, body: Json) -> str:
    return json_digest({"previous": previous, "kind": kind, "body": body})
