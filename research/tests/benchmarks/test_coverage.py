"""The simulated coverage of the intervals: the simulation against its own closed forms, and what it must show."""

from __future__ import annotations

import json

import numpy as np
import pytest

from coverage_support import ROOT, bench
from vcrt_train.randomness import generator

NUM_RESAMPLES = 400


RESULTS = json.loads((ROOT / "research" / "benchmarks" / "results" / "coverage.json").read_text())


def cell(**changes):
    return bench.Cell(
        **{"level": "middle", "run_effect": 0.0, "num_items": 100, "num_runs": 3} | changes
    )


def share(row, interval, target):
    return row["coverage"][interval][target]["share"]


@pytest.mark.parametrize("effect", [0.0, 0.5])
@pytest.mark.parametrize(
    ("level", "folds"), [("middle", {}), ("1.00 and 0.99", {}), ("middle", {"num_folds": 1})]
)
@pytest.mark.parametrize("shared", [{}, {"items_of_source": 4, "source_effect": 0.7}])
def test_the_simulated_truth_is_the_mean_of_what_is_drawn(
    level: str, effect: float, folds, shared
) -> None:
    changes = {**folds, **shared}
    design = cell(level=level, run_effect=effect, num_items=400, num_runs=20, **changes)
    rng = generator(1, "truth")
    drawn, given = [], []
    for _ in range(150):
        differences, these_runs = bench.draw(design, rng)
        drawn.append(np.mean([scores.mean() for scores in differences.values()]))
        given.append(these_runs)
    truth = bench.true_difference(design)
    for means in (drawn, given):
        error = 5 * np.std(means, ddof=1) / np.sqrt(len(means))
        assert np.mean(means) == pytest.approx(truth, abs=error + 1e-12)
    # Given the runs, what is drawn scatters about their own truth less than about that of new runs.
    apart = np.array(drawn) - np.array(given)
    assert abs(apart.mean()) < 5 * apart.std(ddof=1) / np.sqrt(len(apart))
    if effect and level == "middle" and not shared:
        assert apart.std() < 0.5 * np.std(drawn)


def test_the_spread_of_runs_is_that_of_drawn_runs() -> None:
    design = cell(run_effect=0.5)
    effects = 0.5 * generator(1, "effects").standard_normal(200_000)
    drawn = [
        100 * bench.rates_of_runs(design, at, effects).std()
        for at in bench.thresholds(design).ravel()
    ]
    assert bench.run_sd(design) == pytest.approx(np.mean(drawn), rel=0.01)
    assert bench.run_sd(cell()) == pytest.approx(0.0, abs=1e-9)
    rates = [
        bench.rates_of_runs(design, at, effects).mean() for at in bench.thresholds(design).ravel()
    ]
    assert rates == pytest.approx(np.ravel(bench.LEVELS["middle"]), abs=0.002)


def test_without_run_effects_both_intervals_hold_the_truth() -> None:
    row = bench.simulate(cell(), 200, NUM_RESAMPLES)
    assert 0.90 <= share(row, "paired", "these_runs") <= 0.99
    assert share(row, "paired", "these_runs") == share(row, "paired", "new_runs")
    # Resampling runs that do not differ resamples the noise of single answers a second time.
    assert share(row, "hierarchical", "new_runs") >= 0.97
    assert row["mean_width_points"]["hierarchical"] > row["mean_width_points"]["paired"]


def test_the_paired_interval_is_too_narrow_for_new_runs() -> None:
    row = bench.simulate(cell(run_effect=0.5, num_items=400), 200, NUM_RESAMPLES)
    assert share(row, "paired", "these_runs") > 0.88
    assert share(row, "paired", "new_runs") < 0.60
    assert share(row, "hierarchical", "new_runs") > share(row, "paired", "new_runs") + 0.15
    assert row["run_sd_points"] > 10


def test_more_runs_bring_the_hierarchical_interval_to_its_level() -> None:
    few, many = (
        bench.simulate(cell(run_effect=0.5, num_items=60, num_runs=runs), 120, 200)
        for runs in (2, 12)
    )
    assert share(few, "hierarchical", "new_runs") < 0.90
    assert share(many, "hierarchical", "new_runs") > 0.90


def test_at_the_ceiling_nothing_is_resampled() -> None:
    row = bench.simulate(cell(level="both 1.00"), 20, NUM_RESAMPLES)
    widths = row["mean_width_points"]
    assert widths["paired"] == widths["hierarchical"] == 0.0
    # The exact bound on 300 items of which none failed.
    assert widths["crossed"] == pytest.approx(200 * (1 - 0.025 ** (1 / 300)), abs=0.001)
    assert share(row, "paired", "new_runs") == 1.0


def test_repetitions_do_not_depend_on_how_they_are_split() -> None:
    design = cell(run_effect=0.2)
    whole, widths = bench.repeat(design, 0, 12, 100, 3)
    parts = [bench.repeat(design, first, 4, 100, 3) for first in (0, 4, 8)]
    assert (whole == sum(part[0] for part in parts)).all()
    assert widths == pytest.approx(sum(part[1] for part in parts))


def test_the_results_are_of_these_designs_and_are_those_in_the_package() -> None:
    designs = [{name: row[name] for name in bench.Cell.__slots__} for row in RESULTS["cells"]]
    assert designs == [
        {name: getattr(c, name) for name in bench.Cell.__slots__} for c in bench.cells()
    ]
    assert RESULTS["repetitions"] >= 500
    packaged = ROOT / "train" / "src" / "vcrt_train" / "report" / "coverage.json"
    assert json.loads(packaged.read_text()) == RESULTS


def test_a_part_of_the_results_can_be_had_again() -> None:
    """The first repetitions of a design, at the results' own size, are near the recorded share."""
    recorded = next(
        row
        for row in RESULTS["cells"]
        if (row["level"], row["run_effect"], row["num_items"]) == ("middle", 0.5, 100)
    )
    again = bench.simulate(cell(run_effect=0.5), 100, RESULTS["resamples"], RESULTS["seed"])
    for interval in bench.INTERVALS:
        for target in bench.TARGETS:
            p = share(recorded, interval, target)
            error = 5 * np.sqrt(p * (1 - p) / 100)
            assert share(again, interval, target) == pytest.approx(p, abs=error + 0.01)
        assert again["mean_width_points"][interval] == pytest.approx(
            recorded["mean_width_points"][interval], rel=0.1
        )


def test_the_page_on_reports_has_the_shares_of_the_results() -> None:
    text = " ".join((ROOT / "docs" / "report.md").read_text(encoding="utf-8").split())
    rows = [
        row
        for row in RESULTS["cells"]
        if row["level"] == "middle" and (row["run_effect"] or row["items_of_source"] > 1)
    ]
    said = {
        "over runs and items holds a known difference in": "crossed",
        "bootstrap over items in": "paired",
    }
    for words, interval in said.items():
        found = [100 * share(row, interval, "new_runs") for row in rows]
        assert f"{words} {min(found):.0f} to {max(found):.0f}%" in text
