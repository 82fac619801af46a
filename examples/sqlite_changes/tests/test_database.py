"""Hostile statements are not run, and what breaks is never taken for a verdict."""

from __future__ import annotations

import sqlite3

import pytest
import vcrt_sqlite.database
from vcrt_sqlite.database import opened, run
from vcrt_sqlite.environment import SqliteChanges

from vcrt.environments.contract import Operation
from vcrt.errors import MalformedInputError, VerifierFailure

T = "CREATE TABLE t (id INTEGER PRIMARY KEY, x)"
SQLITE = SqliteChanges()


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH DATABASE '{folder}/other' AS other",
        "VACUUM INTO '{folder}/other'",
        "PRAGMA writable_schema = 1",
        "SELECT load_extension('{folder}/other')",
        "INSERT INTO t (x) VALUES (load_extension('{folder}/other'))",
        "INSERT INTO t (x) VALUES (random())",
        "INSERT INTO t (x) VALUES (CURRENT_TIMESTAMP)",
        "UPDATE t SET x = (SELECT count(*) FROM sqlite_schema)",
        "UPDATE t SET x = u.x FROM t AS u",
        "INSERT INTO t SELECT 1, 2",
        "INSERT INTO t (id) VALUES (1) ON CONFLICT DO UPDATE SET x = 1",
        "INSERT INTO t (x) VALUES (1) RETURNING x",
        "INSERT INTO t (x) VALUES (?)",
        "INSERT INTO t (x) VALUES (1); DELETE FROM t",
        "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x FROM c) INSERT INTO t SELECT 1, x FROM c",
        "CREATE TABLE u AS SELECT * FROM t",
        "CREATE TEMP TABLE u (x)",
        "CREATE VIEW v AS SELECT 1",
        "CREATE VIRTUAL TABLE v USING fts5(x)",
        "CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t; END",
        "CREATE TABLE u (x CHECK (x > random()))",
        "CREATE INDEX i ON t (x) WHERE random() > 0",
        # The authorizer is not asked about these three.
        "CREATE TABLE u (x DEFAULT CURRENT_TIMESTAMP)",
        "CREATE TABLE u (x DEFAULT (random()))",
        "ALTER TABLE t ADD COLUMN y DEFAULT (random())",
        "ALTER TABLE t ADD COLUMN y CHECK (random() > 0)",
        "BEGIN",
        "CREATE TABLE u (x)\n",
        "CREATE TABLE u (x)\0",
        "CREATE TABLE \ud800 (x)",
        "",
        None,
        7,
    ],
)
def test_hostile_statements_are_not_run(tmp_path, statement):
    if isinstance(statement, str):
        statement = statement.replace("{folder}", str(tmp_path))
    with opened() as database:
        run(database, T)
        before = sorted(database.iterdump())
        with pytest.raises(MalformedInputError, match="does not run"):
            run(database, statement)
        if "DEFAULT" not in str(statement):
            assert sorted(database.iterdump()) == before
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(MalformedInputError):
        SQLITE.step(before_bytes(), Operation(signature="hostile", payload=statement))


def before_bytes():
    with opened() as database:
        run(database, T)
        return database.serialize()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("INSERT INTO u (x) VALUES (1)", "no such table: u"),
        ("INSERT INTO t (y) VALUES (1)", "table t has no column named y"),
        ("INSERT INTO t (id) VALUES ('a')", "datatype mismatch"),
        ("INSERT INTO t (id) VALUES (1)", "UNIQUE constraint failed: t.id"),
        ("DELETE FROM sqlite_schema", "table sqlite_master may not be modified"),
        ("ALTER TABLE t ADD COLUMN x", "duplicate column name: x"),
        (T, "table t already exists"),
    ],
)
def test_a_refusal_is_a_value(statement, message):
    with opened() as database:
        assert run(database, T) is None
        assert run(database, "INSERT INTO t (id) VALUES (1)") is None
        assert run(database, statement) == message


def test_a_locked_database_is_no_verdict(tmp_path):
    path = str(tmp_path / "locked")
    with opened(path=path) as holder:
        run(holder, T)
        holder.execute("BEGIN EXCLUSIVE")
        with (
            pytest.raises(VerifierFailure, match="SQLITE_BUSY: database is locked"),
            opened(path=path) as database,
        ):
            run(database, "INSERT INTO t (id) VALUES (1)")


def test_an_interrupted_statement_is_no_verdict(monkeypatch):
    state = before_bytes()
    insert = Operation(signature="insert", payload="INSERT INTO t (id) VALUES (1)")
    monkeypatch.setattr(vcrt_sqlite.database, "BUDGET", 2)
    with pytest.raises(VerifierFailure, match="SQLITE_INTERRUPT: interrupted"):
        SQLITE.step(state, insert)


def test_a_full_disk_is_no_verdict():
    def fill():
        with opened() as database:
            run(database, T)
            database.execute("PRAGMA max_page_count = 2")
            run(database, f"INSERT INTO t (x) VALUES ('{'x' * 10_000}')")

    with pytest.raises(VerifierFailure, match="SQLITE_FULL: database or disk is full"):
        fill()


def test_a_text_that_is_too_long_is_no_verdict():
    insert = f"INSERT INTO t (x) VALUES ('{'x' * 2_000_000}')"
    with pytest.raises(VerifierFailure, match="SQLITE_TOOBIG"):
        SQLITE.step(before_bytes(), Operation(signature="insert", payload=insert))


@pytest.mark.parametrize("where", ["step", "canonical"])
def test_a_broken_state_is_no_verdict(where):
    insert = Operation(signature="insert", payload="INSERT INTO t (id) VALUES (1)")
    broken = bytes(4096)
    with pytest.raises(VerifierFailure, match="SQLITE_NOTADB"):
        SQLITE.step(broken, insert) if where == "step" else SQLITE.canonical(broken)


def test_the_guard_is_off_again_after_each_statement():
    with opened() as database:
        run(database, T)
        with pytest.raises(MalformedInputError):
            run(database, "UPDATE t SET x = random()")
        assert database.execute("SELECT abs(-1)").fetchone() == (1,)
        assert isinstance(database, sqlite3.Connection)
