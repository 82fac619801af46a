"""The gallery says what replay says now, of the environments that every machine can run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "figures" / "gallery.py"


@pytest.mark.nightly
def test_the_gallery_is_what_replay_says():
    names = ["clrs", "proofwriter", "lean"]
    run = subprocess.run(
        [sys.executable, SCRIPT, *names, "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def test_the_speeds_of_the_archive_are_those_that_were_measured():
    research = Path(__file__).parents[2] / "research"
    page = (research / "verifiers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) .* \| `(\w+\.json)` \|$", page, re.MULTILINE)
    assert len(rows) == 7
    for name, said, file in rows:
        measured = json.loads((research / "benchmarks" / "results" / file).read_text())
        if file == "tool_calls.json":
            speed = measured[name]["calls_per_second"]
        else:
            speed = measured["median_exhaustive_orders_per_cpu_second"][name]
        assert said == f"{speed:,.0f}", name
