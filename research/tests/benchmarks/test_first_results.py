"""What docs/train.md says of first results is what was measured, and the measurement runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "statistics"))

import first_results

import vcrt

PAGE = first_results.PAGE.read_text(encoding="utf-8")
RESULT = json.loads(first_results.RESULT.read_text(encoding="utf-8"))


def test_the_page_has_the_measured_table():
    assert first_results.page_table(RESULT) in PAGE
    runs = len(RESULT["runs"])
    settings = RESULT["settings"]
    assert runs == len(settings["source_items"]) * 3 * len(settings["seeds"])


def test_the_record_of_the_page_was_kept_where_source_items_were_enough():
    assert RESULT["settings"]["record"] == first_results.page_record()
    enough, few = (first_results.record_kept(RESULT, n, 400) for n in (300, 40))
    assert enough[0] == enough[1] == few[1] > few[0]


def test_the_page_says_how_many_source_items_the_tutorial_has():
    # What the tutorial's commands give: 10 schemas of 40 episodes, half of them held out, a tenth set aside.
    assert "has 180 a fold" in " ".join(PAGE.split())


def test_an_interval_is_a_t_interval_within_0_and_1():
    low, high = first_results.interval([0.4, 0.5, 0.6])
    assert (low, high) == pytest.approx((0.5 - 0.2484, 0.5 + 0.2484), abs=1e-4)
    assert first_results.interval([1.0, 0.2, 1.0])[1] == 1.0


@pytest.mark.nightly
def test_a_run_of_the_benchmark(tmp_path, monkeypatch):
    """Small: the same pieces, and learning shows."""
    monkeypatch.setattr(first_results, "UPDATES", (2, 200))
    torch.set_num_threads(1)
    schemas = ("clrs", "proofwriter")
    data = vcrt.certify(tmp_path / "data", schemas=schemas, episodes=40, jobs=1)
    points = first_results.run(data, "clrs", 150, 0)["points"]
    assert [point["update"] for point in points] == [2, 200]
    assert points[1]["pass_rate"] > max(0.7, points[0]["pass_rate"])
    assert 0 <= points[1]["record_kept"] <= first_results.RECORD_DRAWS
