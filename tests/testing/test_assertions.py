"""``vcrt.testing`` by itself: what passes is what all orders give, and what gives no answer is an error."""

from __future__ import annotations

import itertools
import json
import random
import time
import warnings
from functools import partial

import pytest

import vcrt
from vcrt.api.annotating import annotate
from vcrt.environments.tool_calls import Tool
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.testing import VcrtWarning, assert_commutes, assert_declared, sessions


class Shop:
    def __init__(self, initial=None):
        self.left = {"tea": 3, "rice": 1, **(initial or {})}

    def look(self, item: str):
        return {"left": self.left[item]}

    def order(self, item: str):
        if self.left[item] < 1:
            raise ValueError(f"no {item} left")
        self.left[item] -= 1
        return "done"

    def fill(self, item: str, number: int):
        self.left[item] = number

    def note(self):
        self.left["time"] = time.time_ns()


SHOP = vcrt.tools_environment(Shop)
TEA, RICE = {"item": "tea"}, {"item": "rice"}


class Declared(vcrt.CallEnvironment):
    name = "declared"
    refusals = (ValueError,)

    def reset(self, initial):
        return Shop(initial)

    def call(self, state, name, arguments):
        return vcrt.call_method(state, name, arguments)

    def tools(self):
        return (
            Tool(name="look", read_only=True),
            Tool(name="order", read_only=False, idempotent=True),
            Tool(name="fill", idempotent=True),
        )


class Untrue(Declared):
    def tools(self):
        return (Tool(name="look", read_only=True), Tool(name="order", read_only=True))


class Beside(Declared):
    """Declares all tools but one as fit to run beside each other."""

    def tools(self):
        return (
            *(Tool(name=name, sequential=False) for name in ("look", "order")),
            Tool(name="fill", sequential=True),
        )


class Event:
    """Each tool but the first takes what the one before it gave."""

    def __init__(self):
        self.title, self.uses = None, 0

    def make(self, title: str):
        self.title = title
        return {"id": "ev-0a1b2c3d"}

    def open(self, event: str):
        if self.title is None:
            raise ValueError("no such event")
        return {"key": f"key of {self.title}"}

    def use(self, key: str):
        if self.title is None:
            raise ValueError("no such key")
        self.uses += 1
        return self.uses


class Events(Declared):
    def reset(self, initial):
        return Event()

    def tools(self):
        return [Tool(name=name, sequential=False) for name in ("make", "open", "use")]


class Ignoring(Declared):
    ignored = frozenset({"left"})

    def tools(self):
        return (Tool(name="order", read_only=True),)


class Unlisted(Declared):
    def tools(self):
        raise KeyError("gone")


class Twice(Declared):
    def tools(self):
        return (Tool(name="order", read_only=True), Tool(name="order", read_only=False))


class NoTools(Declared):
    def tools(self):
        return ({"name": "order", "readOnlyHint": True},)


def as_factory():
    return Declared()


@pytest.mark.parametrize("environment", [SHOP, Declared, as_factory, f"{__file__}:Declared"])
def test_calls_that_commute_pass(environment):
    assert_commutes(
        environment, [("order", TEA), ("order", RICE), ("fill", {"item": "oil", "number": 2})]
    )


def test_a_failure_shows_both_orders_and_what_differs():
    with pytest.raises(AssertionError) as raised:
        assert_commutes(SHOP, [("look", TEA), ("fill", {**RICE, "number": 2}), ("order", RICE)])
    text = str(raised.value)
    for expected in (
        'calls: two orders differ: fill(item="rice", number=2) and order(item="rice")',
        "from the start:",
        'fill(item="rice", number=2)                          | order(item="rice")',
        '  gives "done"                                       |   gives null',
        'state.left["rice"]',
        "    1                                                |     2",
    ):
        assert expected in text, text
    assert "further" not in text


def test_a_refusal_in_one_order_is_shown():
    calls = [("fill", {**RICE, "number": 1}), ("order", RICE)]
    with pytest.raises(AssertionError, match="is refused: no rice left"):
        assert_commutes(SHOP, calls, initial={"rice": 0})


class Machine:
    """Two registers; each operation is drawn."""

    def __init__(self):
        self.cells = [0, 1]

    def do(self, kind: str, at: int, value: int):
        if kind == "add":
            self.cells[at] += value
        elif kind == "set":
            self.cells[at] = value
        elif kind == "need" and self.cells[at] < value:
            raise ValueError("too small")
        return self.cells[at] if kind == "read" else "ok"


MACHINE = vcrt.tools_environment(Machine)


