"""Write the cells of estimates and the note that explains their intervals, for all tables of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from vcrt_train.report.estimates import Estimate
from vcrt_train.report.table import Cell
from vcrt_train.report.wording import interval_text, percent, points

MISSING = "n/a"
INTERVALS = ("95% over runs and items", "95% bootstrap over items")
OVER_ITEMS = "95% over items"
TWO_INTERVALS = (
    "Over runs and items: crossed random effects with t quantiles, for new runs and new items; it decides signs, and a "
    "single run has none. Bootstrap over items: the paper's percentile interval, for exactly these runs; it is too "
    "narrow for new ones."
)


def difference_cells(estimate: Estimate | None) -> tuple[str, str, str]:
    """A difference in points and its two intervals, the one that decides first."""
    if estimate is None:
        return MISSING, MISSING, MISSING
    return points(estimate.value), decisive_cell(estimate), interval_text(estimate.items)


def rate_cells(estimate: Estimate | None) -> tuple[Cell, str, str]:
    """A pass rate in percent and its two intervals."""
    if estimate is None:
        return MISSING, MISSING, MISSING
    items = interval_text(estimate.items, signed=False)
    return percent(estimate.value), decisive_cell(estimate, signed=False), items


def fold_cells(
    estimates: Mapping[str, Estimate], folds: Sequence[str], form: Callable[[float], Cell]
) -> list[Cell]:
    """The estimate of each fold, as a rate (``percent``) or as a difference (``points``)."""
    return [form(estimates[fold].value) if fold in estimates else MISSING for fold in folds]


def decisive_cell(estimate: Estimate, *, signed: bool = True) -> str:
    """The interval over runs and items; nothing for a single run."""
    interval = estimate.runs_and_items
    return interval_text(interval, signed=signed) if interval.over_runs else MISSING
