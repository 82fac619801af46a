"""Say how often the intervals cover the truth in simulated experiments, whose true difference is known.

All numbers come from ``research/benchmarks/statistics/coverage.py``, which writes ``coverage.json`` in this folder. Not
covered: the experiment of a report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from vcrt.printable import counted
from vcrt_train.report.table import Table

#: The run effect, in probits, in the sentences' example of runs that differ.
EXAMPLE_EFFECT = 0.2
OVER_BOTH, ITEMS_BOOTSTRAP, BOTH_BOOTSTRAP = "crossed", "paired", "hierarchical"
THESE_RUNS, NEW_RUNS = "these_runs", "new_runs"


@cache
def coverage() -> Mapping[str, Any]:
    """Read the results of the simulation."""
    text = files("vcrt_train.report").joinpath("coverage.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def coverage_sentences() -> list[str]:
    """Write on runs that do not differ or do, few runs, items that share sources, and pass rates near the ceiling."""
    equal, apart = _cell("middle", 0.0, 2500), _cell("middle", EXAMPLE_EFFECT, 2500)
    ceilings = ("both 0.99", "1.00 and 0.99", "both 1.00")
    near, one, full = (_cell(level, 0.0, 100) for level in ceilings)
    middle = [cell for cell in coverage()["cells"] if cell["level"] == "middle"]
    few = [c for c in middle if c["run_effect"] > 0 and c["items_of_source"] == 1]
    shared = [c for c in middle if c["items_of_source"] > 1]
    runs = sorted({cell["num_runs"] for cell in few})
    return [
        f"In {counted(coverage()['repetitions'], 'simulated experiment')} with {_size(equal)} and runs that do not "
        "differ, the 95% interval over runs and items holds the true macro difference in "
        f"{_share(equal, OVER_BOTH, NEW_RUNS)}, wider than it need be, and the paper's bootstrap over items in "
        f"{_share(equal, ITEMS_BOOTSTRAP, NEW_RUNS)}.",
        f"Where the pass rates of runs differ by a standard deviation of {apart['run_sd_points']:.1f} points, the "
        f"interval over runs and items holds the difference of new runs in {_share(apart, OVER_BOTH, NEW_RUNS)}. The "
        f"bootstrap over items holds that of exactly these runs in {_share(apart, ITEMS_BOOTSTRAP, THESE_RUNS)} but "
        f"that of new runs in {_share(apart, ITEMS_BOOTSTRAP, NEW_RUNS)}; one that resamples runs too, in "
        f"{_share(apart, BOTH_BOOTSTRAP, NEW_RUNS)}.",
        f"Over all designs with {runs[0]} to {runs[-1]} runs that differ, as macro and on one fold, the interval over "
        f"runs and items holds the difference of new runs in {_range(few, OVER_BOTH)}, the bootstrap over items in "
        f"{_range(few, ITEMS_BOOTSTRAP)}, the bootstrap over runs and items in {_range(few, BOTH_BOOTSTRAP)}.",
        f"Where {shared[0]['items_of_source']} items share a source, they hold it in {_range(shared, OVER_BOTH)}, "
        f"{_range(shared, ITEMS_BOOTSTRAP)} and {_range(shared, BOTH_BOOTSTRAP)}: bootstraps do not know of sources.",
        f"Near the ceiling, with {_size(near)}, the interval over runs and items and the bootstrap over items hold the "
        f"difference in {_share(near, OVER_BOTH, NEW_RUNS)} and {_share(near, ITEMS_BOOTSTRAP, NEW_RUNS)} where both "
        f"methods pass 99%, and in {_share(one, OVER_BOTH, NEW_RUNS)} and {_share(one, ITEMS_BOOTSTRAP, NEW_RUNS)} "
        f"where one passes everything; where both do, their widths are {full['mean_width_points'][OVER_BOTH]:.2f} and "
        f"{full['mean_width_points'][ITEMS_BOOTSTRAP]:.2f} points.",
    ]


def coverage_table() -> Table:
    """Make the table of the coverage of each interval in every simulated design."""
    shown = (
        (OVER_BOTH, NEW_RUNS),
        (ITEMS_BOOTSTRAP, THESE_RUNS),
        (ITEMS_BOOTSTRAP, NEW_RUNS),
        (BOTH_BOOTSTRAP, NEW_RUNS),
    )
    rows = tuple(
        (
            *(cell["level"], float(cell["run_sd_points"])),
            *(cell[name] for name in ("num_folds", "num_runs", "num_items", "items_of_source")),
            *(_share(cell, *interval).replace("%", "") for interval in shown),
        )
        for cell in coverage()["cells"]
    )
    middle = coverage()["pass_rates"]["middle"]
    first, second = (", ".join(f"{100 * rate:.0f}" for rate in rates) for rates in middle)
    return Table(
        name="intervals",
        title="How often 95% intervals hold a known difference (% of simulated experiments)",
        columns=(
            "Pass rates",
            "Spread of runs",
            "Folds",
            "Runs",
            "Items",
            "Items a source",
            "Over runs and items: new runs",
            "Bootstrap over items: these runs",
            "Bootstrap over items: new runs",
            "Bootstrap over runs and items: new runs",
        ),
        rows=rows,
        note=(
            f"{counted(coverage()['repetitions'], 'experiment')} a row, {coverage()['resamples']:,} resamples; in "
            "brackets the 95% interval of the simulation itself. The spread of runs is the standard deviation of their "
            f"pass rates in points. Middle: one method passes {first}%, the other {second}%; a single fold is the last "
            "of these."
        ),
    )


def _cell(level: str, effect: float, num_items: int) -> Mapping[str, Any]:
    wanted = (level, effect, num_items, 3, 3, 1)
    names = ("level", "run_effect", "num_items", "num_runs", "num_folds", "items_of_source")
    cells = coverage()["cells"]
    return next(cell for cell in cells if tuple(cell[name] for name in names) == wanted)


def _range(cells: Sequence[Mapping[str, Any]], interval: str) -> str:
    shares = [100 * cell["coverage"][interval][NEW_RUNS]["share"] for cell in cells]
    return f"{min(shares):.1f} to {max(shares):.1f}%"


def _size(cell: Mapping[str, Any]) -> str:
    return f"{counted(cell['num_runs'], 'run')} and {counted(cell['num_items'], 'item')} a fold"


def _share(cell: Mapping[str, Any], interval: str, target: str) -> str:
    value = cell["coverage"][interval][target]
    low, high = value["interval"]
    return f"{100 * value['share']:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"
