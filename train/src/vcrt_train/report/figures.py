"""Make the figures of results: differences, pass rates and retention, with both intervals and every single run.

A figure is a row of panels, which a page can wrap; a method has the same colour and marker in all figures. Training
curves are in :mod:`vcrt_train.report.curve_figures`. Not covered: tables, and anything interactive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from vcrt.printable import listed
from vcrt_train.protocol.statistics import Interval
from vcrt_train.report.analysis import Analysis, MethodResult
from vcrt_train.report.charts import (
    Ends,
    Figure,
    Panel,
    Reference,
    Row,
    RowChart,
    method_styles,
    padded,
    tens,
)
from vcrt_train.report.estimates import Estimate
from vcrt_train.report.summary import RETENTION_GUARDRAIL
from vcrt_train.report.task import chance, chance_text
from vcrt_train.report.wording import decisive_text, label, percent, points

#: Line styles: the frozen backbone is dashed, chance is dotted.
DASHED, DOTTED = (6.0, 3.0), (1.0, 3.0)
_INTERVALS = (
    "Broad line: the paper's 95% bootstrap over items. Thin line: 95% over runs and items (over items for a single "
    "run)."
)


def difference_figure(analysis: Analysis) -> Figure | None:
    """Make the figure of the headline difference by fold and macro, with both intervals; None without a headline."""
    headline = analysis.headline
    if headline is None:
        return None
    rates = {result.method: result.run_rates for result in analysis.results}
    shown = [("Macro", headline.macro, _estimates(headline.run_macros))] if headline.macro else []
    for fold, estimate in headline.folds.items():
        first, second = rates[headline.method][fold], rates[headline.minus][fold]
        runs = [first[seed].estimate - second[seed].estimate for seed in first if seed in second]
        shown.append((label(fold), estimate, runs))
    rows = tuple(_row(name, 0, e, runs, points(e.value)) for name, e, runs in shown)
    title = f"{label(headline.method)} minus {label(headline.minus)} (points)"
    described = [
        f"{name}: {points(e.value)}, {decisive_text(e.runs_and_items)}" for name, e, _ in shown
    ]
    references = (Reference(value=0.0, dash=DASHED),)
    panel = Panel(
        name="difference",
        title=title,
        description=f"{listed(described)}.",
        chart=RowChart(rows=rows, unit="points", domain=_reach(rows), references=references),
    )
    return Figure(
        name="difference",
        title=title,
        caption=f"Dot: mean over runs. {_rings(rows)}{_INTERVALS} Dashed: no difference.",
        panels=(panel,),
    )


def pass_rate_figure(analysis: Analysis) -> Figure:
    """Make the figure of held-out pass rates: each run, mean and intervals, beside the frozen backbone and chance."""
    styles = method_styles(analysis.contents.methods)
    random = chance(analysis.contents)
    folds: list[str | None] = [*analysis.folds]
    if len(folds) > 1 and any(result.macro is not None for result in analysis.results):
        folds.insert(0, None)
    shown = {fold: _rates(analysis, fold, styles) for fold in folds}
    frozen = {
        fold: percent((analysis.frozen_macro if fold is None else analysis.frozen[fold]).value)
        for fold in folds
    }
    by_fold = [row for fold, rows in shown.items() if fold is not None for row in rows]
    by_chance = [] if random is None else [Reference(value=percent(random), dash=DOTTED)]
    domain = tens(
        [
            *(value for row in by_fold for value in (*row.over_both, *row.runs)),
            *(value for fold, value in frozen.items() if fold is not None),
            *(line.value for line in by_chance),
        ]
    )
    dotted = f" Dotted: a random order ({chance_text(analysis.contents)})." if by_chance else ""
    return Figure(
        name="pass-rates",
        title="Held-out pass rate (%)",
        caption=(
            f"Filled marker: mean over runs. {_rings([r for rows in shown.values() for r in rows])}{_INTERVALS} "
            f"Dashed: frozen backbone.{dotted}"
        ),
        panels=tuple(
            Panel(
                name=f"pass-rates-{index}",
                title="Macro mean of all folds" if fold is None else f"{label(fold)} held out",
                description=(
                    f"Pass rates: {listed([f'{row.label} {row.text}%' for row in rows])}; frozen backbone "
                    f"{frozen[fold]:.2f}%; chance {chance_text(analysis.contents)}."
                ),
                chart=RowChart(
                    rows=rows,
                    unit="pass rate (%)",
                    domain=domain,
                    references=(Reference(value=frozen[fold], dash=DASHED), *by_chance),
                ),
            )
            for index, (fold, rows) in enumerate(shown.items())
        ),
        legend=styles,
    )


def _rates(analysis: Analysis, fold: str | None, styles: Mapping[str, int]) -> tuple[Row, ...]:
    """Make the rows of each method's pass rate on a fold, or of the macro if ``fold`` is None."""
    rows = []
    for result in analysis.results:
        estimate = result.macro if fold is None else result.folds.get(fold)
        if estimate is not None:
            runs = _macro_runs(result) if fold is None else _estimates(result.run_rates[fold])
            text = f"{percent(estimate.value):.2f}"
            rows.append(_row(label(result.method), styles[result.method], estimate, runs, text))
    return tuple(rows)


