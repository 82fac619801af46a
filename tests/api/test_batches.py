"""The batches of a log: what its messages sent together conflicts or is safe, and where two orders end apart."""

from __future__ import annotations

import json
import sys
import zipfile
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import pytest

import vcrt
from command_line import run
from shop import Shop
from vcrt.api.logs import LiftedCalls
from vcrt.api.schedules import _told
from vcrt.calls.batches import BatchTests, batches_of, order_of_log
from vcrt.calls.call_logs import read_traces
from vcrt.calls.differences import _of_members, difference_of, difference_of_outputs
from vcrt.calls.log_lifting import run_trace
from vcrt.calls.schedules import schedule_of
from vcrt.certificates.lattice import Lattice
from vcrt.certificates.replay_tree import EpisodeReplays, ReplayTree
from vcrt.cli.schedule import print_schedules
from vcrt.environments.conformance import Finding
from vcrt.environments.conformance_checks import DETERMINISTIC
from vcrt.environments.contract import Operation, Provenance, Rejected
from vcrt.environments.folder_states import Entry
from vcrt.environments.tool_calls import episode_of_calls
from vcrt.randomness import generator
from vcrt.replay.lattice_replay import replay_lattices

SHOP = Path(__file__).parents[1] / "support" / "shop.py"


def openai(*messages):
    """Messages of OpenAI's form: the calls (identifier, name, arguments, output) of each, results in their order."""
    for calls in messages:
        made = [
            {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
            for i, n, a, _ in calls
        ]
        yield {"role": "assistant", "content": None, "tool_calls": made}
        for identifier, _, _, output in calls:
            content = output if isinstance(output, str) else json.dumps(output)
            yield {"role": "tool", "tool_call_id": identifier, "content": content}


def anthropic(*messages):
    """The same in the form of Anthropic's content blocks."""
    for calls in messages:
        uses = [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a, _ in calls]
        yield {"role": "assistant", "content": [{"type": "text", "text": "I do it."}, *uses]}
        results = [
            {"type": "tool_result", "tool_use_id": i, "content": json.dumps(output)}
            for i, _, _, output in calls
        ]
        yield {"role": "user", "content": results}


def look(identifier, item, left):
    return identifier, "look", {"item": item}, {"item": item, "left": left}


def order(identifier, item, customer):
    return identifier, "order", {"item": item, "customer": customer}, {"ordered": item}


def deliver(identifier, item, amount):
    return identifier, "deliver", {"item": item, "amount": amount}, "delivered"


@pytest.fixture
def written(tmp_path):
    def write(lines):
        path = tmp_path / "trace.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write


def scheduled(path, environment=Shop, **options):
    (found,) = vcrt.schedule(path, environment=environment, jobs=1, **options)
    return found


FORMS = pytest.mark.parametrize("form", [openai, anthropic])


@FORMS
def test_two_calls_of_a_message_conflict_and_each_order_is_told(written, form):
    path = written(form([order("a", "rice", "ann"), order("b", "tea", "ann")]))
    found = scheduled(path)
    assert found.ids == ("a", "b")
    assert found.rounds == ((0, 1),)
    assert (found.num_rounds, found.speed_up) == (2, 0.5)
    (batch,) = found.batches
    assert (batch.calls, batch.safe, batch.raced, batch.complete) == ((0, 1), (), False, True)
    assert batch.place == f"{path}:1"
    (conflict,) = batch.conflicts
    assert conflict.calls == (0, 1)
    assert conflict.certificate.verdict == "conflicts"
    assert [each.to_json() for each in conflict.difference] == [
        {"where": 'state["orders"]["ann"][0]', "forward": '"rice"', "reverse": '"tea"'},
        {"where": 'state["orders"]["ann"][1]', "forward": '"tea"', "reverse": '"rice"'},
    ]
    assert found.differences[0, 1] == conflict.difference


@FORMS
def test_of_three_calls_of_a_message_two_are_safe(written, form):
    message = [look("l1", "rice", 1), order("o1", "tea", "ann"), deliver("d1", "rice", 5)]
    found = scheduled(written(form([look("l0", "tea", 3)], message)))
    (batch,) = found.batches
    assert batch.calls == (1, 2, 3)
    assert batch.safe == (2,)
    assert [each.calls for each in batch.conflicts] == [(1, 3)]
    assert [each.to_json() for each in batch.conflicts[0].difference] == [
        {"call": 1, "where": 'output["left"]', "forward": "1", "reverse": "6"}
    ]
    assert not batch.not_compared
    assert found.rounds == ((0,), (1, 2, 3))


def test_a_batch_is_safe_and_more_could_have_been_sent_with_it(written, capsys):
    messages = [
        [look("l0", "tea", 3), look("l1", "rice", 1)],
        [order("o1", "tea", "ann")],
        [order("o2", "rice", "bob")],
        [look("l2", "tea", 2), look("l3", "rice", 0)],
    ]
    path = written(openai(*messages))
    found = scheduled(path)
    assert found.rounds == ((0, 1), (2,), (3,), (4, 5))
    assert [batch.safe for batch in found.batches] == [(0, 1), (4, 5)]
    assert found.joined == ((2, 3),)
    assert (found.num_rounds, found.speed_up) == (3, 4 / 3)

    code, out, _ = run(capsys, "schedule", path, "--environment", f"{SHOP}:Shop", "--jobs", "1")
    assert code == 0
    lines = out.splitlines()
    assert '   0  look(item="tea")  [l0]' in lines
    assert (
        "6 calls in 4 rounds in the log; 3 would do: 1.3 times fewer, if all calls take equally long"
        in lines
    )
    assert f"{path}:1: 2 calls sent together, 0 and 1" in lines
    assert "  0 and 1 are safe if done as a whole: the same in every order, in 1 context" in lines
    assert "could have been sent together: 2 and 3" in lines
    assert lines[-2:] == [*found.caveats]
    assert len(lines) < 30


def test_the_text_says_what_each_order_gives(written, capsys):
    message = [order("o1", "rice", "ann"), order("o2", "rice", "bob"), look("l", "tea", 3)]
    message[1] = (*message[1][:3], "Error: no rice left")
    path = written(openai(message))
    _, out, _ = run(capsys, "schedule", path, "--environment", f"{SHOP}:Shop", "--jobs", "1")
    told = out[out.index(f"{path}:1") :].splitlines()
    assert told[1:5] == [
        "  0 and 1 conflict:",
        '    0 first: 0 gives {"ordered":"rice"}; 1 gives {"error":"no rice left"}',
        "    1 first: 0 is refused: no rice left",
        "  2 is safe if done as a whole: the same in every order, in 5 contexts",
    ]


def test_a_batch_that_raced_has_the_order_of_the_log(written):
    calls = [look("a", "tea", 2), order("b", "tea", "ann")]
    assistant, first, second = openai(calls)
    found = scheduled(written([assistant, second, first]))
    (batch,) = found.batches
    assert batch.raced
    assert found.ids == ("b", "a")
    (conflict,) = batch.conflicts
    assert [(each.call, each.forward) for each in conflict.difference] == [(1, "2")]


def test_a_log_of_single_calls_has_todays_count(written, capsys):
    path = written(
        [{"id": "x", "name": "look", "arguments": {"item": item}} for item in ("tea", "rice")]
    )
    found = scheduled(path)
    assert found.ids == ("x", "x")
    assert (found.rounds, found.batches, found.speed_up) == (((0,), (1,)), (), 2.0)
    _, out, _ = run(capsys, "schedule", path, "--environment", f"{SHOP}:Shop", "--jobs", "1")
    assert "2 calls in 1 wave: 2.0 times fewer rounds, if all calls take equally long" in out
    assert "sent together" not in out


@pytest.mark.parametrize("key", ["id", "call_id", "tool_call_id", "toolCallId"])
def test_identifiers_are_those_of_the_log(written, key):
    calls = [
        {
            key: f"call {n}",
            "name": "look",
            "arguments": {"item": "tea"},
            "output": {"item": "tea", "left": 3},
        }
        for n in (1, 2)
    ]
    assert scheduled(written(calls)).ids == ("call 1", "call 2")


def test_identifiers_of_requests_are_those_of_the_session(written):
    lines = []
    for number in (7, 8):
        params = {"name": "look", "arguments": {"item": "tea"}}
        lines.append({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    text = '{"item":"tea","left":3}'
    for number in (8, 7):
        result = {"content": [{"type": "text", "text": text}], "isError": False}
        lines.append({"jsonrpc": "2.0", "id": number, "result": result})
    found = scheduled(written(lines))
    assert (found.ids, found.rounds) == (("7", "8"), ((0, 1),))
    assert found.batches[0].safe == (0, 1)


def test_json_has_identifiers_batches_and_differences(written, capsys):
    message = [order("o1", "rice", "ann"), deliver("d1", "rice", 5), order("o2", "tea", "ann")]
    path = written(openai(message, [look("l1", "tea", 2)]))
    given = [path, "--environment", f"{SHOP}:Shop", "--jobs", "1", "--json"]
    (document,) = json.loads(run(capsys, "schedule", *given)[1])
    assert document["ids"] == ["o1", "d1", "o2", "l1"]
    assert document["rounds"] == [[0, 1, 2], [3]]
    assert (document["num_rounds"], document["speed_up"]) == (3, 0.667)
    (batch,) = document["batches"]
    assert (batch["ids"], batch["safe"]) == (["o1", "d1", "o2"], [1])
    (conflict,) = batch["conflicts"]
    assert conflict["ids"] == ["o1", "o2"]
    assert conflict["difference"][0] == {
        "where": 'state["orders"]["ann"][0]',
        "forward": '"rice"',
        "reverse": '"tea"',
    }
    edges = {(edge["first"], edge["second"]): edge for edge in document["edges"]}
    assert edges[2, 3]["ids"] == ["o2", "l1"]
    assert edges[2, 3]["difference"][0]["where"] == 'output["left"]'
    assert len(document["caveats"]) == 2


class Secrets(vcrt.CallEnvironment):
    """Puts what its tools are given into the state, in another form."""

    name = "secrets"

    def reset(self, initial):
        return {"kept": {}, "marks": set()}

    def call(self, state, name, arguments):
        secret = f"secret-{arguments['number']}"
        if name == "last":
            state["kept"]["last"] = secret
        elif name == "mark":
            state["marks"] = {secret}
        elif name == "under":
            state["kept"] = {secret: 1}
        return f"gave {secret}"


class Shy(Secrets):
    """Hides what its tools give by itself."""

    def redact(self, output):
        return "hidden by the class"


@pytest.mark.parametrize("name", ["last", "mark", "under"])
def test_redacted_values_are_nowhere(written, capsys, name):
    calls = [(f"c{n}", name, {"number": n}, None) for n in (1, 2)]
    path = written([line for line in openai(calls) if line["role"] == "assistant"])
    for environment, options in ((Secrets, {"redact": True}), (Shy, {})):
        found = scheduled(path, environment, **options)
        (batch,) = found.batches
        (conflict,) = batch.conflicts
        assert {each.forward for each in conflict.difference if each.call is None} == {"hidden"}
        assert "secret-" not in repr(found)
        for as_json in (False, True):
            print_schedules([found], source=path, json=as_json)
            printed = capsys.readouterr().out
            assert "secret-" not in printed
            assert ("differs" in printed) != as_json
    assert "secret-" in repr(scheduled(path, Secrets))


class Texts(vcrt.CallEnvironment):
    """A text whose canonical form is its lines, as that of a database would be."""

    name = "texts"

    def reset(self, initial):
        return ["begin", "end"]

    def call(self, state, name, arguments):
        state.insert(-1, arguments["line"])
        return "a long output that says nothing, " * 3 + str(len(state)) + " lines"

    def canonical(self, state):
        return "\n".join(state).encode()

    def snapshot(self, state):
        return list(state)

    def restore(self, snapshot):
        return list(snapshot)


def test_states_of_other_forms_differ_in_lines_and_long_outputs_in_their_part(written, capsys):
    calls = [(f"c{n}", "add", {"line": f"line {n}"}, None) for n in (1, 2)]
    lines = [line for line in openai(calls) if line["role"] == "assistant"]
    (conflict,) = scheduled(written(lines), Texts).batches[0].conflicts
    line, *outputs = conflict.difference
    assert line.to_json() == {
        "where": "state, line 2",
        "forward": '"line 1"',
        "reverse": '"line 2"',
    }
    assert [each.call for each in outputs] == [0, 1]
    assert outputs[0].forward.endswith('3 lines"')
    assert outputs[0].reverse.endswith('4 lines"')


class Folder(vcrt.CallEnvironment):
    """Files by path, kept as the environments of servers keep them."""

    name = "folder"
    ignored = frozenset({"*.log"})

    def reset(self, initial):
        return {"a.txt": b"one\ntwo\n", "raw": b"\0\xff"}

    def call(self, state, name, arguments):
        path, text = arguments["path"], arguments["text"].encode()
        state["x.log"] = text
        if name == "append":
            state[path] = state.get(path, b"") + text + b"\n"
        elif name == "remove":
            state.pop(path, None)
        else:
            state[path] = text

    def canonical(self, state):
        return repr([each for each in sorted(state.items()) if each[0] != "x.log"]).encode()

    def snapshot(self, state):
        content = {path: Entry("file", 0o644, text) for path, text in state.items()}
        return SimpleNamespace(content=content)

    def restore(self, snapshot):
        return {path: entry.content for path, entry in snapshot.content.items()}


@pytest.mark.parametrize(
    ("calls", "places"),
    [
        (
            [("append", "a.txt", "three"), ("append", "a.txt", "four")],
            [("file a.txt, line 3", '"three"', '"four"')],
        ),
        (
            [("write", "b.txt", "new"), ("remove", "b.txt", "")],
            [("file b.txt", None, '"new"')],
        ),
        (
            [("write", "raw", "text"), ("append", "raw", "more")],
            [("file raw", '"textmore\\n"', '"text"')],
        ),
    ],
)
def test_states_of_folders_differ_in_files_and_lines(written, calls, places):
    made = [
        (f"c{n}", name, {"path": path, "text": text}, None)
        for n, (name, path, text) in enumerate(calls)
    ]
    lines = [line for line in openai(made) if line["role"] == "assistant"]
    (conflict,) = scheduled(written(lines), Folder).batches[0].conflicts
    assert [(each.where, each.forward, each.reverse) for each in conflict.difference] == places


def test_long_values_are_shortened_around_what_differs():
    class Long(Texts):
        name = "long"

        def call(self, state, name, arguments):
            state[0] = "x" * 500 + arguments["line"] + "y" * 500

    first, second = (
        Operation(signature=n, payload={"name": "a", "arguments": {"line": n}}) for n in "ab"
    )
    provenance = Provenance(source="a test", generator="by hand", seed=0)
    made = episode_of_calls("long", "log", None, [first, second], provenance)
    (replays,) = replay_lattices(Long(), [made])
    certificate = Lattice.of(replays.tree).certificate(0, (0, 1))
    (place,) = difference_of(Long(), made, certificate)
    assert place.where == "state, line 1"
    assert place.forward == "..." + "x" * 20 + "b" + "y" * 59 + "..."
    assert place.reverse == "..." + "x" * 20 + "a" + "y" * 59 + "..."


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12), reason="Python 3.12 writes JSON of at most 1,500 levels"
)
def test_deep_states_are_compared(written):
    class Deep(vcrt.CallEnvironment):
        name = "deep"

        def reset(self, initial):
            return {"inner": None}

        def call(self, state, name, arguments):
            for _ in range(700):
                state["inner"] = {"inner": state["inner"]}
            state["inner"] = [state["inner"], arguments["line"]]
            return "done"

    calls = [(f"c{n}", "add", {"line": f"line {n}"}, None) for n in (1, 2)]
    lines = [line for line in openai(calls) if line["role"] == "assistant"]
    (conflict,) = scheduled(written(lines), Deep).batches[0].conflicts
    inner, outer = conflict.difference
    assert (inner.where[:18], len(inner.where)) == ('state["inner"][0][', 163)
    assert (outer.where, outer.forward) == ('state["inner"][1]', '"line 2"')


class Sets:
    """An object with a set, a list and another object that all of them name."""

    def __init__(self):
        self.tags, self.names, self.owner = set(), [], {"by": None}
        self.last = self.owner


class Objects(vcrt.CallEnvironment):
    """Objects with parts of several kinds."""

    name = "objects"

    def reset(self, initial):
        return Sets()

    def call(self, state, name, arguments):
        value = arguments["value"]
        if name == "tag":
            state.tags = {value}
        elif name == "renew":
            state.owner = {"by": value}
        else:
            state.names.append(float(value))


@pytest.mark.parametrize(
    ("name", "values", "places"),
    [
        ("tag", "ab", [("state.tags[0]", '"\\"b\\""', '"\\"a\\""')]),
        ("renew", "ab", [('state.owner["by"]', '"b"', '"a"')]),
        ("add", "12", [("state.names[0]", "1.0", "2.0"), ("state.names[1]", "2.0", "1.0")]),
    ],
)
def test_states_of_objects_differ_in_their_parts(written, name, values, places):
    made = [(value, name, {"value": value}, None) for value in values]
    lines = [line for line in openai(made) if line["role"] == "assistant"]
    (conflict,) = scheduled(written(lines), Objects).batches[0].conflicts
    assert [(each.where, each.forward, each.reverse) for each in conflict.difference] == places


class Late(vcrt.CallEnvironment):
    """Marks, and a last call that sees the second one only behind the first."""

    name = "late"

    def reset(self, initial):
        return set()

    def call(self, state, name, arguments):
        seen = {"0", "1"} <= state
        state.add(name)
        return "rare" if name == "2" and seen else "usual"


def late_calls(environment, path, *, wrong=()):
    """The calls of a log of which nobody asked for the last one right behind the first; ``wrong`` answers differ."""
    (trace,) = read_traces(path)
    (window,) = run_trace(environment, trace, 0, source="a test").windows
    (replays,) = replay_lattices(environment, [window.episode])
    answers = {
        sequence: replace(reached, output="wrong") if sequence in wrong else reached
        for sequence, reached in replays.tree.answers.items()
        if sequence[:2] != (0, 2)
    }
    seen = {each: replays.tree.answers[each] for each in answers}
    return LiftedCalls(
        trace=trace,
        first=0,
        replays=EpisodeReplays(window.episode, ReplayTree.of(3, answers)),
        outcome=None,
        flows=(),
        schedule=schedule_of(ReplayTree.of(3, seen)),
    )


def test_a_conflict_that_samples_do_not_show_is_in_the_schedule(written):
    calls = [[("a", "0", {}, None)], [("b", "1", {}, None), ("c", "2", {}, None)]]
    path = written([line for line in openai(*calls) if line["role"] == "assistant"])
    lifted = late_calls(Late(), path)
    assert lifted.schedule.order.pairs == ((0, 2),)
    found = _told(Late(), lifted)
    assert [each.calls for each in found.batches[0].conflicts] == [(1, 2)]
    assert (1, 2) in found.schedule.order.pairs
    assert found.num_rounds == len(found.rounds)

    lifted = late_calls(Late(), path, wrong={(0, 1, 2)})
    found = _told(Late(), lifted)
    assert found.schedule is None
    assert found.problem.startswith("nondeterministic: the sequence [0, 1, 2]")


def test_an_empty_mapping_is_shown_as_one():
    (found,) = difference_of_outputs('{"cart": {}}', '{"cart": {"tea": 1}}', 0)
    assert (found.where, found.forward, found.reverse) == ('output["cart"]', "{}", '{"tea":1}')
    (found,) = difference_of_outputs('{"cart": []}', '{"cart": ["tea"]}', 0)
    assert (found.forward, found.reverse) == ("[]", '["tea"]')


def test_an_archive_with_a_wrong_byte_is_compared_by_what_can_be_read():
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("a.xml", "b.xml"):
            member = zipfile.ZipInfo(name)
            archive.writestr(member, "<same/>" * 200, compress_type=zipfile.ZIP_DEFLATED)
    whole = packed.getvalue()
    for place in range(len(whole)):
        damaged = whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :]
        places = _of_members(damaged, whole, "file b.xlsx")
        assert places
        assert all(where.startswith("file b.xlsx") for where, *_ in places)


