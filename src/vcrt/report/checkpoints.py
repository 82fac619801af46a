"""Pass rates by update as a table and as a figure; the numbers are :mod:`vcrt.report.by_update`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from vcrt.protocol.statistics import Interval
from vcrt.report.by_update import HELD_OUT, SOURCE, UpdatePoint
from vcrt.report.cells import MISSING
from vcrt.report.contents import ReportContents
from vcrt.report.panels import Figure, Style, color, data, draw, method_styles
from vcrt.report.svg import Layers
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
    panels = []
    for kind in (HELD_OUT, SOURCE):
        for index, fold in enumerate(contents.folds):
            shown = [p for p in points if (p.kind, p.fold) == (kind, fold)]
            last = {p.method: percent(p.interval.estimate) for p in shown}
            parts = [f"{label(method)} {value:.2f}%" for method, value in last.items()]
            title = (
                f"{label(fold)}, held out"
                if kind == HELD_OUT
                else f"Source of the {label(fold)} fold"
            )
            panels.append(
                draw(
                    _chart(shown, styles),
                    f"by-update-{kind}-{index}",
                    title,
                    f"Pass rate by update. Last values: {listed(parts) or 'none'}.",
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
    )


def _chart(shown: Sequence[UpdatePoint], styles: Mapping[str, Style]) -> Layers:
    rows = [
        {
            "label": label(p.method),
            "update": p.update,
            "rate": percent(p.interval.estimate),
            "low": percent(p.interval.low),
            "high": percent(p.interval.high),
        }
        for p in shown
    ]
    base = alt.Chart(data(rows)).encode(
        x=alt.X("update:Q", title="update", scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=5))
    )
    y = alt.Scale(zero=False, nice=False)
    dash = alt.Scale(
        domain=[label(method) for method in styles],
        range=[list(style.dash) or [1, 0] for style in styles.values()],
    )
    return alt.layer(
        base.mark_area(opacity=0.08).encode(
            y=alt.Y("low:Q", title=None, scale=y, axis=alt.Axis(tickCount=5)),
            y2="high:Q",
            color=color(styles),
        ),
        base.mark_line(strokeWidth=2).encode(
            y=alt.Y("rate:Q", title=None, scale=y),
            color=color(styles),
            strokeDash=alt.StrokeDash("label:N", scale=dash, legend=None),
        ),
    )
