"""Replay calls of a framework's toolset by `vcrt annotate`, and let the framework itself run what did not commute."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from published_servers import BUILD
from toolsets import Framework, Toolset

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
#: How often a framework runs a message of two calls.
RUNS = 30
#: Runs a command; returns what it prints.
Output: TypeAlias = Callable[..., str]


def found_of_toolset(row: Toolset, output_of: Output, log: Path, of_a_trace: int) -> dict[str, Any]:
    """Return what was found of a toolset; `of_a_trace` is how many episodes of a trace there are at most."""
    place = installed(row.framework)
    env = {**os.environ, "SOURCE": str(place / "source"), "PYTHONWARNINGS": "ignore"}
    file = HERE / "frameworks" / row.framework.file
    environment = f"{file}:{row.key}"
    command = [str(place / "bin" / "vcrt"), "annotate", str(log), "--environment", environment]
    said = json.loads(output_of([*command, "--json", "--verifier-timeout", "300"], env))
    against = [pair for pair in said["pairs"] if pair["against"]]
    asked = [_asked(row, pair["against"], of_a_trace) for pair in against]
    program = [str(place / "bin" / "python"), str(file)]
    given = json.dumps({"name": row.key, "runs": RUNS, "pairs": asked})
    ran = json.loads(output_of(program, env, given).splitlines()[-1])
    return {
        "key": row.key,
        "framework": row.framework.name,
        "versions": versions(place, row.framework),
        "place": row.place,
        "declared": row.declared,
        "called": {
            tool["name"]: tool["_meta"]["vcrt"]["changed"]["count"] for tool in said["tools"]
        },
        "left_out": said["left_out"],
        "disputed": said["disputed"],
        "pairs": [
            {"tools": [pair["a"], pair["b"]], "commuted": _counts(pair["commuted"])}
            for pair in said["pairs"]
        ],
        "against": [
            {
                # As the framework runs them: in the order of the trace.
                "calls": [
                    call
                    for _, call in sorted(
                        zip(pair["against"]["operations"], pair["against"]["calls"], strict=True)
                    )
                ],
                "after": len(pair["against"]["context"]),
                "commuted": _counts(pair["commuted"]),
                **seen,
            }
            for pair, seen in zip(against, ran, strict=True)
        ],
    }


def _asked(row: Toolset, against: Mapping[str, Any], of_a_trace: int) -> dict[str, Any]:
    """Return the calls before two calls, and the two in the order of the trace."""
    trace = row.traces[int(against["episode"].rsplit("/", 1)[1]) // of_a_trace]
    return {
        "before": [trace[step] for step in against["context"]],
        "two": [trace[step] for step in sorted(against["operations"])],
    }


def _counts(of: Mapping[str, int]) -> list[int]:
    return [of["count"], of["total"]]


def installed(framework: Framework) -> Path:
    """Install a framework, its examples and this `vcrt`, unless they are there; returns the environment's folder."""
    place = BUILD / "frameworks" / framework.name.replace(" ", "-").lower()
    if (place / "bin" / "vcrt").exists():
        return place
    place.mkdir(parents=True, exist_ok=True)
    pip = ["bin/pip", "install", "-q"]
    steps = [["python3.12", "-m", "venv", "."], [*pip, "hatchling", "editables"]]
    if framework.bare:
        steps.append([*pip, "--no-deps", *framework.bare])
    steps.append([*pip, *framework.packages])
    if framework.source:
        no_wheel = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
        steps.append(["bin/pip", "download", "-q", *no_wheel, framework.source, "-d", "archive"])
        unpack = "mkdir source && tar xzf archive/*.tar.gz -C source --strip-components 1"
        steps.append(["sh", "-c", unpack])
    steps.append([*pip, "--no-build-isolation", "-e", str(ROOT)])
    env = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}
    for step in steps:
        ended = subprocess.run(
            step, cwd=place, env=env, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise RuntimeError(f"{' '.join(step)}: {ended.stderr.strip()[-400:]}")
    return place


def at_home(home: str) -> dict[str, str]:
    """Return this process's environment with another home, for tools that start a shell.

    OpenHands' terminal is a shell of its user, and reads the user's start-up file. One that waits, as pyenv's does for
    a lock that a killed shell left, holds up each call until the SDK gives it up, after 30 seconds.
    """
    return {**os.environ, "HOME": home, "TMUX_TMPDIR": home}


def versions(place: Path, framework: Framework) -> list[str]:
    """Return the packages of a framework as they are installed."""
    names = [each.partition("==")[0].partition("[")[0] for each in framework.packages]
    ended = subprocess.run(
        [place / "bin" / "pip", "freeze"], capture_output=True, text=True, check=True
    )
    bare: Sequence[str] = framework.bare
    return sorted(
        {line for line in ended.stdout.splitlines() if line.partition("==")[0] in names} | {*bare}
    )
