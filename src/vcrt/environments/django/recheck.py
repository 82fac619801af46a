"""Give a second opinion on orders: the SQL that Django writes for each step, run by the database's own client alone.

Every order is run whole on an empty database, each step in a transaction that ends, without snapshots and savepoints;
every project state makes its models anew. States must come out the same, and refusals at the same step; messages may
differ. Imports Django, which must be configured. Not covered: whether Django writes the right SQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from django.db import connections, migrations
from django.db.migrations.migration import Migration
from django.db.migrations.state import ProjectState

from vcrt.environments.django.catalogue import (
    StateForms,
    digest,
    message,
    postgresql_form,
    sqlite_form,
)
from vcrt.environments.django.databases import guard
from vcrt.environments.django.reading import RowChange
from vcrt.environments.django.replaying import renderable
from vcrt.hashing import Json

#: The name of the database that Django looks things up in for the SQL that it writes here.
SECOND = "second"
#: The statements that drop all tables and views of PostgreSQL: an episode makes nothing else that stands by itself.
_DROPS = (
    "SELECT format('DROP %s IF EXISTS %I CASCADE', CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, relname) "
    "FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'v')"
)
_Order: TypeAlias = tuple[int, ...]
_Statement: TypeAlias = tuple[str, Sequence[str | int]]


class _Plain(Protocol):
    """A database and its own client; ``run`` raises the client's error."""

    #: What stands around a name, and for an argument.
    quotes: tuple[str, str]
    mark: str

    def empty(self) -> None:
        """Hold nothing."""

    def show(self) -> None:
        """Let Django look at what it holds."""

    def run(self, statements: Sequence[_Statement]) -> None:
        """Run statements in a transaction of their own, which is taken back where one is refused."""

    def form(self) -> dict[str, Json]:
        """What it holds."""


class _Sqlite:
    # SQLite takes a name in quotation marks that is no column's for a text.
    quotes, mark = ("[", "]"), "?"

    def __init__(self) -> None:
        self._plain = self._opened()

    def _opened(self) -> sqlite3.Connection:
        plain = sqlite3.connect(":memory:", isolation_level=None)
        guard(plain)
        return plain

    def empty(self) -> None:
        self._plain.close()
        self._plain = self._opened()

    def show(self) -> None:
        connections[SECOND].ensure_connection()
        self._plain.backup(connections[SECOND].connection)

    def run(self, statements: Sequence[_Statement]) -> None:
        self._plain.execute("BEGIN")
        try:
            for statement in statements:
                self._plain.execute(*statement)
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
    quotes, mark = ('"', '"'), "%s"

    def __init__(self) -> None:
        import psycopg

        connections[SECOND].ensure_connection()
        own = connections[SECOND].get_connection_params()
        names = ("dbname", "user", "password", "host", "port")
        self._plain = psycopg.connect(
            **{name: own[name] for name in names if name in own}, autocommit=True
        )

    def empty(self) -> None:
        for (drop,) in self._plain.execute(_DROPS).fetchall():
            self._plain.execute(drop)

    def show(self) -> None:
        """It is the same database."""

    def run(self, statements: Sequence[_Statement]) -> None:
        with self._plain.transaction():
            for statement, values in statements:
                # Without values a percent sign is one.
                self._plain.execute(statement, values or None)

    def form(self) -> dict[str, Json]:
        with connections[SECOND].cursor() as cursor:

            def query(sql: str) -> Sequence[Sequence[Any]]:
                cursor.execute(sql)
                rows: Sequence[Sequence[Any]] = cursor.fetchall()
                return rows

            return postgresql_form(query)


class SecondOpinion:
    """Replays orders by the client alone; on PostgreSQL it is connected from the beginning."""

    def __init__(self) -> None:
        is_server = connections[SECOND].vendor == "postgresql"
        self._plain: _Plain = _Postgresql() if is_server else _Sqlite()

    def replays(
        self, before: Sequence[Migration], steps: Sequence[Migration], sequences: Sequence[_Order]
    ) -> list[Json]:
        """The hashes along each sequence, and why it was refused, if it was."""
        state, start = ProjectState(), list[Sequence[_Statement]]()
        self._plain.empty()
        for migration in before:
            state, statements = self._written(state, migration)
            self._plain.run(statements)
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
                state = renderable(after)
            except MemoryError:
                raise
            except Exception as error:
                return [hashes, message(error)]
            hashes.append(digest(forms.form(state), self._plain.form()))
        return [hashes, None]

    def _written(
        self, before: ProjectState, migration: Migration
    ) -> tuple[ProjectState, list[_Statement]]:
        """The state after a step, and the SQL of it."""
        (operation,) = migration.operations
        before, after = _bare(before), _bare(before)
        if isinstance(operation, migrations.RunPython) and isinstance(operation.code, RowChange):
            table = before.apps.get_model(operation.code.model)._meta.db_table
            return after, [operation.code.sql(table, self._plain.quotes, self._plain.mark)]
        self._plain.show()
        with connections[SECOND].schema_editor(collect_sql=True, atomic=False) as editor:
            after = migration.apply(after, editor, collect_sql=True)
        return after, [(line, ()) for line in editor.collected_sql if not line.startswith("--")]


def _bare(state: ProjectState) -> ProjectState:
    """A copy of a state that has made no models yet."""
    copy = state.clone()
    copy.__dict__.pop("apps", None)
    return copy
