"""Training curves made ready for drawing: which quantities there are, and their means over bins of updates and runs.

What each quantity is called and how it is read stands in :mod:`vcrt.report.quantities`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vcrt.report import quantities as table
from vcrt.report.contents import ReportContents
from vcrt.report.quantities import LOG_MARGIN

#: At most this many points a line, so that long runs stay light to draw and to load.
MAX_POINTS = 60
#: The smallest normal number in float32, in which masses are logged.
SMALLEST = 2.0**-126


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePoint:
    """The mean over runs of a quantity in one bin of updates, and its range over runs."""

    method: str
    held_out: str
    update: float
    mean: float
    low: float
    high: float


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


def curve_points(contents: ReportContents, quantity: str) -> tuple[CurvePoint, ...]:
    """All points of one quantity, by method, fold and bin. Values that are not finite are left out."""
    width = bin_width(contents)
    # What is left over belongs to the last whole bin, so that no line ends in a single noisy update.
    last = max(0, last_update(contents) // width - 1)
    bins: dict[tuple[str, str, int], dict[int, list[tuple[float, float]]]] = {}
    for run in contents.runs:
        for row in run.curve:
            value = value_of(row, quantity)
            if math.isfinite(value):
                place = min(int(row["update"] - 1) // width, last)
                key = (run.method, run.held_out, place)
                bins.setdefault(key, {}).setdefault(run.seed, []).append((row["update"], value))
    seen = list(dict.fromkeys(key[:2] for key in bins))
    return tuple(
        _point(method, held_out, runs.values())
        # By the first appearance of method and fold, and then by update, whichever run has a value there first.
        for (method, held_out, _), runs in sorted(
            bins.items(), key=lambda item: (seen.index(item[0][:2]), item[0][2])
        )
    )


def _point(method: str, held_out: str, runs: Iterable[list[tuple[float, float]]]) -> CurvePoint:
    updates = [update for logged in runs for update, _ in logged]
    means = [sum(value for _, value in logged) / len(logged) for logged in runs]
    return CurvePoint(
        method=method,
        held_out=held_out,
        update=sum(updates) / len(updates),
        mean=sum(means) / len(means),
        low=min(means),
        high=max(means),
    )
