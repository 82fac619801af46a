"""The calls that a trace has before a window of it: made for each start, and never shared."""

from __future__ import annotations

from dataclasses import replace

import pytest

import vcrt
from vcrt.environments.tool_calls import Call, CallEnvironment, episode_of_calls, operations_of
from vcrt.errors import VerifierFailure


class Shelf(CallEnvironment):
    name = "shelf"

    def __init__(self):
        self.calls = []

    def reset(self, initial):
        return {"items": list(initial)}

    def call(self, state, name, arguments):
        self.calls.append(arguments["item"])
        if arguments["item"] == "refused":
            raise vcrt.CallRefused("no")
        state["items"].append(arguments["item"])
        return len(state["items"])


def window(*before, number=0, initial=("old",)):
    provenance = vcrt.Provenance(source="test", generator="test", seed=number)
    calls = operations_of([Call("put", {"item": "new"}), Call("put", {"item": "newer"})])
    made = episode_of_calls("shelf", "log", list(initial), calls, provenance)
    earlier = [{"name": "put", "arguments": {"item": item}} for item in before]
    return replace(made, initial={**made.initial, "before": earlier})


def test_the_calls_before_a_window_are_made_anew_for_each_start():
    shelf = Shelf()
    one, other = window("a", "b"), window("c", number=1)
    for _ in range(3):
        assert shelf.initial_state(one) == {"items": ["old", "a", "b"]}
        assert shelf.initial_state(other) == {"items": ["old", "c"]}
    assert shelf.calls == ["a", "b", "c"] * 3


def test_a_start_is_nobody_elses():
    shelf, episode = Shelf(), window("a")
    shelf.initial_state(episode)["items"].clear()
    assert shelf.initial_state(episode) == {"items": ["old", "a"]}


def test_another_window_of_the_same_name_is_another_window():
    shelf = Shelf()
    shelf.initial_state(window("a"))
    assert shelf.initial_state(window("b")) == {"items": ["old", "b"]}
    assert shelf.initial_state(window("b", initial=["x"])) == {"items": ["x", "b"]}


def test_a_refused_call_before_the_window_is_no_start():
    with pytest.raises(VerifierFailure, match="before the window is refused"):
        Shelf().initial_state(window("refused"))
