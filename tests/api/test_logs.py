"""``vcrt lift log`` and ``vcrt schedule``: from a log and a class to certificates and waves."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest

import vcrt
from command_line import ran, refused, run
from shop import Shop
from vcrt.calls.call_logs import looks_drawn, read_traces, same_output, same_refusal, windows
from vcrt.calls.log_lifting import run_trace
from vcrt.cli import main
from vcrt.errors import EnvironmentFailure, MalformedInputError, UnknownNameError, VcrtError
from vcrt.progress import Silent
from vcrt.randomness import generator

SHOP = Path(__file__).parents[1] / "support" / "shop.py"
CALLS = [
    ("look", {"item": "tea"}, {"item": "tea", "left": 3}),
    ("look", {"item": "rice"}, {"item": "rice", "left": 1}),
    ("order", {"item": "tea", "customer": "ann"}, {"ordered": "tea"}),
    ("order", {"item": "rice", "customer": "bob"}, {"ordered": "rice"}),
    ("deliver", {"item": "rice", "amount": 20}, "delivered"),
    ("look", {"item": "tea"}, {"item": "tea", "left": 2}),
]


# No default that can change: looks beside the state write it after each call.
def plain(calls=None):
    return [{"name": n, "arguments": a, "output": o} for n, a, o in calls or CALLS]


def chat(calls=None):
    for number, (name, arguments, output) in enumerate(calls or CALLS):
        function = {"name": name, "arguments": json.dumps(arguments)}
        yield {"role": "assistant", "tool_calls": [{"id": f"c{number}", "function": function}]}
        yield {"role": "tool", "tool_call_id": f"c{number}", "content": json.dumps(output)}


def responses(calls=None):
    for number, (name, arguments, output) in enumerate(calls or CALLS):
        yield {
            "type": "function_call",
            "call_id": str(number),
            "name": name,
            "arguments": json.dumps(arguments),
        }
        yield {"type": "function_call_output", "call_id": str(number), "output": json.dumps(output)}


def blocks(calls=None):
    for number, (name, arguments, output) in enumerate(calls or CALLS):
        use = {"type": "tool_use", "id": str(number), "name": name, "input": arguments}
        yield {"role": "assistant", "content": [{"type": "text", "text": "well"}, use]}
        text = output if isinstance(output, str) else json.dumps(output)
        given = [{"type": "text", "text": text}]
        result = {"type": "tool_result", "tool_use_id": str(number), "content": given}
        yield {"role": "user", "content": [result]}


def mcp(calls=None):
    yield {"jsonrpc": "2.0", "id": 99, "method": "initialize", "params": {}}
    for number, (name, arguments, output) in enumerate(calls or CALLS):
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


def test_what_has_content_or_a_text_is_no_message_unless_it_says_its_type():
    """Beside a block's text, nothing of it counts."""
    assert same_output('[{"type": "text", "text": "tea"}]', '"tea"')
    assert not same_output('{"content": ["a"], "version": 2}', '{"content":["a"],"version":7}')
    assert not same_output('{"content": [], "version": 2}', '{"content":[],"version":7}')
    assert not same_output('[{"id": 1, "text": "tea"}]', '[{"id":41,"text":"tea"}]')
    assert not same_output(*(f'[{{"type":"note","id":{n},"text":"tea"}}]' for n in (1, 41)))


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
    with pytest.raises(MalformedInputError, match="4 of 4 calls are"):
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


@pytest.mark.parametrize(
    ("command", "wrong"),
    [("lift log", False), ("schedule", False), ("annotate", False), ("lift log", True)],
)
def test_redacted_secrets_are_nowhere(tmp_path, monkeypatch, command, wrong):
    """Neither outputs nor reasons, of the log's own order or another, are in a file or on the screen."""
    monkeypatch.chdir(tmp_path)
    Path("session.py").write_text(SECRETIVE)
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
        done = ran(*command.split(), log.name, *options, *output, *more)
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
        ({"role": "tool", "tool_call_id": "9", "content": "x"}, "has no call before it"),
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
    with pytest.raises(UnknownNameError, match="did you mean 'order'") as caught:
        vcrt.lift_log([path], environment=Named, jobs=1)
    assert caught.value.where == f"{path}:7, call 6 ordr()"
    failed = {"name": "ordr", "arguments": {}, "output": "Error: no such tool"}
    found = vcrt.lift_log([written([failed, *plain()[:3]])], environment=Named, jobs=1)
    (left_out,) = found.left_out
    assert left_out.text.startswith(
        f"{path}: 1 of 4 calls is left out, in {path}:1: a call of an unknown tool 'ordr'"
    )
    assert found.calls[0].episode.num_operations == 3


