"""Which calls may be made again after their result was lost, against a world that is run by hand."""

from __future__ import annotations

import json
import uuid
from typing import ClassVar

import pytest

import vcrt
from command_line import ran
from vcrt.calls.retries import MAX_STATES, retry_again, retry_calls
from vcrt.cli.schedule import print_retries
from vcrt.environments.contract import Provenance
from vcrt.environments.tool_calls import Call, Tool, episode_of_calls, operations_of
from vcrt.randomness import generator


class Ledger(vcrt.CallEnvironment):
    """Accounts and notes, with tools that do not keep what they declare."""

    name = "ledger"

    def reset(self, initial):
        return {"money": {"ann": 5}, "notes": ["a"], "attempts": 0}

    def tools(self):
        said = {"set": (None, True), "add": (None, True), "get": (True, None), "peek": (True, True)}
        said |= dict.fromkeys(("drop", "charge", "refuse"), (None, None))
        return [Tool(name=name, read_only=r, idempotent=i) for name, (r, i) in said.items()]

    def call(self, state, name, arguments):
        match name:
            case "set":
                state["money"][arguments["who"]] = arguments["amount"]
                return "ok"
            case "add":
                state["money"][arguments["who"]] += arguments["amount"]
                return "ok"
            case "get":
                return dict(state["money"])
            case "peek":  # declared as a reading call
                state["attempts"] += 1
                return "peeked"
            case "drop":
                if arguments["note"] not in state["notes"]:
                    raise vcrt.CallRefused("no such note")
                state["notes"].remove(arguments["note"])
                return "dropped"
            case "charge":  # takes the money, and says that it failed
                state["money"]["ann"] -= 1
                raise vcrt.CallRefused("time-out of the gateway")
            case "refuse":
                raise vcrt.CallRefused("closed")


def written(path, calls):
    lines = [{"name": n, "arguments": a} | ({"output": o[0]} if o else {}) for n, a, *o in calls]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


REFUSED = {"error": "closed"}
CALLS = [
    ("set", {"who": "bob", "amount": 2}),
    ("add", {"who": "ann", "amount": 2}),
    ("get", {}),
    ("peek", {}),
    ("drop", {"note": "a"}),
    ("refuse", {}, REFUSED),
    ("charge", {}, {"error": "time-out of the gateway"}),
]


@pytest.mark.parametrize("redact", [False, True])
def test_each_call_is_judged_by_state_and_output(tmp_path, capsys, redact):
    log = written(tmp_path / "trace.jsonl", CALLS)
    (found,) = vcrt.retry(log, environment=Ledger, redact=redact)
    assert found.problem is None
    answers = {found.names[each.call].partition("(")[0]: each for each in found.calls}
    assert {name: each.answer for name, each in answers.items()} == {
        "set": "safe",
        "add": "other state",
        "get": "safe",
        "peek": "other state",
        "drop": "other output",
        "refuse": "not known",
        "charge": "other state",
    }
    assert "no such note" in answers["drop"].outputs[1] or redact
    assert set(found.contradicted) == {
        ("add", "idempotentHint", 1),
        ("peek", "readOnlyHint", 3),
        ("peek", "idempotentHint", 3),
    }
    (place,) = answers["add"].difference
    assert place.where.startswith('state["money"]' if not redact else "state")
    assert (place.forward, place.reverse) == (("hidden",) * 2 if redact else ("7", "9"))
    print_retries([found])
    text = capsys.readouterr().out
    assert "add: idempotentHint is declared, and call 1 changes the state again" in text
    assert ("dropped" in text) is not redact


def test_the_command_says_the_same(tmp_path):
    log = written(
        tmp_path / "trace.jsonl", [("deliver", {"item": "tea", "amount": 1}), ("list_orders", {})]
    )
    shop = "tests/support/shop.py:Shop"
    (found,) = json.loads(ran("retry", log, "--environment", shop, "--json").stdout)
    assert [each["answer"] for each in found["calls"]] == ["other state", "safe"]
    assert found["calls"][0]["difference"][0]["where"] == 'state["stock"]["tea"]'
    assert found["complete"]


def test_one_call_alone_can_be_judged(tmp_path):
    log = written(tmp_path / "trace.jsonl", CALLS[1:2])
    (found,) = vcrt.retry(log, environment=Ledger)
    assert [each.answer for each in found.calls] == ["other state"]


class Forgetful(Ledger):
    """Ignores what a later call can see."""

    ignored = frozenset({"seen"})

    def reset(self, initial):
        return Counter()

    def tools(self):
        return []

    def call(self, state, name, arguments):
        if name == "set":
            state.value, state.seen = arguments["value"], state.seen + 1
            return "ok"
        return state.seen


