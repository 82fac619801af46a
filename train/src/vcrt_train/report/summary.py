"""State the results in sentences: every claim with its interval, and unfavourable results as plainly as others.

The sentences depend only on the analysis. A difference counts as established only if the interval over runs and items
lies on one side of zero; a single run establishes none. The sentences conclude on guardrail and bounds only if the
intervals, or the number of items, suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from vcrt.printable import counted, listed, printable
from vcrt_train.protocol.statistics import Interval
from vcrt_train.report.analysis import Analysis
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.estimates import FROZEN, Comparison, Estimate
from vcrt_train.report.task import chance
from vcrt_train.report.wording import (
    BASELINES,
    counted_range,
    decisive_text,
    interval_text,
    label,
    percent,
    points,
    same_name,
)

#: The greatest allowed decline of source retention, in percentage points (the paper's).
RETENTION_GUARDRAIL = 2.0
#: A pass rate is at the ceiling if its interval includes or exceeds this and the rate itself is at least ``NEAR``, and
#: at the floor if this holds for its difference from 1. A wide interval alone is not enough.
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
SAME = "every item scored the same"


def resolves_guardrail(num_items: int) -> bool:
    """Return whether the share of one item is at most the guardrail; otherwise a single item would decide."""
    return 100 / num_items <= RETENTION_GUARDRAIL


def within_guardrail(change: float) -> bool:
    """Return whether a change of source retention, as a fraction, is within the guardrail."""
    return 100 * change >= -RETENTION_GUARDRAIL - 1e-9


def bound_of(interval: Interval) -> Bound | None:
    """Return ``ceiling`` or ``floor`` if the interval of a pass rate reaches it, otherwise None."""
    if interval.high >= CEILING and interval.estimate >= NEAR:
        return "ceiling"
    return "floor" if interval.low <= 1 - CEILING and interval.estimate <= 1 - NEAR else None


def bound_sentences(analysis: Analysis) -> list[str]:
    """Write a sentence if all macros are at a bound; otherwise one for each bound, on folds with all methods at it."""
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
    """Return the bound that all intervals reach; None if there is none."""
    bounds = {bound_of(interval) for interval in intervals}
    return bounds.pop() if len(bounds) == 1 else None


def summary(analysis: Analysis) -> list[str]:
    """Write the report in sentences: warnings, the headline, and further results."""
    return [
        *warning_lines(analysis.contents),
        *_headline(analysis),
        *_against_frozen(analysis),
        *bound_sentences(analysis),
        *_ablations(analysis),
        *_retention(analysis),
        *_scope(analysis),
        *_openings(analysis.contents.opening),
    ]


def warning_lines(contents: ReportContents) -> list[str]:
    """Write the warnings about the whole report, one a line."""
    return [f"WARNING: {printable(line)}" for line in contents.warnings]


def verdict(estimate: Estimate) -> str:
    """Say in words what the interval over runs and items implies for a difference."""
    if estimate.is_nothing:
        return SAME
    if not estimate.runs_and_items.over_runs:
        return "a single run does not show how runs differ, so the difference is not established beyond it"
    side = "above" if (estimate.sign or estimate.items.sign) > 0 else "below"
    if estimate.sign:
        return f"the interval over runs and items lies {side} zero"
    if not estimate.items.sign:
        return "both intervals include zero, so these runs do not tell the two apart"
    return (
        f"the bootstrap over items lies {side} zero but the interval over runs and items includes it, "
        "so the difference is not established beyond these runs"
    )


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a reader may conclude from the headline difference, and why, or why nothing."""

    text: str
    reason: str
    is_shown: bool


def conclusion(analysis: Analysis) -> Conclusion | None:
    """Say what the headline difference shows; None if there is no such difference.

    Nothing is concluded from a single run, or where all methods are at a bound.
    """
    headline = analysis.headline
    if headline is None or headline.macro is None:
        return None
    macro = headline.macro
    macros = [r.macro.runs_and_items for r in analysis.results if r.macro is not None]
    bound = _common(macros) if len(macros) == len(analysis.results) else None
    if bound is not None:
        return Conclusion("No conclusion", f"all methods are at the {bound}", is_shown=False)
    if not macro.runs_and_items.over_runs and not macro.is_nothing:
        return Conclusion(
            "No conclusion", "one run of each method does not show how runs differ", is_shown=False
        )
    if not macro.sign:
        return Conclusion("No difference is shown", verdict(macro), is_shown=False)
    method, minus = label(headline.method), label(headline.minus)
    more = "more" if macro.sign > 0 else "fewer"
    return Conclusion(f"{method} passes {more} items than {minus}", verdict(macro), is_shown=True)


