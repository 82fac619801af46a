"""Training curves as figures: one panel for each fold, and below a constraint's values its multiplier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vcrt.report import quantities as table
from vcrt.report.axes import padded
from vcrt.report.charts import (
    Ends,
    Figure,
    Line,
    LineChart,
    LinePoint,
    Panel,
    Reference,
    method_styles,
)
from vcrt.report.contents import ReportContents
from vcrt.report.curves import CurvePoint, bin_width, curve_points, last_update, quantities
from vcrt.report.wording import counted, label, listed

_DOTTED = (1.5, 3.0)


def curve_figures(contents: ReportContents) -> tuple[Figure, ...]:
    """One figure for each logged quantity; the multiplier of a constraint is drawn with it."""
    logged = quantities(contents)
    paired = {one.dual for name, one in table.core().items() if name in logged}
    return tuple(_figure(contents, name, logged) for name in logged if name not in paired)


def is_core(figure: Figure) -> bool:
    """Whether a figure of curves is shown at once."""
    return figure.name in {stem(name) for name in table.core()}


def how_to_read(contents: ReportContents) -> str:
    """What lines, bands and markers are, for all figures of curves."""
    width = bin_width(contents)
    each = "each update" if width == 1 else f"means over {counted(width, 'update')}"
    several = len({run.seed for run in contents.runs}) > 1
    band = "Lines are means over runs, bands the range over runs" if several else "One run a line"
    return f"{band}; points are {each}. Markers only tell methods apart."


def stem(quantity: str) -> str:
    """The name of a quantity's figure."""
    return f"curve-{quantity.replace('_', '-')}"


def _figure(contents: ReportContents, name: str, logged: Sequence[str]) -> Figure:
    quantity = table.quantities()[name]
    reference = _reference(contents, name)
    panels = [*_panels(contents, name, reference)]
    parts = [quantity.note]
    if reference is not None:
        parts.append(f"Dotted: the {reference.label}.")
    if quantity.dual in logged and quantity.dual is not None:
        panels += _panels(contents, quantity.dual, None)
        parts.append("Below: the constraint's multiplier, 0 for methods without constraints.")
    return Figure(
        name=stem(name),
        title=quantity.title,
        caption=" ".join(filter(None, parts)),
        panels=tuple(panels),
        legend=method_styles(contents.methods),
    )


def _reference(contents: ReportContents, name: str) -> Reference | None:
    """The setting that a quantity is held against, if all runs share it."""
    limit = table.quantities()[name].limit
    if limit is None or (contents.search is not None and limit[0] == "margin"):
        return None
    value = _setting(contents.plan, ("run", "objective", limit[0]))
    if not isinstance(value, int | float):
        return None
    return Reference(value=float(value), dash=_DOTTED, label=f"{limit[1]} {value:g}")


def _setting(plan: Mapping[str, Any], path: Sequence[str]) -> object:
    found: object = plan
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _panels(contents: ReportContents, name: str, reference: Reference | None) -> tuple[Panel, ...]:
    points = curve_points(contents, name)
    limits = [] if reference is None else [reference.value]
    y_domain = (0.0, 1.0) if table.quantities()[name].share else _domain(points, limits)
    below = name in table.duals()
    return tuple(
        Panel(
            name=f"{stem(name)}-{index}",
            title=f"{label(fold)}: multiplier" if below else f"{label(fold)} held out",
            description=_described(
                table.quantities()[name].title, shown := [p for p in points if p.held_out == fold]
            ),
            chart=LineChart(
                lines=_series(contents, shown),
                x_domain=(0.0, last_update(contents)),
                y_domain=y_domain,
                references=() if reference is None else (reference,),
                remark=_remark(shown),
            ),
        )
        for index, fold in enumerate(contents.folds)
    )


def _series(contents: ReportContents, shown: Sequence[CurvePoint]) -> tuple[Line, ...]:
    lines = (
        Line(
            style=style,
            points=tuple(
                LinePoint(x=p.update, y=p.mean, low=p.low, high=p.high)
                for p in shown
                if p.method == method
            ),
        )
        for method, style in method_styles(contents.methods).items()
    )
    return tuple(line for line in lines if line.points)


def _remark(shown: Sequence[CurvePoint]) -> str:
    if not shown:
        return "not logged"
    return "" if any(p.low or p.high for p in shown) else "0 throughout"


def _described(title: str, shown: Sequence[CurvePoint]) -> str:
    """First and last value of each method."""
    ends: dict[str, list[float]] = {}
    for point in shown:
        ends.setdefault(point.method, []).append(point.mean)
    parts = [f"{label(m)} from {v[0]:.3g} to {v[-1]:.3g}" for m, v in ends.items()]
    return f"{title} by update, first and last values: {listed(parts) or 'none'}."


def _domain(points: Sequence[CurvePoint], limits: Sequence[float]) -> Ends:
    values = [v for p in points for v in (p.low, p.high)] + [*limits]
    finite = [v for v in values if math.isfinite(v)]
    return padded(min(finite, default=0.0), max(finite, default=0.0))
