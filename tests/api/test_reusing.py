"""Which calls a cache could have answered, against a world that is run by hand."""

from __future__ import annotations

import json
import uuid
from types import MappingProxyType

import pytest

import vcrt
from command_line import run
from vcrt.errors import EnvironmentFailure
from vcrt.randomness import generator


class Shelf(vcrt.CallEnvironment):
    """Two places, each with a number."""

    name = "shelf"

    def reset(self, initial):
        return dict(initial or {"a": 0, "b": 0})

    def call(self, state, name, arguments):
        if name == "get":
            return state[arguments["at"]]
        before = state[arguments["at"]]
        state[arguments["at"]] = arguments["to"]
        return before


class Counting(Shelf):
    """It counts its answers, and the state's bytes do not show it."""

    def canonical(self, state):
        return json.dumps([state["a"], state["b"]]).encode()

    def reset(self, initial):
        return {**super().reset(initial), "asked": 0}

    def call(self, state, name, arguments):
        state["asked"] += 1
        return [state["asked"], super().call(state, name, arguments)]


def get(at):
    return "get", {"at": at}


def put(at, to):
    return "set", {"at": at, "to": to}


def written(path, *traces):
    lines = [
        {"id": f"t{k}", "calls": [{"name": n, "arguments": a} for n, a in calls]}
        for k, calls in enumerate(traces)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def by_hand(traces):
    """The calls whose answer an earlier one of the same state (of the same history) has, by running them."""
    states, histories, found = {}, {}, []
    for number, calls in enumerate(traces):
        state = {"a": 0, "b": 0}
        for k, (name, arguments) in enumerate(calls):
            call = json.dumps([name, arguments])
            before, history = json.dumps(state), json.dumps(calls[: k + 1])
            if name == "set":
                state[arguments["at"]] = arguments["to"]
            changes = json.dumps(state) != before
            here = (number, k)
            found.append(
                (
                    changes,
                    states.setdefault((before, call), here),
                    histories.setdefault(history, here),
                    here,
                )
            )
    return found


def test_the_keys_serve_what_equal_states_and_equal_histories_do(tmp_path):
    draw = generator(0, "reuse")
    served = 0
    for seed in range(12):
        calls = [get("a"), get("b"), put("a", 1), put("b", 1), put("a", 0)]
        traces = [
            [calls[int(draw.integers(len(calls)))] for _ in range(int(draw.integers(1, 7)))]
            for _ in range(3)
        ]
        found = vcrt.reuse([written(tmp_path / f"{seed}.jsonl", *traces)], environment=Shelf)
        names = [one.name for one in found]
        expected = iter(by_hand(traces))
        for one in found:
            for call in one.calls:
                changes, by_state, by_history, here = next(expected)
                assert call.changes == changes
                for place, shown in ((by_state, call.by_state), (by_history, call.by_history)):
                    assert shown == (None if place == here else (names[place[0]], place[1]))
                    served += shown is not None
    assert served > 20


def test_traces_of_one_name_are_told_apart(tmp_path):
    logs = [written(tmp_path / f"{each}.jsonl", [get("a"), get("b")]) for each in "ab"]
    first, second = vcrt.reuse(logs, environment=Shelf)
    assert first.name != second.name
    assert [call.by_history for call in second.calls] == [(first.name, 0), (first.name, 1)]


def test_what_the_state_leaves_out_is_an_error_and_no_answer(tmp_path):
    log = written(tmp_path / "log.jsonl", [get("a"), get("b"), get("a")])
    with pytest.raises(EnvironmentFailure, match="has different answers") as caught:
        vcrt.reuse([log], environment=Counting)
    assert "call 0 and" in str(caught.value)
    assert "call 2" in str(caught.value)


def test_the_command_says_what_may_be_served(tmp_path, capsys):
    log = written(
        tmp_path / "log.jsonl", [get("a"), put("b", 1), get("a"), put("b", 1), get("b")], [get("a")]
    )
    path = tmp_path / "shelf.py"
    path.write_text(
        "import vcrt\n\n\nclass Shelf(vcrt.CallEnvironment):\n    name = 'shelf'\n\n    def reset(self, initial):\n"
        "        return {'a': 0, 'b': 0}\n\n    def call(self, state, name, arguments):\n"
        "        if name == 'get':\n            return state[arguments['at']]\n"
        "        state[arguments['at']] = arguments['to']\n        return 'ok'\n"
    )
    code, out, _ = run(capsys, "reuse", log, "--environment", f"{path}:Shelf")
    assert code == 0
    assert "6 calls: a cache could serve 1 by the state, 1 by an identical history" in out
    assert "may be served the answer of 0 of " in out
    code, out, _ = run(capsys, "reuse", log, "--environment", f"{path}:Shelf", "--json")
    first, second = json.loads(out)
    keys = [call["key"] for call in first["calls"]]
    assert second["calls"][0]["key"] == keys[0]
    assert len({*keys}) == 5


class Tickets(vcrt.CallEnvironment):
    """Tickets with drawn numbers; `token` draws one and keeps nothing."""

    name = "tickets"
    ids = MappingProxyType({"create": "", "token": ""})

    def reset(self, initial):
        return {}

    def call(self, state, name, arguments):
        if name == "size":
            return len(state)
        if name == "show":
            return sorted(state)
        drawn = str(uuid.uuid4())
        if name == "create":
            state[drawn] = "open"
        return drawn


@pytest.mark.parametrize("seconds", [["token", "size"], ["size", "token", "size"]])
def test_a_drawn_id_is_never_served_and_nothing_that_may_show_it(tmp_path, seconds):
    calls = [(name, {}) for name in ("size", "token", "size", "create", "show", "show", "size")]
    path = written(tmp_path / "log.jsonl", calls, [*((name, {}) for name in seconds), *calls])
    first, second = vcrt.reuse([path], environment=Tickets)
    assert first.served == (2, 5)
    before = seconds.index("token")
    assert [k for k in second.served if k <= before] == [*range(before)]
    shown = len(seconds) + calls.index(("show", {}))
    assert shown not in second.served
    assert shown + 1 in second.served
    for k in second.served:
        name, _ = second.calls[k].by_state
        assert k < before or name == "t1"


def test_a_long_trace_is_one_and_serves_no_drawn_id_to_another(tmp_path):
    calls = [("create", {}), *[("size", {})] * 70, ("show", {}), ("show", {})]
    path = written(tmp_path / "log.jsonl", calls, calls)
    found = vcrt.reuse([path], environment=Tickets)
    assert [len(each.calls) for each in found] == [73, 73]
    for each in found:
        assert each.served == (*range(2, 71), 72)
        assert {each.calls[k].by_state[0] for k in each.served} == {each.name}
        assert each.calls[72].by_state == (each.name, 71)
