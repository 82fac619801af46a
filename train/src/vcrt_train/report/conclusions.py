"""Conclude what the numbers can carry: the guardrail, and methods that are all at a bound.

A conclusion is drawn only where the intervals, or the number of items, can carry it. Not covered: other sentences
(:mod:`vcrt_train.report.summary`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from vcrt.printable import listed
from vcrt_train.protocol.statistics import Interval
from vcrt_train.report.analysis import Analysis
from vcrt_train.report.wording import interval_text, label, percent

#: The most that source retention may decline, in percentage points (the paper's).
RETENTION_GUARDRAIL = 2.0
#: A pass rate is at the ceiling if its interval includes or exceeds this and the rate itself is not below ``NEAR``,
#: at the floor if the same holds of its shortfall. A wide interval alone says that little is known.
CEILING = 0.995
NEAR = 0.98
Bound: TypeAlias = Literal["ceiling", "floor"]

_DEFINITIONS: dict[Bound, str] = {
    "ceiling": f"includes or exceeds {100 * CEILING:.1f}%",
    "floor": f"reaches down to {100 * (1 - CEILING):.1f}%",
}
_NEXT_STEPS: dict[Bound, str] = {
    "ceiling": "The next step is a harder frozen set made by the same certifiers: several anti-diamonds an episode, "
    "records that show only the transitive reduction, commuting relations left out, and distractor relations among "
    "operations that do not occur.",
    "floor": "An easier set, or more training, is the next step.",
}


def resolves_guardrail(num_items: int) -> bool:
    """Whether one item is at most the guardrail: with fewer, a single item would decide."""
    return 100 / num_items <= RETENTION_GUARDRAIL


def within_guardrail(change: float) -> bool:
    """Whether a change of source retention, as a fraction, is within the guardrail."""
    return 100 * change >= -RETENTION_GUARDRAIL - 1e-9


def bound_of(interval: Interval) -> Bound | None:
    """``ceiling`` or ``floor`` if the interval of a pass rate reaches it."""
    if interval.high >= CEILING and interval.estimate >= NEAR:
        return "ceiling"
    return "floor" if interval.low <= 1 - CEILING and interval.estimate <= 1 - NEAR else None


def bound_sentences(analysis: Analysis) -> list[str]:
    """A sentence where every macro is at a bound; else one for the folds where every method is, for each bound."""
    macros = {r.method: r.macro.runs_and_items for r in analysis.results if r.macro is not None}
    bound = _common(macros.values()) if len(macros) == len(analysis.results) else None
    if bound is not None:
        pick, word = (min, "lowest") if bound == "ceiling" else (max, "highest")
        farthest = pick(macros, key=lambda method: macros[method].estimate)
        rate = macros[farthest]
        return [
            f"All methods are at the {bound}: the 95% interval of each macro {_DEFINITIONS[bound]} (the {word} is "
            f"{label(farthest)} with {percent(rate.estimate):.2f}% {interval_text(rate, signed=False)}). "
            f"Differences between them say little about the methods. {_NEXT_STEPS[bound]}"
        ]
    found = {
        fold: _common(r.folds[fold].runs_and_items for r in analysis.results if fold in r.folds)
        for fold in analysis.folds
    }
    return [
        f"All methods are at the {kind} on {listed(folds)} (the 95% interval of each {definition}): "
        "differences there say little about the methods."
        for kind, definition in _DEFINITIONS.items()
        if (folds := [label(fold) for fold, at in found.items() if at == kind])
    ]


def _common(intervals: Iterable[Interval]) -> Bound | None:
    """The bound that all of them reach."""
    bounds = {bound_of(interval) for interval in intervals}
    return bounds.pop() if len(bounds) == 1 else None