def test_a_trace_whose_replays_were_seen_to_differ_once_has_no_schedule(written, monkeypatch):
    path = written(
        openai([look("l0", "tea", 3), look("l1", "rice", 1)], [order("o", "tea", "ann")])
    )
    given = partial(vcrt.schedule, path, environment=f"{SHOP}:Shop", jobs=1)
    (found,) = given()
    assert found.schedule is not None
    assert found.batches
    seen = Finding(DETERMINISTIC, "shop/log", "[look] is 3, then 4", "look for clocks")
    monkeypatch.setattr("vcrt.api.logs._failed_checks", lambda *_, **__: (seen,))
    (found,) = given()
    assert found.schedule is None
    assert found.problem == "nondeterministic: [look] is 3, then 4"
    assert not found.batches


@pytest.mark.parametrize("alone", [True, False])
def test_a_message_of_many_calls_is_compared_in_some_contexts(written, alone):
    message = [look(f"l{n}", "tea", 3) for n in range(10)]
    message += [look("r", "rice", 1), order("o", "rice", "ann")]
    before = [] if alone else [[deliver("d", "salt", 1)]]
    (trace,) = read_traces(written(openai(*before, message)))
    episode = run_trace(Shop(), trace, 0, source="a test").windows[0].episode
    (replays,) = replay_lattices(Shop(), [episode])
    tests = BatchTests(Shop(), replays, order_of_log(trace, range(episode.num_operations)))
    first = 0 if alone else 1
    batch = tests.test(range(first, first + 12), place="here", raced=False)
    assert not batch.complete
    assert not batch.not_compared
    assert batch.safe == tuple(range(first, first + 10))
    assert [each.calls for each in batch.conflicts] == [(first + 10, first + 11)]
    assert (len(tests.answers.by_sequence) == len(replays.tree)) == alone