def retention_figure(analysis: Analysis) -> Figure:
    """Make the figure of changes on source items not trained on: each run, mean and intervals, and the guardrail."""
    styles = method_styles(analysis.contents.methods)
    by_fold = {
        fold: tuple(
            _row(
                label(result.method),
                styles[result.method],
                estimate,
                _estimates(result.run_retention[fold]),
                points(estimate.value),
            )
            for result in analysis.results
            if (estimate := result.retention.get(fold)) is not None
        )
        for fold in analysis.folds
    }
    rows = [row for shown in by_fold.values() for row in shown]
    domain = _reach(rows, -2 * RETENTION_GUARDRAIL)
    references = (
        Reference(value=0.0, dash=DASHED),
        Reference(value=-RETENTION_GUARDRAIL, dash=DOTTED),
    )
    return Figure(
        name="retention",
        title="Source retention: change on source items not trained on (points)",
        caption=(
            f"Filled marker: mean over runs. {_rings(rows)}{_INTERVALS} Dashed: no change. "
            f"Dotted: the guardrail of {RETENTION_GUARDRAIL:.0f} points."
        ),
        panels=tuple(
            Panel(
                name=f"retention-{index}",
                title=f"{label(fold)} held out",
                description=f"{listed([f'{row.label} {row.text}' for row in shown])}.",
                chart=RowChart(rows=shown, unit="points", domain=domain, references=references),
            )
            for index, (fold, shown) in enumerate(by_fold.items())
        ),
        legend=styles,
    )


def _row(name: str, number: int, estimate: Estimate, runs: Sequence[float], text: str) -> Row:
    return Row(
        label=name,
        number=number,
        value=percent(estimate.value),
        over_items=_ends(estimate.items),
        over_both=_ends(estimate.runs_and_items),
        runs=tuple(percent(value) for value in runs),
        text=text,
    )


def _ends(interval: Interval) -> Ends:
    return percent(interval.low), percent(interval.high)


def _estimates(by_seed: Mapping[int, Interval]) -> list[float]:
    return [value.estimate for value in by_seed.values()]


def _macro_runs(result: MethodResult) -> list[float]:
    """Return the macro rate of each seed that has every fold."""
    first, *others = result.run_rates.values()
    return [
        fmean([first[seed].estimate, *(rates[seed].estimate for rates in others)])
        for seed in first
        if all(seed in rates for rates in others)
    ]


def _reach(rows: Sequence[Row], lowest: float = 0.0) -> Ends:
    """Return the range from the lowest to the highest interval end or run of any row, which includes zero."""
    values = [v for row in rows for v in (*row.over_both, *(row.over_items or ()), *row.runs)]
    low, high = min([lowest, *values]), max([0.0, *values])
    # If nothing differs, zero is in the middle.
    return padded(low, high) if low < high else (-1.0, 1.0)


def _rings(rows: Sequence[Row]) -> str:
    return "Rings: single runs. " if any(len(row.runs) > 1 for row in rows) else ""
