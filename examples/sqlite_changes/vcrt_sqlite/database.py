"""SQLite itself: databases as bytes, which SQL may touch them, and which of its answers are verdicts.

Statements are untrusted. Each is one line that begins with a word of :data:`MAY`, and SQLite's authorizer allows it
only what stands there: no ATTACH, no PRAGMA, no SELECT, no functions, so nothing outside the database and nothing
that chance or the clock decides can reach it. Not covered: SQLite numbers a row by chance once a table is full to the
largest row number; certification finds that (``nondeterministic``).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from vcrt.errors import MalformedInputError, VerifierFailure

#: What a statement may do, by its first word. CREATE and ALTER write SQLite's own catalogue, ALTER with functions.
MAY = {
    "CREATE": {
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_REINDEX,
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_READ,
    },
    "ALTER": {
        sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_READ,
    },
    "INSERT": {sqlite3.SQLITE_INSERT},
    "UPDATE": {sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_READ},
    "DELETE": {sqlite3.SQLITE_DELETE, sqlite3.SQLITE_READ},
}
#: The answers by which SQLite refuses a statement. Every other error (locked, full, interrupted, ...) is no verdict.
VERDICTS = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}
#: The authorizer is not asked about a column's default, so it must be a literal.
LITERAL = re.compile(r"[-+]?[0-9.]+|x?'([^']|'')*'|NULL", re.IGNORECASE)
DEFAULTS = """SELECT dflt_value FROM sqlite_schema AS s, pragma_table_xinfo(s.name)
    WHERE s.type = 'table' AND dflt_value IS NOT NULL"""
#: Virtual-machine instructions after which a statement is interrupted.
BUDGET = 1_000_000
#: Bytes of the longest statement, text or blob.
LONGEST = 1_000_000


@contextmanager
def opened(content: bytes = b"", path: str = ":memory:") -> Iterator[sqlite3.Connection]:
    """A connection to a database with that content; what breaks inside it is a :class:`VerifierFailure`."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
            if content:
                database.deserialize(content)
            yield database
    except sqlite3.Error as error:
        raise VerifierFailure(
            "SQLite broke, which says nothing about the statement",
            where=f"SQLite {sqlite3.sqlite_version}",
            found=f"{getattr(error, 'sqlite_errorname', type(error).__name__)}: {error}",
        ) from error


def run(database: sqlite3.Connection, statement: object) -> str | None:
    """Run one statement: None if it ran, SQLite's message if SQLite refused it.

    Raises :class:`MalformedInputError` for a statement that may not run at all, ``sqlite3.Error`` if SQLite broke.
    """
    text = statement if isinstance(statement, str) and statement.isprintable() else ""
    may = MAY.get(text.partition(" ")[0])
    if may is None:
        raise _not_run(statement, "another beginning, or more than one line")
    denied: list[str] = []
    refusal = None

    def authorizer(action: int, *names: str | None) -> int:
        if action in may:
            return sqlite3.SQLITE_OK
        denied.append(
            f"{names[1] or names[0] or 'SELECT'} (action {action} of SQLite's authorizer)"
        )
        return sqlite3.SQLITE_DENY

    database.set_authorizer(authorizer)
    database.set_progress_handler(lambda: 1, BUDGET)
    try:
        database.execute(text)
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:  # Python did not hand it to SQLite: two statements, an unbound parameter
            denied.append(str(error))
        elif not denied and code & 0xFF not in VERDICTS:
            raise
        refusal = str(error)
    finally:
        database.set_authorizer(None)
        database.set_progress_handler(None, 0)
    if text.startswith(("CREATE", "ALTER")):
        defaults = [default for (default,) in database.execute(DEFAULTS)]
        denied += [f"DEFAULT {d}" for d in defaults if not LITERAL.fullmatch(d)]
    if denied:
        raise _not_run(statement, denied[0])
    return refusal


@lru_cache(maxsize=16)
def made(statements: tuple[str, ...]) -> bytes:
    """The database that statements make; bytes are immutable, so all orders of an episode may share it."""
    with opened() as database:
        for statement in statements:
            if refusal := run(database, statement):
                raise MalformedInputError("SQLite refuses a setup", where=statement, found=refusal)
        return database.serialize()


def run_in_a_file(
    content: bytes, statements: Iterable[object]
) -> tuple[str | None, list[str] | None]:
    """Run statements as one transaction in a file: SQLite's refusal of one, or the sorted dump of the file."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "database"
        file.write_bytes(content)
        with opened(path=str(file)) as database:
            database.execute("PRAGMA synchronous = OFF")
            database.execute("BEGIN")
            for statement in statements:
                if refusal := run(database, statement):
                    return refusal, None
            database.execute("COMMIT")
        with opened(path=str(file)) as database:
            return None, sorted(database.iterdump())


def _not_run(statement: object, found: str) -> MalformedInputError:
    return MalformedInputError(
        "a statement that this environment does not run",
        where=repr(statement)[:200],
        found=found,
        expected=f"one line: {', '.join(MAY)}; no SELECT, no functions, only literal defaults",
    )
