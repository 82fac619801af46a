"""SQLite schema and data changes: which statements commute, and which must not be swapped.

A state is a whole database as bytes; a step runs one statement on a copy of it; a rejection is SQLite's own message.
Not covered: which SQL may run, and which errors are no verdict; see :mod:`vcrt_sqlite.database`.
"""

from __future__ import annotations

import sqlite3
from typing import ClassVar

from vcrt.environments.contract import (
    Accepted,
    CrossCheck,
    Episode,
    Operation,
    Provenance,
    Rejected,
    Schema,
    StepEnvironment,
    Transition,
    Versions,
)
from vcrt.environments.second_opinions import replays_to_check
from vcrt.errors import MalformedInputError, UnavailableError
from vcrt.hashing import sha256_hex
from vcrt.randomness import generator
from vcrt_sqlite.database import made, opened, run, run_in_a_file
from vcrt_sqlite.long_statements import LONG, draw_long
from vcrt_sqlite.statements import PAIRS, draw

#: What SQL can see of the catalogue: texts as SQLite keeps them; what belongs to one table in the order it was made.
CATALOGUE = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY tbl_name, rowid"
TABLES = "SELECT name, wr FROM pragma_table_list WHERE schema = 'main' AND name <> 'sqlite_schema' ORDER BY name"


class SqliteChanges(StepEnvironment[bytes]):
    """Episodes of four or more statements on a small shop database, judged by the SQLite that Python has."""

    name: ClassVar[str] = "sqlite_changes"
    schemas: ClassVar[tuple[Schema, ...]] = (*PAIRS, *LONG)

    def versions(self) -> Versions:
        """SQLite's version, the exact source it was built from, and the options of the build."""
        if sqlite3.sqlite_version_info < (3, 37):
            raise UnavailableError(
                "this SQLite is too old", found=sqlite3.sqlite_version, expected="3.37 or later"
            )
        with opened() as database:
            ((source,),) = database.execute("SELECT sqlite_source_id()")
            options = database.execute("PRAGMA compile_options").fetchall()
        return Versions(
            environment=self.name,
            adapter="1",
            canonicalizer="1",
            verifier=f"SQLite {sqlite3.sqlite_version}",
            libraries={"source": source, "compile_options": sha256_hex(repr(options).encode())},
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """The schema's pair, or pairs, among other statements; whether they commute is for certification to say."""
        known, rng = self.schema(schema), generator(seed, self.name, schema)
        setup, statements = draw_long(known.num_steps, rng) if known.num_steps else draw(known, rng)
        return Episode(
            environment=self.name,
            schema=schema,
            initial=setup,
            operations=tuple(Operation(signature=s, payload=s) for s in statements),
            provenance=Provenance(
                source=f"{schema}/{seed}", generator="vcrt-sqlite 0.1", seed=seed
            ),
        )

    def initial_state(self, episode: Episode) -> bytes:
        """The database that the episode's setup makes."""
        setup = episode.initial
        if not (isinstance(setup, list) and setup and all(isinstance(s, str) for s in setup)):
            raise MalformedInputError("the setup is not a list of statements", found=repr(setup))
        return made(tuple(setup))

    def step(self, state: bytes, operation: Operation) -> Transition[bytes]:
        """Run the statement on a copy: bytes cannot be changed in place."""
        with opened(state) as database:
            refusal = run(database, operation.payload)
            return Rejected(refusal) if refusal else Accepted(database.serialize())

    def canonical(self, state: bytes) -> bytes:
        """All that a statement can see, and nothing of how the file is laid out."""
        with opened(state) as database:
            rows = {}
            for table, without_rowid in database.execute(TABLES).fetchall():
                columns = "*" if without_rowid else "rowid, _rowid_, oid, *"
                name = table.replace('"', '""')
                rows[table] = sorted(map(repr, database.execute(f'SELECT {columns} FROM "{name}"')))
            return repr((database.execute(CATALOGUE).fetchall(), rows)).encode()

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """Every order again (of long episodes a sample), as one transaction in a file; states compared by its dump.

        The same SQLite by another route: it shows what a step loses or leaks between statements, and a canonical state
        that is too coarse or too fine. It cannot show a fault of SQLite. Python's dump, sorted, has neither row numbers
        nor an order of indexes: episodes that differ in these alone are left out.
        """
        replays = replays_to_check(self, episode)
        setup = self.initial_state(episode)
        files = [
            run_in_a_file(setup, [episode.operations[i].payload for i in replay.sequence])
            for replay in replays
        ]
        agreed = sum(
            reason == (replay.rejection and replay.rejection.reason)
            and (dump == files[0][1]) == (replay.terminal_hash == replays[0].terminal_hash)
            for replay, (reason, dump) in zip(replays, files, strict=True)
        )
        return (CrossCheck("one transaction in a file", len(replays), agreed),)
