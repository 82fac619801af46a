"""Make the figures over updates: training curves, a constraint's multiplier below its values, and checkpoints.

A curve is the mean over bins of updates and over runs. The terms of the objective are those of the table
:data:`vcrt_train.objective.terms.TERMS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vcrt.printable import counted, listed
from vcrt_train.objective.terms import TERMS, constrained
from vcrt_train.protocol.source_validation import ACCOUNTED, RATE, VARIANCE, validations
from vcrt_train.report.analysis import HELD_OUT, SOURCE, Analysis
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
from vcrt_train.report.wording import label, percent

#: This quantity is computed from the two masses; every other one is logged.
LOG_MARGIN = "log_margin"
#: The most points of a line, so that figures of long runs stay small.
MAX_POINTS = 60
#: The smallest normal number in float32, in which masses are logged.
SMALLEST = 2.0**-126
#: The name of the line that is drawn with source pass rates.
FROZEN_LINE = "frozen backbone on the same items"
_DOTTED = (1.5, 3.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantity:
    """One quantity; ``limit`` holds the setting of the objective that is drawn as a line, and the line's name.

    ``dual`` names the quantity that is drawn below it, which has ``is_dual``.
    """

    title: str
    note: str
    #: Whether the scale is from 0 to 1.
    share: bool = False
    limit: tuple[str, str] | None = None
    dual: str | None = None
    is_dual: bool = False
    #: Whether it is shown at once; otherwise after a click.
    core: bool = False


def known_quantities() -> dict[str, Quantity]:
    """Return all quantities by name, in the order in which they are shown."""
    first = {
        "mean_reward": Quantity(
            title="Mean reward of sampled orders",
            note="The share of sampled orders that end in the certified state. Of the behaviour policy, which drew "
            "them, before the update's first step.",
            share=True,
        ),
        RATE: Quantity(
            title="Source pass rate on untrained items",
            note="The share of source items set aside that pass, one greedy order each. Of the policy after the "
            "update.",
            share=True,
        ),
        "orbit_mass": Quantity(
            title="Probability of the certified orbit",
            note="All certified orders of a prompt together; the mean over an update's prompts. Of the behaviour "
            "policy, before the update's first step.",
            share=True,
        ),
        "illegal_mass": Quantity(
            title="Probability of other orders",
            note="All orders outside the certified orbit together. Of the behaviour policy.",
            share=True,
        ),
        LOG_MARGIN: Quantity(
            title="Margin of the orbit over other orders (nats)",
            note="The logarithm of the mean orbit mass over the mean mass of other orders. The anti-diamond loss asks "
            "for its margin of each prompt by itself.",
            limit=("margin", "margin"),
        ),
        **_losses(shown=True),
        **{
            name: Quantity(
                title=f"Constraint: {term.title}",
                note=term.note,
                limit=(term.cap, "cap") if isinstance(term.cap, str) else None,
                dual=f"dual_{name}",
            )
            for name, term in TERMS.items()
            if term.cap is not None
        },
        "clip_fraction": Quantity(
            title="Share of clipped ratios",
            note="Of the samples of an update's last epoch.",
            share=True,
        ),
        "zero_advantage_share": Quantity(
            title="Share of prompts without advantage",
            note="All samples of such a prompt had the same reward, so the policy term learns nothing from it.",
            share=True,
        ),
    }
    return {
        **{name: replace(quantity, core=True) for name, quantity in first.items()},
        "loss": Quantity(title="Loss", note="The sum of all terms of the method."),
        **_losses(shown=False),
        **{
            f"penalty_{name}": Quantity(
                title=f"{_capital(name)} penalty", note="The term of the augmented Lagrangian."
            )
            for name in constrained()
        },
        "orbit_mass_last_epoch": Quantity(
            title="Probability of the certified orbit in the last epoch",
            note="After all steps of the update but the last, on the prompts of those very steps: it rises there even "
            "where the policy is being destroyed.",
            share=True,
        ),
        "malformed_mass": Quantity(
            title="Probability of malformed answers",
            note="Answers that are no orders; 0 where the policy can only point. Of the behaviour policy.",
            share=True,
        ),
        "orbit_log_mass_error": Quantity(
            title="Standard error of the orbit's log-mass (nats)",
            note="Of records whose orders are not all scored; 0 where all legal prefixes are.",
        ),
        "effective_path_share": Quantity(
            title="Share of masked paths that are effective",
            note="In the posterior weights of the orbit mass's gradient; 0 where that is exact.",
            share=True,
        ),
        **{
            VARIANCE[part]: Quantity(
                title=f"Share of the gradient's variance {where}",
                note=f"{removed} Of the policy after the update, on {ACCOUNTED} items set aside.",
                share=True,
            )
            for part, where, removed in (
                ("between", "between the classes", "Only more samples take it away."),
                ("within_successes", "within successes", "The ratio of the orbit takes it away."),
                ("within_failures", "within failures", "The ratio of both classes takes it away."),
            )
        },
        "gradient_norm": Quantity(title="Gradient norm", note="Before it was scaled down."),
        "start_log_ratio": Quantity(
            title="Largest log-ratio before the first step",
            note="0 where scoring is exact.",
        ),
        **{
            f"dual_{name}": Quantity(
                title=f"{TERMS[name].title}: multiplier", note="", is_dual=True
            )
            for name in constrained()
        },
    }


def _losses(*, shown: bool) -> dict[str, Quantity]:
    return {
        term.name: Quantity(title=term.title, note=term.note)
        for term in TERMS.values()
        if term.cap is None and term.shown is shown
    }


def _capital(name: str) -> str:
    words = name.replace("_", " ").replace("kl", "KL")
    return words[:1].upper() + words[1:]


def quantities(contents: ReportContents) -> tuple[str, ...]:
    """Return the known quantities that some run logged, in the order in which they are shown."""
    logged = {name for run in contents.runs for row in run.curve for name in row}
    if {"orbit_mass", "illegal_mass"} <= logged:
        logged.add(LOG_MARGIN)
    return tuple(name for name in known_quantities() if name in logged)


def value_of(row: Mapping[str, float], quantity: str) -> float:
    """Return a quantity that was logged or follows from logged ones; nan if it is not known."""
    if quantity != LOG_MARGIN:
        return row.get(quantity, math.nan)
    orbit, others = row.get("orbit_mass", math.nan), row.get("illegal_mass", math.nan)
    # A mass that underflows to 0 counts as the smallest number.
    return math.log(max(orbit, SMALLEST)) - math.log(max(others, SMALLEST))


def bin_width(contents: ReportContents) -> int:
    """Return the number of updates of one point."""
    return max(1, math.ceil(last_update(contents) / MAX_POINTS))


def last_update(contents: ReportContents) -> int:
    """Return the last update that any run logged; 1 if none was."""
    return int(max((row["update"] for run in contents.runs for row in run.curve), default=1))


def curve_points(
    contents: ReportContents, quantity: str
) -> dict[tuple[str, str], tuple[LinePoint, ...]]:
    """Compute one quantity's points by method and fold: mean over runs in a bin of updates, and range over runs.

    Values that are not finite are left out.
    """
    width = bin_width(contents)
    # Remaining updates belong to the last whole bin, so that no line ends in a single noisy update.
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
    """Compute the point of one bin from the updates and values that each run logged in it."""
    updates = [update for logged in runs for update, _ in logged]
    means = [sum(value for _, value in logged) / len(logged) for logged in runs]
    return LinePoint(
        x=sum(updates) / len(updates), y=sum(means) / len(means), low=min(means), high=max(means)
    )


def curve_figures(contents: ReportContents) -> tuple[Figure, ...]:
    """Make one figure for each logged quantity; a constraint's figure includes its multiplier."""
    logged, known = quantities(contents), known_quantities()
    paired = {known[name].dual for name in logged}
    return tuple(_figure(contents, name, logged) for name in logged if name not in paired)


