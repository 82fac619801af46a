"""A server by the command that starts it, over stdio and HTTP: no class is written."""

from __future__ import annotations

import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest

pytest.importorskip("mcp", reason="the official client is not installed: make test-integrations")

import vcrt
from command_line import refused, run
from explorer_support import without_processes
from mcp_support import SERVER
from vcrt.environments.contract import Operation
from vcrt.environments.mcp import McpEnvironment
from vcrt.environments.tool_calls import Call, CallRefused, operations_of
from vcrt.errors import MalformedInputError, UnavailableError, VcrtError

#: The small server of the tests, which may be told to misbehave.
SMALL = f"{sys.executable} {SERVER} {{state}}"
#: No machine is so slow that the limit of time decides.
PATIENT = ("--within", "600")
#: A server of the package mcp, over HTTP.
OVER_HTTP = f"{sys.executable} {Path(SERVER).with_name('mcp_http_server.py')} {{state}} {{port}}"


@pytest.fixture
def start(tmp_path):
    """The folder that a server begins with."""
    folder = tmp_path / "start"
    folder.mkdir()
    (folder / "a").write_text("one")
    return folder


def log_of(tmp_path, *calls):
    """Write a log as a client of MCP does, with its own prefix, one message for each tuple of calls."""
    lines, number = [], 0
    for message in calls:
        made, answers = [], []
        for name, arguments, output in message:
            number += 1
            made.append({"type": "tool_use", "id": f"t{number}", "name": name, "input": arguments})
            answers.append({"type": "tool_result", "tool_use_id": f"t{number}", "content": output})
        lines += [{"role": "assistant", "content": made}, {"role": "user", "content": answers}]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write(path, text, prefix="mcp__small__"):
    return (f"{prefix}write", {"path": path, "text": text}, f"wrote /home/ann/notes/{path}")


def read(path, output, prefix="mcp__small__"):
    return (f"{prefix}read", {"path": path}, output)


def test_a_log_of_a_client_is_scheduled_by_the_command_alone(tmp_path, start, capsys):
    log = log_of(
        tmp_path, [read("a", "one")], [write("b", "x"), write("c", "y")], [write("a", "z")]
    )
    options = ["--mcp", SMALL, "--state", str(start), "--root", "/home/ann/notes"]
    code, out, _ = run(capsys, "schedule", str(log), "--json", *PATIENT, *options)
    assert code == 0
    (found,) = json.loads(out)
    assert found["waves"] == [[0, 1, 2], [3]]
    assert found["ids"] == ["t1", "t2", "t3", "t4"]
    assert (start / "a").read_text() == "one"
    assert sorted(each.name for each in start.iterdir()) == ["a"]


def test_a_file_is_a_state_and_has_the_name_that_the_log_gives_it(tmp_path):
    (tmp_path / "start.txt").write_text("one")
    environment = vcrt.mcp_server(
        f"{sys.executable} {SERVER} .", state=tmp_path / "start.txt", root="/srv/notes.txt"
    )()
    state = environment.reset(None)
    assert (
        environment.call(state, "read", {"path": "/srv/notes.txt"})["content"][0]["text"] == "one"
    )
    with pytest.raises(CallRefused, match="No such file"):
        environment.call(state, "read", {"path": "start.txt"})
    environment.close()


def task(title, drawn):
    return ("add", {"title": title}, json.dumps({"task": {"id": drawn, "title": title}}))


def finish(drawn):
    return ("finish", {"task": drawn}, f"finished {drawn}")


TASKS = [
    [task("a", "tOfTheLog1"), task("b", "tOfTheLog2")],
    [finish("tOfTheLog2"), finish("tOfTheLog1"), task("a", "tOfTheLog3")],
]


@pytest.mark.parametrize("more", [[], ["--shown-by", "notes"]])
def test_ids_that_a_server_draws_have_one_name_in_every_order(tmp_path, start, capsys, more):
    # Its files are named by them, and so is what it keeps in memory: calls that were made again draw others.
    log = log_of(tmp_path, *TASKS)
    options = ["--mcp", SMALL, "--state", str(start), "--ids", "add=task.id", *more]
    code, out, _ = run(capsys, "schedule", str(log), "--json", *PATIENT, *options)
    assert code == 0
    (found,) = json.loads(out)
    edges = {(edge["first"], edge["second"]) for edge in found["edges"]}
    # What it notes in its memory stands in the order of the calls.
    in_memory = {(0, 1), (1, 4), (0, 4)} if more else set()
    assert edges - in_memory == {(0, 3), (1, 2)}
    assert in_memory <= edges | {(0, 4)}
    assert "tOfTheLog" not in json.dumps(found["calls"])


