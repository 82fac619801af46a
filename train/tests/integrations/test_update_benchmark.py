"""The benchmark beside TRL names the parts of an update that there are."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "research" / "benchmarks" / "speed"))

from update import Ours, certified_records, profile


def test_its_parts_make_up_an_update():
    parts = profile(Ours("vcrt", certified_records(4)), 2)["parts"]
    assert all(part["ms"] > 0 for part in parts.values())
    assert sum(part["share"] for part in parts.values()) == pytest.approx(1, abs=0.01)
