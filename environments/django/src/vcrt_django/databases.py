"""Keep and restore the one database of this process: an SQLite in memory, or one of PostgreSQL that vcrt has made.

``restore`` leaves a database as it was found, and nothing can be attached to SQLite. On PostgreSQL a snapshot is a
savepoint: only the state of an ancestor can be restored. This module imports Django, which must be configured;
:mod:`vcrt_django.servers` makes and drops databases of PostgreSQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from django.db import (
    DEFAULT_DB_ALIAS,
    NotSupportedError,
    ProgrammingError,
    connection,
    connections,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper

from vcrt.errors import UnavailableError, VerifierFailure
from vcrt.hashing import Json
from vcrt_django.catalogue import sqlite_form
from vcrt_django.postgresql_catalogue import postgresql_form

SQLITE: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}


def _close() -> None:
    """Close inside a transaction, which loses it as on any other database; elsewhere do nothing, as in memory."""
    if connection.in_atomic_block:
        BaseDatabaseWrapper.close(connections[connection.alias])


def guard(raw: sqlite3.Connection) -> None:
    """Refuse to open other files from this connection."""
    raw.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)


def _require_own() -> None:
    """Raise :class:`VerifierFailure` unless the database is ours: another one would be read or overwritten."""
    if connection.settings_dict["NAME"] != SQLITE["NAME"]:
        raise VerifierFailure(
            "a migration that puts its own database back",
            found=str(connection.settings_dict["NAME"]),
            expected=str(SQLITE["NAME"]),
        )


class Sqlite:
    """An SQLite in memory; snapshots are copies of it."""

    #: Whether a forked process has a database of its own.
    is_forked = True

    def __init__(self) -> None:
        self.label = f"SQLite {sqlite3.sqlite_version}"
        connection.ensure_connection()
        guard(connection.connection)
        connection.close = _close

    def snapshot(self) -> Any:
        """Return a copy, for :meth:`restore`."""
        kept = sqlite3.connect(":memory:")
        connection.connection.backup(kept)
        return kept

    def restore(self, snapshot: Any) -> None:
        """Restore a copy in a new connection: a refused operation may leave the old one in any state."""
        _require_own()
        if connection.connection is not None:
            connection.connection.close()
        connection.connect()
        guard(connection.connection)
        snapshot.backup(connection.connection)

    def to_bytes(self) -> bytes:
        """Return its whole content, for another process."""
        return bytes(connection.connection.serialize())

    def take(self, data: bytes) -> None:
        """Replace the content by that of another process."""
        kept = sqlite3.connect(":memory:")
        kept.deserialize(data)
        self.restore(kept)
        kept.close()

    def settle(self) -> None:
        """Raise if the connection was closed; the schema editor has already checked foreign keys."""
        if connection.connection is None:
            raise ProgrammingError("Cannot open a new connection in an atomic block.")

    def form(self) -> dict[str, Json]:
        """Return its content as JSON."""
        _require_own()
        return sqlite_form(asked)


def require_shareable() -> None:
    """Raise :class:`UnavailableError` for a connection that forked processes cannot share."""
    raw = connection.connection
    if connection.vendor == "postgresql" and (getattr(raw, "pgconn", None) or raw.info).ssl_in_use:
        raise UnavailableError(
            "a connection to PostgreSQL that is encrypted: a fresh process for each order cannot share it",
            expected="a server on this machine, or one that may be asked without TLS",
            remedy="end the address of --database in ?sslmode=disable",
        )


class Postgresql:
    """A database of a server, all within one transaction; snapshots are savepoints and the values of sequences."""

    is_forked = False

    def __init__(self) -> None:
        connection.ensure_connection()
        version = connection.pg_version
        self.label = f"PostgreSQL {version // 10_000}.{version % 10_000}"
        transaction.atomic().__enter__()

    def snapshot(self) -> Any:
        """Return a savepoint and the values of sequences, which are outside of transactions."""
        return connection.savepoint(), sequence_numbers()

    def restore(self, snapshot: Any) -> None:
        """Return to a savepoint that still exists."""
        name, numbers = snapshot
        connection.run_on_commit = []
        connection.needs_rollback = False
        # A failure at the end of a schema editor leaves its own block open.
        connection.savepoint_ids.clear()
        del connection.atomic_blocks[1:]
        connection.savepoint_rollback(name)
        set_sequences(numbers)

    def to_bytes(self) -> bytes:
        """Return nothing: the content is in no process."""
        return b""

    def take(self, data: bytes) -> None:
        """Do nothing: all processes share the content."""

    def settle(self) -> None:
        """Check now what may be deferred, defer it again, and run the hooks that wait for the commit."""
        self._check()
        hooks, connection.run_on_commit = connection.run_on_commit, []
        for _, hook, is_robust in hooks:
            try:
                with transaction.atomic():
                    hook()
            except Exception as error:
                if not is_robust:
                    raise NotSupportedError(
                        f"{error} (in a hook of on_commit, inside a transaction)"
                    ) from error
            self._check()
            if connection.run_on_commit:
                raise NotSupportedError(
                    "a hook of on_commit that waits for another commit, inside a transaction"
                )

    def _check(self) -> None:
        # Constraints of different tables may share a name, and deferring a constraint that cannot be is an error.
        found = asked(
            "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.conname), bool_and(c.condeferred) FROM "
            "pg_constraint c JOIN pg_namespace n ON n.oid = c.connamespace GROUP BY 1 "
            "HAVING bool_or(c.condeferrable) ORDER BY 1"
        )
        deferred = [name for name, is_deferred in found if is_deferred]
        with connection.cursor() as cursor:
            if found:
                cursor.execute(f"SET CONSTRAINTS {', '.join(name for name, _ in found)} IMMEDIATE")
            if deferred:
                cursor.execute(f"SET CONSTRAINTS {', '.join(deferred)} DEFERRED")

    def form(self) -> dict[str, Json]:
        """Return its content as JSON."""
        return postgresql_form(asked)


Database: TypeAlias = Sqlite | Postgresql


def watched_others() -> list[str]:
    """Return a list that gets the aliases of other databases when they are queried: no snapshot covers them."""
    used = list[str]()

    def watch(alias: str) -> Callable[..., Any]:
        def noted(execute: Callable[..., Any], *arguments: Any) -> Any:
            used.append(alias)
            return execute(*arguments)

        return noted

    for alias in connections:
        if alias != DEFAULT_DB_ALIAS:
            connections[alias].execute_wrappers.append(watch(alias))
    return used


def sequence_numbers(alias: str = DEFAULT_DB_ALIAS) -> Sequence[Sequence[Any]]:
    """Return each sequence of a PostgreSQL database, its start and its last value: they are outside of transactions."""
    return asked(
        "SELECT quote_ident(schemaname) || '.' || quote_ident(sequencename), start_value, last_value FROM pg_sequences",
        alias,
    )


def set_sequences(numbers: Sequence[Sequence[Any]], alias: str = DEFAULT_DB_ALIAS) -> None:
    """Reset sequences to their former values."""
    for sequence, start, last in numbers:
        value, is_called = start if last is None else last, last is not None
        asked(f"SELECT setval($${sequence}$$, {value}, {is_called})", alias)


def asked(sql: str, alias: str = DEFAULT_DB_ALIAS) -> Sequence[Sequence[Any]]:
    """Return the rows that a database answers."""
    with connections[alias].cursor() as cursor:
        cursor.execute(sql)
        rows: Sequence[Sequence[Any]] = cursor.fetchall()
        return rows


def opened() -> Database:
    """Return the database that Django is configured with; raise :class:`NotEmpty` if it holds anything."""
    database = Postgresql() if connection.vendor == "postgresql" else Sqlite()
    held = {name: rows for name, rows in database.form().items() if rows}
    if held:
        raise NotEmpty(", ".join(f"{len(rows)} {name}" for name, rows in held.items()))  # type: ignore[arg-type]
    return database


class NotEmpty(Exception):
    """A database that is not empty at the beginning; the text says what it holds."""