class Till:
    def __init__(self):
        self.sold = []

    def sell(self, item, amount=1):
        self.sold += [item] * amount
        return len(self.sold)


class Tills(vcrt.CallEnvironment):
    name = "tills"

    def reset(self, initial):
        return Till()

    def call(self, state, name, arguments):
        return vcrt.call_method(state, name, arguments)


SALES = [{"name": "sell", "arguments": {"item": each}} for each in ("tea", "rice")]
FAILURES = [
    "Error: 404 sel",
    "error executing tool",
    "TypeError: bad argument",
    {"error": "no"},
    {"isError": True, "content": [{"type": "text", "text": "unknown"}]},
]


@pytest.mark.parametrize("logged", FAILURES)
@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (("sel", {"item": "tea"}), "no tool 'sel'; did you mean 'sell'?"),
        (
            ("sell", {"itm": "tea"}),
            "do not fit the tool 'sell': missing a required argument: 'item'",
        ),
        (("__init__", {}), "no tool '__init__'"),
        (("sold", {}), "no tool 'sold'"),
    ],
)
def test_a_call_that_no_tool_takes_is_a_refusal_where_the_log_shows_that_it_failed(
    written, call, reason, logged
):
    name, arguments = call
    path = written([SALES[0], {"name": name, "arguments": arguments, "output": logged}, SALES[1]])
    environment = Tills()
    run = run_trace(environment, read_traces(path)[0], 0, source="log")
    assert (run.departure, run.left_out, run.num_refused) == (None, (), 1)
    (window,) = run.windows
    answer = environment.step(environment.reset(None), window.episode.operations[1])
    assert reason in json.loads(answer.output)["error"]


@pytest.mark.parametrize("logged", [{}, {"output": "sold"}, {"output": "no error"}])
def test_a_call_that_no_tool_takes_is_named_where_the_log_does_not_show_it(written, logged):
    path = written([*SALES, {"name": "sel", "arguments": {"item": "tea"}, **logged}])
    with pytest.raises(MalformedInputError, match="no tool of the environment takes") as caught:
        vcrt.lift_log([path], environment=Tills, jobs=1)
    assert caught.value.where == f'{path}:3, call 2 sel(item="tea")'
    assert "did you mean 'sell'" in caught.value.found


def test_what_a_tool_itself_does_wrong_is_no_refusal():
    class Broken(Till):
        def sell(self, item):
            return item + 1

    with pytest.raises(TypeError, match="str"):
        vcrt.call_method(Broken(), "sell", {"item": "tea"})
    assert vcrt.call_method(Till(), "sell", {"item": "tea", "amount": 2}) == 2


def unreadable(output):
    function = {"name": "sell", "arguments": "{item: tea"}
    yield {"role": "assistant", "tool_calls": [{"id": "bad", "function": function}]}
    if output is not None:
        yield {"role": "tool", "tool_call_id": "bad", "content": output}


def test_a_call_with_arguments_that_are_no_json_is_left_out_where_it_failed(capsys, written):
    lines = [*chat(), *unreadable("Error: bad arguments")]
    path = written([*unreadable("Error: bad arguments"), *chat(CALLS[:3])])
    given = ["schedule", path, "--environment", f"{SHOP}:Shop", "--jobs", "1"]
    code, out, _ = run(capsys, *given)
    assert code == 0
    first = out.split("\n")[0]
    assert f"1 of 4 calls is left out, in {path}:1: a call whose arguments are no JSON" in first
    assert "whose output says that it failed" in first
    assert "3 calls in" in out
    (document,) = json.loads(run(capsys, *given, "--json")[1])
    (left_out,) = document["left_out"]
    assert left_out["where"] == f"{path}:1"
    assert not document["complete"]
    (trace,) = read_traces(written(lines))
    assert (len(trace.calls), len(trace.known), len(trace.places)) == (6, 6, 6)


