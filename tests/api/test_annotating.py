"""`vcrt annotate`: from logs, from datasets and from samples, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import file_store
import vcrt
from command_line import refused, run
from shop import Shop
from vcrt.errors import DatasetError, MalformedInputError, UnknownNameError

STORE = f"{file_store.__file__}:Files"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Four traces of the file store, as JSON lines."""
    path = tmp_path_factory.mktemp("annotate") / "log.jsonl"
    lines = []
    for number in range(4):
        calls = [
            {"name": "write", "arguments": {"path": "a/x", "text": f"<{number}>"}},
            {"name": "read", "arguments": {"path": "a/x" if number % 2 else "a/y"}},
            {"name": "list", "arguments": {"folder": "b"}},
        ]
        initial = {"a/x": "old", "a/y": "old"}
        lines.append(json.dumps({"id": f"trace {number}", "initial": initial, "calls": calls}))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def lifted(log):
    return vcrt.lift_log([log], environment=STORE, output=log.parent / "data", jobs=1)


def test_a_log_and_the_dataset_of_it_say_the_same(capsys, log, lifted):
    code, out, _ = run(capsys, "annotate", log, "--environment", STORE, "--json")
    assert code == 0
    of_log = json.loads(out)
    names = {one["name"]: one["_meta"]["vcrt"]["changed"]["count"] for one in of_log["tools"]}
    assert names == {"list": 0, "read": 0, "write": 4}
    (pair,) = (one for one in of_log["pairs"] if (one["a"], one["b"]) == ("read", "write"))
    assert pair["verdicts"] == {"diamond": 2, "observes": 2}
    assert pair["condition"]["text"] == "a.path != b.path"
    assert {
        (d["tool"], d["standing"]) for d in of_log["declared"] if d["hint"] == "readOnlyHint"
    } == {
        ("list", "unsupported"),
        ("read", "not contradicted"),
        ("write", "contradicted"),
    }
    code, out, _ = run(capsys, "annotate", lifted.dataset.path, "--json")
    assert code == 0
    of_data = json.loads(out)
    assert "files" in of_data["undeclared"]
    for name in ("pairs", "conditions", "tools", "episodes"):
        assert of_data[name] == of_log[name]


