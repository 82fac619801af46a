"""The example with asynchronous tools: what is certified to run at once ends as the log does."""

import importlib.util
from itertools import combinations
from pathlib import Path

import pytest

from vcrt.calls.schedules import Edge, Schedule

SENT = [
    [
        ("remember", {"key": "ann likes tea", "value": "yes"}),
        ("remember", {"key": "ann likes figs", "value": "no"}),
        ("send_message", {"person": "ann", "text": "about A-10"}),
    ],
    [("messages", {"person": "ann"})],
]
WAVES = ((0, 1, 2), (3,))
SEEN = ["kept", "kept", {"number": 1}, [[1, "about A-10"]]]


@pytest.fixture(scope="module")
def example():
    path = Path(__file__).parents[2] / "examples" / "parallel_calls.py"
    spec = importlib.util.spec_from_file_location("parallel_calls", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_example_finds_what_may_run_at_once(example):
    (schedule,) = example.scheduled([SENT])
    assert schedule.waves == WAVES
    assert example.ways(SENT, schedule)["waves"] == WAVES


def test_waves_end_as_the_log_does_if_tools_do_each_call_as_a_whole(example):
    with example.service(0.001):
        log = example.run([[0], [1], [2], [3]], SENT, example.Desk())[1:]
        assert log[0] == SEEN
        for _ in range(5):
            assert example.run(WAVES, SENT, example.Desk())[1:] == log
        assert example.run(((0, 1, 3), (2,)), SENT, example.Desk())[1:] != log
        # In steps, one of two updates is lost, although their order does not matter; or a file is read half-written.
        assert any(ends_otherwise(example, log) for _ in range(20))


def ends_otherwise(example, log):
    try:
        return example.run(WAVES, SENT, example.DeskInSteps())[1:] != log
    except ValueError:
        return True


def test_each_way_runs_each_call_once_and_keeps_the_order_of_calls_that_wait(example):
    for seed in range(50):
        sent = example.conversation(seed)
        number = sum(map(len, sent))
        assert 5 <= number <= 12
        assert sent == example.conversation(seed)
        waiting = [(a, b) for a, b in combinations(range(number), 2) if (a + b + seed) % 3 == 0]
        edges = tuple(Edge(first=a, second=b, kind="conflicts") for a, b in waiting)
        schedule = Schedule(num_steps=number, edges=edges, complete=True)
        for way, rounds in example.ways(sent, schedule).items():
            place = {call: n for n, calls in enumerate(rounds) for call in calls}
            assert sorted(place) == sorted(c for calls in rounds for c in calls) == [*range(number)]
            if way != "at once":
                assert all(place[a] < place[b] for a, b in waiting)