def differs(calls):
    """Run every order, and tell whether two end apart; what the first order refuses is an output."""
    found = set()
    for order in itertools.permutations(range(len(calls))):
        machine, outputs = Machine(), {}
        for k in order:
            try:
                outputs[k] = machine.do(**calls[k][1])
            except ValueError as error:
                outputs[k] = f"refused: {error}"
        found.add(json.dumps([machine.cells, [outputs[k] for k in range(len(calls))]]))
    return len(found) > 1


def test_it_passes_exactly_if_all_orders_end_alike():
    draw, seen = random.Random(5), {True: 0, False: 0}
    while min(seen.values()) < 6:
        number = draw.choice([2, 3, 3, 6])
        calls = [
            (
                "do",
                {
                    "kind": draw.choice(["add", "add", "set", "need", "read"]),
                    "at": draw.randrange(2),
                    "value": draw.randrange(2),
                },
            )
            for _ in range(number)
        ]
        expected = differs(calls)
        if seen[expected] >= 6:
            continue
        seen[expected] += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VcrtWarning)
            if expected:
                with pytest.raises(AssertionError, match="two orders differ"):
                    assert_commutes(MACHINE, calls)
            else:
                assert_commutes(MACHINE, calls)


def test_a_log_is_taken_as_it_is(tmp_path):
    log = tmp_path / "log.jsonl"
    line = {"name": "order", "arguments": TEA, "output": "done"}
    log.write_text(json.dumps(line) + "\n" + json.dumps({**line, "arguments": RICE}))
    assert_commutes(SHOP, log)
    log.write_text(json.dumps(line) + "\n" + json.dumps({**line, "output": "other"}))
    with pytest.raises(MalformedInputError, match="not the one that was logged"):
        assert_commutes(SHOP, str(log))
    with pytest.raises(MalformedInputError, match="was given beside a log"):
        assert_commutes(SHOP, log, initial={})


@pytest.mark.parametrize(
    ("environment", "calls", "message"),
    [
        (SHOP, [("note", {}), ("look", TEA)], "replay is deterministic"),
        (SHOP, [("note", {}), *[("look", TEA)] * 6], "replay is deterministic"),
        (SHOP, [("lok", TEA), ("look", TEA)], "unknown tool 'lok'\n  where: calls, call 0 lok"),
        (SHOP, [("look", TEA)], "1 call\n"),
        (SHOP, [("look", TEA)] * 65, "65 calls"),
        (SHOP, [("look", TEA), "look"], "something that is no call\n  where: call 1"),
        (SHOP, 5, "something that is no call\n  where: calls"),
        (SHOP, [("look", TEA), ("look", {"item": {1, 2}})], "arguments that are no JSON"),
        (SHOP, [("look", TEA), ("look", {"itm": "tea"})], "no tool of the environment takes"),
        (SHOP, "missing.jsonl", "no log there"),
        (Shop, [("look", TEA), ("look", RICE)], "give vcrt.tools_environment"),
        (SHOP(), [("look", TEA), ("look", RICE)], "the class and not an object"),
        ("missing.py:SHOP", [("look", TEA), ("look", RICE)], "no file missing.py"),
    ],
)
def test_what_gives_no_answer_is_an_error(environment, calls, message):
    with pytest.raises(VcrtError) as raised:
        assert_commutes(environment, calls)
    assert message in str(raised.value)
    assert "calls.json" not in str(raised.value)


def test_an_argument_that_another_call_gave_excuses_no_order(tmp_path):
    """A schedule keeps a data flow of a log; here all orders are asked for."""
    lines = [{"name": "do", "arguments": {"kind": "set", "at": 0, "value": 4711}}] * 2
    lines += [{"name": "do", "arguments": {"kind": "read", "at": 0, "value": 0}, "output": 4711}]
    lines += [{"name": "do", "arguments": {"kind": "add", "at": 1, "value": 4711}}] * 4
    log = tmp_path / "log.jsonl"
    log.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(AssertionError, match="two orders differ"):
        assert_commutes(MACHINE, log)
    log.write_text("\n".join(map(json.dumps, lines[3:] + lines[3:5])))
    assert_commutes(MACHINE, log)


class Keys:
    def __init__(self):
        self.kept = {}

    def put(self, key: str):
        self.kept[key] = 1

    def keys(self):
        return list(self.kept)


def test_a_tool_that_lists_keys_as_they_came_in_is_told_of_their_order():
    calls = [("put", {"key": "a"}), ("put", {"key": "b"}), ("keys", {})]
    with pytest.raises(VcrtError, match="say key_order=True"):
        assert_commutes(vcrt.tools_environment(Keys), calls)
    with pytest.raises(AssertionError, match="two orders differ"):
        assert_commutes(vcrt.tools_environment(Keys, key_order=True), calls)