def test_samples_are_replayed_twice_and_nothing_is_frozen(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--environment", STORE, "--schemas", "calls", "--episodes", "3", "--jobs", "1"]
    code, out, _ = run(capsys, "annotate", *options)
    assert code == 0
    assert "3 episodes from 2 sources" in out
    assert "each bound holds by itself, at 95%" in out
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """Thirty traces of a write and a read."""
    path = tmp_path_factory.mktemp("annotate") / "many.jsonl"
    lines = []
    for number in range(30):
        calls = [
            {"name": "append", "arguments": {"path": "a/x", "text": f"<{number}>"}},
            {"name": "read", "arguments": {"path": "a/y"}},
        ]
        lines.append(json.dumps({"id": str(number), "initial": {"a/y": "old"}, "calls": calls}))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_what_took_too_long_is_named_and_bears_no_hint_that_is_true(capsys, many):
    code, out, _ = run(capsys, "annotate", many, "--environment", STORE, "--for", "langgraph")
    assert code == 0
    assert "MAY_OVERLAP = frozenset({" in out
    assert "(--within)" not in out
    short = ["annotate", many, "--environment", STORE, "--within", "1e-9"]
    code, out, _ = run(capsys, *short, "--for", "langgraph")
    assert code == 0
    assert "MAY_OVERLAP = frozenset()" in out
    assert "# 30 sources replayed in part, for lack of time (--within)" in out
    code, out, _ = run(capsys, *short, "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["complete"], len(found["cut"])) == (False, 30)
    assert {one["name"]: one["annotations"] for one in found["tools"]} == {
        "append": {"readOnlyHint": False},
        "read": {},
    }
    # Neither order was compared with the other.
    assert all(pair["commuted"]["total"] == 0 for pair in found["pairs"])
    code, out, _ = run(capsys, *short)
    assert "27 more: replayed in part, for lack of time (--within)" in out


SHY = """
import json
import vcrt


class Shy(vcrt.CallEnvironment):
    name = "shy"

    def reset(self, initial):
        return {"rows": initial}

    def call(self, state, name, arguments):
        if name == "rows":
            return state["rows"]
        if not arguments["confirm"]:
            said = {"success": False, "why": "say confirm=true"}
            return said if name == "drop" else {"content": [{"type": "text", "text": json.dumps(said)}]}
        state["rows"] = 0
        return {"success": True}
"""


@pytest.mark.parametrize("tool", ["drop", "drop_by_mcp"])
def test_a_call_that_says_that_it_failed_is_no_evidence_of_reading(capsys, tmp_path, tool):
    (tmp_path / "shy.py").write_text(SHY, encoding="utf-8")
    calls = [{"name": tool, "arguments": {"confirm": False}}, {"name": "rows", "arguments": {}}]
    log = tmp_path / "log.jsonl"
    log.write_text(
        "".join(json.dumps({"id": str(k), "initial": k, "calls": calls}) + "\n" for k in range(60))
    )
    code, out, _ = run(capsys, "annotate", log, "--environment", tmp_path / "shy.py:Shy", "--json")
    assert code == 0
    found = {one["name"]: one["annotations"] for one in json.loads(out)["tools"]}
    assert found == {tool: {}, "rows": {"readOnlyHint": True, "destructiveHint": False}}


OF_PROCESS = '''
"""Its states hold the number of the process: no two replays in two processes are equal."""
import os

import file_store


class OfProcess(file_store.Files):
    def reset(self, initial):
        return super().reset(initial) | {"process": str(os.getpid())}
'''


@pytest.mark.processes
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_second_process_replays_the_same(log, tmp_path, jobs):
    (tmp_path / "of_process.py").write_text(OF_PROCESS, encoding="utf-8")
    environment = f"{tmp_path}/of_process.py:OfProcess"
    with pytest.raises(vcrt.VcrtError, match="nothing is known of any tool") as raised:
        vcrt.annotate([log], environment=environment, jobs=jobs)
    assert raised.value.found == "4 nondeterministic"


def test_what_it_cannot_annotate_is_said(log, lifted, tmp_path):
    with pytest.raises(vcrt.VcrtError, match="nothing to annotate"):
        vcrt.annotate()
    with pytest.raises(vcrt.VcrtError, match="without its environment"):
        vcrt.annotate([log])
    with pytest.raises(vcrt.VcrtError, match="no such file"):
        vcrt.annotate([tmp_path / "nowhere"])
    with pytest.raises(DatasetError, match="not a frozen dataset"):
        vcrt.annotate([tmp_path])
    with pytest.raises(UnknownNameError, match="unknown environment 'nobody'"):
        vcrt.annotate(environment="nobody")
    with pytest.raises(MalformedInputError, match="steps are no calls"):
        vcrt.annotate(environment="clrs")
    with pytest.raises(DatasetError, match="a dataset without environment 'shop'"):
        vcrt.annotate([lifted.dataset.path], environment=Shop)
    with pytest.raises(vcrt.VcrtError, match="schemas were given together with sources"):
        vcrt.annotate([log], environment=file_store.Files, schemas=["calls"])
    with pytest.raises(vcrt.VcrtError, match="at most 1"):
        vcrt.annotate([log], environment=file_store.Files, risk=1.5)
    with pytest.raises(vcrt.VcrtError, match="seconds, more than 0"):
        vcrt.annotate([log], environment=file_store.Files, within=0)


def test_a_log_of_single_calls_is_refused(capsys, log):
    single = Path(log.parent / "single.jsonl")
    single.write_text('{"name": "list", "arguments": {"folder": "a"}}\n', encoding="utf-8")
    assert "no two calls of one trace" in refused(
        capsys, "annotate", single, "--environment", STORE
    )


GATES = """
import vcrt


class Gates(vcrt.CallEnvironment):
    name = "gates"

    def reset(self, initial):
        return {"free": 1, "failed": 0, "open": True}

    def call(self, state, name, arguments):
        if name == "failed":
            return state["failed"]
        if name == "add":
            state["free"] += 1
        elif name == "shut":
            state["open"] = False
        elif name == "enter" and not state["open"]:
            state["failed"] += 1
            raise vcrt.CallRefused("shut")
        elif name == "book":
            if not state["free"]:
                raise vcrt.CallRefused("no seat is free")
            state["free"] -= 1
        return "done"
"""


def gates_log(tmp_path, calls, number=60):
    (tmp_path / "gates.py").write_text(GATES, encoding="utf-8")
    log = tmp_path / "log.jsonl"
    lines = ({"id": str(k), "initial": k, "calls": calls} for k in range(number))
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return log, f"{tmp_path / 'gates.py'}:Gates"


def test_a_refused_call_that_changes_the_state_is_no_reader(capsys, tmp_path):
    # `enter` is refused behind `shut` alone, in an order that no log has.
    calls = [{"name": name, "arguments": {}} for name in ("enter", "shut", "failed")]
    log, environment = gates_log(tmp_path, calls)
    code, out, _ = run(capsys, "annotate", log, "--environment", environment, "--json")
    assert code == 0
    found = {one["name"]: one["annotations"] for one in json.loads(out)["tools"]}
    assert found["enter"] == {"readOnlyHint": False, "idempotentHint": False}
    # A dataset has no state after a refusal.
    data = vcrt.lift_log([log], environment=environment, output=tmp_path / "data", jobs=1)
    code, out, _ = run(capsys, "annotate", data.dataset.path, "--json")
    assert code == 0
    of_data = {one["name"]: one["annotations"] for one in json.loads(out)["tools"]}
    assert of_data == {**found, "enter": {}}
    _, out, _ = run(capsys, "annotate", data.dataset.path)
    assert "what refused calls of enter left is not known (a dataset has no state" in out
    _, out, _ = run(capsys, "annotate", data.dataset.path, "--for", "pydantic-ai")
    assert "but the state after 1 refused call is not known\n    'enter': True" in out


def test_two_calls_of_which_each_excludes_the_other_do_not_commute(capsys, tmp_path):
    calls = [{"name": "book", "arguments": {"by": by}} for by in ("ann", "bob")]
    calls.insert(1, {"name": "add", "arguments": {}})
    log, environment = gates_log(tmp_path, calls)
    code, out, _ = run(capsys, "annotate", log, "--environment", environment, "--json")
    assert code == 0
    (pair,) = [one for one in json.loads(out)["pairs"] if one["a"] == one["b"] == "book"]
    assert pair["verdicts"] == {"diamond": 1, "excludes": 1}
    assert pair["condition"] is None
    assert pair["not_commuted"]["count"] == 1


class Door(vcrt.CallEnvironment):
    """A refused `enter` counts; `attempts` shows it."""

    name = "door"

    def reset(self, initial):
        return {"attempts": 0, "open": False}

    def call(self, state, name, arguments):
        if name == "attempts":
            return state["attempts"]
        if name == "unlock":
            state["open"] = True
        elif not state["open"]:
            state["attempts"] += 1
            raise vcrt.CallRefused("locked")
        return "done"


class Strict(Door):
    """The second refusal in a row breaks the tool."""

    name = "strict"

    def call(self, state, name, arguments):
        if name == "enter" and not state["open"] and state["attempts"]:
            raise RuntimeError("account locked")
        return super().call(state, name, arguments)


def door_log(tmp_path):
    lines = [
        {"id": f"t{k}", "calls": [{"name": n, "arguments": {"by": k}} for n in names]}
        for k, names in enumerate([("unlock", "enter", "attempts")] * 3)
    ]
    path = tmp_path / "door.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.parametrize("environment", [Door, Strict])
def test_a_pair_of_which_a_refused_one_changes_what_the_other_reads_does_not_commute(
    tmp_path, environment
):
    found = vcrt.annotate([door_log(tmp_path)], environment=environment, jobs=1)
    (pair,) = (pair for pair in found.pairs if pair.tools == ("attempts", "enter"))
    assert pair.verdicts == {"diamond": 3, "observes": 3}
    assert pair.rule is None
    (enter,) = (tool for tool in found.tools if tool.name == "enter")
    again = {"idempotentHint": False} if environment is Door else {}
    assert enter.hints(1) == ({"readOnlyHint": False, **again} if again else {})
    assert (enter.unknown_after > 0) == (environment is Strict)


def test_a_refusal_of_unknown_state_is_in_no_dispute_with_one_of_known_state(tmp_path):
    log, environment = door_log(tmp_path), f"{__file__}:Door"
    data = vcrt.lift_log([log], environment=environment, output=tmp_path / "data", jobs=1)
    for sources in ([log, data.dataset.path], [data.dataset.path]):
        found = vcrt.annotate(sources, environment=environment, jobs=1)
        assert found.num_disputed == 0
        (enter,) = (tool for tool in found.tools if tool.name == "enter")
        assert enter.refused.count == (6 if len(sources) == 2 else 3)
        assert (enter.unknown_after > 0) == (len(sources) == 1)
    (pair,) = (pair for pair in found.pairs if pair.tools == ("attempts", "enter"))
    assert pair.rule == "always, as far as seen"
