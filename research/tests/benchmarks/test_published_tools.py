"""The page on published tools says what its results say, and no more; a row that did not change is not run again."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "research" / "benchmarks" / "published_tools"
RESULTS = ROOT / "research" / "benchmarks" / "results" / "published_tools.json"


@pytest.fixture(scope="module")
def page():
    file = ROOT / "research" / "benchmarks" / "published_tools" / "page.py"
    spec = importlib.util.spec_from_file_location("page_of_published_tools", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_results_give(page):
    assert page.PAGE.read_text() == page.page(json.loads(RESULTS.read_text()))


def test_what_was_not_seen_by_hand_twice_is_no_contradiction(page):
    seen = {
        "tool": "look",
        "hint": "readOnlyHint",
        "same_twice": True,
        "differs": True,
        "answers_otherwise": False,
    }
    found = [{**seen, "same_twice": False}, {**seen, "differs": False}, seen]
    server = {"tools": {"look": {"readOnlyHint": True}}, "contradicted": found}
    assert page.contradicted(server) == [seen]


def test_idempotence_of_a_tool_that_is_declared_read_only_is_not_judged(page):
    seen = {
        "tool": "look",
        "hint": "idempotentHint",
        "same_twice": True,
        "differs": True,
        "answers_otherwise": True,
    }
    for read_only in (True, False):
        server = {"tools": {"look": {"readOnlyHint": read_only}}, "contradicted": [seen]}
        assert page.contradicted(server) == [seen] * (not read_only)


def test_a_row_counts_pairs_that_did_not_commute_and_hints_that_hold(page):
    server = {
        "package": "shop",
        "version": "1",
        "tools": {"look": {"readOnlyHint": True}, "order": {}, "list": {}},
        "called": {
            "look": {"changed": [0, 2]},
            "order": {"changed": [1, 2]},
            "list": {"changed": [0, 1]},
        },
        "pairs": [
            {"a": "look", "b": "look", "commuted": [2, 2], "against": None},
            {
                "a": "look",
                "b": "order",
                "commuted": [1, 2],
                "against": {"calls": ["look()", "order()"]},
            },
            {
                "a": "order",
                "b": "order",
                "commuted": [0, 1],
                "against": {"calls": ["order()", "order() #2"]},
            },
            {"a": "list", "b": "order", "commuted": [0, 0], "against": None},
        ],
        "contradicted": [],
    }
    (row,) = page.table({"servers": [server, {"problem": "it does not start"}]})
    assert row == (
        "| shop 1 | 3 of 3 | 1 readOnlyHint, 0 idempotentHint | 0 | 1 of 3 (0) | `list` |"
    )


def said_of_a_row(ignored, seed):
    program = f"""if True:
        from published_servers import Row
        print(Row(key="a", registry="npm", package="a", version="1", program="a", traces=(), ignored={ignored}).said)
    """
    env = {**os.environ, "PYTHONHASHSEED": str(seed)}
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=FOLDER,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_the_same_row_is_known_in_every_process_and_another_is_not():
    many = frozenset(f"{name}.db" for name in "abcdefgh")
    said = {said_of_a_row(many, seed) for seed in (1, 2)}
    assert len(said) == 1
    assert said_of_a_row(many - {"a.db"}, 1) not in said


def test_a_shell_of_a_tool_reads_no_file_of_its_user(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(FOLDER))
    framework_runs = importlib.import_module("framework_runs")
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / ".bashrc").write_text("echo it waits\n")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))

    def shown(env):
        shell = ["bash", "-i", "-c", "echo done"]
        return subprocess.run(shell, env=env, capture_output=True, text=True, check=True).stdout

    assert shown(os.environ) == "it waits\ndone\n"
    (tmp_path / "own").mkdir()
    assert shown(framework_runs.at_home(str(tmp_path / "own"))) == "done\n"


def test_a_recorded_log_has_the_ids_that_the_server_drew(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "mcp_servers"))
    by_hand = importlib.import_module("by_hand")
    servers = importlib.import_module("published_servers")
    asked = []

    class Client:
        def call(self, name, arguments):
            asked.append(arguments)
            return json.dumps(
                {"task": {"id": f"drawn-{len(asked)}"}, "at": "/there/x on 2026-01-02"}
            )

    row = servers.Row(
        key="tasks",
        registry="npm",
        package="tasks",
        version="1",
        program="tasks",
        ids={"add": "task.id"},
        masks=("[0-9]{4}-[0-9]{2}-[0-9]{2}",),
        traces=(),
    )
    asking = by_hand.Asking(row, Client(), Path("/there"))
    asking.made(("add", {"title": "a"}))
    given, said = asking.made(("finish", {"task": "{id}", "file": "{state}/x"}))
    assert asked[1] == {"task": "drawn-1", "file": "/there/x"}
    assert given == {"task": "drawn-1", "file": "{state}/x"}
    assert json.loads(said)["at"] == "{state}/x on ~"