def scheduled(capsys, log, start, *ids):
    """Return the edges of a log's schedule."""
    given = ["--json", *PATIENT, "--mcp", SMALL, "--state", str(start), "--ids", *ids]
    code, out, _ = run(capsys, "schedule", str(log), *given)
    assert code == 0
    (found,) = json.loads(out)
    return {(edge["first"], edge["second"]) for edge in found["edges"]}


def test_an_id_may_have_an_earlier_one_in_it_and_be_the_whole_output(tmp_path, start, capsys):
    one, inner = "tOfTheLog1", "tOfTheLog1.0a1b2c3d"
    calls = [task("a", one), ("part", {"task": one}, inner), finish(inner), task("b", "tOfTheLog2")]
    log = log_of(tmp_path, *([each] for each in calls))
    assert scheduled(capsys, log, start, "add=task.id", "part=") == {(0, 1), (1, 2)}


def test_what_the_start_or_the_call_holds_is_not_drawn(tmp_path, start, capsys):
    # Were they taken for drawn, each call would give its own name in both orders.
    (start / "waiting").write_text("0a1b2c3d4e 1b2c3d4e5f")
    taken = [("take", {}, f'{{"id": "{drawn}"}}') for drawn in ("0a1b2c3d4e", "1b2c3d4e5f")]
    assert scheduled(capsys, log_of(tmp_path, taken), start, "take=id") == {(0, 1)}
    given = [("take", {"given": f"a-{n:08d}"}, f'{{"id": "a-{n:08d}"}}') for n in range(2)]
    assert scheduled(capsys, log_of(tmp_path, given), start, "take=id") == set()


def test_the_next_number_of_a_counter_is_no_id_that_was_drawn(tmp_path, start, capsys):
    made = [("counted", {"title": t}, f'{{"id": "item-{n:08d}"}}') for n, t in enumerate("ab")]
    log = log_of(tmp_path, made)
    given = ["--mcp", SMALL, "--state", str(start)]
    assert "unlike a counter's ids" in refused(
        capsys, "schedule", str(log), *given, "--ids", "counted=id"
    )
    code, out, _ = run(capsys, "schedule", str(log), "--json", *PATIENT, *given)
    assert code == 0
    assert [(edge["first"], edge["second"]) for edge in json.loads(out)[0]["edges"]] == [(0, 1)]


def test_a_tool_may_draw_ids_in_two_places(tmp_path, start, capsys):
    def two(title, one, other):
        said = {"one": one, "other": other, "object": {"id": one}, "nothing": None}
        return ("two", {"title": title}, json.dumps(said))

    log = log_of(
        tmp_path,
        [
            two("a", "0a1b2c3d4e5f6071", "0a1b2c3d4e5f6072"),
            two("b", "0a1b2c3d4e5f6073", "0a1b2c3d4e5f6074"),
        ],
    )
    assert scheduled(capsys, log, start, "two=one", "two=other", "two=nothing") == set()
    given = ["--mcp", SMALL, "--state", str(start), "--ids", "two=object"]
    assert "may stand for something else" in refused(capsys, "schedule", str(log), *given)


def test_a_server_is_not_ended_with_that_of_another_process_which_makes_the_same_call(start):
    # What a call draws is the same in each process: also what the environment draws while it starts its server.
    one, other = (vcrt.mcp_server(SMALL, state=start, ids=["add=task.id"])() for _ in range(2))
    (add,) = operations_of([Call("add", {"title": "a"})])
    states = [each.step(each.reset(None), add).state for each in (one, other)]
    other.close()
    assert one.call(states[0], "read", {"path": "a"})["content"][0]["text"] == "one"
    one.close()


def test_a_class_with_its_own_content_has_the_names_of_ids_in_it(start):
    class Own(McpEnvironment):
        name = "own"
        command = (sys.executable, str(SERVER), "{state}")
        templates: ClassVar = {"start": start}
        initial = "start"
        ids: ClassVar = {"add": "task.id"}

        def content(self, folder, kept):
            return repr(sorted(kept)).encode()

    environment = Own()
    forms = []
    for _ in "ab":
        state = environment.reset(None)
        given = {"name": "add", "arguments": {"title": "a"}}
        environment.step(state, Operation(signature="add a", payload=given))
        forms.append(environment.canonical(state))
    environment.close()
    assert forms[0] == forms[1]
    assert b"id-" in forms[0]


