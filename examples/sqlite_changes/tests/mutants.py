"""Environments with one flaw each, of the kinds that are easily made, and one episode that was made to find a flaw."""

from __future__ import annotations

import itertools
import sqlite3
from dataclasses import replace

from vcrt_sqlite.database import opened, run
from vcrt_sqlite.environment import CATALOGUE, SqliteChanges

from vcrt.environments.contract import Accepted, Episode, Operation, Provenance, Rejected, Schema


class TwoSchemas(SqliteChanges):
    """One schema of each kind, which is enough to find the flaws of the others here."""

    schemas = tuple(s for s in SqliteChanges.schemas if s.name in ("new_column", "column_order"))


class RandomNumbers(TwoSchemas):
    """Runs its statement on a connection that lets random() through."""

    def step(self, state, operation):
        answer = super().step(state, operation)
        if isinstance(answer, Rejected):
            return answer
        with opened(answer.state) as database:
            database.execute("UPDATE goods SET stock = random() WHERE id = 1")
            return Accepted(database.serialize())


class RowsForgotten(TwoSchemas):
    """Takes the catalogue for the whole state."""

    def canonical(self, state):
        with opened(state) as database:
            return repr(database.execute(CATALOGUE).fetchall()).encode()


class ColumnNamesForgotten(TwoSchemas):
    """Takes names of tables and rows of values for the whole state."""

    def canonical(self, state):
        with opened(state) as database:
            names = database.execute("SELECT name, tbl_name FROM sqlite_schema ORDER BY name")
            return repr(
                [
                    (name, sorted(map(repr, database.execute(f"SELECT * FROM {table}"))))
                    for name, table in names.fetchall()
                ]
            ).encode()


class Scan(SqliteChanges):
    """Two indexes on one table, and an update that one of them leads through the rows: ids up or ids down."""

    schemas = (Schema(name="scan", summary="two indexes and an update", relation="conflicts"),)

    def sample(self, schema, seed):
        setup = ["CREATE TABLE t (id INTEGER PRIMARY KEY, a INTEGER UNIQUE, b INTEGER, c INTEGER)"]
        setup += [f"INSERT INTO t VALUES ({i}, {seed + i}, {5 - i}, {i})" for i in (1, 2, 3, 4)]
        statements = (
            "CREATE INDEX by_b ON t (b)",
            "CREATE INDEX by_c ON t (c)",
            "UPDATE t SET a = a - 1 WHERE b > 0 AND c > 0",
            "CREATE TABLE u (x INTEGER)",
        )
        return Episode(
            environment=self.name,
            schema=schema,
            initial=setup,
            operations=tuple(Operation(signature=s, payload=s) for s in statements),
            provenance=Provenance(source=f"scan/{seed}", generator="by hand", seed=seed),
        )


class IndexOrderForgotten(Scan):
    """Sorts the catalogue by name, so that the order in which indexes were made is lost."""

    def canonical(self, state):
        with opened(state) as database:
            names = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
            rows = {
                table: sorted(map(repr, database.execute(f"SELECT * FROM {table}")))
                for (table,) in database.execute(
                    "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
                ).fetchall()
            }
            return repr((database.execute(names).fetchall(), rows)).encode()

    def cross_check(self, episode):
        return ()


class LiveDatabase(TwoSchemas):
    """Its state is an open database, which a step changes in place."""

    def initial_state(self, episode):
        database = sqlite3.connect(":memory:", isolation_level=None)
        database.deserialize(super().initial_state(episode))
        return database

    def step(self, state, operation):
        refusal = run(state, operation.payload)
        return Rejected(refusal) if refusal else Accepted(state)

    def canonical(self, state):
        return super().canonical(state.serialize())

    def cross_check(self, episode):
        return ()


class OneSignature(TwoSchemas):
    """Names a step after its first word."""

    def sample(self, schema, seed):
        episode = super().sample(schema, seed)
        operations = tuple(replace(o, signature="statement") for o in episode.operations)
        return replace(episode, operations=operations)


class CountedVersions(TwoSchemas):
    counter = itertools.count()

    def versions(self):
        return replace(super().versions(), adapter=str(next(self.counter)))


class AcceptsAll(TwoSchemas):
    """Takes an error for a step that did nothing."""

    def step(self, state, operation):
        answer = super().step(state, operation)
        return Accepted(state) if isinstance(answer, Rejected) else answer


class NotesRefusals(TwoSchemas):
    """Accepts what SQLite refuses and notes that in the database, so that each step has an effect."""

    def step(self, state, operation):
        answer = super().step(state, operation)
        if isinstance(answer, Accepted):
            return answer
        with opened(state) as database:
            database.execute(f"CREATE TABLE refused (text DEFAULT '{answer.reason}')")
            return Accepted(database.serialize())


class RejectsAll(TwoSchemas):
    def step(self, state, operation):
        return Rejected("no such table")

    def cross_check(self, episode):
        return ()
