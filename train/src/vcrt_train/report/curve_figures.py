"""Make the figures over updates: training curves, a constraint's multiplier below its values, and checkpoints.

A curve is the mean over bins of updates and over runs. What its quantity is called and how it is read stands in
:mod:`vcrt_train.report.quantities`; the pass rates of checkpoints are :mod:`vcrt_train.report.by_update`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from vcrt.printable import counted, listed
from vcrt_train.protocol.source_validation import RATE, validations
from vcrt_train.report import quantities as table
from vcrt_train.report.analysis import Analysis
from vcrt_train.report.by_update import HELD_OUT, SOURCE
from vcrt_train.report.charts import (
    Figure,
    LineChart,
    LinePoint,
    Panel,
    Reference,
    method_styles,
    padded,
)
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.quantities import LOG_MARGIN
from vcrt_train.report.wording import label, percent

#: At most this many points a line, so that long runs stay light to draw and to load.
MAX_POINTS = 60
#: The smallest normal number in float32, in which masses are logged.
SMALLEST = 2.0**-126
#: The line that is drawn with source pass rates.
FROZEN_LINE = "frozen backbone on the same items"
_DOTTED = (1.5, 3.0)


def quantities(contents: ReportContents) -> tuple[str, ...]:
    """The known quantities that some run logged, in the order in which they are shown."""
    logged = {name for run in contents.runs for row in run.curve for name in row}
    if {"orbit_mass", "illegal_mass"} <= logged:
        logged.add(LOG_MARGIN)
    return tuple(name for name in table.quantities() if name in logged)


def value_of(row: Mapping[str, float], quantity: str) -> float:
    """A logged quantity, or one that follows from what was logged; nan where it is not known."""
    if quantity != LOG_MARGIN:
        return row.get(quantity, math.nan)
    orbit, others = row.get("orbit_mass", math.nan), row.get("illegal_mass", math.nan)
    # A mass that is too small to be written as a number is as small as numbers are.
    return math.log(max(orbit, SMALLEST)) - math.log(max(others, SMALLEST))


def bin_width(contents: ReportContents) -> int:
    """How many updates one point stands for."""
    return max(1, math.ceil(last_update(contents) / MAX_POINTS))


def last_update(contents: ReportContents) -> int:
    """The last update that any run logged; 1 if none was."""
    return int(max((row["update"] for run in contents.runs for row in run.curve), default=1))


def curve_points(
    contents: ReportContents, quantity: str
) -> dict[tuple[str, str], tuple[LinePoint, ...]]:
    """The points of one quantity by method and fold: the mean over runs in a bin of updates, and the range over runs.

    Values that are not finite are left out.
    """
    width = bin_width(contents)
    # What is left over belongs to the last whole bin, so that no line ends in a single noisy update.
    last = max(0, last_update(contents) // width - 1)
    found: dict[tuple[str, str], dict[int, dict[int, list[tuple[float, float]]]]] = {}
    for run in contents.runs:
        for row in run.curve:
            value = value_of(row, quantity)
            if math.isfinite(value):
                place = min(int(row["update"] - 1) // width, last)
                bins = found.setdefault((run.method, run.held_out), {}).setdefault(place, {})
                bins.setdefault(run.seed, []).append((row["update"], value))
    return {
        key: tuple(_point(list(runs.values())) for _, runs in sorted(bins.items()))
        for key, bins in found.items()
    }


def _point(runs: Sequence[Sequence[tuple[float, float]]]) -> LinePoint:
    """The point of one bin from the updates and values that each run logged in it."""
    updates = [update for logged in runs for update, _ in logged]
    means = [sum(value for _, value in logged) / len(logged) for logged in runs]
    return LinePoint(
        x=sum(updates) / len(updates), y=sum(means) / len(means), low=min(means), high=max(means)
    )


def curve_figures(contents: ReportContents) -> tuple[Figure, ...]:
    """One figure for each logged quantity; the multiplier of a constraint is drawn with it."""
    logged = quantities(contents)
    paired = {one.dual for name, one in table.core().items() if name in logged}
    return tuple(_figure(contents, name, logged) for name in logged if name not in paired)


def how_to_read(contents: ReportContents) -> str:
    """What lines, bands and markers are, for all figures of curves."""
    width = bin_width(contents)
    each = "each update" if width == 1 else f"means over {counted(width, 'update')}"
    several = len({run.seed for run in contents.runs}) > 1
    band = "Lines are means over runs, bands the range over runs" if several else "One run a line"
    return (
        f"{band}; points are {each}. Markers only tell methods apart. Rewards and probabilities are of the behaviour "
        "policy, before an update's first step; source pass rates are of the policy after the update; terms of "
        "the objective are of the update's last epoch, before its step."
    )


def stem(quantity: str) -> str:
    """The name of a quantity's figure."""
    return f"curve-{quantity.replace('_', '-')}"


