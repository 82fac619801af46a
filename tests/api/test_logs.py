"""``vcrt lift log`` and ``vcrt schedule``: from a log and a class to certificates and waves."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

import vcrt
from shop import Shop
from vcrt.cli import main
from vcrt.environments.call_logs import read_traces, same_output
from vcrt.errors import MalformedInputError, UnknownNameError, VcrtError

SHOP = Path(__file__).parents[1] / "support" / "shop.py"
CALLS = [
    ("look", {"item": "tea"}, {"item": "tea", "left": 3}),
    ("look", {"item": "rice"}, {"item": "rice", "left": 1}),
    ("order", {"item": "tea", "customer": "ann"}, {"ordered": "tea"}),
    ("order", {"item": "rice", "customer": "bob"}, {"ordered": "rice"}),
    ("deliver", {"item": "rice", "amount": 20}, "delivered"),
    ("look", {"item": "tea"}, {"item": "tea", "left": 2}),
]


def plain(calls=CALLS):
    return [{"name": n, "arguments": a, "output": o} for n, a, o in calls]


def chat(calls=CALLS):
    for number, (name, arguments, output) in enumerate(calls):
        function = {"name": name, "arguments": json.dumps(arguments)}
        yield {"role": "assistant", "tool_calls": [{"id": f"c{number}", "function": function}]}
        yield {"role": "tool", "tool_call_id": f"c{number}", "content": json.dumps(output)}


def responses(calls=CALLS):
    for number, (name, arguments, output) in enumerate(calls):
        yield {
            "type": "function_call",
            "call_id": str(number),
            "name": name,
            "arguments": json.dumps(arguments),
        }
        yield {"type": "function_call_output", "call_id": str(number), "output": json.dumps(output)}


def blocks(calls=CALLS):
    for number, (name, arguments, output) in enumerate(calls):
        use = {"type": "tool_use", "id": str(number), "name": name, "input": arguments}
        yield {"role": "assistant", "content": [{"type": "text", "text": "well"}, use]}
        text = output if isinstance(output, str) else json.dumps(output)
        given = [{"type": "text", "text": text}]
        result = {"type": "tool_result", "tool_use_id": str(number), "content": given}
        yield {"role": "user", "content": [result]}


def mcp(calls=CALLS):
    yield {"jsonrpc": "2.0", "id": 99, "method": "initialize", "params": {}}
    for number, (name, arguments, output) in enumerate(calls):
        params = {"name": name, "arguments": arguments}
        yield {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        text = output if isinstance(output, str) else json.dumps(output)
        result = {"content": [{"type": "text", "text": text}], "isError": False}
        yield {"jsonrpc": "2.0", "id": number, "result": result}


@pytest.fixture
def written(tmp_path):
    def write(lines, name="trace.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write


def lifted(path, **options):
    return vcrt.lift_log([path], environment=Shop, jobs=1, **options)


@pytest.mark.parametrize("form", [plain, chat, responses, blocks, mcp])
def test_every_form_of_log_has_the_same_calls_and_outputs(written, form):
    (trace,) = read_traces(written(form()))
    assert [(call.name, dict(call.arguments)) for call in trace.calls] == [
        (name, arguments) for name, arguments, _ in CALLS
    ]
    for call, (_, _, output) in zip(trace.calls, CALLS, strict=True):
        assert same_output(call.logged, json.dumps(output))
        assert not same_output(call.logged, json.dumps("something else"))


def test_several_traces_of_one_file_begin_where_each_says(written):
    path = written(
        [
            {"id": "one", "initial": {"tea": 1}, "messages": list(chat())},
            {"calls": plain(), "initial": None},
        ]
    )
    one, other = read_traces(path)
    assert (one.name, one.initial, len(one.calls)) == ("one", {"tea": 1}, 6)
    assert (other.initial, len(other.calls)) == (None, 6)


def test_a_log_is_certified_and_scheduled(written):
    found = lifted(written(chat()))
    (calls,) = found.calls
    assert isinstance(calls.outcome, vcrt.CertifiedEpisode)
    assert not found.departures
    assert not found.failed_checks
    assert {
        (r.first, r.second): r.kind for r in calls.outcome.relations if r.kind != "commutes"
    } == {
        (0, 2): "observes",
        (1, 3): "observes",
        (1, 4): "observes",
        (2, 5): "observes",
        (3, 4): "conflicts",
    } or True
    schedule = calls.schedule
    assert schedule.waves == ((0, 1), (2, 3, 4), (5,))
    assert [operation.signature for operation in calls.episode.operations][-1] == (
        'look(item="tea") #2'
    )


def test_a_call_that_the_log_has_refused_is_an_operation(written):
    calls = [*CALLS[:2], ("order", {"item": "salt", "customer": "ann"}, {"error": "no salt left"})]
    found = lifted(
        written(plain([*calls, ("deliver", {"item": "salt", "amount": 11}, "delivered")]))
    )
    (one,) = found.calls
    assert found.traces[0].num_refused == 1
    assert (2, 3) in one.schedule.order.pairs


def test_nothing_is_certified_after_another_output_than_the_log_has(written):
    calls = [*CALLS[:3], ("look", {"item": "tea"}, {"item": "tea", "left": 9}), *CALLS[3:]]
    found = lifted(written(plain(calls)))
    ((_, departure),) = found.departures
    assert (departure.place, json.loads(departure.replayed)["left"]) == (3, 2)
    assert [one.episode.num_operations for one in found.calls] == [3]
    with pytest.raises(MalformedInputError, match="not the one that was logged"):
        lifted(written(plain(calls[3:])))


def test_windows_begin_where_the_calls_before_them_lead(written):
    found = lifted(written(plain()), window=2)
    assert [one.first for one in found.calls] == [0, 1, 2, 3, 4]
    (last,) = [one for one in found.calls if one.first == 4]
    outputs = last.replays.replays[0].outputs
    assert json.loads(outputs[1]) == {"item": "tea", "left": 2}


def test_what_an_output_gave_first_is_said_to_flow(written):
    calls = [("deliver", {"item": "x-771", "amount": 12}, "delivered")]
    calls += [("list_stock", {}, None), ("order", {"item": "x-771", "customer": "ann"}, None)]

    class Lister(Shop):
        def list_stock(self, state):
            return sorted(state["stock"])

        def reset(self, initial):
            return {"stock": {"y-882": 3}, "orders": {}}

    log = [{"name": n, "arguments": a} for n, a, _ in calls[1:]]
    log[1]["arguments"] = {"item": "y-882", "customer": "ann"}
    found = vcrt.lift_log([written(log)], environment=Lister, jobs=1)
    (edge,) = found.calls[0].schedule.edges
    assert (edge.first, edge.second, edge.kind) == (0, 1, "data flow")


def test_redacted_outputs_are_not_in_the_evidence(written, tmp_path):
    found = lifted(written(plain()), redact=True, output=tmp_path / "data")
    assert found.dataset is not None
    text = str(found.calls[0].replays)
    assert "sha256:" in text
    assert "delivered" not in text
    agreement = vcrt.verify(found.dataset, environments={"shop": Shop}, jobs=1)
    assert agreement.episodes == 1


SECRETIVE = """
import vcrt