def test_a_window_has_the_calls_of_its_messages(written):
    messages = [[look("l0", "tea", 3), order("o1", "tea", "ann"), order("o2", "rice", "ann")]]
    found = vcrt.schedule(written(openai(*messages)), environment=Shop, jobs=1, window=2)
    assert [each.ids for each in found] == [("l0", "o1"), ("o1", "o2")]
    assert [each.batches[0].calls for each in found] == [(0, 1), (0, 1)]
    assert [len(each.batches[0].conflicts) for each in found] == [1, 1]


@pytest.mark.parametrize("results", [True, False])
def test_no_call_of_a_message_is_safe_if_a_part_of_it_lies_elsewhere(written, capsys, results):
    message = [look("l0", "tea", 3), look("l1", "rice", 1), order("o", "tea", "ann")]
    lines = [line for line in openai(message) if results or line["role"] == "assistant"]
    path = written(lines)
    first, second = vcrt.schedule(path, environment=Shop, jobs=1, window=2)
    assert [(b.safe, b.num_cut, b.not_compared) for b in first.batches] == [((), 1, (0, 1))]
    assert [(b.safe, b.num_cut, b.not_compared) for b in second.batches] == [((), 1, (0, 1))]
    given = ("schedule", path, "--environment", f"{SHOP}:Shop", "--jobs", "1", "--window", "2")
    _, out, _ = run(capsys, *given)
    assert out.count("  1 more call of the message not compared with these, so none is called") == 2


