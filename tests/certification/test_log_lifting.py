"""How a trace of a log is run and compared: raced calls, texts like numbers, orders of keys, and where data flows."""

from __future__ import annotations

import json

import pytest

import vcrt
from vcrt.api.logs import _cause_of_difference
from vcrt.calls.call_logs import read_traces, same_output
from vcrt.calls.data_flow import data_flow
from vcrt.calls.log_lifting import run_trace
from vcrt.environments.conformance import validate_episodes
from vcrt.environments.conformance_checks import DETERMINISTIC, SINGLE_STEPS
from vcrt.environments.shared_prefixes import as_values
from vcrt.environments.tool_calls import Span
from vcrt.environments.written import episode_of
from vcrt.replay.evidence import episode_from_json, episode_to_json
from vcrt.replay.shards import difference_of, replays_of


class Desk(vcrt.CallEnvironment):
    """Stock of a shop, notes, and tools that say what they were given."""

    name = "desk"

    def reset(self, initial):
        return {"stock": initial or {"tea": 3, "rice": 1}, "orders": []}

    def call(self, state, name, arguments):
        return getattr(self, name)(state, **arguments)

    def look(self, state, item):
        return {"item": item, "left": state["stock"].get(item, 0)}

    def order(self, state, item):
        if state["stock"].get(item, 0) < 1:
            raise vcrt.CallRefused(f"no {item}")
        state["stock"][item] -= 1
        state["orders"] = sorted([*state["orders"], item])
        return {"order": f"{item}-{100 + len(state['orders'])}"}

    def pay(self, state, order):
        return f"paid {order}"

    def echo(self, state, **given):
        return json.dumps(given)

    def items(self, state):
        return list(state["stock"])


def chat(*messages):
    """A trace of messages: of calls by identifier, of outputs by identifier, of what somebody says."""
    for message in messages:
        match message:
            case str():
                yield {"role": "assistant", "content": message}
            case (str(identifier), output):
                yield {"role": "tool", "tool_call_id": identifier, "content": json.dumps(output)}
            case dict():
                calls = [
                    {"id": key, "function": {"name": name, "arguments": json.dumps(given)}}
                    for key, (name, given) in message.items()
                ]
                yield {"role": "assistant", "tool_calls": calls}


@pytest.fixture
def lifted(tmp_path):
    def lift(lines, environment=None, **options):
        path = tmp_path / "log.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        (trace,) = read_traces(path)
        return run_trace(environment or Desk(), trace, 0, source="test", **options)

    return lift


LOOK, ORDER = ("look", {"item": "tea"}), ("order", {"item": "tea"})
LEFT = {"item": "tea", "left": 2}


@pytest.mark.parametrize("answers", [["b", "a"], ["a", "b"]])
def test_calls_of_one_message_that_raced_are_taken_in_the_order_that_explains_them(lifted, answers):
    outputs = {"a": LEFT, "b": {"order": "tea-101"}}
    said = chat(
        {"a": LOOK, "b": ORDER},
        *((each, outputs[each]) for each in answers),
        {"c": LOOK},
        ("c", LEFT),
    )
    run = lifted(said)
    assert run.departure is None
    assert [call.name for call in run.trace.calls] == ["order", "look", "look"]
    assert "log.jsonl:1: calls 0 to 1 were waited for at once, and raced" in run.warning
    assert 'order(item="tea"), look(item="tea")' in run.warning
    (window,) = run.windows
    assert [operation.payload["name"] for operation in window.episode.operations] == [
        "order",
        "look",
        "look",
    ]


def test_a_race_is_found_among_several_and_in_later_messages(lifted):
    # Ordered third, answered with the second number.
    first = {"a": ORDER, "b": LOOK, "c": ("order", {"item": "rice"})}
    answers = [
        ("c", {"order": "rice-101"}),
        ("a", {"order": "tea-102"}),
        ("b", {"item": "tea", "left": 3}),
    ]
    second = {"d": LOOK, "e": ORDER}
    more = [("e", {"order": "tea-103"}), ("d", {"item": "tea", "left": 1})]
    run = lifted(chat(first, *answers, second, *more))
    assert run.departure is None
    names = [(call.name, call.arguments["item"]) for call in run.trace.calls]
    assert names[:3] in (
        [("order", "rice"), ("look", "tea"), ("order", "tea")],
        [("look", "tea"), *[("order", i) for i in ("rice", "tea")]],
    )
    assert [name for name, _ in names[3:]] == ["order", "look"]
    assert len(run.raced) == 2


