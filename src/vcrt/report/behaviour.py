"""How the two intervals behave on simulated experiments whose true difference is known.

The numbers are those of ``benchmarks/coverage.py``, which writes ``coverage.json`` in this folder; nothing is typed
here. Not covered: the experiment that a report is about.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from vcrt.report.table import Table
from vcrt.report.wording import counted

#: The run effect, in probits, that the sentences take as an example of runs that differ.
EXAMPLE_EFFECT = 0.2
OVER_ITEMS, OVER_BOTH = "paired", "hierarchical"
THESE_RUNS, NEW_RUNS = "these_runs", "new_runs"


@cache
def coverage() -> Mapping[str, Any]:
    """The results of the simulation."""
    text = files("vcrt.report").joinpath("coverage.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def behaviour_sentences() -> list[str]:
    """Three sentences: runs that do not differ, runs that do, and pass rates near the ceiling."""
    equal, apart = _cell("middle", 0.0, 2500), _cell("middle", EXAMPLE_EFFECT, 2500)
    near, one, full = (
        _cell("both 0.99", 0.0, 100),
        _cell("1.00 and 0.99", 0.0, 100),
        _cell("both 1.00", 0.0, 100),
    )
    return [
        f"In {counted(coverage()['repetitions'], 'simulated experiment')} with {_size(equal)} and runs that do not "
        f"differ, the 95% interval over items holds the true macro difference in {_share(equal, OVER_ITEMS, NEW_RUNS)} "
        f"and the one over runs and items in {_share(equal, OVER_BOTH, NEW_RUNS)}, which is wider than it need be.",
        f"Where the pass rates of runs differ by a standard deviation of {apart['run_sd_points']:.1f} points, the "
        f"interval over items holds the difference of exactly these runs in {_share(apart, OVER_ITEMS, THESE_RUNS)} "
        f"but that of new runs in {_share(apart, OVER_ITEMS, NEW_RUNS)}, and the one over runs and items holds the "
        f"latter in {_share(apart, OVER_BOTH, NEW_RUNS)}: with few runs it too is narrower than it says.",
        f"Near the ceiling, with {_size(near)}, the two hold the difference in "
        f"{_share(near, OVER_ITEMS, NEW_RUNS)} and {_share(near, OVER_BOTH, NEW_RUNS)} where both methods pass 99%, "
        f"and in {_share(one, OVER_ITEMS, NEW_RUNS)} and {_share(one, OVER_BOTH, NEW_RUNS)} where one passes "
        f"everything; where both do, their width is {full['mean_width_points'][OVER_ITEMS]:.2f} points, whatever other "
        "items would show.",
    ]


def behaviour_table() -> Table:
    """The coverage of each interval for each target in every simulated design."""
    targets = (THESE_RUNS, NEW_RUNS)
    rows = tuple(
        (
            cell["level"],
            float(cell["run_sd_points"]),
            cell["num_runs"],
            cell["num_items"],
            *(_ends(cell, interval, t) for interval in (OVER_ITEMS, OVER_BOTH) for t in targets),
        )
        for cell in coverage()["cells"]
    )
    middle = coverage()["pass_rates"]["middle"]
    first, second = (", ".join(f"{100 * rate:.0f}" for rate in rates) for rates in middle)
    return Table(
        name="intervals",
        title="How often 95% intervals hold a known macro difference (% of simulated experiments)",
        columns=(
            "Pass rates",
            "Spread of runs",
            "Runs",
            "Items",
            "Over items: these runs",
            "Over items: new runs",
            "Over runs and items: these runs",
            "Over runs and items: new runs",
        ),
        rows=rows,
        note=(
            f"Three folds, {counted(coverage()['repetitions'], 'experiment')} a row, "
            f"{coverage()['resamples']:,} resamples; in brackets the 95% interval of the simulation itself. The "
            "spread of runs is the standard deviation of their pass rates in points. Middle: one method passes "
            f"{first}%, the other {second}%."
        ),
    )


def _cell(level: str, effect: float, num_items: int) -> Mapping[str, Any]:
    wanted = (level, effect, num_items, 3)
    names = ("level", "run_effect", "num_items", "num_runs")
    cells = coverage()["cells"]
    return next(cell for cell in cells if tuple(cell[name] for name in names) == wanted)


def _size(cell: Mapping[str, Any]) -> str:
    return f"{counted(cell['num_runs'], 'run')} and {counted(cell['num_items'], 'item')} a fold"


def _share(cell: Mapping[str, Any], interval: str, target: str) -> str:
    value = cell["coverage"][interval][target]
    low, high = value["interval"]
    return f"{100 * value['share']:.1f}% [{100 * low:.1f}, {100 * high:.1f}]"


def _ends(cell: Mapping[str, Any], interval: str, target: str) -> str:
    return _share(cell, interval, target).replace("%", "")