def test_a_long_trace_is_cut_where_no_message_is(written):
    one_by_one = [[look(f"a{n}", "tea", 3)] for n in range(30)]
    message = [look(f"b{n}", "tea", 3) for n in range(34)]
    after = [[order("o", "tea", "ann"), look("c", "tea", 3)], [look("d", "tea", 2)]]
    (trace,) = read_traces(written(openai(*one_by_one, message, *after)))
    lifted = run_trace(Shop(), trace, 0, source="a test").windows
    assert [each.first for each in lifted] == [0, 30]
    assert trace.inside_messages() == {*range(31, 64), 65}


def test_arguments_of_one_message_do_not_come_from_its_outputs(written):
    # No results are logged: what the environment gives is no earlier than the message.
    calls = [("a", "add", {"line": "4 lines"}, None), ("b", "add", {"line": "3 lines"}, None)]
    lines = [line for line in openai(calls) if line["role"] == "assistant"]
    found = scheduled(written(lines), Texts)
    assert {edge.kind for edge in found.schedule.edges} == {"conflicts"}
    one_by_one = [line for line in openai(calls[:1], calls[1:]) if line["role"] == "assistant"]
    assert scheduled(written(one_by_one), Texts).rounds == ((0,), (1,))


CALLS = ("a", "tea"), ("b", "rice"), ("c", "tea")


