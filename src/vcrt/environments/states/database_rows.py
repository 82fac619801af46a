"""Write databases of SQLite as canonical bytes: the schema, and all rows in the order in which SQLite gives them.

Where rows lie, on which pages or in a log beside the file (``-wal``), counts for nothing: no statement of SQL sees it.
Not covered: what a connection keeps, and tools that show a file's size or digest, which may differ for equal rows.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path

from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json

#: How a database file begins.
MAGIC = b"SQLite format 3\0"
#: Where a file's header says how changes are written, twice: 1, in place; 2, into a log beside the file.
_MODE = slice(18, 20)


@lru_cache(maxsize=4)
def database_form(content: bytes, log: bytes = b"") -> bytes | None:
    """Return the canonical bytes of a database file and the log beside it; None for what cannot be read as one."""
    with suppress(sqlite3.Error, MalformedInputError), opened_copy(content, log) as database:
        return canonical_rows(database, mode="wal" if content[_MODE] == b"\2\2" else "delete")
    return None


@contextmanager
def opened_copy(content: bytes, log: bytes = b"") -> Iterator[sqlite3.Connection]:
    """Open a copy of a database file and the log beside it; raise :class:`sqlite3.Error` for what is none."""
    if not content.startswith(MAGIC):
        raise sqlite3.DatabaseError("no database")
    with tempfile.TemporaryDirectory() if log else nullcontext(":memory:") as place:
        path = Path(place) / "state.db"
        if log:
            path.write_bytes(content)
            path.with_name("state.db-wal").write_bytes(log)
        with closing(sqlite3.connect(path if log else place)) as database:
            if not log:  # in memory there is no log
                database.deserialize(content[: _MODE.start] + b"\1\1" + content[_MODE.stop :])
            yield database


def canonical_rows(
    connection: sqlite3.Connection, *, row_order: bool = True, mode: str | None = None
) -> bytes:
    """Return the canonical bytes of the schema and of all rows; without ``row_order``, rows are a set.

    ``mode`` is the mode of the journal, by default what the connection says. Raises :class:`MalformedInputError` for a
    table that cannot be read here.
    """
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    found: list[Json] = [
        [_cell(value) for value in row]
        for row in connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
        )
    ]
    for pragma in ("user_version", "application_id", "encoding", "journal_mode"):
        value = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
        found.append([pragma, _cell(mode if mode and pragma == "journal_mode" else value)])
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    for (table,) in connection.execute(tables).fetchall():
        found.append([_cell(table), _rows(connection, table, row_order)])
    return canonical_json(found)


def _rows(connection: sqlite3.Connection, table: str, row_order: bool) -> list[Json]:
    quoted = '"' + table.replace('"', '""') + '"'
    hidden = _hidden_row_number(connection, quoted) if row_order else ""
    try:
        rows = connection.execute(f"SELECT {hidden}* FROM {quoted}").fetchall()
    except sqlite3.OperationalError as error:  # a virtual table of another program
        raise MalformedInputError(
            "a table that SQLite cannot read here", where=table, found=str(error)
        ) from error
    cells: list[Json] = [[_cell(value) for value in row] for row in rows]
    return cells if row_order else sorted(cells, key=canonical_json)


def _hidden_row_number(connection: sqlite3.Connection, table: str) -> str:
    """Return ``rowid, `` for a table that numbers its rows in no column that is seen."""
    facts = connection.execute(f"PRAGMA table_info({table})").fetchall()
    columns = {str(name).lower() for _, name, *_ in facts}
    for name in ("rowid", "oid", "_rowid_"):
        if name in columns:
            continue
        with suppress(sqlite3.OperationalError):  # a table without row numbers, or a virtual one
            connection.execute(f"SELECT {name} FROM {table} LIMIT 1")
            return f"{name}, "
    return ""


def _cell(value: object) -> Json:
    """Write a value so that values of two types differ: a text, a blob, 1 and 1.0."""
    return repr(value)
