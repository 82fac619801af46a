"""Read BFCL's multi-turn tasks and the calls of their possible answers; a call is parsed, never evaluated."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from vcrt.environments.tool_calls import Call
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json
from vcrt_toolbench.bfcl.simulators import BFCL, load_simulators
from vcrt_toolbench.gold_calls import Trajectory

_TASKS = "BFCL_v4_multi_turn_base.json"


def task_files() -> list[Path]:
    """Return the file of the tasks and that of their possible answers."""
    folder = BFCL.folder() / "data"
    return [folder / _TASKS, folder / "possible_answer" / _TASKS]


@lru_cache(maxsize=1)
def gold_trajectories() -> tuple[Trajectory, ...]:
    """Return the possible answer of every task of the category ``multi_turn_base``, in the order of the file.

    Raise :class:`vcrt.errors.UnavailableError` if bfcl-eval is missing.
    """
    tasks, answers = (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in task_files()
    )
    turns = {answer["id"]: answer["ground_truth"] for answer in answers}
    return tuple(_trajectory(task, turns[task["id"]]) for task in tasks)


def _trajectory(task: Mapping[str, Json], turns: list[list[str]]) -> Trajectory:
    classes: list[str] = task["involved_classes"]  # type: ignore[assignment]
    simulators = load_simulators()
    signatures = {
        tool: signature for name in classes for tool, signature in simulators[name].tools.items()
    }
    return Trajectory(
        task=str(task["id"]),
        initial={
            "involved_classes": classes,
            "initial_config": json.dumps(task["initial_config"]),
        },
        calls=tuple(parse_call(text, signatures) for turn in turns for text in turn),
    )


def parse_call(text: str, signatures: Mapping[str, inspect.Signature]) -> Call:
    """Return the call in a Python expression of literals; arguments by place get the names of the signature.

    Raise :class:`vcrt.errors.MalformedInputError` for anything else.

    >>> def cd(self, folder): ...
    >>> parse_call("cd('a')", {"cd": inspect.signature(cd)}).arguments
    {'folder': 'a'}
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("no call of a tool")
        places = [ast.literal_eval(argument) for argument in call.args]
        arguments = dict(zip(_names(signatures[call.func.id]), places, strict=False))
        if len(arguments) < len(places):
            raise ValueError("more arguments than the tool has")
        for keyword in call.keywords:
            if keyword.arg is None or keyword.arg in arguments:
                raise ValueError(f"argument {keyword.arg} twice, or without a name")
            arguments[keyword.arg] = ast.literal_eval(keyword.value)
        return Call(call.func.id, json.loads(json.dumps(arguments)))
    except (SyntaxError, TypeError, ValueError, KeyError, RecursionError) as error:
        raise MalformedInputError(
            "a call that cannot be read",
            found=f"{text[:120]!r} ({error})",
            expected="NAME(ARGUMENT, NAME=ARGUMENT) of a tool that there is, with literals for arguments",
        ) from error


def _names(signature: inspect.Signature) -> Iterator[str]:
    """Return the names of a tool's parameters, without its own object."""
    return iter([name for name in signature.parameters if name != "self"])