def test_without_a_place_of_its_ids_its_log_is_left_out(tmp_path, start, capsys):
    log = log_of(tmp_path, *TASKS)
    said = refused(capsys, "schedule", str(log), "--mcp", SMALL, "--state", str(start))
    assert "--ids TOOL=PLACE" in said
    other = log_of(tmp_path, [("number", {"title": "a"}, '{"id": 7}'), task("b", "tOfTheLog2")])
    given = ["--mcp", SMALL, "--state", str(start), "--ids", "add=task.id", "number=id"]
    assert "may stand for something else" in refused(capsys, "schedule", str(other), *given)
    given = ["--mcp", SMALL, "--state", str(start), "--ids", "ad=task.id"]
    assert "'ad'" in refused(capsys, "schedule", str(log), *given)
    for unplaced in ("=id", "add"):
        with pytest.raises(MalformedInputError, match="no place of an id"):
            vcrt.mcp_server(SMALL, state=start, ids=[unplaced])


def sql(statement, rows=()):
    return ("sql", {"statement": statement}, json.dumps([*rows]))


def test_a_database_counts_by_its_rows_also_with_a_log_beside_it(tmp_path, start, capsys):
    with closing(sqlite3.connect(start / "shop.db")) as database:
        database.executescript(
            "CREATE TABLE t (name, text); INSERT INTO t VALUES (1, 'a'), (2, 'b')"
        )
    # Rows of other lengths lie elsewhere in each order.
    log = log_of(
        tmp_path,
        [sql(f"UPDATE t SET text = '{'x' * 3000}' WHERE name = 1")],
        [sql(f"UPDATE t SET text = '{'y' * 5000}' WHERE name = 2")],
        [sql("UPDATE t SET text = 'z' WHERE name = 2")],
        [sql("SELECT name FROM t WHERE text = 'z'", [[2]])],
    )
    options = ["--mcp", SMALL, "--state", str(start), "--restart"]
    code, out, _ = run(capsys, "schedule", str(log), "--json", *PATIENT, *options)
    assert code == 0
    (found,) = json.loads(out)
    assert found["waves"] == [[0, 1], [2], [3]]
    places = {each["where"] for edge in found["edges"] for each in edge.get("difference") or ()}
    assert 'file shop.db["t"][1]["text"]' in places


def test_over_http_a_server_is_put_back_into_a_state(start):
    environment = vcrt.mcp_server(OVER_HTTP, state=start)()
    state = environment.reset(None)
    kept = environment.snapshot(state)
    written = environment.call(state, "write", {"name": "a", "text": "two"})
    assert written["structuredContent"] == {"result": f"wrote {start}/a"}
    changed = environment.canonical(state)
    again = environment.restore(kept)
    assert environment.canonical(again) != changed
    assert environment.call(again, "read", {"name": "a"})["structuredContent"]["result"] == "one"
    assert environment.call(state, "read", {"name": "a"})["structuredContent"]["result"] == "two"
    with pytest.raises(CallRefused):
        environment.call(state, "read", {"name": "none"})
    if "outgoing connections" in environment.guards().in_force:
        with pytest.raises(CallRefused, match="fetch"):
            environment.call(state, "fetch", {})
    environment.close()
    assert (start / "a").read_text() == "one"


@pytest.mark.nightly
def test_over_http_a_whole_log_is_scheduled(tmp_path, start, capsys):
    """A minute of the processor: each start of a server of the package mcp takes three seconds of it."""

    def wrote(name, text):
        given = {"name": name, "text": text}
        return ("mcp__notes__write", given, f"wrote /home/ann/notes/{name}")

    calls = [wrote("b", "x"), ("mcp__notes__read", {"name": "a"}, "one")]
    log = log_of(tmp_path, calls, [wrote("a", "z")])
    options = ["--mcp", OVER_HTTP, "--state", str(start), "--root", "/home/ann/notes"]
    code, out, err = run(capsys, "schedule", str(log), "--json", *options)
    assert code == 0, err
    (found,) = json.loads(out)
    assert found["waves"] == [[0, 1], [2]]
    assert [(edge["first"], edge["second"], edge["kind"]) for edge in found["edges"]] == [
        (1, 2, "observes")
    ]
    assert found["batches"][0]["safe"] == [0, 1]
    assert (start / "a").read_text() == "one"


def test_a_server_that_listens_elsewhere_is_named(start):
    listening = "import socket, time; s = socket.socket(); time.sleep(60)"
    environment = vcrt.mcp_server(f'{sys.executable} -c "{listening}" {{port}}', state=start)()
    type(environment).start_timeout_s = 1.0
    with pytest.raises(UnavailableError, match="nothing of it listens"):
        environment.versions()
    environment.close()


