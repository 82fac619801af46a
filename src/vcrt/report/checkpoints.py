"""Pass rates by update as a table and as a figure; the numbers are :mod:`vcrt.report.by_update`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vcrt.protocol.statistics import Interval
from vcrt.report.by_update import HELD_OUT, SOURCE, UpdatePoint
from vcrt.report.cells import MISSING
from vcrt.report.charts import (
    Figure,
    Line,
    LineChart,
    LinePoint,
    Panel,
    Style,
    method_styles,
)
from vcrt.report.contents import ReportContents
from vcrt.report.table import Cell, Table
from vcrt.report.wording import interval_text, label, listed, percent


def update_table(contents: ReportContents, points: Sequence[UpdatePoint]) -> Table:
    """Held-out pass rates by fold, macro and source pass rate of each method at each update."""
    by_key = {(p.method, p.update, p.kind, p.fold): p.interval for p in points}
    rows: list[tuple[Cell, ...]] = []
    for method, update in dict.fromkeys((p.method, p.update) for p in points):
        cells: list[Cell] = [label(method), update]
        for kind, fold in _columns(contents):
            interval = by_key.get((method, update, kind, fold))
            cells.append(MISSING if interval is None else _rate(interval))
        rows.append(tuple(cells))
    folds = [label(fold) for fold in contents.folds]
    return Table(
        name="by-update",
        title="Source and held-out pass rate (%) by update",
        columns=("Method", "Update", *folds, "Macro", "Source, macro"),
        rows=tuple(rows),
        note=(
            "Columns of folds and macro: held-out items, read after the opening. Source: items of the source "
            "environments that were not trained on. Update 0 is the backbone before training; its held-out row is as "
            "the canonical interface sees the records. 95% intervals over runs and items, over items for a single run."
        ),
    )


def _columns(contents: ReportContents) -> list[tuple[str, str | None]]:
    return [*((HELD_OUT, fold) for fold in contents.folds), (HELD_OUT, None), (SOURCE, None)]


def _rate(interval: Interval) -> str:
    return f"{percent(interval.estimate):.2f} {interval_text(interval, signed=False)}"


def update_figure(contents: ReportContents, points: Sequence[UpdatePoint]) -> Figure:
    """One panel for each fold and kind: the pass rate of each method by update."""
    styles = method_styles(contents.methods)
    ends = [percent(v) for p in points for v in (p.interval.low, p.interval.high)]
    domain = (max(0.0, min(ends) - 3), min(100.0, max(ends) + 3))
    panels = []
    for kind in (HELD_OUT, SOURCE):
        for index, fold in enumerate(contents.folds):
            shown = [p for p in points if (p.kind, p.fold) == (kind, fold)]
            last = {p.method: percent(p.interval.estimate) for p in shown}
            parts = [f"{label(method)} {value:.2f}%" for method, value in last.items()]
            panels.append(
                Panel(
                    name=f"by-update-{kind}-{index}",
                    title=f"{label(fold)}, held out"
                    if kind == HELD_OUT
                    else f"Source of the {label(fold)} fold",
                    description=f"Pass rate by update. Last values: {listed(parts) or 'none'}.",
                    chart=LineChart(
                        lines=_series(shown, styles),
                        x_domain=(0.0, max(p.update for p in points)),
                        y_domain=domain,
                    ),
                )
            )
    return Figure(
        name="by-update",
        title="Source and held-out pass rate (%) by update",
        caption=(
            "Line: mean over runs. Band: 95% interval over runs and items, over items for a single run. "
            "Update 0 is the backbone before training."
        ),
        panels=tuple(panels),
        legend=styles,
    )


def _series(shown: Sequence[UpdatePoint], styles: Mapping[str, Style]) -> tuple[Line, ...]:
    lines = (
        Line(
            style=style,
            points=tuple(
                LinePoint(
                    x=p.update,
                    y=percent(p.interval.estimate),
                    low=percent(p.interval.low),
                    high=percent(p.interval.high),
                )
                for p in shown
                if p.method == method
            ),
        )
        for method, style in styles.items()
    )
    return tuple(line for line in lines if line.points)