def how_to_read(contents: ReportContents) -> str:
    """Explain lines, bands and markers, for all figures of curves."""
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
    """Return the name of a quantity's figure."""
    return f"curve-{quantity.replace('_', '-')}"


def _figure(contents: ReportContents, name: str, logged: Sequence[str]) -> Figure:
    quantity = known_quantities()[name]
    references = {fold: _references(contents, name, fold) for fold in contents.folds}
    panels = _panels(contents, name, references)
    named = [one.label or FROZEN_LINE for some in references.values() for one in some]
    parts = [quantity.note, *(f"Dotted: the {drawn}." for drawn in dict.fromkeys(named))]
    if quantity.dual is not None and quantity.dual in logged:
        panels += _panels(contents, quantity.dual, {})
        parts.append("Below: the constraint's multiplier, 0 for methods without constraints.")
    return Figure(
        name=stem(name),
        title=quantity.title,
        caption=" ".join(filter(None, parts)),
        panels=tuple(panels),
        core=quantity.core,
        legend=method_styles(contents.methods),
    )


def _references(contents: ReportContents, name: str, fold: str) -> tuple[Reference, ...]:
    """Return a quantity's reference lines: a setting that all runs share, or the frozen backbone's different rates."""
    if name == RATE:
        curves = [run.curve for run in contents.runs if run.held_out == fold]
        rates = sorted({one.frozen for curve in curves for one in validations(curve)})
        return tuple(Reference(value=rate, dash=_DOTTED) for rate in rates)
    limit = known_quantities()[name].limit
    if limit is None or (contents.search is not None and limit[0] == "margin"):
        return ()
    value = contents.plan.get("config", {}).get("objective", {}).get(limit[0])
    if not isinstance(value, int | float):
        return ()
    return (Reference(value=float(value), dash=_DOTTED, label=f"{limit[1]} {value:g}"),)


