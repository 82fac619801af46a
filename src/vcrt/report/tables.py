"""The tables of results: pass rates, differences, single runs and source retention, each with its intervals.

Rates are percentages and differences percentage points; the arithmetic is :mod:`vcrt.report.analysis`. Tables about the
data and the plan are in :mod:`vcrt.report.provenance`, sentences in :mod:`vcrt.report.summary`.
"""

from __future__ import annotations

from collections.abc import Mapping

from vcrt.report import paper
from vcrt.report.analysis import (
    FROZEN,
    Analysis,
    Comparison,
    Estimate,
    MethodResult,
    analyse,
)
from vcrt.report.contents import ReportContents
from vcrt.report.judgement import resolves_guardrail, within_guardrail
from vcrt.report.provenance import provenance_tables
from vcrt.report.summary import summary
from vcrt.report.table import Cell, Table, cell_text, to_csv, to_html, to_rich, to_text
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

__all__ = [
    "Table",
    "cell_text",
    "difference_table",
    "main_table",
    "mechanism_table",
    "report_tables",
    "result_tables",
    "retention_table",
    "run_table",
    "summary",
    "to_csv",
    "to_html",
    "to_rich",
    "to_text",
]

MISSING = "n/a"
INTERVALS = ("95% over items", "95% over runs and items")
NOT_COMPARABLE = (
    f'Columns marked "(paper)" are published values for {paper.BACKBONE}: another backbone and another scale, '
    "not comparable in size."
)
OTHER_FOLDS = f"The published macro is over {listed(paper.ENVIRONMENTS)}."
TWO_INTERVALS = (
    "Percentile bootstrap intervals: over items for exactly these runs, as in the paper; over runs and items when the "
    "runs are resampled too."
)


def report_tables(contents: ReportContents) -> tuple[Table, ...]:
    """All tables of a report, in the order in which they are shown."""
    return (*result_tables(contents, analyse(contents)), *provenance_tables(contents))


def result_tables(contents: ReportContents, analysis: Analysis) -> tuple[Table, ...]:
    """The tables of results. Differences are left out when there is nothing to compare."""
    tables = [main_table(contents, analysis)]
    if analysis.headline is not None:
        tables.append(difference_table(analysis.headline, analysis.folds))
    if len(analysis.comparisons) > (2 if analysis.headline else 1):
        tables.append(mechanism_table(analysis))
    return (*tables, run_table(analysis), retention_table(contents, analysis))


def main_table(contents: ReportContents, analysis: Analysis) -> Table:
    """Held-out pass rates in percent: the frozen backbone and each method, beside the paper's values."""
    folds = [label(fold) for fold in analysis.folds]
    frozen = [percent(analysis.frozen[fold].value) for fold in analysis.folds]
    rows: list[tuple[Cell, ...]] = [
        (
            FROZEN,
            *frozen,
            percent(analysis.frozen_macro.value),
            interval_text(analysis.frozen_macro.runs_and_items, signed=False),
            *_published_rates(FROZEN, analysis),
        )
    ]
    rows += [_main_row(result, analysis) for result in analysis.results]
    published = (*(f"{fold} (paper)" for fold in folds), "Macro (paper)")
    num_runs = {len(runs) for r in analysis.results for runs in r.run_rates.values()}
    return Table(
        name="main",
        title="Held-out pass rate (%), one greedy answer per item",
        columns=("Method", *folds, "Macro", f"Macro, {INTERVALS[1]}", *published),
        rows=tuple(rows),
        note=(
            f"{task_note(contents)} Mean over {counted_range(num_runs, 'run')} and {_items(analysis)}; macro is the "
            f"mean over folds with equal weight. {_paper_note(analysis.folds)}"
        ),
        aside=frozenset(published),
    )


def _main_row(result: MethodResult, analysis: Analysis) -> tuple[Cell, ...]:
    rates = [
        percent(result.folds[f].value) if f in result.folds else MISSING for f in analysis.folds
    ]
    macro: list[Cell] = [MISSING, MISSING]
    if result.macro is not None:
        interval = result.macro.runs_and_items
        macro = [percent(result.macro.value), interval_text(interval, signed=False)]
    name = label(result.method)
    return (name, *rates, *macro, *_published_rates(result.method, analysis))