def test_calls_that_change_nothing_to_be_seen_are_a_warning():
    with pytest.warns(VcrtWarning, match="none of 2 calls changed anything"):
        assert_commutes(SHOP, [("look", TEA), ("look", RICE)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_commutes(Declared, [("look", TEA), ("look", RICE)])  # declared as reading


def test_a_declaration_that_replay_contradicts_fails_with_its_witness():
    with pytest.raises(AssertionError) as raised:
        assert_declared(Untrue, [("look", TEA), ("order", RICE)])
    assert "order: readOnlyHint true is contradicted" in str(raised.value)
    assert 'order(item="rice")' in str(raised.value)
    with pytest.raises(AssertionError, match="idempotentHint true is contradicted"):
        assert_declared(Declared, [("order", TEA), ("order", TEA)])


def test_calls_declared_to_run_beside_others_fail_where_their_order_matters():
    fill = ("fill", {**RICE, "number": 7})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_declared(Beside, [("look", TEA), ("order", RICE), fill])
    with pytest.raises(AssertionError) as raised:
        assert_declared(Beside, [("look", RICE), ("order", RICE), fill])
    said = str(raised.value)
    for tool in ("look", "order"):
        assert f"{tool}: sequential false is contradicted: gave another state or output" in said
    assert 'such as look(item="rice") and order(item="rice") first in' in said
    assert "fill" not in said
    with pytest.warns(VcrtWarning) as warned:
        assert_declared(Beside, [("look", TEA), ("fill", {**RICE, "number": 7})])
    assert sorted(str(each.message).partition(" is ")[0] for each in warned) == [
        "fill: sequential",
        "look: sequential",
        "order: sequential",
    ]


def test_a_call_that_waits_for_an_output_of_another_runs_beside_none(tmp_path):
    """No message has both: the id is not known before, nor what is asked for by what it gave."""
    made = {"name": "make", "arguments": {"title": "a"}, "output": {"id": "ev-0a1b2c3d"}}
    opened = {"name": "open", "arguments": {"event": "ev-0a1b2c3d"}, "output": {"key": "key of a"}}
    used = {"name": "use", "arguments": {"key": "key of a"}}
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(each) + "\n" for each in (made, opened, used)))
    with pytest.warns(VcrtWarning) as warned:
        assert_declared(Events, log)
    assert {str(each.message).partition(":")[0] for each in warned} == {"make", "open", "use"}
    log.write_text("".join(json.dumps(each) + "\n" for each in (made, opened, used, used)))
    with pytest.raises(AssertionError) as raised:
        assert_declared(Events, log)
    assert "use: sequential false is contradicted" in str(raised.value)
    assert "make" not in str(raised.value)


def test_what_the_replays_cannot_show_of_a_declaration_is_a_warning(monkeypatch):
    with pytest.warns(VcrtWarning, match=r"what the environment ignores \(left\)"):
        assert_declared(Ignoring, [("order", TEA), ("order", TEA)])
    monkeypatch.setattr("vcrt.testing.assertions.annotate", partial(annotate, within=1e-6))
    with pytest.warns(VcrtWarning, match="replayed in part, for lack of time"):
        assert_declared(Declared, [("look", TEA), ("order", RICE), ("fill", {**TEA, "number": 7})])


def test_a_declaration_that_is_not_tested_is_a_warning(tmp_path):
    with pytest.warns(VcrtWarning) as warned:
        assert_declared(Declared, [("look", TEA), *[("fill", {**TEA, "number": 7})] * 2])
    assert sorted(str(each.message).partition(" is ")[0] for each in warned) == [
        "order: idempotentHint",
        "order: readOnlyHint",
    ]
    log = tmp_path / "log.jsonl"
    log.write_text('{"name": "look", "arguments": {"item": "tea"}}\n' * 2)
    with pytest.warns(VcrtWarning, match="fill: idempotentHint"):
        assert_declared(Declared, [log, log])


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (SHOP, "no declaration that replay could contradict"),
        (Unlisted, "cannot list its tools"),
        (Twice, "two tools have the name 'order'"),
        (NoTools, "is no vcrt.environments.tool_calls.Tool"),
    ],
)
def test_an_environment_that_declares_nothing_is_an_error(environment, message):
    with pytest.raises(VcrtError, match=message):
        assert_declared(environment, [("look", TEA), ("look", RICE)])
    with pytest.raises(VcrtError, match="too few"):
        assert_declared(environment, [])


def test_processes_of_a_session_are_new_where_its_surroundings_are(monkeypatch, tmp_path):
    session = sessions.Session()
    first = session.run(lambda: session._context)
    assert session.run(lambda: session._context) is first
    monkeypatch.chdir(tmp_path)
    moved = session.run(lambda: session._context)
    assert moved is not first
    monkeypatch.setenv("VCRT_SHOP", "1")
    assert session.run(lambda: session._context) is not moved
    with pytest.raises(KeyboardInterrupt):
        session.run(lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    assert session._context is None
    session.end()