@pytest.mark.parametrize(
    "said",
    [
        [{"a": LOOK}, ("a", LEFT), {"b": ORDER}, ("b", {"order": "tea-101"})],
        [{"a": LOOK, "b": ORDER}, ("b", {"order": "tea-101"}), ("a", {"item": "tea", "left": 1})],
    ],
    ids=["one after the other", "no order explains it"],
)
def test_what_did_not_race_is_another_environment(lifted, said):
    run = lifted(chat(*said))
    assert run.departure.place == 0
    assert run.raced == ()


@pytest.mark.parametrize(
    ("logged", "output"),
    [
        ("1.10", "1.1"),
        ("12e3", "120e2"),
        ("01", "1"),
        ("1.10", 1.1),
        ("NaN", "nan"),
        ("true", "True"),
    ],
)
def test_texts_like_numbers_are_compared_as_texts(logged, output):
    assert not same_output(json.dumps(logged), json.dumps(output))
    assert not same_output(
        json.dumps({"content": [{"type": "text", "text": logged}]}), json.dumps(output)
    )


@pytest.mark.parametrize(
    ("logged", "output"),
    [
        ("1.1", 1.1),
        ("12e4567", "12e4567"),
        ("true", True),
        ("null", None),
        ('{"a": 1}', {"a": 1}),
        ("7", 7),
    ],
)
def test_what_json_writes_of_a_value_is_the_value(logged, output):
    assert same_output(json.dumps(logged), json.dumps(output))


def test_both_replays_give_tools_the_keys_in_the_order_of_the_log(lifted):
    given = {"order": {"sku": "tea", "count": 2, "at": [{"b": 1, "a": 2}]}, "by": "ann"}
    lines = [
        {"initial": {"tea": 3, "rice": 1}},
        {"name": "echo", "arguments": given, "output": json.dumps(given)},
        {"name": "items", "arguments": {}, "output": ["tea", "rice"]},
        {"name": "look", "arguments": {"item": "tea"}},
    ]
    for window in (None, 2):
        run = lifted(lines, window=window)
        assert run.departure is None
        for lifted_window in run.windows:
            episode = lifted_window.episode
            reread = episode_from_json(
                json.loads(json.dumps(episode_to_json(episode), sort_keys=True))
            )
            (first,) = replays_of(Desk(), [episode])
            (second,) = replays_of(Desk(), [reread], backwards=True)
            assert difference_of(first, second) is None
            assert reread.content_hash() == episode.content_hash()
            assert Desk().describe(reread.operations[0]) == Desk().describe(episode.operations[0])
    reversed_keys = [
        {"name": "echo", "arguments": dict(reversed(given.items())), "output": json.dumps(given)}
    ]
    assert lifted([*reversed_keys, lines[-1]]).departure is None  # JSON that is equal


def test_keys_that_are_sorted_leave_the_episode_as_it_was(lifted):
    run = lifted([{"name": "echo", "arguments": {"a": {"b": 1, "c": [2]}, "d": 3}}] * 2)
    (window,) = run.windows
    assert [set(o.payload) for o in window.episode.operations] == [{"name", "arguments"}] * 2
    assert set(window.episode.initial) == {"state"}


def test_reset_gets_a_copy_of_what_the_log_begins_with(lifted):
    # Sorted, so that nothing makes a new mapping for the order of its keys.
    lines = [{"initial": {"rice": 1, "tea": 3}}, {"name": "order", "arguments": {"item": "tea"}}]
    run = lifted([*lines, {"name": "look", "arguments": {"item": "tea"}}])
    (window,) = run.windows
    before = window.episode.content_hash()
    (found,) = replays_of(Desk(), [window.episode])
    assert found.tree.replay((0, 1)).accepted
    assert window.episode.content_hash() == before


class Appends(vcrt.CallEnvironment):
    """A tool that adds to the list that it is given."""

    name = "appends"

    def reset(self, initial):
        return {"calls": 0}

    def call(self, state, name, arguments):
        arguments["rows"].append(0)
        state["calls"] += 1
        return len(arguments["rows"])


def test_a_call_gets_a_copy_of_its_arguments(lifted):
    run = lifted(
        [{"name": "add", "arguments": {"rows": rows}} for rows in ([1], [1, 2])], Appends()
    )
    (window,) = run.windows
    before = window.episode.content_hash()
    (found,) = replays_of(Appends(), [window.episode])
    for order in ((0, 1), (1, 0)):
        replay = found.tree.replay(order)
        assert [replay.output_of[step] for step in (0, 1)] == ["2", "3"]
    assert window.episode.content_hash() == before


