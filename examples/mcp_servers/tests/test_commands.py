"""Published servers by their commands alone, as ``vcrt retry LOG --mcp`` takes them."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing

import pytest

pytest.importorskip("mcp", reason="the official client is not installed: make test-integrations")

from vcrt.cli import main


def answers(capsys, tmp_path, calls, command, state, root):
    """What `vcrt retry` says of each call of a log."""
    program = command.partition(" ")[0]
    if shutil.which(program) is None:
        pytest.skip(f"no {program}: make test-integrations")
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"name": n, "arguments": a}) + "\n" for n, a in calls))
    options = ("--mcp", command, "--state", str(state), "--root", root, "--json")
    main(["retry", str(log), *options])
    (found,) = json.loads(capsys.readouterr().out)
    return [call["answer"] for call in found["calls"]]


def test_calls_of_the_file_server_that_may_be_made_again(capsys, tmp_path):
    start = tmp_path / "start"
    start.mkdir()
    (start / "a.txt").write_text("alpha\n")
    edit = {"path": "/srv/a.txt", "edits": [{"oldText": "alpha", "newText": "alpha alpha"}]}
    calls = [
        ("mcp__files__write_file", {"path": "/srv/b.txt", "content": "x"}),
        ("mcp__files__edit_file", edit),
        ("mcp__files__move_file", {"source": "/srv/b.txt", "destination": "/srv/c.txt"}),
    ]
    command = "mcp-server-filesystem {state}"
    assert answers(capsys, tmp_path, calls, command, start, "/srv") == [
        "safe",
        "other state",
        "other output",
    ]
    assert (start / "a.txt").read_text() == "alpha\n"


def test_calls_of_the_sqlite_server_that_may_be_made_again(capsys, tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.executescript("CREATE TABLE item (name TEXT); INSERT INTO item VALUES ('lamp')")
    calls = [
        ("write_query", {"query": "INSERT INTO item VALUES ('pen')"}),
        ("write_query", {"query": "UPDATE item SET name = 'cup' WHERE name = 'pen'"}),
        ("list_tables", {}),
    ]
    command = "mcp-server-sqlite --db-path {state}"
    assert answers(capsys, tmp_path, calls, command, tmp_path / "shop.db", "/srv/shop.db") == [
        "other state",
        "other output",
        "safe",
    ]