@pytest.mark.parametrize("output", [None, "sold"])
def test_a_call_with_arguments_that_are_no_json_is_an_error_where_it_did_not_fail(written, output):
    path = written([*chat(), *unreadable(output)])
    with pytest.raises(MalformedInputError, match="arguments are no JSON") as caught:
        read_traces(path)
    assert caught.value.where == f"{path}:13, tool 'sell'"
    assert "add the output that the agent got" in caught.value.remedy


def test_a_block_that_says_is_error_shows_a_failure(written):
    use = {"type": "tool_use", "id": "1", "name": "sell", "input": "tea"}
    for content in ("unknown", [{"type": "text", "text": "unknown"}]):
        result = {"type": "tool_result", "tool_use_id": "1", "content": content, "is_error": True}
        messages = [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
        (trace,) = read_traces(written([*messages, *SALES]))
        assert (len(trace.calls), len(trace.invalid)) == (2, 1)
        result["is_error"] = False
        with pytest.raises(MalformedInputError, match="no JSON"):
            read_traces(written([*messages, *SALES]))


def test_two_outputs_of_one_call_are_an_error(written):
    lines = list(chat())
    again = {"role": "tool", "tool_call_id": "c0", "content": '{"item": "tea", "left": 9}'}
    with pytest.raises(MalformedInputError, match="two outputs of one call") as caught:
        read_traces(written([*lines, again]))
    assert caught.value.where.endswith("trace.jsonl:13")
    assert "trace.jsonl:1" in caught.value.found
    assert len(read_traces(written([*lines, lines[1]]))[0].calls) == 6


def test_an_answer_to_another_request_is_no_output_of_a_call(written):
    other = [
        {"jsonrpc": "2.0", "id": 0, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 0, "result": {"tools": []}},
    ]
    (trace,) = read_traces(written([*mcp(), *other]))
    assert same_output(trace.calls[0].logged, json.dumps(CALLS[0][2]))


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-le", "utf-32"])
def test_a_log_in_another_coding_is_named_so(tmp_path, coding):
    path = tmp_path / "trace.jsonl"
    path.write_text(json.dumps(plain()[0]), encoding=coding)
    with pytest.raises(MalformedInputError, match="UTF-16") as caught:
        read_traces(path)
    assert "iconv" in caught.value.remedy


def test_a_log_without_its_environment_is_not_taken_for_a_certificate(capsys, written):
    for name in ("trace.jsonl", "trace.json"):
        path = written(plain(), name)
        message = refused(capsys, "schedule", path)
        assert "the environment of the log's calls was not named" in message
        assert f"vcrt schedule {path} --environment" in message
    assert "documented form" in refused(capsys, "schedule", written([{}], "bad.json"), code=4)


def test_a_log_of_one_call_has_nothing_to_compare(capsys, written):
    message = refused(capsys, "schedule", written(plain()[:1]), "--environment", f"{SHOP}:Shop")
    assert "no two calls of one trace to compare" in message


def test_long_traces_are_told_before_they_are_replayed(written, caplog):
    caplog.set_level("INFO", "vcrt")
    path = written([*plain()[:2] * 5, plain()[0]])
    lifted(path)
    (told,) = [text for text in caplog.messages if "--window 4" in text]
    assert "11 of 11 calls are certified together" in told
    caplog.clear()
    lifted(path, window=4)
    lifted(written(plain()[:3]))
    assert not any("--window 4" in text for text in caplog.messages)


def test_schedules_that_are_made_after_certification_are_a_task_of_their_own(written):
    tasks = []

    class Shown(Silent):
        def task(self, description, total, unit):
            tasks.append((description, total))
            return self

        def advance(self, units=1):
            tasks.append(("advance", units))

        def calls(self, done, seconds, expected, note=""):
            tasks.append(("calls", done))

    lifted(written(plain()), progress=Shown())
    start = tasks.index(("schedule shop: which calls wait", 1))
    assert ("advance", 1) in tasks[start:]


def test_a_call_that_breaks_is_named_with_its_line(written):
    path = written([*plain(), {"name": "teleport", "arguments": {}}])
    with pytest.raises(EnvironmentFailure, match="no attribute 'teleport'") as caught:
        lifted(path)
    assert f"{path}:7" in caught.value.where


def test_an_output_that_is_no_json_is_named_with_its_call(written):
    class Bare(Shop):
        def deliver(self, state, item, amount):
            return object()

    with pytest.raises(MalformedInputError, match="an output that is no JSON") as caught:
        vcrt.lift_log([written(plain())], environment=Bare, jobs=1)
    assert 'deliver(item="rice", amount=20), output' in caught.value.where


def test_what_cannot_be_lifted_is_said(written, tmp_path):
    for call, message in (
        (lambda: lifted(tmp_path / "none.jsonl"), "no log there"),
        (lambda: lifted(written([], "empty.jsonl")), "without any call"),
        (lambda: lifted(written(plain()[:1])), "trace.jsonl:1.*fewer calls than an episode takes"),
        (lambda: lifted(written(plain()), window=1), "out of range"),
        (lambda: vcrt.lift_log([], environment=Shop), "lift what"),
        (lambda: vcrt.lift_log([written(plain())], environment="clrs"), "steps are no calls"),
        (lambda: vcrt.lift_log([written(plain())], environment="no.py:Shop"), "no file no.py"),
        (lambda: vcrt.schedule("clrs/heapsort/1", window=3), "needs a log and its environment"),
        (lambda: vcrt.schedule("clrs/heapsort/1", redact=True), "needs a log and its environment"),
    ):
        with pytest.raises(VcrtError, match=f"(?s){message}"):
            call()


def test_the_commands_read_a_class_from_its_file(written):
    path = written(chat())
    environment = f"{SHOP}:Shop"
    done = ran("lift", "log", path, "--environment", environment)
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


WRONG = [*CALLS[:3], ("look", {"item": "tea"}, {"item": "tea", "left": 9}), *CALLS[3:]]


@pytest.mark.parametrize("command", [["schedule"], ["annotate"], ["lift", "log"]])
def test_calls_that_are_left_out_are_said_first_and_end_in_an_error(capsys, written, command):
    path = written(plain(WRONG))
    given = [*command, path, "--environment", f"{SHOP}:Shop", "--jobs", "1"]
    code, out, err = run(capsys, *given)
    assert code == 2
    first, logged, replayed, _ = out.split("\n")[:4]
    assert "4 of 7 calls are left out, 3 to 6" in first
    assert f"{path}:4, call 3 look(" in first
    assert '"left":9' in logged
    assert '"left":2' in replayed
    assert "not the one that was logged" in err
    assert 'look(item="rice")' in out or "look" in out.partition("tool")[2]

    code, out, _ = run(capsys, *given, "--json")
    assert code == 2
    document = json.loads(out)
    document = document[0] if isinstance(document, list) else document
    assert not document["complete"]
    (left_out,) = document["calls_left_out" if command == ["annotate"] else "left_out"]
    assert (left_out["first"], left_out["last"]) == (3, 6)
    assert (left_out["logged"], left_out["replayed"]) == (
        '{"item":"tea","left":9}',
        '{"item":"tea","left":2}',
    )


def test_a_trace_that_is_too_short_is_said_beside_others(capsys, written):
    path = written([{"calls": plain()[:3]}, {"id": "short", "calls": plain()[:1]}])
    given = [path, "--environment", f"{SHOP}:Shop", "--jobs", "1"]
    code, out, _ = run(capsys, "schedule", *given)
    assert code == 0
    assert "short: 1 of 1 call is left out" in out.split("\n")[0]
    whole, short = json.loads(run(capsys, "schedule", *given, "--json")[1])
    assert whole["complete"]
    assert whole["left_out"] == []
    assert (short["name"], short["complete"], len(short["left_out"])) == ("short", False, 1)


def test_no_call_is_left_over_when_a_long_trace_is_cut():
    assert [len(part) for part in windows(65, None, 64)] == [32, 33]
    assert [len(part) for part in windows(64, None, 64)] == [64]
    assert sum(len(part) for part in windows(200, None, 64)) == 200


def test_a_long_trace_is_cut_between_messages():
    # Two messages: the calls 20 to 59, and the rest.
    inside = {*range(21, 60), *range(61, 100)}
    assert [(p.start, p.stop) for p in windows(100, None, 64, inside)] == [(0, 60), (60, 100)]
    for seed in range(50):
        draw = generator(seed, "messages")
        sizes = [2 + int(draw.integers(63)) for _ in range(6)]
        starts, number = {sum(sizes[:k]) for k in range(6)}, sum(sizes)
        cut = list(windows(number, None, 64, set(range(number)) - starts))
        assert [k for part in cut for k in part] == list(range(number))
        assert all(1 < len(part) <= 64 and part.start in starts for part in cut)
    # No part has one call alone.
    assert [len(part) for part in windows(65, None, 64, {*range(1, 64)})] == [32, 33]
    # A message of more calls than a part takes is cut all the same.
    assert [len(part) for part in windows(100, None, 64, set(range(1, 100)))] == [50, 50]


def test_all_outputs_of_a_log_are_counted(capsys, written):
    given = [written(plain(WRONG)), "--environment", f"{SHOP}:Shop", "--jobs", "1"]
    assert "7 of them with an output" in run(capsys, "lift", "log", *given)[1]


def test_one_identifier_of_two_calls_of_a_message_is_an_error(written):
    def message(*identifiers):
        function = {"name": "look", "arguments": '{"item": "tea"}'}
        calls = [{"id": each, "function": function} for each in identifiers]
        return {"role": "assistant", "tool_calls": calls}

    def output(identifier, content):
        return {"role": "tool", "tool_call_id": identifier, "content": content}

    path = written([message("a", "a", "b"), output("a", "1"), output("b", "2")])
    with pytest.raises(MalformedInputError, match="two calls of one message") as caught:
        read_traces(path)
    assert caught.value.where == f"{path}:1"
    assert "'a' twice" in caught.value.found
    assert caught.value.remedy
    later = [message("a", "b"), output("a", "1"), message("a"), output("a", "2")]
    (trace,) = read_traces(written(later))
    assert [call.logged for call in trace.calls] == ['"1"', None, '"2"']
    (trace,) = read_traces(written([message("a", "a")]))
    assert len(trace.calls) == 2


@pytest.mark.parametrize(
    "logged",
    [
        {"error": "no salt left"},
        "no salt left",
        "Error: no salt left",
        "ERROR: no salt left\n",
        "shop.CallRefused: no salt left",
        '{"error": "no salt left"}',
        {"isError": True, "content": [{"type": "text", "text": "Error: no salt left"}]},
        {"isError": True, "content": [{"type": "text", "text": '{"error": "no salt left"}'}]},
    ],
)
def test_a_refusal_is_known_in_the_forms_of_logs(logged):
    assert same_refusal(json.dumps(logged), "no salt left")


def test_a_refusal_as_a_log_writes_it_is_no_departure(written):
    content = [{"type": "text", "text": "Error: no salt left"}]
    logged = {"isError": True, "content": content}
    calls = [*CALLS[:2], ("order", {"item": "salt", "customer": "ann"}, logged)]
    found = lifted(written(plain(calls)))
    assert not found.departures
    assert found.traces[0].num_refused == 1


@pytest.mark.parametrize("logged", ["Error: no tea left", "order: no salt left", {"ordered": 1}])
def test_a_refusal_for_another_reason_is_another_output(logged):
    assert not same_refusal(json.dumps(logged), "no salt left")


def test_what_a_clock_or_chance_gave_is_told_from_another_state(written):
    assert looks_drawn('"at 2026-11-24T03:00:00.5"', '"at 2025-01-02T13:10:00"')
    assert looks_drawn("1763953200.25", "1763953999.5")
    # An id whose place only the server's answer has, not the log's text.
    assert looks_drawn(
        '"made 68c95c72-d612-4264-97cd-eb8f1290f85b"', '"made id-9d06f1b4599993a54816"'
    )
    assert not looks_drawn('{"left":3}', '{"left":2}')

    class Numbered(Shop):
        def order(self, state, item, customer):
            return {"ordered": item, "number": time.time_ns()}

    calls = [("order", CALLS[2][1], {"ordered": "tea", "number": 1})]
    with pytest.raises(MalformedInputError, match="fix the clock and the chance in reset"):
        vcrt.lift_log([written(plain(calls))], environment=Numbered, jobs=1)


def test_where_nothing_certifies_nothing_is_written_and_it_is_said(capsys, written, tmp_path):
    (tmp_path / "marks.py").write_text(
        "import vcrt\n"
        "class Marks(vcrt.CallEnvironment):\n"
        "    name = 'marks'\n"
        "    def reset(self, initial):\n        return {}\n"
        "    def call(self, state, name, arguments):\n"
        "        if name == 'mark':\n            state['marked'] = True\n            return 'ok'\n"
        "        return 'marked' in state\n"
    )
    path = written([{"name": n, "arguments": {}} for n in ("mark", "mark", "see", "see", "see")])
    given = ["lift", "log", path, "--environment", f"{tmp_path / 'marks.py'}:Marks", "--jobs", "1"]
    message = refused(capsys, *given, "--output", tmp_path / "data")
    assert "nothing was written" in message
    assert "1 context_dependent" in message
    assert "--window 4" in message
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("data")]
    assert run(capsys, *given)[0] == 0, "there is a schedule"


