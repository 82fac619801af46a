"""Give a second opinion on orders: the database's own client alone runs the SQL that Django writes for each step.

Django runs a step on a database with the client's content; its SQL is recorded, and the step is rolled back; then the
client runs the SQL. Every order runs whole on an empty database, each step in a transaction that ends, without
snapshots and savepoints; every project state makes its models anew. States must be equal, and refusals at the same
step; messages may differ. This module imports Django, which must be configured. It does not check whether Django writes
the right SQL.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from django.db import DatabaseError, connections, transaction
from django.db.migrations.migration import Migration
from django.db.migrations.state import ProjectState

from vcrt.errors import VerifierFailure
from vcrt.hashing import Json
from vcrt_django.catalogue import StateForms, digest, message, sqlite_form
from vcrt_django.databases import asked, guard, sequence_numbers, set_sequences
from vcrt_django.postgresql_catalogue import postgresql_form
from vcrt_django.replaying import renderable

#: The name of the database in which Django looks things up for the SQL that it writes here.
SECOND = "second"
#: The statements that drop all tables and views of PostgreSQL: an episode makes no other independent object.
_DROPS = (
    "SELECT format('DROP %s IF EXISTS %I CASCADE', CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, relname) "
    "FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')"
)
_Order: TypeAlias = tuple[int, ...]
_Statement: TypeAlias = tuple[str, Sequence[Any] | None]
#: Django's look-ups, and its transaction statements, which the client replaces by its own.
_NOT_KEPT = re.compile(
    r"\s*(SELECT|PRAGMA|BEGIN|COMMIT|SAVEPOINT|RELEASE|ROLLBACK)\b", re.IGNORECASE
)
#: The place of an argument in Django's SQL.
_ARGUMENT = re.compile(r"%(s|%)")


class _Sqlite:
    """An SQLite in memory and its own client."""

    def __init__(self) -> None:
        self._plain = self._opened()

    def _opened(self) -> sqlite3.Connection:
        plain = sqlite3.connect(":memory:", isolation_level=None)
        guard(plain)
        return plain

    def empty(self) -> None:
        """Remove all content."""
        self._plain.close()
        self._plain = self._opened()

    def tried(self, step: Callable[[], None]) -> None:
        """Have Django run something on the content, and roll it back."""
        second = connections[SECOND]
        second.ensure_connection()
        guard(second.connection)
        self._plain.backup(second.connection)
        try:
            step()
        finally:
            second.connection.rollback()

    def is_lost(self) -> bool:
        """Return whether the database is out of reach."""
        return False

    def run(self, statements: Sequence[_Statement]) -> None:
        """Run statements in a transaction of their own; roll back and raise the client's error if one is refused."""
        self._plain.execute("BEGIN")
        try:
            for statement, values in statements:
                if values is None:
                    self._plain.execute(statement)
                else:
                    self._plain.execute(_ARGUMENT.sub(_question_mark, statement), values)
            broken = self._plain.execute("PRAGMA foreign_key_check").fetchone()
            if broken is not None:
                raise sqlite3.IntegrityError(f"foreign keys of {broken[0]} to {broken[2]}")
        except BaseException:
            self._plain.execute("ROLLBACK")
            raise
        self._plain.execute("COMMIT")

    def form(self) -> dict[str, Json]:
        return sqlite_form(lambda sql: self._plain.execute(sql).fetchall())


class _Postgresql:
    """A database of a server and its own client, with the methods of :class:`_Sqlite`."""

    def __init__(self) -> None:
        import psycopg

        connections[SECOND].ensure_connection()
        own = connections[SECOND].get_connection_params()
        names = ("dbname", "user", "password", "host", "port")
        self._plain = psycopg.connect(
            **{name: own[name] for name in names if name in own},
            autocommit=True,
            # As Django sets them.
            options="-c timezone=UTC",
            cursor_factory=psycopg.ClientCursor,
        )

    def empty(self) -> None:
        for (drop,) in self._plain.execute(_DROPS).fetchall():
            self._plain.execute(drop)
        self._plain.execute("DISCARD ALL")

    def tried(self, step: Callable[[], None]) -> None:
        numbers = sequence_numbers(SECOND)
        try:
            with transaction.atomic(using=SECOND):
                try:
                    step()
                finally:
                    transaction.set_rollback(True, using=SECOND)
        finally:
            set_sequences(numbers, SECOND)

    def is_lost(self) -> bool:
        second = connections[SECOND].connection
        return bool(self._plain.closed or second is None or second.closed)

    def run(self, statements: Sequence[_Statement]) -> None:
        with self._plain.transaction():
            for statement, values in statements:
                self._plain.execute(statement, values)

    def form(self) -> dict[str, Json]:
        return postgresql_form(lambda sql: asked(sql, SECOND))


class SecondOpinion:
    """A replayer of orders by the client alone; on PostgreSQL it is connected from the beginning."""

    def __init__(self) -> None:
        is_server = connections[SECOND].vendor == "postgresql"
        self._plain = _Postgresql() if is_server else _Sqlite()

    def replays(
        self, before: Sequence[Migration], steps: Sequence[Migration], sequences: Sequence[_Order]
    ) -> list[Json]:
        """Return the hashes along each sequence, and its refusal, if any."""
        state, start = ProjectState(), list[Sequence[_Statement]]()
        self._plain.empty()
        for migration in before:
            after, statements = self._written(state, migration)
            if isinstance(after, Exception):
                raise after
            self._plain.run(statements)
            state = after
            start.append(statements)
        return [self._along(state, start, [steps[step] for step in order]) for order in sequences]

    def _along(
        self,
        state: ProjectState,
        start: Sequence[Sequence[_Statement]],
        steps: Sequence[Migration],
    ) -> Json:
        self._plain.empty()
        for statements in start:
            self._plain.run(statements)
        forms, hashes = StateForms(), list[Json]()
        hashes.append(digest(forms.form(state), self._plain.form()))
        for migration in steps:
            try:
                after, statements = self._written(state, migration)
                self._plain.run(statements)
                if isinstance(after, ProjectState):
                    state = renderable(after)
                elif not isinstance(after, DatabaseError):
                    raise after
            except MemoryError:
                raise
            except Exception as error:
                if self._plain.is_lost():
                    raise VerifierFailure(
                        "a database that is gone", found=message(error)
                    ) from error
                return [hashes, message(error)]
            hashes.append(digest(forms.form(state), self._plain.form()))
        return [hashes, None]

    def _written(
        self, before: ProjectState, migration: Migration
    ) -> tuple[ProjectState | Exception, list[_Statement]]:
        """Return the state after a step, or Django's error, and the SQL that it sent.

        If the database refuses the SQL to Django and not to the client, there is no project state: the old one replaces
        it, so that the two disagree.
        """
        after, statements = _bare(before), list[_Statement]()

        def keep(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            if not _NOT_KEPT.match(sql):
                statements.extend((sql, one) for one in (params if many else [params]))
            return execute(sql, params, many, context)

        def step() -> None:
            nonlocal after
            second = connections[SECOND]
            with second.execute_wrapper(keep), second.schema_editor(atomic=False) as editor:
                after = migration.apply(after, editor)

        try:
            self._plain.tried(step)
        except MemoryError:
            raise
        except Exception as error:
            return error, statements
        return after, statements


def _question_mark(found: re.Match[str]) -> str:
    return "?" if found[1] == "s" else "%"


def _bare(state: ProjectState) -> ProjectState:
    """Return a copy of a state that has made no models yet."""
    copy = state.clone()
    copy.__dict__.pop("apps", None)
    return copy
