"""A server's tools as an environment: states, outputs and declarations, on a small server of the tests' own."""

from __future__ import annotations

import gc
import json
import os
from typing import ClassVar

import psutil
import pytest

pytest.importorskip("mcp", reason="the official client is not installed: make test-integrations")

from explorer_support import without_processes
from mcp_support import (
    AllInMemory,
    KeepsWhatItRead,
    ReadsAtStart,
    ReadsAtStartUndeclared,
    Remembering,
    Restarted,
    Small,
)
from vcrt.api.logs import lift_log
from vcrt.environments.conformance import validate
from vcrt.environments.contract import ReplayRequest
from vcrt.environments.shared_prefixes import replay_sharing
from vcrt.environments.tool_calls import CallRefused, Tool
from vcrt.errors import MalformedInputError, UnknownNameError, VcrtError


@pytest.fixture
def small():
    environment = Small()
    yield environment
    environment.close()


def test_calls_change_the_folder_and_are_read_back(small):
    state = small.reset(None)
    assert small.call(state, "read", {"path": "a"}) == "one"
    before = small.canonical(state)
    small.call(state, "write", {"path": "a", "text": "new"})
    assert small.call(state, "read", {"path": "a"}) == "new"
    assert small.canonical(state) != before
    small.call(state, "write", {"path": "a", "text": "one"})
    assert small.canonical(state) == before
    assert small.call(small.reset({"z": "zero"}), "read", {"path": "z"}) == "zero"


def test_outputs_refusals_and_states_do_not_tell_where_the_folder_lies(small):
    texts = []
    for environment in (small, Small()):
        state = environment.reset(None)
        texts.append(environment.call(state, "write", {"path": "{state}/a", "text": "{state}"}))
        texts.append(environment.canonical(state))
        with pytest.raises(CallRefused) as refused:
            environment.call(state, "read", {"path": "{state}/none"})
        texts.append(str(refused.value))
        assert environment.call(state, "read", {"path": "a"}) == "{state}"
        environment.close()
    assert texts[:3] == texts[3:]
    assert texts[0] == "wrote {state}/a"
    assert texts[2].endswith("'{state}/none'")


def test_the_folder_may_have_the_name_that_a_log_gives_it():
    class Logged(Small):
        root = "/home/ann/project"
        command = (*Small.command[:2], "/home/ann/project")

    environment = Logged()
    state = environment.reset(None)
    given = {"path": "/home/ann/project/a", "text": "x"}
    assert environment.call(state, "write", given) == "wrote /home/ann/project/a"
    environment.close()


def test_states_that_live_side_by_side_are_each_themselves(small):
    one = small.reset(None)
    small.call(one, "write", {"path": "a", "text": "1"})
    kept = small.snapshot(one)
    other = small.restore(kept)
    small.call(other, "write", {"path": "a", "text": "2"})
    assert small.call(one, "read", {"path": "a"}) == "1"
    assert small.call(other, "read", {"path": "a"}) == "2"
    assert small.canonical(one) == small.canonical(small.restore(kept)) != small.canonical(other)


def test_what_is_refused_and_what_is_malformed(small):
    state = small.reset(None)
    with pytest.raises(CallRefused, match="FileNotFoundError"):
        small.call(state, "read", {"path": "none"})
    with pytest.raises(CallRefused, match="path must be text"):
        small.call(state, "bad_arguments", {})
    with pytest.raises(CallRefused, match="no item of that name"):
        small.call(state, "internal", {})
    with pytest.raises(MalformedInputError, match="did you mean 'write'"):
        small.call(state, "wriet", {})
    with pytest.raises(MalformedInputError, match="no folder"):
        small.reset(["a"])
    with pytest.raises(MalformedInputError, match=r"outside|paths within"):
        small.reset({"../a": "x"})
    with pytest.raises(UnknownNameError, match="template"):
        small.reset("shop")


class StartedAnew(Small):
    starts_anew = True


def test_an_order_from_a_fresh_state_has_a_server_of_its_own_and_others_have_none():
    environment = StartedAnew()
    environment.tools()
    asked_for_its_tools = environment._host.server
    state = environment.reset(None)
    kept = environment.snapshot(state)
    environment.call(state, "note", {"text": "x"})
    assert environment.call(environment.restore(kept), "notes", {}) == "x"
    assert environment._host.server is asked_for_its_tools
    kept = environment.snapshot(environment.reset(None))
    assert environment.call(environment.restore(kept), "notes", {}) == "x"
    fresh = environment.reset(None)
    assert environment.call(fresh, "notes", {}) == ""
    environment.call(fresh, "write", {"path": "a", "text": "y"})
    assert environment.call(fresh, "read", {"path": "a"}) == "y"
    assert environment.call(environment.reset(None), "read", {"path": "a"}) == "one"
    environment.close()


def test_an_unasked_server_of_another_state_is_not_taken_for_a_new_one():
    environment = ReadsAtStart()
    environment.tools()
    state = environment.reset({"a": "other"})
    assert environment.call(state, "read_as_started", {"path": "a"}) == "other"
    assert environment.call(environment.reset(None), "read_as_started", {"path": "a"}) == "one"
    environment.close()