def test_a_log_of_which_nothing_can_be_scheduled_is_refused(capsys, written, tmp_path):
    (tmp_path / "drawn.py").write_text(
        "import itertools\nimport vcrt\nNUMBERS = itertools.count()\n"
        "class Drawn(vcrt.CallEnvironment):\n"
        "    name = 'drawn'\n"
        "    def reset(self, initial):\n        return {}\n"
        "    def call(self, state, name, arguments):\n        return next(NUMBERS)\n"
    )
    path = written([{"name": "draw", "arguments": {"n": n}} for n in range(2)])
    for command in (["schedule"], ["lift", "log"]):
        refused(capsys, *command, path, "--environment", f"{tmp_path / 'drawn.py'}:Drawn")


#: Sessions that a copy leaves out, sets and keys in their order, a clock, and state of the class.
TOOLS = """
import time
import vcrt

class Tools:
    owners = {}
    def __init__(self): self.session, self.marks, self.keys, self.members = None, {}, {}, set()
    def __getstate__(self): return {k: v for k, v in vars(self).items() if k != "session"}
    def __setstate__(self, state): self.__dict__.update(state, session=None)
    def open(self): self.session = "open"
    def close(self, again=0): self.session = None
    def note(self, text): self.marks.setdefault("notes", []).append(text)
    def buy(self, item): self.marks[item] = self.session
    def mark(self, again=0): self.marks["marked"] = True
    def see(self, again=0): return "marked" in self.marks
    def put(self, key): self.keys[key] = 1
    def evict(self): self.keys.pop(next(iter(self.keys), None), None)
    def add(self, member): self.members.add(member)
    def first(self): return list(self.members)[:1]
    def stamp(self): self.marks["now"] = [time.time_ns()]
    def own(self, who): self.owners["last"] = who

class Env(vcrt.CallEnvironment):
    name = "tools"
    def reset(self, initial): return Tools()
    def call(self, state, name, arguments): return getattr(state, name)(**arguments)
"""


