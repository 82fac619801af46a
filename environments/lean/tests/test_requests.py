"""What Lean's worker keeps for a program's next request is for that program alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vcrt.environments.contract import ReplayRequest
from vcrt_lean.environment import LeanEnvironment


def verdicts(episodes):
    """Each episode's reference order, asked one after the other of one environment."""
    environment = LeanEnvironment()
    return [
        environment.replay([ReplayRequest(one, tuple(range(one.num_operations)))])[0]
        for one in episodes
    ]


@pytest.mark.parametrize("first", ["good", "bad"])
def test_another_closing_is_another_program(first):
    good = LeanEnvironment().sample("have", 1)
    bad = replace(good, initial={**good.initial, "closing": "exact z"})
    (alone,) = verdicts([bad])
    assert "Type mismatch" in alone.rejection.reason
    given = [good, bad, good] if first == "good" else [bad, good, bad]
    found = verdicts(given)
    assert [replay.accepted for replay in found] == [one is good for one in given]
    assert all(replay == alone for replay, one in zip(found, given, strict=True) if one is bad)