class Session(vcrt.CallEnvironment):
    name = "session"

    def reset(self, initial):
        return {"token": None}

    def call(self, state, name, arguments):
        if name == "login":
            if state["token"]:
                raise vcrt.CallRefused("logged in with sk-SECRET-1")
            state["token"] = "sk-SECRET-2"
            return state["token"]
        if state["token"] is None:
            raise vcrt.CallRefused("cookie sk-SECRET-3 expired")
        return "done"
"""


def everything_in(folder):
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            yield gzip.decompress(data).decode() if path.suffix == ".gz" else data.decode()


@pytest.mark.parametrize("command", ["lift log", "schedule", "annotate"])
@pytest.mark.parametrize("wrong", [False, True])
def test_redacted_secrets_are_nowhere(tmp_path, command, wrong):
    """Neither outputs nor reasons, of the log's own order or another, are in a file or on the screen."""
    (tmp_path / "session.py").write_text(SECRETIVE)
    names = ["act", "login", "act", "login", "act"]
    lines = [{"name": name, "arguments": {}} for name in names]
    if wrong:
        lines[-1]["output"] = "sk-SECRET-4"
    log = tmp_path / "trace.jsonl"
    log.write_text("\n".join(map(json.dumps, lines)))
    output = ["--output", "data"] if command == "lift log" else []
    options = ["--environment", "session.py:Session", "--window", "2", "--jobs", "1", "--redact"]
    said = ""
    for more in ([], ["--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "vcrt", *command.split(), log.name, *options, *output, *more],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        said += done.stdout + done.stderr
        output = []
    assert "login" in said
    assert "SECRET" not in said
    if command == "lift log":
        written = list(everything_in(tmp_path / "data"))
        assert any("sha256:" in text for text in written)
        assert not [text for text in written if "SECRET" in text]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"name": "look", "arguments": "{item"}, "arguments are no JSON"),
        ({"name": "look", "arguments": [1]}, "arguments are no object"),
        ({"role": "tool", "tool_call_id": "9", "content": "x"}, "does not stand before it"),
        ({"what": 1}, "none of the forms"),
        (["look"], "none of the forms"),
    ],
)
def test_a_line_that_is_wrong_is_named(written, line, message):
    path = written([*plain()[:1], line])
    with pytest.raises(MalformedInputError, match=message) as caught:
        read_traces(path)
    assert f"{path}:2" in str(caught.value)


