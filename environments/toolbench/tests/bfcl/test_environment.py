"""The simulators of BFCL as an environment: what they answer, which episodes come of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from call_oracle import kept_pair, legal_orders
from vcrt.environments.conformance import validate
from vcrt.environments.contract import Accepted, Operation, Rejected, ReplayRequest
from vcrt.environments.tool_calls import CallRefused
from vcrt.errors import MalformedInputError, UnavailableError

pytest.importorskip("bfcl_eval", reason="pip install --no-deps bfcl-eval==2026.3.23")

from vcrt_toolbench.bfcl import environment as module
from vcrt_toolbench.bfcl.environment import BfclEnvironment

BFCL = BfclEnvironment()
SINGLE = [s.name for s in BFCL.schemas if s.preset == "paper"]
FILES = {"a.txt": {"type": "file", "content": "b\na"}, "sub": {"type": "directory", "contents": {}}}


def files(contents=FILES):
    root = {"root": {"home": {"type": "directory", "contents": contents}}}
    return BFCL.reset(
        {
            "involved_classes": ["GorillaFileSystem"],
            "initial_config": json.dumps({"GorillaFileSystem": root}),
        }
    )


@pytest.mark.parametrize("seed", [3, pytest.param(2**40 + 1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("schema", SINGLE)
def test_half_of_the_orders_of_four_calls_are_legal(schema, seed) -> None:
    episode = BFCL.sample(schema, seed)
    orders = legal_orders(BFCL, episode)
    assert len(orders) == 12
    assert kept_pair(orders) is not None
    assert BfclEnvironment().sample(schema, seed) == episode


def test_a_schema_of_reads_changes_outputs_alone() -> None:
    episode = BFCL.sample("reads", 5)
    one, other = kept_pair(legal_orders(BFCL, episode))
    rest = [step for step in range(4) if step not in (one, other)]
    there, back = BFCL.replay(
        [ReplayRequest(episode, (*rest, *pair)) for pair in ((one, other), (other, one))]
    )
    assert there.terminal_hash == back.terminal_hash
    assert there.output_of != back.output_of


@pytest.mark.parametrize("schema", ["posets6", "posets8", "trajectory"])
def test_longer_episodes_are_accepted(schema) -> None:
    episode = BFCL.sample(schema, 7)
    order = tuple(range(episode.num_operations))
    assert BFCL.replay([ReplayRequest(episode, order)])[0].accepted
    assert episode.num_operations == (BFCL.schema(schema).num_steps or episode.num_operations)


def test_episodes_say_how_they_were_put_together() -> None:
    episodes = [BFCL.sample("vehicle", seed) for seed in range(12)]
    made = {episode.provenance.generator: episode for episode in episodes}
    assert set(made) == {"bfcl.window/1", "bfcl.subsequence/1", "bfcl.joint/1"}
    for name, episode in made.items():
        tasks = episode.initial["state"]["tasks"]
        assert (len(tasks) > 1) == (name == "bfcl.joint/1")
        assert set(tasks) <= set(episode.provenance.source.split())


def test_errors_and_exceptions_are_refusals() -> None:
    state = files()
    for name, arguments, reason in (
        ("cat", {"file_name": "no.txt"}, "no.txt"),
        ("cat", {"name": "a.txt"}, "Error during execution"),
        ("send_message", {}, "no tool"),
        ("_load_scenario", {"scenario": {}}, "no tool"),
        ("__init__", {}, "no tool"),
    ):
        with pytest.raises(CallRefused, match=reason):
            BFCL.call(state, name, arguments)


def test_the_order_of_what_is_listed_is_part_of_the_state() -> None:
    one, other = files(), files()
    for state, names in ((one, "xy"), (other, "yx")):
        for name in names:
            BFCL.call(state, "touch", {"file_name": name})
    assert BFCL.canonical(one) != BFCL.canonical(other)
    assert BFCL.call(one, "ls", {}) != BFCL.call(other, "ls", {})


def test_arguments_and_snapshots_are_not_changed_by_calls() -> None:
    state = BFCL.reset({"involved_classes": ["TwitterAPI"], "initial_config": {}})
    BFCL.call(state, "authenticate_twitter", {"username": "john", "password": "john123"})
    kept = BFCL.snapshot(state)
    before = BFCL.canonical(state)
    tags = ["#a"]
    BFCL.call(state, "post_tweet", {"content": "c", "tags": tags})
    state["TwitterAPI"].tweets[max(state["TwitterAPI"].tweets)]["tags"].append("#b")
    assert tags == ["#a"]
    assert BFCL.canonical(BFCL.restore(kept)) == before != BFCL.canonical(state)


def test_the_clock_stands_still_and_draws_are_counted() -> None:
    state = BFCL.reset({"involved_classes": ["VehicleControlAPI"], "initial_config": {}})
    before = BFCL.canonical(state)
    drawn = BFCL.call(state, "get_current_speed", {})
    assert BFCL.canonical(state) != before
    again = BFCL.reset({"involved_classes": ["VehicleControlAPI"], "initial_config": {}})
    assert BFCL.call(again, "get_current_speed", {}) == drawn
    assert BFCL.call(BFCL.restore(BFCL.snapshot(again)), "get_current_speed", {}) != drawn
    one, other = files(), files()
    assert one["GorillaFileSystem"].root.contents["a.txt"]._last_modified.year == 2024
    assert BFCL.canonical(one) == BFCL.canonical(other)


@pytest.mark.parametrize(
    "initial",
    [
        None,
        {},
        {"involved_classes": ["WebSearchAPI"], "initial_config": {}},
        {"involved_classes": ["GorillaFileSystem"], "initial_config": "no JSON"},
        {"involved_classes": ["TravelAPI"], "initial_config": {"TravelAPI": {"random_seed": None}}},
        {"involved_classes": ["TravelAPI"], "initial_config": {"TravelAPI": 1}},
        {"involved_classes": ["MathAPI"], "initial_config": {}, "before": [{"name": "no"}]},
        {
            "involved_classes": ["MathAPI"],
            "initial_config": {},
            "before": [{"name": "no", "arguments": {}}],
        },
    ],
)
def test_a_start_that_cannot_be_made_is_named(initial) -> None:
    with pytest.raises(MalformedInputError):
        BFCL.reset(initial)


def test_a_step_tells_refusals_from_outputs() -> None:
    operation = Operation(signature="x", payload={"name": "cat", "arguments": {"file_name": "z"}})
    assert isinstance(BFCL.step(files(), operation), Rejected)
    fails = replace(operation, payload={**operation.payload, "fails": True})
    answer = BFCL.step(files(), fails)
    assert isinstance(answer, Accepted)
    assert "error" in answer.output


def test_another_version_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(module, "BFCL", replace(module.BFCL, version="1.0"))
    with pytest.raises(UnavailableError, match=r"pip install --no-deps bfcl-eval==1\.0"):
        BFCL.versions()


HASHES = """
import hashlib
from vcrt_toolbench.bfcl.environment import BfclEnvironment
from vcrt.environments.contract import ReplayRequest
environment = BfclEnvironment()
for schema in ("files", "tickets", "travel", "posets6"):
    episode = environment.sample(schema, 11)
    order = tuple(range(episode.num_operations))
    print(episode.content_hash(), environment.replay([ReplayRequest(episode, order)]))
"""


def test_processes_agree_whatever_the_hashes_of_texts() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", HASHES],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


@pytest.mark.slow
def test_it_conforms() -> None:
    failed = [found for found in validate(BFCL, range(2)) if not found.passed]
    assert not failed, failed[0]
