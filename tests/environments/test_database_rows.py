"""Databases of SQLite in folders count by what statements of SQL see, and by their bytes where that cannot be read."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing

import pytest

from vcrt.environments.folder_states import canonical_tree, read_tree
from vcrt.environments.states.database_rows import database_form

START = """
CREATE TABLE notes (name TEXT PRIMARY KEY, text TEXT);
CREATE TABLE counts (id INTEGER PRIMARY KEY AUTOINCREMENT, number);
CREATE TABLE pairs (a, b, PRIMARY KEY (a, b)) WITHOUT ROWID;
INSERT INTO notes VALUES ('a', 'one'), ('b', 'two'), ('c', 'three');
INSERT INTO counts (number) VALUES (1), (2.5), (NULL), (x'ff');
"""


def written(path, *scripts):
    """Write a database, one transaction for each script."""
    with closing(sqlite3.connect(path)) as database:
        for script in scripts:
            database.executescript(script)
            database.commit()
    return canonical_tree(read_tree(path.parent))


@pytest.fixture
def made(tmp_path):
    number = iter(range(1000))

    def make(*scripts):
        folder = tmp_path / str(next(number))
        folder.mkdir()
        return written(folder / "shop.db", START, *scripts)

    return make


LONG = f"UPDATE notes SET text = '{'x' * 3000}' WHERE name = 'a'"
OTHER = f"UPDATE notes SET text = '{'y' * 5000}' WHERE name = 'b'"


def test_where_rows_lie_counts_for_nothing(made, tmp_path):
    assert made(LONG, OTHER) == made(OTHER, LONG) == made(OTHER, LONG, "VACUUM")
    contents = {(tmp_path / str(number) / "shop.db").read_bytes() for number in range(3)}
    assert len(contents) == 3  # or nothing would be tested


@pytest.mark.parametrize(
    "script",
    [
        "UPDATE notes SET text = 'ONE' WHERE name = 'a'",
        "UPDATE counts SET number = '1' WHERE id = 1",
        "UPDATE counts SET number = 1.0 WHERE id = 1",
        "UPDATE counts SET number = 'ff' WHERE id = 4",
        "DELETE FROM notes WHERE name = 'c'",
        # The same rows, in another order.
        "DELETE FROM notes WHERE name = 'a'; INSERT INTO notes VALUES ('a', 'one')",
        # The next number is another one.
        "INSERT INTO counts (number) VALUES (7); DELETE FROM counts WHERE number = 7",
        "INSERT INTO pairs VALUES (1, 2)",
        "CREATE INDEX by_text ON notes (text)",
        "CREATE TABLE more (x)",
        "CREATE TRIGGER t AFTER INSERT ON pairs BEGIN DELETE FROM notes; END",
        "PRAGMA user_version = 3",
        "PRAGMA application_id = 3",
        "PRAGMA journal_mode = WAL",
    ],
)
def test_what_a_statement_sees_counts(made, script):
    assert made() != made(script)


def test_a_log_beside_the_file_is_a_part_of_it(tmp_path, made):
    whole = made("PRAGMA journal_mode = WAL", LONG)
    folder = tmp_path / "open"
    folder.mkdir()
    path = folder / "shop.db"
    written(path, START, "PRAGMA journal_mode = WAL")
    with closing(sqlite3.connect(path)) as database:
        database.execute(LONG)
        before = canonical_tree(read_tree(folder))  # not done yet
        database.commit()
        assert (folder / "shop.db-wal").stat().st_size
        assert canonical_tree(read_tree(folder)) == whole != before
        assert canonical_tree(read_tree(folder), ignored=["*-wal", "*-shm"]) == whole
    assert canonical_tree(read_tree(folder)) == whole


def test_what_cannot_be_read_counts_by_its_bytes(tmp_path):
    path = tmp_path / "shop.db"
    for content in (b"SQLite format 3\0", b"SQLite format 3\0 and more" * 100, b"text"):
        path.write_bytes(content)
        assert database_form(content) is None
        before = canonical_tree(read_tree(tmp_path))
        path.write_bytes(content + b"!")
        assert canonical_tree(read_tree(tmp_path)) != before
    path.unlink()
    whole = written(path, START)
    (tmp_path / "shop.db-journal").write_bytes(b"a transaction that is not done")
    assert canonical_tree(read_tree(tmp_path)) != whole


@pytest.mark.parametrize("seed", range(20))
def test_equal_forms_are_equal_dumps(tmp_path, seed):
    """Against SQLite's own dump, with the numbers of rows."""
    draw, found = random.Random(seed), {}
    statements = [
        "INSERT INTO notes VALUES ('{}', '{}')",
        "UPDATE notes SET text = text || '{}' WHERE name = '{}'",
        "DELETE FROM notes WHERE name = '{}' OR text = '{}'",
        "INSERT INTO counts (number) VALUES ('{}{}')",
        "DELETE FROM counts WHERE id % 3 = {:.0s}{:.0s}1",
        "INSERT OR REPLACE INTO pairs VALUES ('{}', '{}')",
    ]
    for number in range(40):
        path = tmp_path / f"{number}.db"
        script = [draw.choice(statements).format(*draw.choices("abc", k=2)) for _ in range(4)]
        with closing(sqlite3.connect(path)) as database:
            database.executescript(START)
            for statement in script:
                try:
                    database.execute(statement)
                except sqlite3.IntegrityError:
                    continue
                database.commit()
            numbers = database.execute("SELECT rowid, name FROM notes").fetchall()
            dump = repr([*database.iterdump(), numbers])
        form = database_form(path.read_bytes())
        assert found.setdefault(dump, form) == form is not None
    assert len({*found.values()}) == len(found) > 10
