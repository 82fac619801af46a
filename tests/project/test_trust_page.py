"""The page on what the evidence withstands: its figures are the measured ones, of every part."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRUST = ROOT / "research" / "benchmarks" / "trust"
FIGURES = ROOT / "research" / "benchmarks" / "results" / "trust.json"


@pytest.fixture(scope="module")
def figures():
    return json.loads(FIGURES.read_text())


PAGE = (Path(__file__).parents[2] / "docs" / "trust.md").read_text(encoding="utf-8")


def test_the_page_is_what_was_measured():
    command = [sys.executable, str(TRUST / "page.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def test_what_was_measured_was_measured_in_full_and_holds(figures, monkeypatch):
    monkeypatch.syspath_prepend(str(TRUST))
    from run import PARTS

    assert set(figures["parts"]) == set(PARTS)
    assert "Not measured in full yet" not in PAGE
    for name, part in figures["parts"].items():
        assert (part["form"], part["passed"], part["exit_code"]) == ("long", True, 0), name
        assert part["not_covered"], name