def test_templates_are_folders_and_files(tmp_path):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "a").write_text("from a folder")

    class Shop(Small):
        templates: ClassVar = {"shop": folder, "file": folder / "a"}

    environment = Shop()
    for name in ("shop", "file"):
        state = environment.reset(name)
        assert environment.call(state, "read", {"path": "a"}) == "from a folder"
    before = environment.versions()
    (folder / "a").write_text("changed")
    assert environment.versions().libraries["templates"] != before.libraries["templates"]
    environment.close()


def test_it_says_what_verdicts_depend_on(small):
    versions = small.versions()
    assert versions == small.versions()
    assert versions.verifier.startswith("small 1; ")
    assert set(versions.libraries) == {"protocol", "command", "tools", "templates", "mcp"}
    tools = {tool.name: tool for tool in small.tools()}
    assert tools["read"] == Tool(name="read", read_only=True)
    assert tools["write"].idempotent is True
    assert tools["note"] == Tool(name="note")


def test_it_gets_no_variables_but_a_few(small, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    found = json.loads(small.call(small.reset(None), "variables", {}))
    own = {"HOME", "LANG", "PATH", "TMPDIR", "TZ", "VCRT_SERVER"}
    assert own <= set(found) <= {*own, "LC_CTYPE", "LD_LIBRARY_PATH", "VCRT_WORKERS"}
    assert found["HOME"] == "{place}/home"


@pytest.mark.parametrize("kind", [Small, Restarted, ReadsAtStart, Remembering, AllInMemory])
def test_restored_states_answer_as_those_that_were_made_anew(kind):
    environment = kind()
    episode = environment.sample("calls", 0)
    # From the first state twice, and from that after the first step.
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2)]
    requests = [ReplayRequest(episode, order) for order in orders]
    shared = replay_sharing(environment, requests)
    assert shared == environment.replay(requests)
    assert len({replay.terminal_hash for replay in shared}) > 1
    environment.close()


def test_what_a_call_gives_depends_on_what_ran_before_it():
    environment = ReadsAtStart()
    episode = environment.sample("calls", 0)
    first, last = environment.replay(
        [ReplayRequest(episode, order) for order in ((2, 0, 1), (0, 1, 2))]
    )
    assert (first.outputs[0], last.outputs[2]) == ('"seed 0"', '"2"')
    assert first.terminal_hash == last.terminal_hash
    environment.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Small, ReadsAtStart])
def test_it_conforms(kind):
    environment = kind()
    findings = validate(environment, seeds=range(2))
    # Whether a call that only reads may stand in an episode is not this environment's matter.
    failed = [f for f in findings if not f.passed and f.check != "every step changes the state"]
    assert not [f for f in failed if f.check != "registered under its own name"], failed
    environment.close()


@pytest.mark.parametrize("kind", [KeepsWhatItRead, ReadsAtStartUndeclared])
def test_a_server_that_keeps_what_it_was_not_declared_to_keep_is_found_out(kind):
    environment = kind()
    findings = validate(environment, seeds=range(2))
    assert any(not f.passed and f.check == "second opinions agree" for f in findings)
    environment.close()


class Notes(Small):
    """Has notes in its memory, is declared to be started anew, and shows nothing of them in its state."""

    restart = True


class NotesGoOn(Small):
    """The same, declared to hold nothing between two calls."""


class NotesMadeAgain(Small):
    """The same, with calls that are made again, but are not in the state."""

    restart = True
    remembered = frozenset({"note"})


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Notes, NotesGoOn, NotesMadeAgain])
def test_what_only_memory_holds_is_named_and_no_advice_is_about_python_objects(kind, tmp_path):
    log = tmp_path / "log.jsonl"
    calls = [("note", {"text": "x"}), ("note", {"text": "y"}), ("notes", {})]
    log.write_text(
        "".join(json.dumps({"trace": "t", "tool": t, "arguments": a}) + "\n" for t, a in calls)
    )
    try:
        with without_processes():
            (found,) = lift_log([log], environment=kind, jobs=1).calls
        assert found.schedule is None
        said = found.problem
    except VcrtError as error:
        said = f"{error.found} {error.remedy}"
    assert "outside of its folder, such as its memory" in said
    assert "`remembered`" in said
    assert "`canonical`" in said
    for advice in ("key_order", "__deepcopy__", "state.kept", "state.calls"):
        assert advice not in said


def test_nothing_is_left_when_the_environment_is_gone(small):
    environment = Small()
    state = environment.reset(None)
    child = int(environment.call(state, "start_child", {}))
    place = environment._host.place().path
    assert psutil.pid_exists(child)
    assert place.is_dir()
    del state, environment
    gc.collect()
    assert not place.exists()
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"


def test_a_fork_leaves_the_server_to_its_process(small):
    state = small.reset(None)
    small.call(state, "write", {"path": "a", "text": "1"})
    child = os.fork()
    if child == 0:
        small.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert small.call(state, "read", {"path": "a"}) == "1"
