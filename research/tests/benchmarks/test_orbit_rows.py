"""The table about clipped rows is what was measured, and what was measured is what the mathematics says."""

from __future__ import annotations

import json
import re

import pytest

from documentation import ROOT, text_of

RESULT = json.loads(
    (ROOT / "research/benchmarks/results/orbit_rows.json").read_text(encoding="utf-8")
)
ROWS = {
    (row["learning_rate"], row["trained_on"], row["steps_taken"]): row for row in RESULT["rows"]
}


def test_the_table_of_the_page_is_that_of_the_result():
    found = 0
    for line in text_of("../research/estimator.md").splitlines():
        if not re.match(r"\| \de-\d \|", line):
            continue
        found += 1
        numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?(?:e-\d+)?", line)]
        row = ROWS[numbers[0], "rows", int(numbers[1])]
        assert numbers[2:4] == pytest.approx(
            [100 * row["rows_above_the_clip"], 100 * row["orbits_above_the_clip"]], abs=0.051
        )
        assert numbers[4:6] == pytest.approx([row["exact_loss"], row["loss_difference"]], abs=6e-5)
        expected = [row["cosine"], row["least_cosine"], row["relative_norm"]]
        assert numbers[6:] == pytest.approx(expected, abs=6e-4)
    assert found == 8


def test_the_masses_of_the_page_are_those_of_the_result():
    text = text_of("../research/estimator.md")
    keys = [(1e-3, "rows", 0), (1e-3, "rows", 4), (1e-3, "orbits", 4)]
    masses = [f"{ROWS[key]['mean_orbit_mass']:.3f}" for key in keys]
    found = re.search(r"from ([\d.]+) to ([\d.]+), and to ([\d.]+)", text)
    assert list(found.groups()) == masses


def test_rows_are_exact_before_the_first_step_and_never_below_the_orbits():
    for (_, _, steps), row in ROWS.items():
        assert row["least_loss_difference"] >= -1e-12
        if steps == 0:
            assert row["largest_relative_difference"] <= 1e-12
            assert row["least_cosine"] >= 1 - 1e-12
