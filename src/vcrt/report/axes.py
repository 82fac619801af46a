"""Lay out the axes of a figure: round ticks, how they are written, and where a value stands."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """From values between ``low`` and ``high`` to places between ``start`` and ``end``; what is outside is clamped."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        share = (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))


def ticks(low: float, high: float, count: int = 5) -> tuple[tuple[float, str], ...]:
    """Round values from ``low`` to ``high`` with their texts, all with the same decimals.

    They are apart by the smallest of 1, 2 and 5 times a power of ten that gives at most ``count`` intervals.
    """
    span, step = high - low, 1.0
    if math.isfinite(span) and span > 0:
        power = 10.0 ** math.floor(math.log10(span / count))
        steps = (factor * power for factor in (1.0, 2.0, 5.0, 10.0))
        step = next((s for s in steps if span <= count * s * (1 + 1e-9)), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    values = [index * step for index in range(first, last + 1)]
    if decimals > 4 or step >= 1e6:
        return tuple((value, f"{value:.3g}") for value in values)
    return tuple((value, f"{value + 0.0:.{decimals}f}") for value in values)


def tens(values: Iterable[float]) -> tuple[float, float]:
    """The tens around percentages, with room at both ends but within 0 and 100."""
    inside = [min(100.0, max(0.0, value)) for value in values]
    low, high = 10 * math.floor((min(inside) - 2) / 10), 10 * math.ceil((max(inside) + 2) / 10)
    return max(0.0, low), min(100.0, high)


def padded(low: float, high: float, share: float = 0.05) -> tuple[float, float]:
    """An interval with zero in it, and some room at the ends that are not zero."""
    low, high = min(low, 0.0), max(high, 0.0)
    if low >= -1e-9 * high:
        # Rounding alone took it below zero.
        low = 0.0
    room = share * (high - low) or 1.0
    return (low - room if low < 0 else 0.0), (high + room if high > 0 or low == 0 else 0.0)