def test_what_a_server_keeps_in_its_memory_is_found_out(tmp_path, start):
    """It gives the first text that it ever read: what stands beside the folder differs from order to order."""
    log = log_of(
        tmp_path,
        [("write", {"path": "a", "text": "z"}, "wrote /home/ann/notes/a")],
        [("read_cached", {"path": "a"}, "z")],
        [("write", {"path": "b", "text": "z"}, "wrote /home/ann/notes/b")],
    )
    server = vcrt.mcp_server(SMALL, state=start, root="/home/ann/notes")
    with without_processes(), pytest.raises(MalformedInputError, match="single steps") as raised:
        vcrt.schedule(log, environment=server, jobs=1)
    assert "--restart" in str(raised.value)


def test_a_server_that_keeps_its_file_open_is_told_of_the_option(tmp_path, start):
    write = ("write_kept", {"path": "a", "text": "z"}, "ok")
    log = log_of(tmp_path, [write], [("read", {"path": "a"}, None)])
    server = vcrt.mcp_server(SMALL, state=start)
    with without_processes(), pytest.raises(VcrtError) as raised:
        vcrt.schedule(log, environment=server, jobs=1)
    assert "--restart" in str(raised.value)
    assert "_host" not in str(raised.value)


def test_a_time_in_an_output_is_no_matter_of_reset(tmp_path, start):
    log = log_of(tmp_path, [("read", {"path": "a"}, "one"), ("now", {}, "12:00:01")])
    with without_processes(), pytest.raises(VcrtError) as raised:
        vcrt.schedule(log, environment=vcrt.mcp_server(SMALL, state=start), jobs=1)
    assert "`answer`" in raised.value.remedy
    assert "reset" not in raised.value.remedy


def test_what_is_kept_in_memory_is_part_of_the_state_if_a_tool_shows_it(start):
    environment = vcrt.mcp_server(SMALL, state=start, shown_by=["notes"])()
    state = environment.reset(None)
    before, kept = environment.canonical(state), environment.snapshot(state)
    environment.call(state, "note", {"text": "x"})
    after = environment.canonical(state)
    assert after != before
    assert environment.canonical(environment.restore(kept)) == before
    assert environment.canonical(state) == after
    environment.close()


def test_what_shows_nothing_is_named(start):
    environment = vcrt.mcp_server(SMALL, state=start, shown_by=["nots"])()
    with pytest.raises(MalformedInputError, match="nots"):
        environment.canonical(environment.reset(None))
    environment.close()


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ([read("a", "one", "mcp__other__")], "names the tools in two ways"),
        ([read("a", "one", "")], "names the tools in two ways"),
        ([("mcp__small__raed", {"path": "a"}, "one")], "unknown tool"),
        ([("Read", {"path": "a"}, "one")], "unknown tool"),
    ],
)
def test_calls_of_other_servers_are_named(tmp_path, start, capsys, others, words):
    log = log_of(tmp_path, [write("b", "x")], [write("c", "x")], others)
    options = ("--mcp", SMALL, "--state", str(start), "--root", "/home/ann/notes")
    assert words in refused(capsys, "schedule", str(log), *options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--mcp", "http://127.0.0.1:8000/mcp"], "--port {port}"),
        (["--mcp", "server"], "--state PATH"),
        (["--mcp", "server '{state}"], "No closing quotation"),
        (["--mcp", " "], "no command"),
        (["--mcp", "server {state}", "--state", "nowhere"], "--state nowhere"),
        (["--mcp", "server {state}", "--root", "/"], "every path is below this root"),
        (["--mcp", "server {state}", "--environment", "shop.py:Shop"], "do not go together"),
        (["--state", "nowhere"], "--mcp"),
        ([], "--mcp"),
    ],
)
def test_what_no_server_can_be_made_of_is_named(tmp_path, capsys, options, words):
    log = log_of(tmp_path, [read("a", "one")], [write("a", "x")])
    for command in (["schedule"], ["lift", "log"]):
        assert words in refused(capsys, *command, str(log), *options)


def test_what_was_certified_is_verified_by_the_same_command(tmp_path, start, capsys):
    log = log_of(tmp_path, [write("b", "x"), write("c", "y")])
    options = ("--mcp", SMALL, "--state", str(start), "--root", "/home/ann/notes")
    data = str(tmp_path / "data")
    code, out, _ = run(capsys, "lift", "log", str(log), "--output", data, "--jobs", "1", *options)
    assert code == 0
    next_line = next(line for line in out.splitlines() if line.startswith("next: "))
    assert f"{data} --mcp '{SMALL}' --state {start} --root /home/ann/notes" in next_line.replace(
        "'\"'\"'", ""
    ).replace("'{state}'", "{state}")
    code, _, err = run(capsys, "verify", data, "--jobs", "1", *options)
    assert code == 0, err