class Counter:
    def __init__(self):
        self.value, self.seen = 0, 0


@pytest.mark.parametrize("value", [1, 0])
def test_states_that_only_seem_equal_are_no_verdict(tmp_path, value):
    log = written(tmp_path / "trace.jsonl", [("set", {"value": value}), ("seen", {})])
    (found,) = vcrt.retry(log, environment=Forgetful)
    assert found.problem is not None
    assert "unequal_futures" in found.problem
    assert not found.calls


class Drawn(Ledger):
    def call(self, state, name, arguments):
        import uuid

        return str(uuid.uuid4())


def test_what_differs_by_itself_is_no_verdict(tmp_path):
    log = written(tmp_path / "trace.jsonl", [("get", {}), ("get", {"x": 1})])
    (found,) = vcrt.retry(log, environment=Drawn)
    assert found.problem is not None
    assert "nondeterministic" in found.problem
    with pytest.raises(vcrt.VcrtError, match="no call could be made again"):
        print_retries([found])


class Random(vcrt.CallEnvironment):
    """A world of few states: what each call does in each is drawn, refusals that change the state among it."""

    name = "random"

    def __init__(self, seed=0):
        draw = generator(seed, "world")
        self.table = [[[draw.integers(3) for _ in range(3)] for _ in range(3)] for _ in range(3)]

    def reset(self, initial):
        return {"at": 0}

    def call(self, state, name, arguments):
        after, output, refuses = self.table[int(name)][state["at"]]
        state["at"] = after
        if refuses == 2:
            raise vcrt.CallRefused(f"no {output}")
        return output


def by_hand(environment, before, names):
    """The state after calls, and what the last one gives; refusals are told from outputs."""
    state, given = {"at": before}, None
    for name in names:
        try:
            given = environment.call(state, name, {})
        except vcrt.CallRefused as error:
            given = str(error)
    return state["at"], given


def answer_by_hand(environment, before, name):
    (once, first), (twice, second) = (by_hand(environment, before, [name] * n) for n in (1, 2))
    if once != twice:
        return "other state"
    if first != second:
        return "other output"
    return "not known" if isinstance(first, str) and before == once else "safe"


def test_answers_of_random_worlds_are_those_of_running_them_by_hand():
    worse = ("not known", "safe", "other output", "other state")
    seen, several, judged = set(), 0, 0
    for seed in range(60):
        environment, draw = Random(seed), generator(seed, "log")
        names = [str(draw.integers(3)) for _ in range(4)]
        at, fails = 0, []
        for place, name in enumerate(names):
            at, given = by_hand(environment, at, [name])
            fails += [place] if isinstance(given, str) else []
        calls = [Call(name, {}) for name in names]
        episode = episode_of_calls(
            "random",
            "log",
            None,
            operations_of(calls, fails=fails),
            Provenance(source="test", generator="log", seed=seed),
        )
        cases = retry_calls(environment, episode)
        for one in cases:
            start, _ = by_hand(environment, 0, [names[k] for k in one.context])
            assert one.answer == answer_by_hand(environment, start, names[one.call])
        found, _ = retry_again(environment, episode, cases)
        assert [one.call for one in found] == [0, 1, 2, 3]
        for one in found:
            own, _ = by_hand(environment, 0, names[: one.call])
            least = answer_by_hand(environment, own, names[one.call])
            assert worse.index(one.answer) >= worse.index(least)
            assert 1 <= one.num_states <= min(3, MAX_STATES)
            several += one.num_states > 1
            seen.add(one.answer)
            judged += 1
    assert seen == set(worse)
    assert several > 10
    assert judged == 240


class Tickets(vcrt.CallEnvironment):
    """A call draws an id; another one closes what has it."""

    name = "tickets"
    ids: ClassVar = {"open": ""}

    def reset(self, initial):
        return {}

    def call(self, state, name, arguments):
        if name == "open":
            key = f"t-{uuid.uuid4().hex[:8]}"
            state[key] = arguments["text"]
            return key
        if name == "draw":
            return len(state)
        return state.pop(arguments["key"], None)


def test_a_call_that_is_made_again_draws_another_id(tmp_path):
    log = written(
        tmp_path / "log.jsonl",
        [
            ("open", {"text": "a"}, "t-11aa22bb"),
            ("draw", {}, 1),
            ("close", {"key": "t-11aa22bb"}, "a"),
        ],
    )
    (found,) = vcrt.retry(log, environment=Tickets)
    assert [each.answer for each in found.calls] == ["other state", "safe", "other output"]
