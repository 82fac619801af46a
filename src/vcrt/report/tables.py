"""The tables of rates: pass rates by method, by fold and by run, and source retention, each with its intervals.

Rates are percentages and changes percentage points; the arithmetic is :mod:`vcrt.report.analysis`. Tables of
differences are in :mod:`vcrt.report.differences`, those about the data and the plan in :mod:`vcrt.report.provenance`.
"""

from __future__ import annotations

from vcrt.report import paper
from vcrt.report.analysis import Analysis, MethodResult
from vcrt.report.cells import (
    INTERVALS,
    MISSING,
    OVER_ITEMS,
    TWO_INTERVALS,
    decisive_cell,
    difference_cells,
    paper_note,
    published_folds,
    rate_cells,
)
from vcrt.report.comparisons import FROZEN
from vcrt.report.contents import ReportContents
from vcrt.report.judgement import resolves_guardrail, within_guardrail
from vcrt.report.method_words import methods_note
from vcrt.report.table import Cell, Table
from vcrt.report.task import task_note
from vcrt.report.wording import (
    counted,
    counted_range,
    interval_text,
    label,
    listed,
    percent,
    points,
)


def main_table(contents: ReportContents, analysis: Analysis) -> Table:
    """Held-out pass rates in percent: the frozen backbone and each method, beside the paper's values."""
    folds = [label(fold) for fold in analysis.folds]
    frozen = [percent(analysis.frozen[fold].value) for fold in analysis.folds]
    rows: list[tuple[Cell, ...]] = [
        (
            FROZEN,
            *frozen,
            percent(analysis.frozen_macro.value),
            decisive_cell(analysis.frozen_macro, signed=False),
            *_published_rates(FROZEN, analysis),
        )
    ]
    rows += [_main_row(result, analysis) for result in analysis.results]
    published = (*(f"{fold} (paper)" for fold in folds), "Macro (paper)")
    num_runs = {len(runs) for r in analysis.results for runs in r.run_rates.values()}
    return Table(
        name="main",
        title="Held-out pass rate (%), one greedy answer per item",
        columns=("Method", *folds, "Macro", f"Macro, {INTERVALS[0]}", *published),
        rows=tuple(rows),
        note=(
            f"{task_note(contents)} Mean over {counted_range(num_runs, 'run')} and {_items(analysis)}; macro is the "
            f"mean over folds with equal weight. {paper_note(analysis.folds)} {methods_note(contents.methods)}"
        ).rstrip(),
        aside=frozenset(published),
    )


def _main_row(result: MethodResult, analysis: Analysis) -> tuple[Cell, ...]:
    rates = [
        percent(result.folds[f].value) if f in result.folds else MISSING for f in analysis.folds
    ]
    macro: list[Cell] = [MISSING, MISSING]
    if result.macro is not None:
        macro = [percent(result.macro.value), decisive_cell(result.macro, signed=False)]
    name = label(result.method)
    return (name, *rates, *macro, *_published_rates(result.method, analysis))


def _published_rates(method: str, analysis: Analysis) -> list[Cell]:
    row = paper.published_scores(method)
    if row is None:
        return [MISSING] * (len(analysis.folds) + 1)
    macro = row.macro if paper.same_folds(analysis.folds) else MISSING
    return [*published_folds(row.folds, analysis.folds), macro]


def fold_table(analysis: Analysis) -> Table:
    """Each method's pass rate on each fold with both intervals, and the range of its runs."""
    rows: list[tuple[Cell, ...]] = [
        (FROZEN, label(fold), *rate_cells(estimate), MISSING, MISSING)
        for fold, estimate in analysis.frozen.items()
    ]
    for result in analysis.results:
        for fold, estimate in result.folds.items():
            runs = [run.estimate for run in result.run_rates[fold].values()]
            extremes = (percent(min(runs)), percent(max(runs)))
            rows.append((label(result.method), label(fold), *rate_cells(estimate), *extremes))
    return Table(
        name="rates",
        title="Held-out pass rate (%) by fold",
        columns=("Method", "Held out", "Pass rate", *INTERVALS, "Lowest run", "Highest run"),
        rows=tuple(rows),
        note=TWO_INTERVALS,
    )


def run_table(analysis: Analysis) -> Table:
    """Each single run: held-out pass rate in percent and source retention in points, with intervals over items."""
    rows = tuple(
        (
            label(result.method),
            label(fold),
            seed,
            percent(rate.estimate),
            interval_text(rate, signed=False),
            points((change := result.run_retention[fold][seed]).estimate),
            interval_text(change),
        )
        for result in analysis.results
        for fold, by_seed in result.run_rates.items()
        for seed, rate in by_seed.items()
    )
    return Table(
        name="runs",
        title="Single runs",
        columns=(
            "Method",
            "Held out",
            "Seed",
            "Pass rate (%)",
            OVER_ITEMS,
            "Source retention (points)",
            f"Retention, {OVER_ITEMS}",
        ),
        rows=rows,
        note="Intervals are over items, for exactly this run.",
    )


def _frozen_retention(contents: ReportContents, method: str, fold: str) -> float:
    """The frozen backbone's pass rate on the retention items, as the method sees the records."""
    run, *_ = contents.runs_of(method, fold).values()
    return float(contents.frozen_retention(run).mean())


def retention_table(contents: ReportContents, analysis: Analysis) -> Table:
    """Pass rate on source items not trained on, minus the frozen backbone's, against the guardrail."""
    rows = tuple(
        (
            label(result.method),
            label(fold),
            (items := analysis.num_retention_items[fold]),
            percent(_frozen_retention(contents, result.method, fold)),
            *difference_cells(estimate),
            points(worst := min(run.estimate for run in result.run_retention[fold].values())),
            _guardrail(worst, items),
        )
        for result in analysis.results
        for fold, estimate in result.retention.items()
    )
    return Table(
        name="retention",
        title="Source retention: change on source items not trained on (points)",
        columns=(
            "Method",
            "Held out",
            "Items",
            "Frozen (%)",
            "Change",
            *INTERVALS,
            "Worst run",
            "Guardrail",
        ),
        rows=rows,
        note=(
            f"The guardrail is held if no run declines by more than {paper.RETENTION_GUARDRAIL:.0f} points; it is not "
            "resolvable where a single item is more than that. "
            f"In the paper the largest decline is {paper.LARGEST_SOURCE_DECLINE} points. {TWO_INTERVALS}"
        ),
    )


def _guardrail(worst: float, num_items: int) -> str:
    if not resolves_guardrail(num_items):
        return f"not resolvable ({counted(num_items, 'item')})"
    return "held" if within_guardrail(worst) else "broken"


def _items(analysis: Analysis) -> str:
    """``40 items a fold``, or the number of each fold if they differ."""
    numbers = set(analysis.num_items.values())
    if len(numbers) == 1:
        return f"{counted(numbers.pop(), 'item')} a fold"
    return listed(
        [f"{counted(n, 'item')} on {label(fold)}" for fold, n in analysis.num_items.items()]
    )