def responses(messages):
    for calls in messages:
        for identifier, item in calls:
            arguments = json.dumps({"item": item})
            made = {"type": "function_call", "call_id": identifier, "name": "look"}
            yield {**made, "arguments": arguments}
        for identifier, item in calls:
            output = json.dumps(look("", item, 3 if item == "tea" else 1)[3])
            yield {"type": "function_call_output", "call_id": identifier, "output": output}


def langchain(messages):
    for calls in messages:
        made = [{"id": i, "name": "look", "args": {"item": item}} for i, item in calls]
        yield {"type": "ai", "content": "", "tool_calls": made}
        for identifier, item in calls:
            content = json.dumps(look("", item, 3 if item == "tea" else 1)[3])
            yield {"type": "tool", "content": content, "tool_call_id": identifier}


def pydantic_ai(messages):
    for calls in messages:
        made = [
            {
                "part_kind": "tool-call",
                "tool_name": "look",
                "args": {"item": item},
                "tool_call_id": i,
            }
            for i, item in calls
        ]
        yield {"kind": "response", "parts": made}
        given = [
            {
                "part_kind": "tool-return",
                "tool_name": "look",
                "content": look("", item, 3 if item == "tea" else 1)[3],
                "tool_call_id": i,
            }
            for i, item in calls
        ]
        yield {"kind": "request", "parts": given}