@pytest.fixture
def scheduled(capsys, written, tmp_path):
    """The exit code and all that a command prints of a log of these calls."""
    (tmp_path / "tools_of_tests.py").write_text(TOOLS)

    def run_on(*command, calls):
        path = written([{"name": name, "arguments": dict(given)} for name, given in calls])
        environment = f"{tmp_path / 'tools_of_tests.py'}:Env"
        code, out, err = run(capsys, *command, path, "--environment", environment, "--jobs", 1)
        return code, out + err

    return run_on


@pytest.mark.parametrize("command", [("schedule",), ("lift", "log")])
@pytest.mark.parametrize("before", [0, 3], ids=["early", "late"])
def test_a_copy_that_leaves_something_out_ends_in_an_error(scheduled, command, before):
    notes = [("note", {"text": text}) for text in "abc"[:before]]
    calls = [*notes, ("open", {}), ("note", {"text": "x"}), ("buy", {"item": "tea"})]
    code, said = scheduled(*command, calls=calls)
    assert code == 2, said
    assert "a copy of the state does not keep everything" in said
    assert "state.session" in said
    assert "wave" not in said


@pytest.mark.parametrize("more", [(), ("mark", "see")], ids=["every order", "every context"])
def test_what_only_some_orders_lose_is_no_schedule_and_said_alike_throughout(scheduled, more):
    calls = [("close", {"again": 1}), ("open", {}), ("close", {}), ("buy", {"item": "tea"})]
    code, said = scheduled("lift", "log", calls=[*calls, *((name, {}) for name in more)])
    assert code == 2, said
    assert "a copy of the state does not keep everything" in said
    assert "state.session" in said
    assert "context_dependent" not in said
    assert "--window" not in said
    assert "Reached(" not in said


