"""The suites of AgentDojo as an environment: what tools answer, which episodes come of them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from call_oracle import kept_pair, legal_orders
from vcrt.environments.conformance import validate
from vcrt.environments.contract import ReplayRequest
from vcrt.environments.tool_calls import CallRefused
from vcrt.errors import MalformedInputError, UnavailableError

pytest.importorskip("agentdojo", reason="pip install --no-deps agentdojo==0.1.35")

from vcrt_toolbench.agentdojo import environment as module
from vcrt_toolbench.agentdojo.environment import AgentDojoEnvironment
from vcrt_toolbench.agentdojo.suites import gold_trajectories

DOJO = AgentDojoEnvironment()
SINGLE = [s.name for s in DOJO.schemas if s.preset == "paper"]
EVENT = {
    "title": "t",
    "description": "d",
    "start_time": "2024-05-19 12:00",
    "end_time": "2024-05-19 13:00",
    "participants": ["z@example.com", "a@example.com"],
}


def test_all_trajectories_are_read_and_accepted() -> None:
    trajectories = gold_trajectories()
    assert len(trajectories) == 97
    assert sum(len(each.calls) for each in trajectories) == 339
    for trajectory in trajectories:
        state = DOJO.reset(trajectory.initial)
        for call in trajectory.calls:
            DOJO.call(state, call.name, call.arguments)


@pytest.mark.parametrize("schema", SINGLE)
def test_half_of_the_orders_of_four_calls_are_legal(schema) -> None:
    episode = DOJO.sample(schema, 3)
    orders = legal_orders(DOJO, episode)
    assert len(orders) == 12
    assert kept_pair(orders) is not None
    assert DOJO.sample(schema, 3) == episode


@pytest.mark.parametrize("schema", ["posets6", "trajectory"])
def test_longer_episodes_are_accepted(schema) -> None:
    episode = DOJO.sample(schema, 7)
    order = tuple(range(episode.num_operations))
    assert DOJO.replay([ReplayRequest(episode, order)])[0].accepted
    assert episode.num_operations == (DOJO.schema(schema).num_steps or episode.num_operations)


def test_the_clock_stands_still_and_participants_are_sorted() -> None:
    states = [DOJO.reset({"suite": "workspace"}) for _ in range(2)]
    made = [DOJO.call(state, "create_calendar_event", EVENT) for state in states]
    assert made[0] == made[1]
    assert made[0]["participants"] == sorted(made[0]["participants"])
    (sent, *_) = DOJO.call(states[0], "search_emails", {"query": "Invitation: t"})
    assert sent["timestamp"] == "2024-09-01T10:30:00"
    assert DOJO.canonical(states[0]) == DOJO.canonical(states[1])


def test_an_attachment_goes_on_being_the_event() -> None:
    state = DOJO.reset({"suite": "workspace"})
    made = DOJO.call(state, "create_calendar_event", EVENT)
    apart = DOJO.restore(DOJO.snapshot(state))
    sent = list(apart.environment.inbox.emails.values())[-1]
    assert sent.attachments[0] is apart.environment.calendar.events[made["id_"]]
    assert DOJO.canonical(apart) == DOJO.canonical(state)
    sent.attachments[0] = sent.attachments[0].model_copy()
    assert DOJO.canonical(apart) != DOJO.canonical(state)


def test_refusals_are_the_runtime_s_errors() -> None:
    state = DOJO.reset({"suite": "banking"})
    for name, arguments, reason in (
        ("update_scheduled_transaction", {"id": 999}, "ValueError: Transaction with ID 999"),
        ("send_money", {"recipient": "x"}, r"ValidationError: amount: Field required; "),
        ("send_email", {}, "ToolNotFoundError"),
        ("__class__", {}, "ToolNotFoundError"),
    ):
        with pytest.raises(CallRefused, match=reason):
            DOJO.call(state, name, arguments)


def test_injections_are_part_of_the_start() -> None:
    vector = "injection_incoming_transaction"
    plain, injected = (
        DOJO.reset({"suite": "banking", **more}) for more in ({}, {"injections": {vector: "{0}"}})
    )
    assert DOJO.canonical(plain) != DOJO.canonical(injected)


@pytest.mark.parametrize(
    "initial",
    [
        None,
        {},
        {"suite": "shopping"},
        {"suite": ["banking"]},
        {"suite": "banking", "injections": {"no such place": "x"}},
        {"suite": "banking", "injections": 7},
        {"suite": "banking", "before": [{"name": "no", "arguments": {}}]},
    ],
)
def test_a_start_that_cannot_be_made_is_named(initial) -> None:
    with pytest.raises(MalformedInputError):
        DOJO.reset(initial)


def test_another_version_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(module, "AGENTDOJO", replace(module.AGENTDOJO, version="1.0"))
    with pytest.raises(UnavailableError, match=r"pip install --no-deps agentdojo==1\.0"):
        DOJO.versions()


HASHES = """
from vcrt_toolbench.agentdojo.environment import AgentDojoEnvironment
from vcrt.environments.contract import ReplayRequest
environment = AgentDojoEnvironment()
for schema in ("calendar", "channels", "posets6"):
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
    failed = [found for found in validate(DOJO, range(2)) if not found.passed]
    assert not failed, failed[0]
