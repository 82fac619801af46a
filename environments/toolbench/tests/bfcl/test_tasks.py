"""The possible answers of BFCL's tasks: calls are parsed, never evaluated."""

from __future__ import annotations

import inspect

import pytest

from vcrt.environments.tool_calls import CallRefused
from vcrt.errors import MalformedInputError

pytest.importorskip("bfcl_eval", reason="pip install --no-deps bfcl-eval==2026.3.23")

from vcrt_toolbench.bfcl.environment import BfclEnvironment
from vcrt_toolbench.bfcl.tasks import gold_trajectories, parse_call


def tool(self, name, number=1):
    """Stands for a tool."""


SIGNATURES = {"tool": inspect.signature(tool)}


def test_all_trajectories_are_read_and_no_call_is_refused() -> None:
    trajectories = gold_trajectories()
    assert len(trajectories) == 200
    assert sum(len(each.calls) for each in trajectories) == 1142
    environment, refused = BfclEnvironment(), []
    for trajectory in trajectories:
        state = environment.reset(trajectory.initial)
        for call in trajectory.calls:
            try:
                environment.call(state, call.name, call.arguments)
            except CallRefused as error:
                refused.append(error)
    assert not refused


def test_arguments_by_place_get_their_names() -> None:
    call = parse_call("tool('a', number=-2)", SIGNATURES)
    assert (call.name, call.arguments) == ("tool", {"name": "a", "number": -2})
    assert parse_call("tool(('a', {'b': None}))", SIGNATURES).arguments == {
        "name": ["a", {"b": None}]
    }


@pytest.mark.parametrize(
    "text",
    [
        "tool(open('/etc/passwd'))",
        "tool(name=__import__('os'))",
        "os.system('ls')",
        "tool('a', 1, 2)",
        "tool('a', name='b')",
        "tool(**{'name': 'a'})",
        "tool(*'ab')",
        "tool(name={1, 2})",
        "tool(name=b'x')",
        "other()",
        "tool",
        "tool(",
        "",
        "tool(" + "[" * 5000,
    ],
)
def test_anything_else_is_malformed(text) -> None:
    with pytest.raises(MalformedInputError, match="a call that cannot be read"):
        parse_call(text, SIGNATURES)
