"""Write names and numbers: percentages, signed percentage points, intervals in brackets."""

from __future__ import annotations

from collections.abc import Collection

from vcrt.printable import counted, printable
from vcrt_train.protocol.statistics import Interval
from vcrt_train.report.names import display_name


def label(name: str) -> str:
    """A method or environment as it is shown: in the paper's spelling if the paper has it."""
    return printable(display_name(name))


def percent(fraction: float) -> float:
    """A fraction as a percentage, to be written with two decimals."""
    return round(100 * fraction, 2) + 0.0


def points(fraction: float) -> str:
    """A difference of fractions as signed percentage points; zero has no sign."""
    value = percent(fraction)
    return f"{value:+.2f}" if round(value, 2) else "0.00"


def interval_text(interval: Interval, *, signed: bool = True) -> str:
    """``[low, high]`` in percentage points, or in percent if not ``signed``."""
    ends = (interval.low, interval.high)
    return "[{}, {}]".format(*(points(e) if signed else f"{percent(e):.2f}" for e in ends))


def decisive_text(interval: Interval, *, signed: bool = True) -> str:
    """The interval over runs and items, or in words that a single run has none."""
    return interval_text(interval, signed=signed) if interval.over_runs else "(a single run)"


def counted_range(numbers: Collection[int], singular: str) -> str:
    """``1 run``, ``3 runs`` or ``1 to 3 runs``."""
    low, high = min(numbers), max(numbers)
    return counted(low, singular) if low == high else f"{low:,} to {counted(high, singular)}"
