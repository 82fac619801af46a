"""What may be concluded from the numbers: signs that are determined, bounds, and the guardrail on source decline.

A conclusion is drawn only where the intervals, or the number of items, can carry it. Not covered: the sentences.
"""

from __future__ import annotations

from vcrt.report import paper
from vcrt.report.analysis import Analysis, Comparison, Estimate


def determined_sign(estimate: Estimate, num_runs: int) -> int:
    """1 or -1 where the interval over runs and items excludes zero, else 0.

    A single run cannot show how runs differ, so its interval over items decides.
    """
    return (estimate.items if num_runs == 1 else estimate.runs_and_items).sign


def macro_sign(comparison: Comparison) -> int:
    """The determined sign of the macro difference; 0 if there is no macro difference."""
    if comparison.macro is None:
        return 0
    return determined_sign(comparison.macro, max(comparison.num_runs.values()))


def fold_sign(comparison: Comparison, fold: str) -> int:
    """The determined sign of the difference on a fold."""
    return determined_sign(comparison.folds[fold], comparison.num_runs[fold])


def same_everywhere(difference: Estimate) -> bool:
    """Whether no resample of runs and items differs from zero: every item scored the same."""
    intervals = (difference.items, difference.runs_and_items)
    return all(i.estimate == i.low == i.high == 0 for i in intervals)


def contributions(comparison: Comparison) -> dict[str, float]:
    """Each fold's share of the macro difference; empty if there is no macro difference."""
    if comparison.macro is None or comparison.macro.value == 0:
        return {}
    total = comparison.macro.value * len(comparison.folds)
    return {fold: estimate.value / total for fold, estimate in comparison.folds.items()}


def at_bound(analysis: Analysis, fold: str, *, tolerance: float = 0.01) -> str | None:
    """``ceiling`` or ``floor`` if every trained method is within ``tolerance`` of 1 or of 0 on a fold."""
    rates = [r.folds[fold].value for r in analysis.results if fold in r.folds]
    if min(rates) >= 1 - tolerance:
        return "ceiling"
    return "floor" if max(rates) <= tolerance else None


def resolves_guardrail(num_items: int) -> bool:
    """Whether one item is at most the guardrail: with fewer, a single item would decide."""
    return 100 / num_items <= paper.RETENTION_GUARDRAIL


def within_guardrail(change: float) -> bool:
    """Whether a change of source retention, as a fraction, is within the paper's guardrail of two points."""
    return 100 * change >= -paper.RETENTION_GUARDRAIL - 1e-9
