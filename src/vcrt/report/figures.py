"""The figures: differences with both intervals, pass rates with every run, and training curves, as static SVG.

A figure is a row of panels of one size, one for each fold, so that a page can wrap them; methods keep their colour and
dash in all figures, and :func:`method_styles` gives the legend. Not covered: tables, and anything interactive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import altair as alt

from vcrt.report.analysis import Analysis
from vcrt.report.contents import ReportContents
from vcrt.report.curves import (
    CURVE_TITLES,
    SHARES,
    CurvePoint,
    bin_width,
    curve_points,
    quantities,
)
from vcrt.report.estimates import Estimate
from vcrt.report.panels import (
    COLORS,
    Figure,
    Style,
    color,
    data,
    draw,
    labels,
    method_styles,
)
from vcrt.report.svg import Layers
from vcrt.report.task import chance, chance_text
from vcrt.report.wording import counted, interval_text, label, listed, percent, points

#: The frozen backbone is dashed and chance dotted.
REFERENCE_DASHES = ((6, 3), (1, 3))


def difference_figure(analysis: Analysis) -> Figure | None:
    """The headline difference by fold and macro, with both intervals; None without a headline."""
    headline = analysis.headline
    if headline is None:
        return None
    estimates = {label(fold): e for fold, e in headline.folds.items()}
    if headline.macro is not None:
        estimates["Macro"] = headline.macro
    rows = [_interval_row(name, e) for name, e in estimates.items()]
    title = f"{label(headline.method)} minus {label(headline.minus)} (points)"
    y = labels(list(estimates))
    base = alt.Chart(data(rows))
    chart = alt.layer(
        alt.Chart(data([{"zero": 0}]))
        .mark_rule(color="currentColor", opacity=0.6, strokeDash=[4, 3])
        .encode(x="zero:Q"),
        base.mark_rule(color=COLORS[0], strokeWidth=2).encode(
            x=alt.X("both_low:Q", title="points", axis=alt.Axis(tickCount=7)),
            x2="both_high:Q",
            y=y,
        ),
        base.mark_rule(color=COLORS[0], strokeWidth=7, opacity=0.45).encode(
            x="items_low:Q", x2="items_high:Q", y=y
        ),
        base.mark_point(color=COLORS[0], filled=True, size=70, opacity=1).encode(x="value:Q", y=y),
    )
    description = listed(
        [
            f"{name}: {points(e.value)}, {interval_text(e.runs_and_items)}"
            for name, e in estimates.items()
        ]
    )
    panel = draw(
        chart,
        "difference",
        title,
        f"{description}.",
        titled=False,
        height=56 + 30 * len(rows),
        width=480,
    )
    return Figure(
        name="difference",
        title=title,
        caption=(
            "Dot: mean over runs. Broad line: 95% interval over items. Thin line: over runs and items. "
            "Dashed: no difference."
        ),
        panels=(panel,),
    )


def pass_rate_figure(contents: ReportContents, analysis: Analysis) -> Figure:
    """Held-out pass rates: a ring for each run, mean and interval, beside the frozen backbone and chance."""
    styles = method_styles(contents.methods)
    panels = []
    for index, fold in enumerate(analysis.folds):
        rows: list[dict[str, Any]] = []
        dots: list[dict[str, Any]] = []
        for result in analysis.results:
            if fold in result.folds:
                name = label(result.method)
                rows.append(_interval_row(name, result.folds[fold]))
                dots += [
                    {"label": name, "rate": percent(rate.estimate)}
                    for rate in result.run_rates[fold].values()
                ]
        frozen = percent(analysis.frozen[fold].value)
        title = f"{label(fold)} held out"
        parts = [f"{row['label']} {row['value']:.2f}%" for row in rows]
        panels.append(
            draw(
                _rate_chart(rows, dots, (frozen, percent(chance(contents))), styles),
                f"pass-rates-{index}",
                title,
                f"Mean pass rates: {listed(parts)}; frozen backbone {frozen:.2f}%; "
                f"chance {chance_text(contents)}.",
                height=64 + 26 * len(analysis.results),
            )
        )
    return Figure(
        name="pass-rates",
        title="Held-out pass rate (%)",
        caption=(
            "Rings: single runs. Filled dot and line: mean and 95% interval over runs and items. "
            f"Dashed: frozen backbone. Dotted: a random order ({chance_text(contents)})."
        ),
        panels=tuple(panels),
    )


def _rate_chart(
    rows: list[dict[str, Any]],
    dots: list[dict[str, Any]],
    references: tuple[float, float],
    styles: Mapping[str, Style],
) -> Layers:
    y = labels([label(method) for method in styles])
    x = alt.Scale(domain=[0, 100], nice=False)
    hue = color(styles)
    base = alt.Chart(data(rows))
    return alt.layer(
        *(
            alt.Chart(data([{"reference": value}]))
            .mark_rule(color="currentColor", opacity=0.75, strokeDash=list(dash))
            .encode(x="reference:Q")
            for value, dash in zip(references, REFERENCE_DASHES, strict=True)
        ),
        base.mark_rule(strokeWidth=2).encode(
            x=alt.X("both_low:Q", title="pass rate (%)", scale=x),
            x2="both_high:Q",
            y=y,
            color=hue,
        ),
        base.mark_point(filled=True, size=60, opacity=1).encode(x="value:Q", y=y, color=hue),
        alt.Chart(data(dots))
        .mark_point(filled=False, size=60, strokeWidth=1.25, opacity=0.9)
        .encode(x="rate:Q", y=y, color=hue),
    )


def curve_figures(contents: ReportContents) -> tuple[Figure, ...]:
    """One figure for each logged quantity, with one panel for each fold."""
    width = bin_width(contents)
    each = "each update" if width == 1 else f"means over {counted(width, 'update')}"
    return tuple(
        Figure(
            name=f"curve-{quantity.replace('_', '-')}",
            title=CURVE_TITLES[quantity],
            caption=f"Line: mean over runs, {each}. Band: range over runs.",
            panels=_curve_panels(contents, quantity),
        )
        for quantity in quantities(contents)
    )


def _curve_panels(contents: ReportContents, quantity: str) -> tuple[str, ...]:
    all_points = curve_points(contents, quantity)
    domain = [0.0, 1.0] if quantity in SHARES else _domain(all_points)
    styles = method_styles(contents.methods)
    panels = []
    for index, fold in enumerate(contents.folds):
        shown = [p for p in all_points if p.held_out == fold]
        last = {p.method: p.mean for p in shown}
        parts = [f"{label(method)} {value:.3g}" for method, value in last.items()]
        panels.append(
            draw(
                _curve_chart(shown, domain, styles),
                f"curve-{quantity.replace('_', '-')}-{index}",
                f"{label(fold)} held out",
                f"{CURVE_TITLES[quantity]} by update. Last values: {listed(parts) or 'none'}.",
            )
        )
    return tuple(panels)


def _curve_chart(
    shown: Sequence[CurvePoint], domain: list[float], styles: Mapping[str, Style]
) -> Layers:
    rows = [{**asdict(p), "label": label(p.method)} for p in shown]
    names = [label(method) for method in styles]
    base = alt.Chart(data(rows)).encode(
        x=alt.X("update:Q", title="update", scale=alt.Scale(nice=False), axis=alt.Axis(tickCount=5))
    )
    y = alt.Scale(domain=domain, nice=False)
    ticks = alt.Axis(tickCount=5)
    dash = alt.Scale(domain=names, range=[list(s.dash) or [1, 0] for s in styles.values()])
    thickness = alt.Scale(domain=names, range=[s.width for s in styles.values()])
    return alt.layer(
        base.mark_area(opacity=0.14).encode(
            y=alt.Y("low:Q", title=None, scale=y, axis=ticks), y2="high:Q", color=color(styles)
        ),
        base.mark_line().encode(
            y=alt.Y("mean:Q", title=None, scale=y),
            color=color(styles),
            strokeDash=alt.StrokeDash("label:N", scale=dash, legend=None),
            strokeWidth=alt.StrokeWidth("label:N", scale=thickness, legend=None),
        ),
    )


def _domain(curve: Sequence[CurvePoint]) -> list[float]:
    """From the lowest to the highest value, with 0 in it and some room."""
    low = min((p.low for p in curve), default=0.0)
    high = max((p.high for p in curve), default=0.0)
    low, high = min(low, 0.0), max(high, 0.0)
    room = 0.05 * (high - low) or 1.0
    return [low - room if low < 0 else 0.0, high + room]


def _interval_row(name: str, estimate: Estimate) -> dict[str, Any]:
    return {
        "label": name,
        "value": percent(estimate.value),
        "items_low": percent(estimate.items.low),
        "items_high": percent(estimate.items.high),
        "both_low": percent(estimate.runs_and_items.low),
        "both_high": percent(estimate.runs_and_items.high),
    }