def _published_rates(method: str, analysis: Analysis) -> list[Cell]:
    row = paper.published_scores(method)
    if row is None:
        return [MISSING] * (len(analysis.folds) + 1)
    macro = row.macro if paper.same_folds(analysis.folds) else MISSING
    return [*_published_folds(row.folds, analysis.folds), macro]


def _published_folds(values: Mapping[str, float], folds: tuple[str, ...]) -> list[Cell]:
    found = [paper.in_fold(values, fold) for fold in folds]
    return [MISSING if value is None else value for value in found]


def difference_table(comparison: Comparison, folds: tuple[str, ...]) -> Table:
    """One paired difference by fold and macro, with both intervals and the paper's value."""
    published = paper.published_difference(comparison.method, comparison.minus)
    rows = []
    for fold in folds:
        value = None if published is None else paper.in_fold(published.folds, fold)
        text = MISSING if value is None else f"{value:+.2f}"
        estimate = comparison.folds.get(fold)
        rows.append((label(fold), *_estimate_cells(estimate), text))
    rows.append(("Macro", *_estimate_cells(comparison.macro), _published_macro(published, folds)))
    method, minus = label(comparison.method), label(comparison.minus)
    return Table(
        name="difference",
        title=f"{method} minus {minus}, the strongest baseline (points)",
        columns=("Held out", "Difference", *INTERVALS, "Difference (paper)"),
        rows=tuple(rows),
        note=(
            f"{comparison.num_negative} of {comparison.num_comparisons} fold-by-run comparisons are negative. "
            f"{TWO_INTERVALS} {_paper_note(folds)}"
        ),
        aside=frozenset({"Difference (paper)"}),
    )


def mechanism_table(analysis: Analysis) -> Table:
    """The method under study minus everything else: fold differences, macro and both intervals."""
    rows = []
    for name, comparison in analysis.comparisons.items():
        published = paper.published_difference(comparison.method, name)
        rows.append(
            (
                label(name),
                *(
                    points(comparison.folds[f].value) if f in comparison.folds else MISSING
                    for f in analysis.folds
                ),
                *_estimate_cells(comparison.macro),
                _published_macro(published, analysis.folds),
            )
        )
    method = label(analysis.method or "")
    folds = (label(fold) for fold in analysis.folds)
    return Table(
        name="mechanism",
        title=f"{method} minus each other method (points); positive values favour {method}",
        columns=("Minus", *folds, "Macro", *INTERVALS, "Macro (paper)"),
        rows=tuple(rows),
        note=f"Intervals belong to the macro difference. {TWO_INTERVALS} {_paper_note(analysis.folds)}",
        aside=frozenset({"Macro (paper)"}),
    )


def run_table(analysis: Analysis) -> Table:
    """Each single run: held-out pass rate in percent and source retention in points."""
    rows = tuple(
        (
            label(result.method),
            label(fold),
            seed,
            percent(rate),
            points(result.run_retention[fold][seed]),
        )
        for result in analysis.results
        for fold, by_seed in result.run_rates.items()
        for seed, rate in by_seed.items()
    )
    return Table(
        name="runs",
        title="Single runs",
        columns=("Method", "Held out", "Seed", "Pass rate (%)", "Source retention (points)"),
        rows=rows,
        note="Single values without intervals: the tables above have them for the means.",
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
            *_estimate_cells(estimate),
            points(worst := min(result.run_retention[fold].values())),
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


def _estimate_cells(estimate: Estimate | None) -> tuple[str, str, str]:
    if estimate is None:
        return MISSING, MISSING, MISSING
    return (
        points(estimate.value),
        interval_text(estimate.items),
        interval_text(estimate.runs_and_items),
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


def _paper_note(folds: tuple[str, ...]) -> str:
    return NOT_COMPARABLE if paper.same_folds(folds) else f"{NOT_COMPARABLE} {OTHER_FOLDS}"


def _published_macro(published: paper.PublishedDifference | None, folds: tuple[str, ...]) -> str:
    """The paper's macro difference with its interval, if it is over these folds."""
    if published is None or not paper.same_folds(folds):
        return MISSING
    if published.interval is None:
        return f"{published.macro:+.2f}"
    low, high = published.interval
    return f"{published.macro:+.2f} [{low:+.2f}, {high:+.2f}]"