def test_what_differs_between_replays_is_said_by_its_place(scheduled):
    code, said = scheduled("lift", "log", calls=[("note", {"text": "a"}), ("stamp", {})])
    assert code == 2
    assert 'state.marks["now"][0] differs between two runs of [0, 1]' in said
    assert "accepted in state" in said
    assert "Reached(" not in said


def test_keys_of_states_are_hidden_with_outputs(scheduled):
    calls = [("note", {"text": "a"}), ("stamp", {})]
    code, said = scheduled("lift", "log", "--redact", calls=calls)
    assert code == 2
    assert "state.marks[...] differs between two runs of [0, 1]" in said
    assert '"now"' not in said


def test_states_that_differ_in_an_order_alone_are_told_how_to_count_it(scheduled):
    puts = [("put", {"key": "a"}), ("put", {"key": "b"}), ("evict", {}), ("evict", {})]
    code, said = scheduled("schedule", calls=puts)
    assert code == 2
    assert "differ in the order of keys at state.keys: say `key_order = True`" in said
    adds = [("add", {"member": 0}), ("add", {"member": 8}), ("first", {})]
    code, said = scheduled("schedule", calls=adds)
    assert code == 2
    assert "differ in the order of a set at state.members[0]: let tools sort" in said


def test_state_that_every_state_shares_is_an_error_with_the_calls_line(scheduled):
    code, said = scheduled("schedule", calls=[("own", {"who": "ann"}), ("own", {"who": "bob"})])
    assert code == 2
    assert "trace.jsonl:1" in said
    assert "class attribute tools_of_tests.Tools.owners changed" in said