def _headline(analysis: Analysis) -> list[str]:
    headline = analysis.headline
    if analysis.method is None:
        return [
            "No headline difference: it is that of VCRT, or of the only method beside the baselines."
        ]
    if headline is None or headline.macro is None:
        return ["No baseline was run on every fold: there is no headline difference."]
    method, minus = label(headline.method), label(headline.minus)
    rates = {r.method: r.macro for r in analysis.results}
    first, second = rates[headline.method], rates[headline.minus]
    folds = counted(len(analysis.folds), "held-out fold")
    lines = []
    if (found := conclusion(analysis)) is not None:
        lines.append(f"{found.text}: {found.reason}.")
    if first is not None and second is not None:
        lines.append(
            f"{method} passes {percent(first.value):.2f}% of held-out items "
            f"({_over_runs(first, signed=False)}) and {minus}, the strongest baseline, {percent(second.value):.2f}% "
            f"{decisive_text(second.runs_and_items, signed=False)}, each the macro mean of {folds}."
        )
    lines.append(
        f"The paired difference is {points(headline.macro.value)} points "
        f"({_both(headline.macro)}): {verdict(headline.macro)}."
    )
    lines.append(_by_fold(headline))
    return lines


def _by_fold(comparison: Comparison) -> str:
    parts = [
        f"{points(e.value)} on {label(fold)} {_interval(e)}" for fold, e in comparison.folds.items()
    ]
    text = f"By fold, with intervals over runs and items: {listed(parts)}. {_negative(comparison)}."
    shares, macro = comparison.shares, comparison.macro
    open_folds = [label(fold) for fold, each in comparison.folds.items() if not each.sign]
    if macro and macro.sign and open_folds:
        text += f" On {listed(open_folds)} alone no difference is shown."
    # A share has a meaning only if there is a difference and no fold reduces it.
    if macro and macro.sign and shares and min(s.value for s in shares.values()) >= 0:
        fold = max(shares, key=lambda name: shares[name].value)
        value, both = shares[fold].value, shares[fold].runs_and_items
        text += (
            f" {label(fold)} makes {100 * value:.0f}% of the macro difference "
            f"[{100 * both.low:.0f}, {100 * both.high:.0f}]."
        )
    return text


def _interval(difference: Estimate) -> str:
    """Write the interval over runs and items of a difference, and say so if all items scored the same."""
    words = f" as {SAME}" if difference.is_nothing else ""
    return f"{decisive_text(difference.runs_and_items)}{words}"


def _over_runs(estimate: Estimate, *, signed: bool = True) -> str:
    interval = estimate.runs_and_items
    if not interval.over_runs:
        return "a single run, so no interval over runs"
    return f"95% interval over runs and items {interval_text(interval, signed=signed)}"


def _both(difference: Estimate) -> str:
    items = interval_text(difference.items)
    return f"{_over_runs(difference)}, percentile bootstrap over items, as in the paper, {items}"


def _negative(comparison: Comparison) -> str:
    number, total = comparison.num_negative, comparison.num_comparisons
    verb = "is" if 1 in (number, total) else "are"
    return f"{number} of {counted(total, 'fold-by-run comparison')} {verb} negative"


def _against_frozen(analysis: Analysis) -> list[str]:
    comparison = analysis.comparisons.get(FROZEN)
    if comparison is None or comparison.macro is None:
        return []
    frozen, random = analysis.frozen_macro.runs_and_items, chance(analysis.contents)
    is_chance = random is not None and frozen.low <= random <= frozen.high
    level = f", not to be told from a random order ({percent(random or 0.0):.2f}%)"
    return [
        f"The frozen backbone passes {percent(frozen.estimate):.2f}% (95% interval over items "
        f"{interval_text(frozen, signed=False)}){level if is_chance else ''}; training with "
        f"{label(comparison.method)} changes that by {points(comparison.macro.value)} points "
        f"(95% interval over runs and items {_interval(comparison.macro)})."
    ]


def _ablations(analysis: Analysis) -> list[str]:
    skipped = (FROZEN, *BASELINES)
    return [
        f"{label(c.method)} minus {label(name)}: {points(c.macro.value)} points "
        f"({_both(c.macro)}); {verdict(c.macro)}; {_negative(c)}."
        for name, c in analysis.comparisons.items()
        if c.macro is not None and not any(same_name(name, other) for other in skipped)
    ]


