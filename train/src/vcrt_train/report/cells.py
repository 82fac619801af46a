"""Write the cells of estimates and of published values, and the notes that explain them, for all tables of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from vcrt.printable import listed
from vcrt_train.report import paper
from vcrt_train.report.estimates import Estimate
from vcrt_train.report.table import Cell
from vcrt_train.report.wording import interval_text, percent, points, published_text, signed

MISSING = "n/a"
INTERVALS = ("95% over runs and items", "95% bootstrap over items")
OVER_ITEMS = "95% over items"
NOT_COMPARABLE = (
    f'Columns marked "(paper)" are published values for {paper.BACKBONE}: another backbone and another scale, '
    "not comparable in size."
)
OTHER_FOLDS = f"The published macro is over {listed(paper.ENVIRONMENTS)}."
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


def published_rates(method: str, folds: tuple[str, ...]) -> list[Cell]:
    """The paper's pass rate of a method on each fold, and its macro if it is over these folds."""
    row = paper.published_scores(method)
    if row is None:
        return [MISSING] * (len(folds) + 1)
    found = [paper.in_fold(row.folds, fold) for fold in folds]
    macro = row.macro if paper.same_folds(folds) else None
    return [MISSING if value is None else value for value in (*found, macro)]


def published_differences(
    published: paper.PublishedDifference | None, folds: tuple[str, ...]
) -> list[str]:
    """The paper's difference on each fold, and its macro with its interval if it is over these folds."""
    if published is None:
        return [MISSING] * (len(folds) + 1)
    found = [paper.in_fold(published.folds, fold) for fold in folds]
    macro = published_text(published.macro, published.interval)
    return [
        *(MISSING if value is None else signed(value) for value in found),
        macro if paper.same_folds(folds) else MISSING,
    ]


def paper_note(folds: tuple[str, ...]) -> str:
    """How published values compare with ours; nothing if there are none."""
    if not paper.has_any(folds):
        return ""
    return NOT_COMPARABLE if paper.same_folds(folds) else f"{NOT_COMPARABLE} {OTHER_FOLDS}"