def test_a_trace_that_changes_nothing_is_told(scheduled):
    for command in (("schedule",), ("lift", "log")):
        code, said = scheduled(*command, calls=[("see", {}), ("first", {})])
        assert code == 0
        assert "none of 2 calls changed anything that vcrt can see" in said


class OfProcess(Shop):
    """Its states hold the number of the process: no two replays in two processes are equal."""

    def reset(self, initial):
        return super().reset(initial) | {"process": os.getpid()}


class Noting(Shop):
    """Notes of which process each state was made, there or in a copy of it."""

    notes: ClassVar[Path]

    def __init__(self):
        self.process = os.getpid()

    def reset(self, initial):
        with self.notes.open("a") as file:
            file.write(f"{self.process}\n")
        return super().reset(initial)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_second_process_replays_again_be_it_ahead_or_afterwards(written, jobs):
    log = written(plain())
    (found,) = vcrt.lift_log([log], environment=OfProcess, jobs=jobs).calls
    assert isinstance(found.outcome, vcrt.Exclusion)
    assert found.outcome.kind == "nondeterministic"
    assert found.schedule is None


@pytest.mark.slow
@pytest.mark.processes
def test_what_was_replayed_ahead_is_not_replayed_again(written, tmp_path):
    log, made = written(plain()), []
    for jobs in (1, 2):
        kind = type("Noting", (Noting,), {"notes": tmp_path / str(jobs), "name": "shop"})
        (found,) = vcrt.lift_log([log], environment=kind, jobs=jobs).calls
        processes = Counter((tmp_path / str(jobs)).read_text().split())
        made.append((sorted(processes.values()), found.schedule))
    assert len(made[0][0]) == 2
    assert made[0] == made[1]
