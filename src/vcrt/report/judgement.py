"""What may be concluded from the numbers: signs that are determined, bounds, and the guardrail on source decline.

A conclusion is drawn only where the intervals, or the number of items, can carry it. Not covered: the sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from vcrt.protocol.statistics import Interval
from vcrt.report import paper
from vcrt.report.analysis import Analysis, MethodResult
from vcrt.report.comparisons import Comparison

#: A pass rate is at the ceiling if its interval includes or exceeds this and the rate itself is not below ``NEAR``,
#: at the floor if the same holds of its shortfall. A wide interval alone says that little is known.
CEILING = 0.995
NEAR = 0.98
Bound: TypeAlias = Literal["ceiling", "floor"]


def macro_sign(comparison: Comparison) -> int:
    """The determined sign of the macro difference; 0 if there is no macro difference."""
    if comparison.macro is None:
        return 0
    return comparison.macro.sign


def bound_of(interval: Interval) -> Bound | None:
    """``ceiling`` or ``floor`` if the interval of a pass rate reaches it."""
    if interval.high >= CEILING and interval.estimate >= NEAR:
        return "ceiling"
    return "floor" if interval.low <= 1 - CEILING and interval.estimate <= 1 - NEAR else None


def fold_bound(analysis: Analysis, fold: str) -> Bound | None:
    """The bound at which every trained method is on a fold, if there is one."""
    return _common([r.folds[fold].runs_and_items for r in analysis.results if fold in r.folds])


def macro_bound(analysis: Analysis) -> Bound | None:
    """The bound at which every method's macro is, if every method has one."""
    intervals = [macro_interval(result) for result in analysis.results]
    return None if None in intervals else _common([i for i in intervals if i is not None])


def macro_interval(result: MethodResult) -> Interval | None:
    """The interval of a method's macro pass rate: over runs and items, or over items for a single run."""
    return None if result.macro is None else result.macro.runs_and_items


def _common(intervals: Sequence[Interval]) -> Bound | None:
    bounds = {bound_of(interval) for interval in intervals}
    return bounds.pop() if len(bounds) == 1 else None


def ablation_signs(analysis: Analysis) -> dict[str, int]:
    """The determined sign of the method under study minus each of the paper's ablations that has every fold."""
    return {
        name: macro_sign(comparison)
        for name, comparison in analysis.comparisons.items()
        if comparison.macro is not None and paper.is_ablation(name)
    }


def resolves_guardrail(num_items: int) -> bool:
    """Whether one item is at most the guardrail: with fewer, a single item would decide."""
    return 100 / num_items <= paper.RETENTION_GUARDRAIL


def within_guardrail(change: float) -> bool:
    """Whether a change of source retention, as a fraction, is within the paper's guardrail of two points."""
    return 100 * change >= -paper.RETENTION_GUARDRAIL - 1e-9