def _figure(contents: ReportContents, name: str, logged: Sequence[str]) -> Figure:
    quantity = table.quantities()[name]
    references = {fold: _references(contents, name, fold) for fold in contents.folds}
    panels = [*_panels(contents, name, references)]
    parts = [quantity.note]
    for drawn in dict.fromkeys(
        one.label or FROZEN_LINE for some in references.values() for one in some
    ):
        parts.append(f"Dotted: the {drawn}.")
    if quantity.dual in logged and quantity.dual is not None:
        panels += _panels(contents, quantity.dual, {})
        parts.append("Below: the constraint's multiplier, 0 for methods without constraints.")
    return Figure(
        name=stem(name),
        title=quantity.title,
        caption=" ".join(filter(None, parts)),
        panels=tuple(panels),
        core=name in table.core(),
        legend=method_styles(contents.methods),
    )


def _references(contents: ReportContents, name: str, fold: str) -> tuple[Reference, ...]:
    """What a quantity is held against: a setting that all runs share, or the frozen backbone, in each view once."""
    if name == RATE:
        curves = [run.curve for run in contents.runs if run.held_out == fold]
        rates = sorted({one.frozen for curve in curves for one in validations(curve)})
        return tuple(Reference(value=rate, dash=_DOTTED) for rate in rates)
    limit = table.quantities()[name].limit
    if limit is None or (contents.search is not None and limit[0] == "margin"):
        return ()
    value = contents.plan.get("config", {}).get("objective", {}).get(limit[0])
    if not isinstance(value, int | float):
        return ()
    return (Reference(value=float(value), dash=_DOTTED, label=f"{limit[1]} {value:g}"),)


def _panels(
    contents: ReportContents, name: str, references: Mapping[str, tuple[Reference, ...]]
) -> tuple[Panel, ...]:
    points = curve_points(contents, name)
    limits = [one.value for some in references.values() for one in some]
    values = [v for line in points.values() for p in line for v in (p.low, p.high)] + limits
    y_domain = (
        (0.0, 1.0)
        if table.quantities()[name].share
        else padded(min(values, default=0.0), max(values, default=0.0))
    )
    panels = []
    for index, fold in enumerate(contents.folds):
        shown = {method: line for (method, of), line in points.items() if of == fold}
        ends = [f"{label(m)} from {p[0].y:.3g} to {p[-1].y:.3g}" for m, p in shown.items()]
        zero = (
            "" if any(p.low or p.high for line in shown.values() for p in line) else "0 throughout"
        )
        panels.append(
            Panel(
                name=f"{stem(name)}-{index}",
                title=f"{label(fold)}: multiplier"
                if name in table.duals()
                else f"{label(fold)} held out",
                description=(
                    f"{table.quantities()[name].title} by update, first and last values: {listed(ends) or 'none'}."
                ),
                chart=LineChart(
                    lines=_lines(contents, shown),
                    x_domain=(0.0, last_update(contents)),
                    y_domain=y_domain,
                    references=references.get(fold, ()),
                    remark=zero if shown else "not logged",
                ),
            )
        )
    return tuple(panels)


def _lines(
    contents: ReportContents, points: Mapping[str, Sequence[LinePoint]]
) -> dict[int, Sequence[LinePoint]]:
    """The points of each method that has some, in the order of the plan."""
    styles = method_styles(contents.methods)
    return {number: points[method] for method, number in styles.items() if points.get(method)}


def update_figure(analysis: Analysis) -> Figure | None:
    """The pass rate of each method by update, a panel for each fold and kind; None if no checkpoint was scored."""
    if not analysis.by_update:
        return None
    contents, found = analysis.contents, analysis.by_update
    ends = [percent(v) for p in found for v in (p.interval.low, p.interval.high)]
    panels = []
    for kind in (HELD_OUT, SOURCE):
        for index, fold in enumerate(contents.folds):
            points: dict[str, list[LinePoint]] = {}
            for point in found:
                if (point.kind, point.fold) == (kind, fold):
                    rate = point.interval
                    y, low, high = map(percent, (rate.estimate, rate.low, rate.high))
                    points.setdefault(point.method, []).append(
                        LinePoint(x=point.update, y=y, low=low, high=high)
                    )
            last = [f"{label(method)} {line[-1].y:.2f}%" for method, line in points.items()]
            name = label(fold)
            panels.append(
                Panel(
                    name=f"by-update-{kind}-{index}",
                    title=f"{name}, held out" if kind == HELD_OUT else f"Source of the {name} fold",
                    description=f"Pass rate by update. Last values: {listed(last) or 'none'}.",
                    chart=LineChart(
                        lines=_lines(contents, points),
                        x_domain=(0.0, max(p.update for p in found)),
                        y_domain=(max(0.0, min(ends) - 3), min(100.0, max(ends) + 3)),
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
        legend=method_styles(contents.methods),
    )
