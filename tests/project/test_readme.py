"""The README's Python example runs, so does the environment that it names; its differences are those of the runs."""

from __future__ import annotations

import contextlib
import io
import math
import re
import statistics
import subprocess
import sys

import pytest
from scipy.special import stdtrit

from documentation import ROOT, blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs():
    (example,) = blocks(README, "python")
    assert len(example.splitlines()) <= 12
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "README.md", "exec"), {})
    lines = printed.getvalue().splitlines()
    assert len(lines) == 6
    assert sum("precedes" in line for line in lines) == 1
    assert sum("commutes" in line for line in lines) == 5


def differences_by_run(name, minus):
    """VCRT minus a method in points: by run, and the macro and its ends over items, as a kept report prints them."""
    text = (ROOT / "research" / "benchmarks" / "results" / name / "tables.txt").read_text("utf-8")
    by_run = text.split("Macro differences by run")[1].split("How runs differ")[0]
    runs = re.findall(rf"^VCRT +{minus} +\d+ +([+-]?[\d.]+) ", by_run, re.MULTILINE)
    macros = text.split("VCRT minus each other method")[1].split("Intervals belong")[0]
    (found,) = re.findall(rf"^{minus} .*? ([+-][\d.]+) +\[(.+?), (.+?)\]", macros, re.MULTILINE)
    macro, low, high = found
    return [float(run) for run in runs], macro.lstrip("+"), float(high) - float(low)


@pytest.mark.parametrize(
    ("name", "minus"),
    [
        ("reproduce", "Canonical-GRPO"),
        ("hard", "Canonical-GRPO"),
        ("hard", "No-Anti"),
        ("hard", "No-Orbit"),
    ],
)
def test_the_differences_of_the_readme_are_those_of_the_runs(name, minus):
    """A t interval over the macro differences by run, with what the items add."""
    runs, macro, width = differences_by_run(name, minus)
    mean, spread = statistics.fmean(runs), statistics.stdev(runs) / len(runs) ** 0.5
    half = math.hypot(float(stdtrit(len(runs) - 1, 0.975)) * spread, width / 2)
    text = " ".join(README.split())
    (found,) = re.findall(rf"{macro}(?: points)? (\[[^]]+\])", text)
    assert found == f"[{mean - half:+.1f}, {mean + half:+.1f}]"


@pytest.mark.slow
def test_the_environment_of_the_readme_runs(tmp_path):
    example = ROOT / "examples" / "folders.py"
    assert "(examples/folders.py)" in README
    done = subprocess.run(
        [sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "20 episodes, 480 of 480 replays agree"
    assert sorted(line.split(" | ")[1] for line in lines[1:]) == ["commutes"] * 5 + ["precedes"]