def _retention(analysis: Analysis) -> list[str]:
    """Write the result on the guardrail for folds with enough items to resolve it, and for the others."""
    items = {fold: analysis.num_retention_items(fold) for fold in analysis.folds}
    fine = [fold for fold in items if resolves_guardrail(items[fold])]
    coarse = [fold for fold in items if fold not in fine]
    lines = []
    if fine:
        value, lowest = _lowest_run(analysis, fine)
        held = "held" if within_guardrail(value) else "broken"
        where = _guardrail_on(fine if coarse else [])
        lines.append(f"{where} is {held}: {lowest}.{_broken_by(analysis, fine)}")
    if coarse:
        number = counted_range([items[fold] for fold in coarse], "item")
        lines.append(
            f"{_guardrail_on(coarse if fine else [])} is not resolvable ({number}), since one item is more than "
            f"{RETENTION_GUARDRAIL:.0f} points: {_lowest_run(analysis, coarse)[1]}."
        )
    return lines


def _guardrail_on(folds: list[str]) -> str:
    where = f" with {listed([label(fold) for fold in folds])} held out" if folds else ""
    return f"The guardrail of {RETENTION_GUARDRAIL:.0f} points on source decline{where}"


def _broken_by(analysis: Analysis, folds: list[str]) -> str:
    """Say which methods have runs beyond the guardrail, and how many."""
    parts = []
    for result in analysis.results:
        by_seed = [runs for fold, runs in result.run_retention.items() if fold in folds]
        held = [within_guardrail(run.estimate) for runs in by_seed for run in runs.values()]
        if not all(held):
            number = f"{held.count(False)} of {counted(len(held), 'run')}"
            parts.append(f"{number} of {label(result.method)}")
    return f" It is broken by {listed(parts)}." if parts else ""


def _lowest_run(analysis: Analysis, folds: list[str]) -> tuple[float, str]:
    """Return the largest decline of a single run on some folds, and a clause on it."""
    change, result, fold, seed = analysis.largest_decline(folds)
    mean = result.retention[fold]
    return change.estimate, (
        f"the lowest run changes by {points(change.estimate)} points ({label(result.method)} with {label(fold)} held "
        f"out, seed {seed}, 95% interval over items {interval_text(change)}; the mean of its runs on that fold is "
        f"{points(mean.value)} points, 95% interval over runs and items {_interval(mean)})"
    )


def _scope(analysis: Analysis) -> list[str]:
    """Say what the intervals cover, what was not checked, and the result of the second replay."""
    lines = []
    if any(len(runs) == 1 for r in analysis.results for runs in r.run_rates.values()):
        lines.append(
            "Some methods have a single run on a fold: there is no interval over runs there, and no sign is determined."
        )
    partial = [label(r.method) for r in analysis.results if r.macro is None]
    if partial:
        lines.append(f"Not every fold was run for {listed(partial)}: no macro is given for them.")
    contents = analysis.contents
    sizes = {label(fold): (len(of), len(set(of))) for fold, of in contents.sources.items()}
    shared = [
        f"{counted(items, 'item')} of {fold} from {counted(sources, 'source')}"
        for fold, (items, sources) in sizes.items()
        if 1 < sources < items
    ]
    if shared:
        lines.append(
            f"Held-out items share sources: {listed(shared)}. Intervals count the items of one source as one cluster; "
            "the paper's bootstrap treats items as independent and is too narrow to the degree that they are alike."
        )
    alone = [fold for fold, (_, sources) in sizes.items() if sources == 1]
    if alone:
        lines.append(
            f"All held-out items of {listed(alone)} come from one source: the intervals there are about it alone."
        )
    disagreed = contents.agreement["replays"] - contents.agreement["agreed"]
    return [
        *lines,
        *map(printable, contents.remarks),
        f"{disagreed:,} of {counted(contents.agreement['replays'], 'replay')} came out otherwise "
        "when the whole dataset was replayed again.",
    ]


def _openings(opening: Mapping[str, Any]) -> list[str]:
    """Say why the opening may not be the first and only one."""
    lines = []
    if others := opening.get("by_other_plans"):
        lines.append(
            f"The held-out folds of this dataset were opened {counted(others, 'time')} by other plans, whose scores "
            "may have been known when this plan was made."
        )
    if copies := opening.get("by_copies"):
        lines.append(
            f"The ledger beside the dataset records {counted(copies, 'opening')} of this plan that the experiment's "
            "own ledger does not: a copy of the experiment was opened, or rows were taken out of its ledger."
        )
    if opening.get("unknown_to_dataset"):
        lines.append(
            "The ledger beside the dataset does not record this opening: it was removed or replaced, or the dataset is "
            "a copy, so openings by other plans are not known."
        )
    if opening.get("reopened"):
        reason = printable(str(opening.get("reason") or "no reason was recorded"))
        lines.append(f"The held-out evaluation was opened more than once: {reason}.")
    return lines
