"""Give a second opinion on orders: the SQL that Django writes for each step, run by ``sqlite3`` alone.

Every order is run whole on a database of its own, without going back to a snapshot, and every project state makes its
models anew. States must come out the same, and refusals at the same step; messages may differ. Imports Django, which
must be configured with SQLite. Not covered: whether Django writes the right SQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any, TypeAlias

from django.db import connection, migrations
from django.db.migrations.migration import Migration
from django.db.migrations.state import ProjectState

from vcrt.environments.django.catalogue import StateForms, digest, message, sqlite_form
from vcrt.environments.django.databases import guard
from vcrt.environments.django.reading import RowChange
from vcrt.environments.django.replaying import renderable
from vcrt.hashing import Json

_Order: TypeAlias = tuple[int, ...]


def second_replays(
    before: Sequence[Migration], steps: Sequence[Migration], sequences: Sequence[_Order]
) -> list[Json]:
    """The hashes along each sequence, and why it was refused, if it was."""
    with closing(_plain()) as first:
        state = ProjectState()
        for migration in before:
            state = _step(first, state, migration)
        return [_along(first, state, [steps[step] for step in order]) for order in sequences]


def _along(first: sqlite3.Connection, state: ProjectState, steps: Sequence[Migration]) -> Json:
    with closing(_plain()) as plain:
        first.backup(plain)
        forms, hashes = StateForms(), list[Json]()

        def query(sql: str) -> Sequence[Sequence[Any]]:
            return plain.execute(sql).fetchall()

        hashes.append(digest(forms.form(state), sqlite_form(query)))
        for migration in steps:
            try:
                state = _step(plain, state, migration)
            except MemoryError:
                raise
            except Exception as error:
                return [hashes, message(error)]
            hashes.append(digest(forms.form(state), sqlite_form(query)))
        return [hashes, None]


def _plain() -> sqlite3.Connection:
    plain = sqlite3.connect(":memory:", isolation_level=None)
    guard(plain)
    return plain


def _step(plain: sqlite3.Connection, before: ProjectState, migration: Migration) -> ProjectState:
    (operation,) = migration.operations
    before, after = _bare(before), _bare(before)
    if isinstance(operation, migrations.RunPython) and isinstance(operation.code, RowChange):
        change = operation.code
        sql, arguments = change.sql(before.apps.get_model(change.model)._meta.db_table)
        statements = [(sql, arguments)]
    else:
        # What the writer looks up in its database is what the other one holds now.
        plain.backup(connection.connection)
        with connection.schema_editor(collect_sql=True, atomic=False) as editor:
            after = migration.apply(after, editor, collect_sql=True)
        statements = [(line, ()) for line in editor.collected_sql if not line.startswith("--")]
    plain.execute("BEGIN")
    try:
        for statement, values in statements:
            plain.execute(statement, values)
        broken = plain.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            raise sqlite3.IntegrityError(f"foreign keys of {broken[0]} to {broken[2]}")
    except BaseException:
        plain.execute("ROLLBACK")
        raise
    plain.execute("COMMIT")
    return renderable(after)


def _bare(state: ProjectState) -> ProjectState:
    """A copy of a state that has made no models yet."""
    copy = state.clone()
    copy.__dict__.pop("apps", None)
    return copy