# Where data flows.


FOUND, PAID = {"order": "tea-101"}, "paid tea-101"
USE = {"b": ("pay", {"order": "tea-101"})}


@pytest.mark.parametrize(
    ("said", "flows"),
    [
        ([{"a": ORDER}, ("a", FOUND), USE, ("b", PAID)], True),
        ([{"a": ORDER}, ("a", FOUND), "I have tea-101 now.", USE, ("b", PAID)], True),
        (["I want tea-101.", {"a": ORDER}, ("a", FOUND), USE, ("b", PAID)], False),
        (["I want tea-1012, or x-tea-101.", {"a": ORDER}, ("a", FOUND), USE, ("b", PAID)], True),
        ([{"a": ORDER}, "It is tea-101, I guess.", ("a", FOUND), USE, ("b", PAID)], False),
        ([{"a": ORDER, **USE}, ("a", FOUND), ("b", PAID)], False),
    ],
    ids=["silent", "narrated", "known", "known in part", "said before", "asked for at once"],
)
def test_a_value_flows_from_the_output_that_has_it_first(lifted, said, flows):
    (window,) = lifted(chat(*said)).windows
    assert [(flow.first, flow.second) for flow in window.flows] == [(0, 1)] * flows


@pytest.mark.parametrize("window", [None, 2])
def test_a_value_flows_from_no_window_that_only_says_it_again(lifted, window):
    said = chat(
        {"a": ORDER},
        ("a", FOUND),
        USE,
        ("b", PAID),
        {"c": ("pay", {"order": "tea-101"})},
        ("c", PAID),
    )
    flows = [
        (w.first, flow.first, flow.second)
        for w in lifted(said, window=window).windows
        for flow in w.flows
    ]
    assert flows == ([(0, 0, 1), (0, 0, 2)] if window is None else [(0, 0, 1)])


@pytest.mark.parametrize(
    ("before", "value", "known"),
    [
        ("2140 at most", 214, False),
        ("from 1,214", 214, False),
        ("1214.5", 214, False),
        ("214.50 at most", 214, False),
        ("at 12:14", 14, False),
        ("for 214.", 214, True),
        ("(214)", 214, True),
        ("joanna", "ann", False),
        ("Ask ann, please", "ann", True),
        ("ann@x.org", "ann", False),
        ('{"who":"ann"}', "ann", True),
        ("/orders/a-17/lines", "a-17", True),
        ("new york", "new york", True),
        ("renew yorkshire", "new york", False),
    ],
)
def test_what_is_known_is_a_whole_word_or_number(before, value, known):
    found = data_flow([{}, {"x": value}], [json.dumps([value]), None], [[before], [before]])
    assert bool(found) is not known


@pytest.mark.parametrize(
    "output",
    [
        {"tea-101": 3},
        "made tea-101.",
        '[{"code": "tea-101"}]',
        {"a": ["tea-101"]},
        "x" * 9000 + " tea-101",
    ],
)
def test_a_value_is_found_wherever_an_output_has_it(output):
    assert data_flow([{}, {"x": "tea-101"}], [json.dumps(output), None])


def test_an_output_that_came_late_gives_nothing_to_what_was_asked_before():
    spans = [Span(made=0, answered=3), Span(made=1, answered=2), Span(made=4)]
    found = data_flow(
        [{}, {"x": "a-17"}, {"x": "b-18"}], ['"a-17 b-18"', '"b-18"', None], (), spans
    )
    assert [(flow.first, flow.second) for flow in found] == [(1, 2)]


# What snapshots lose, and what a clock does.


class Till(vcrt.CallEnvironment):
    """One whose snapshots leave out whether it is open."""

    name = "till"

    def reset(self, initial):
        return {"open": False, "sold": []}

    def call(self, state, name, arguments):
        if name == "open":
            state["open"] = True
        elif state["open"]:
            state["sold"] = sorted([*state["sold"], arguments["item"]])
        return "ok" if state["open"] else "closed"

    def canonical(self, state):
        return json.dumps(state["sold"]).encode()

    def snapshot(self, state):
        return list(state["sold"])

    def restore(self, snapshot):
        return {"open": False, "sold": list(snapshot)}