def _panels(
    contents: ReportContents, name: str, references: Mapping[str, tuple[Reference, ...]]
) -> list[Panel]:
    quantity, points = known_quantities()[name], curve_points(contents, name)
    values = [one.value for some in references.values() for one in some]
    values += [value for line in points.values() for p in line for value in (p.low, p.high)]
    y_domain = (0.0, 1.0)
    if not quantity.share:
        y_domain = padded(min(values, default=0.0), max(values, default=0.0))
    panels = []
    for index, fold in enumerate(contents.folds):
        shown = {method: line for (method, of), line in points.items() if of == fold}
        ends = [f"{label(m)} from {p[0].y:.3g} to {p[-1].y:.3g}" for m, p in shown.items()]
        is_zero = not any(p.low or p.high for line in shown.values() for p in line)
        remark = "not logged" if not shown else "0 throughout" if is_zero else ""
        panels.append(
            Panel(
                name=f"{stem(name)}-{index}",
                title=f"{label(fold)}{': multiplier' if quantity.is_dual else ' held out'}",
                description=f"{quantity.title} by update, first and last values: {listed(ends) or 'none'}.",
                chart=LineChart(
                    lines=_lines(contents, shown),
                    x_domain=(0.0, last_update(contents)),
                    y_domain=y_domain,
                    references=references.get(fold, ()),
                    remark=remark,
                ),
            )
        )
    return panels


def _lines(
    contents: ReportContents, points: Mapping[str, Sequence[LinePoint]]
) -> dict[int, Sequence[LinePoint]]:
    """Return the points of each method that has some, in the order of the plan."""
    styles = method_styles(contents.methods)
    return {number: points[method] for method, number in styles.items() if points.get(method)}


def update_figure(analysis: Analysis) -> Figure | None:
    """Make the figure of pass rates by update, a panel for each fold and kind; None if no checkpoint was scored."""
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
