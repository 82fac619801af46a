"""Write names as the paper spells them, and numbers: percentages, signed points, intervals, the cells of tables.

Names are the same if they differ only in case, hyphens, underscores and spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from vcrt.printable import counted, printable
from vcrt_train.protocol.statistics import Interval
from vcrt_train.report.estimates import Estimate
from vcrt_train.report.table import Cell

#: The paper's method.
METHOD = "VCRT"
#: The matched baseline without the interface of the method under study, and the one with it.
OUTCOME, CANONICAL = BASELINES = ("Outcome-GRPO", "Canonical-GRPO")
_SPELLINGS = (
    *("Lean", "ProofWriter", "CLRS"),
    *(METHOD, *BASELINES, "No-Anti", "No-Orbit", "Shuffled-Orbit"),
)
MISSING = "n/a"
INTERVALS = ("95% over runs and items", "95% bootstrap over items")
OVER_ITEMS = "95% over items"
TWO_INTERVALS = (
    "Over runs and items: crossed random effects with t quantiles, for new runs and new items; it decides signs, and a "
    "single run has none. Bootstrap over items: the paper's percentile interval, for exactly these runs; it is too "
    "narrow for new ones."
)


def same_name(first: str, second: str) -> bool:
    """Return whether two names are equal apart from case, hyphens, underscores and spaces."""
    return _letters(first) == _letters(second)


def method_under_study(methods: Sequence[str]) -> str | None:
    """Return VCRT if it is among the methods, otherwise the only one that is no baseline; None if there are several."""
    others = [one for one in methods if not any(same_name(one, name) for name in BASELINES)]
    found = [one for one in others if same_name(one, METHOD)] or others
    return found[0] if len(found) == 1 else None


def display_name(name: str) -> str:
    """Return the paper's spelling of a method or environment, or the name itself if the paper does not have it."""
    return next((spelling for spelling in _SPELLINGS if same_name(spelling, name)), name)


def _letters(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


def label(name: str) -> str:
    """Return the printable name of a method or environment, in the paper's spelling if there is one."""
    return printable(display_name(name))


def percent(fraction: float) -> float:
    """Return a fraction as a percentage, rounded to two decimals."""
    return round(100 * fraction, 2) + 0.0


def points(fraction: float) -> str:
    """Write a difference of fractions as signed percentage points; zero has no sign."""
    value = percent(fraction)
    return f"{value:+.2f}" if round(value, 2) else "0.00"


def interval_text(interval: Interval, *, signed: bool = True) -> str:
    """Write ``[low, high]`` in percentage points, or in percent if not ``signed``."""
    ends = (interval.low, interval.high)
    return "[{}, {}]".format(*(points(e) if signed else f"{percent(e):.2f}" for e in ends))


def decisive_text(interval: Interval, *, signed: bool = True) -> str:
    """Write the interval over runs and items, or say that there is a single run, which has none."""
    return interval_text(interval, signed=signed) if interval.over_runs else "(a single run)"


def counted_range(numbers: Collection[int], singular: str) -> str:
    """Write a range of numbers such as ``1 run``, ``3 runs`` or ``1 to 3 runs``."""
    low, high = min(numbers), max(numbers)
    return counted(low, singular) if low == high else f"{low:,} to {counted(high, singular)}"


def difference_cells(estimate: Estimate | None) -> tuple[str, str, str]:
    """Write a difference in points and its two intervals; the deciding one is first."""
    if estimate is None:
        return MISSING, MISSING, MISSING
    decisive = decisive_cell(estimate.runs_and_items)
    return points(estimate.value), decisive, interval_text(estimate.items)


def rate_cells(estimate: Estimate | None) -> tuple[Cell, str, str]:
    """Write a pass rate in percent and its two intervals; the deciding one is first."""
    if estimate is None:
        return MISSING, MISSING, MISSING
    decisive = decisive_cell(estimate.runs_and_items, signed=False)
    return percent(estimate.value), decisive, interval_text(estimate.items, signed=False)


def fold_cells(
    estimates: Mapping[str, Estimate], folds: Sequence[str], form: Callable[[float], Cell]
) -> list[Cell]:
    """Write the estimate of each fold, as a rate (``percent``) or as a difference (``points``)."""
    return [form(estimates[fold].value) if fold in estimates else MISSING for fold in folds]


def decisive_cell(interval: Interval, *, signed: bool = True) -> str:
    """Write the interval over runs and items; ``n/a`` for a single run."""
    return interval_text(interval, signed=signed) if interval.over_runs else MISSING