@pytest.mark.parametrize("form", [responses, langchain, pydantic_ai])
def test_messages_of_other_forms_are_rounds(written, form):
    found = scheduled(written(form([CALLS[:2], CALLS[2:]])))
    assert found.ids == ("a", "b", "c")
    assert found.rounds == ((0, 1), (2,))
    assert [batch.safe for batch in found.batches] == [(0, 1)]
    assert found.joined == ((0, 1, 2),)
    assert found.num_rounds == 1


def test_blocks_behind_a_result_are_another_round(written):
    use = {"type": "mcp_tool_use", "server_name": "s", "name": "look", "input": {"item": "tea"}}
    result = {"type": "mcp_tool_result", "content": '{"item":"tea","left":3}'}
    blocks = [block for n in "ab" for block in ({**use, "id": n}, {**result, "tool_use_id": n})]
    found = scheduled(written([{"role": "assistant", "content": blocks}]))
    assert found.rounds == ((0,), (1,))
    together = [{**use, "id": "a"}, {**use, "id": "b"}]
    together += [{**result, "tool_use_id": n} for n in "ab"]
    found = scheduled(written([{"role": "assistant", "content": together}]))
    assert found.rounds == ((0, 1),)


def test_lines_of_claude_code_with_one_message_are_one_round(written):
    def line(role, block, **more):
        return {
            "type": role,
            "sessionId": "s",
            "message": {"role": role, "content": [block], **more},
        }

    uses = [{"type": "tool_use", "id": n, "name": "look", "input": {"item": "tea"}} for n in "ab"]
    content = '{"item":"tea","left":3}'
    results = [{"type": "tool_result", "tool_use_id": n, "content": content} for n in "ab"]
    for names, rounds in ((("m", "m"), ((0, 1),)), (("m", "n"), ((0,), (1,)))):
        lines = [
            made
            for use, result, name in zip(uses, results, names, strict=True)
            for made in (line("assistant", use, id=name), line("user", result))
        ]
        assert scheduled(written(lines)).rounds == rounds