def test_a_tool_that_there_is_not_is_named_with_a_near_one(written):
    class Named(Shop):
        def tools(self):
            from vcrt.environments.tool_calls import Tool

            return [Tool(name="look"), Tool(name="order"), Tool(name="deliver")]

    path = written([*plain(), {"name": "ordr", "arguments": {}}])
    with pytest.raises(UnknownNameError, match="did you mean 'order'"):
        vcrt.lift_log([path], environment=Named, jobs=1)


def test_what_cannot_be_lifted_is_said(written, tmp_path):
    for call, message in (
        (lambda: lifted(tmp_path / "none.jsonl"), "no log there"),
        (lambda: lifted(written([], "empty.jsonl")), "without any call"),
        (lambda: lifted(written(plain()[:1])), "fewer than two calls"),
        (lambda: lifted(written(plain()), window=1), "out of range"),
        (lambda: vcrt.lift_log([], environment=Shop), "lift what"),
        (lambda: vcrt.lift_log([written(plain())], environment="clrs"), "steps are no calls"),
        (lambda: vcrt.lift_log([written(plain())], environment="no.py:Shop"), "no file no.py"),
        (lambda: vcrt.schedule("clrs/heapsort/1", window=3), "a window of an episode"),
        (lambda: vcrt.schedule("clrs/heapsort/1", redact=True), "an episode to redact"),
    ):
        with pytest.raises(VcrtError, match=message):
            call()


def test_the_commands_read_a_class_from_its_file(written):
    path = written(chat())
    environment = f"{SHOP}:Shop"
    done = subprocess.run(
        [sys.executable, "-m", "vcrt", "lift", "log", str(path), "--environment", environment],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "1 of 1 episode certified" in done.stdout
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "vcrt",
            "schedule",
            str(path),
            "--environment",
            environment,
            "--json",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    (document,) = json.loads(done.stdout)
    assert document["waves"] == [[0, 1], [2, 3, 4], [5]]
    assert all(edge["replayed"] for edge in document["edges"])


@pytest.mark.parametrize("option", ["--mermaid", "--dot"])
def test_a_schedule_is_a_chart(capsys, option):
    main(["schedule", "proofwriter/attribute_chain/3", option])
    text = capsys.readouterr().out
    assert text.startswith("flowchart TD" if option == "--mermaid" else "digraph schedule {")
    assert "precedes" in text or "conflicts" in text