class Stamped(Till):
    """One that writes the time; as long as nobody takes snapshots it stands still."""

    now = 0

    def call(self, state, name, arguments):
        state["sold"] = sorted([*state["sold"], f"{name} at {Stamped.now}"])
        return "ok"

    def snapshot(self, state):
        Stamped.now += 1
        return super().snapshot(state)


class Drawer(vcrt.CallEnvironment):
    """One whose snapshots are those of a part of its state."""

    name = "drawer"

    def reset(self, initial):
        return {"open": False, "sold": []}

    def call(self, state, name, arguments):
        state["open"] = True
        return "ok"

    def snapshot(self, state):
        return super().snapshot(state["sold"])

    def restore(self, snapshot):
        return {"open": False, "sold": super().restore(snapshot)}


def test_a_snapshot_of_a_part_does_not_stand_for_the_whole_state(lifted):
    window = lifted([{"name": "open", "arguments": {}}] * 2, Drawer()).windows[0]
    values = as_values(Drawer())
    start = values.initial_state(window.episode)
    opened = values.step(start, window.episode.operations[0]).state
    assert values.canonical(start) != values.canonical(opened)


LINES = [
    {"name": "open", "arguments": {}},
    *({"name": "sell", "arguments": {"item": item}} for item in "ab"),
]


def test_what_a_restored_start_loses_is_seen_by_the_second_replay(lifted):
    window = lifted(LINES, Till(), window=2).windows[1]
    (second,) = replays_of(Till(), [window.episode], backwards=True)
    assert second.tree.replay((1, 0)).outputs == ('"ok"', '"ok"')
    (first,) = replays_of(Till(), [window.episode])
    assert difference_of(first, second) is not None


def test_snapshots_are_blamed_only_if_replays_without_them_agree(lifted):
    for kind, check, cause in (
        (Till, SINGLE_STEPS, "let snapshot and restore"),
        (Stamped, DETERMINISTIC, "clock or chance"),
    ):
        (window,) = lifted(LINES, kind()).windows
        failed = [
            each for each in validate_episodes(kind(), "log", [window.episode]) if not each.passed
        ]
        assert check in [each.check for each in failed]
        assert ({SINGLE_STEPS, DETERMINISTIC} - {check}).isdisjoint(each.check for each in failed)
        assert cause in _cause_of_difference(kind(), window.episode)


def test_replays_that_agree_by_now_are_no_matter_of_snapshots(lifted):
    (window,) = lifted(LINES[:2], Counter()).windows
    assert "another process" in _cause_of_difference(Counter(), window.episode)


class Counter(Till):
    def snapshot(self, state):
        return dict(state)

    def restore(self, snapshot):
        return dict(snapshot)


class Recipes(vcrt.WrittenEnvironment):
    name = "recipes"

    def reset(self, task):
        return {"task": json.dumps(task), "told": []}

    def call(self, state, name, arguments):
        state["told"] = sorted([*state["told"], json.dumps(arguments)])
        return [state["task"], json.dumps(arguments)]

    def solved(self, task, state):
        return True


def test_what_a_model_wrote_is_replayed_in_the_order_of_keys_of_its_record():
    task = {"wants": "tea", "has": "milk"}
    written = 'mix(second="a", first={"y": 1, "x": 2})\nmix(second="b", first="c")'
    episode = episode_of(Recipes(), task, Recipes().parse(task, written), written)
    reread = episode_from_json(json.loads(json.dumps(episode_to_json(episode), sort_keys=True)))
    (first,), (second,) = (replays_of(Recipes(), [each]) for each in (episode, reread))
    assert difference_of(first, second) is None


class TwoReadings(Desk):
    """Has a tool whose name ends like another one's behind a server's."""

    name = "two readings"

    def tools(self):
        return [vcrt.environments.tool_calls.Tool(name=name) for name in ("read", "db__read")]


def test_a_clients_name_that_fits_two_tools_is_refused_by_name(tmp_path):
    log = tmp_path / "log.jsonl"
    names = ("mcp__desk__db__read", "mcp__desk__db__read")
    log.write_text("".join(json.dumps({"name": n, "arguments": {}}) + "\n" for n in names))
    with pytest.raises(vcrt.errors.MalformedInputError) as raised:
        vcrt.schedule(log, environment=TwoReadings)
    message = str(raised.value)
    assert "a name fits two tools" in message
    assert "log.jsonl:1" in message
    assert "replace mcp__desk__db__read by the tool that was called: db__read or read" in message