class Cells(vcrt.CallEnvironment):
    """A few cells, with tools that read, set, add and take; refusals and outputs depend on what others did."""

    name = "cells of batches"

    def reset(self, initial):
        return {"cells": [0, 1], "log": []}

    def call(self, state, name, arguments):
        cells, at, by = state["cells"], arguments["cell"], arguments.get("by", 0)
        if name == "get":
            return cells[at]
        if name == "take":
            if cells[at] < by:
                raise vcrt.CallRefused(f"no {by}")
            cells[at] -= by
        elif name == "claim":  # a refusal that leaves something behind
            if state["log"]:
                cells[at] += by
                raise vcrt.CallRefused("claimed")
            state["log"].append(at)
        elif name == "set":
            cells[at] = by
        elif name == "swap":
            cells.reverse()
        else:
            cells[at] += by
        return "done"


def draw_log(seed):
    """Messages of one to four random calls, without outputs."""
    draw = generator(seed, "logs of batches")
    lines, number = [], 0
    for size in (1, 2 + int(draw.integers(3)), 1 + int(draw.integers(2))):
        calls = []
        for _ in range(size):
            name = ["get", "get", "add", "add", "take", "set", "swap", "claim"][
                int(draw.integers(8))
            ]
            given = {"cell": int(draw.integers(2)), "by": int(draw.integers(3))}
            calls.append((f"c{number}", name, given, None))
            number += 1
        lines += [line for line in openai(calls) if line["role"] == "assistant"]
    return lines


def outcome(environment, episode, sequence):
    """The state and the outputs from a fresh start, call by call; a refusal is an output, and the others still run."""
    state, outputs = environment.initial_state(episode), {}
    for call in sequence:
        answer = environment.step(state, episode.operations[call])
        if isinstance(answer, Rejected):
            outputs[call] = f"refused: {answer.reason}"
        else:
            state, outputs[call] = answer.state, answer.output
    return environment.canonical(state), outputs


@pytest.mark.parametrize("sampled", [False, True], ids=["of the trace", "by itself"])
def test_batches_are_what_brute_force_finds(written, sampled):
    seen = {"safe": 0, "conflict": 0, "partly safe": 0, "behind others": 0, "by itself": 0}
    seen["behind a refusal"] = 0
    environment = Cells()
    for seed in range(60):
        (trace,) = read_traces(written(draw_log(seed)))
        ran = run_trace(environment, trace, 0, source="a test")
        episode = ran.windows[0].episode
        (replays,) = replay_lattices(environment, [episode], sampled=sampled)
        sent = order_of_log(ran.trace, range(episode.num_operations))
        tests = BatchTests(environment, replays, sent)
        for calls in batches_of(sent):
            batch = tests.test(calls, place="here", raced=False)
            assert batch.complete
            assert batch.problem is None
            before = tuple(range(calls.start))
            ends = {
                each: outcome(environment, episode, (*before, *each))
                for each in permutations(calls)
            }
            reference = ends[tuple(calls)]
            all_alike = all(end == reference for end in ends.values())
            assert all_alike == (batch.safe == batch.calls) == (not batch.conflicts), seed
            seen["behind a refusal"] += any(
                "refused" in str(each) for _, outputs in ends.values() for each in outputs.values()
            )
            for call in batch.safe:
                # Wherever it runs among the others, all is the same.
                by_others = {}
                for each, end in ends.items():
                    rest = tuple(n for n in each if n != call)
                    assert by_others.setdefault(rest, end) == end, (seed, call, each)
            for conflict in batch.conflicts:
                pair = conflict.calls
                context = conflict.certificate.context
                assert set(context) - set(before) <= set(calls) - set(pair)
                both = [
                    outcome(environment, episode, (*context, *each)) for each in (pair, pair[::-1])
                ]
                assert both[0] != both[1], (seed, pair)
                seen["behind others"] += len(context) > len(before)
            assert not batch.not_compared
            seen["safe"] += all_alike
            seen["conflict"] += bool(batch.conflicts)
            seen["partly safe"] += bool(batch.conflicts) and bool(batch.safe)
        seen["by itself"] += len(tests.answers.by_sequence) > len(replays.tree)
    assert all(seen[key] > 1 for key in seen if key != "by itself"), seen
    assert (seen["by itself"] > 2) == sampled, seen


def test_what_the_time_limit_leaves_open_keeps_the_order_of_the_log(written, capsys):
    messages = [[look("l0", "tea", 3), look("l1", "rice", 1)], [order("o", "tea", "ann")]]
    path = written(openai(*messages, [look("l2", "rice", 1)]))
    given = (path, "--environment", f"{SHOP}:Shop", "--jobs", "1", "--within")
    code, out, _ = run(capsys, "schedule", *given, "1e-9")
    assert code == 0
    assert "4 calls in 3 rounds in the log; fewer may do, with more time\n" in out
    assert "  0 and 1 are safe if done as a whole: the same in every order, in 1 context" in out
    (stopped,) = [line for line in out.splitlines() if line.startswith("stopped")]
    assert stopped == (
        "stopped after 0 s (--within): 3 pairs not settled, and kept in the log's order: 0 and 2, 1 and 2, 2 and 3"
    )
    assert "only 1 order could be tested from fresh states in time (--within)\n" in out
    _, out, _ = run(capsys, "schedule", *given, "1e-9", "--json")
    (found,) = json.loads(out)
    assert (found["stopped_after"], found["complete"]) == (1e-9, True)
    assert found["waves"] == [[0, 1], [2], [3]]
    assert {edge["kind"] for edge in found["edges"]} == {"not settled"}
    code, _, error = run(capsys, "schedule", *given, "0")
    assert code == 2
    assert "within 0" in error


def test_rounds_that_the_time_limit_leaves_open_are_not_said_to_be_needed(written, capsys):
    together = [look("l0", "tea", 3), order("o", "tea", "ann")]
    path = written(openai(together, [look("l1", "rice", 1)]))
    given = ("schedule", path, "--environment", f"{SHOP}:Shop", "--jobs", "1")
    _, out, _ = run(capsys, *given, "--within", "1e-9")
    assert (
        "3 calls in 2 rounds in the log; 3 here, as some of what was sent together conflicts or is not "
        "settled\n" in out
    )
    _, out, _ = run(capsys, *given)
    assert "3 calls in 2 rounds in the log; no fewer would do\n" in out


class Alarms(vcrt.CallEnvironment):
    """A door whose refusal rings an alarm."""

    name = "alarms"

    def reset(self, initial):
        return {"locked": False, "alarms": 0}

    def call(self, state, name, arguments):
        if name == "lock":
            state["locked"] = True
        elif name == "open" and state["locked"]:
            state["alarms"] += 1
            raise vcrt.CallRefused("locked")
        return state["alarms"] if name == "count_alarms" else "done"


def test_a_call_that_sees_what_a_refused_one_leaves_behind_is_not_safe(written, capsys):
    message = [("a", "open", {}, "done"), ("b", "lock", {}, "done"), ("c", "count_alarms", {}, 0)]
    (batch,) = scheduled(written(openai(message)), Alarms).batches
    assert batch.safe == ()
    assert [each.calls for each in batch.conflicts] == [(0, 1), (0, 2)]
    assert batch.conflicts[0].certificate.verdict == "precedes"
    behind = batch.conflicts[1].certificate
    assert (behind.context, behind.verdict) == ((1,), "observes")
    assert [each.to_json() for each in batch.conflicts[1].difference] == [
        {"call": 2, "where": "output", "forward": "1", "reverse": "0"}
    ]


def test_no_call_is_safe_beside_one_of_an_earlier_part_that_was_still_waited_for(written):
    def output(identifier, value):
        return {"role": "tool", "tool_call_id": identifier, "content": json.dumps(value)}

    def sent(*calls):
        return [line for line in openai([*calls]) if line["role"] == "assistant"]

    tea, rice, milk = ({"item": i, "left": n} for i, n in (("tea", 8), ("rice", 1), ("milk", 0)))
    path = written(
        [
            *sent(deliver("a", "tea", 5)),
            *sent(look("p", "milk", 0)),
            output("p", milk),
            *sent(look("n", "tea", 8), look("m", "rice", 1)),
            *(output(*each) for each in (("n", tea), ("m", rice), ("a", "delivered"))),
            *sent(look("q", "milk", 0)),
            output("q", milk),
        ]
    )
    first, second = vcrt.schedule(path, environment=Shop, jobs=1, window=4)
    assert [(b.calls, b.safe, b.num_cut) for b in first.batches] == [((0, 1, 2, 3), (1, 3), 0)]
    assert [(b.calls, b.safe, b.num_cut) for b in second.batches] == [((1, 2), (), 1)]
