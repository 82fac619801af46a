"""Whether all methods are at the ceiling or at the floor, in words, and what to do then."""

from __future__ import annotations

from vcrt.report.analysis import Analysis
from vcrt.report.judgement import CEILING, Bound, fold_bound, macro_bound, macro_interval
from vcrt.report.wording import interval_text, label, listed, percent

#: The harder frozen set that tells methods at the ceiling apart.
HARDER = (
    "several anti-diamonds an episode, records that show only the transitive reduction, commuting relations left out, "
    "and distractor relations among operations that do not occur"
)
_DEFINITIONS: dict[Bound, str] = {
    "ceiling": f"includes or exceeds {100 * CEILING:.1f}%",
    "floor": f"reaches down to {100 * (1 - CEILING):.1f}%",
}


def bound_sentences(analysis: Analysis) -> list[str]:
    """A sentence where every macro is at a bound; else one for the folds where every method is, for each bound."""
    bound = macro_bound(analysis)
    if bound is not None:
        return [f"{_macro_sentence(analysis, bound)} {_consequence(bound)}"]
    found = {fold: fold_bound(analysis, fold) for fold in analysis.folds}
    lines = []
    for kind, definition in _DEFINITIONS.items():
        folds = [label(fold) for fold, at in found.items() if at == kind]
        if folds:
            lines.append(
                f"All methods are at the {kind} on {listed(folds)} (the 95% interval of each {definition}): "
                "differences there say little about the methods."
            )
    return lines


def _macro_sentence(analysis: Analysis, bound: Bound) -> str:
    macros = {
        result.method: interval
        for result in analysis.results
        if (interval := macro_interval(result)) is not None
    }
    pick = min if bound == "ceiling" else max
    farthest = pick(macros, key=lambda method: macros[method].estimate)
    interval = macros[farthest]
    word = "lowest" if bound == "ceiling" else "highest"
    return (
        f"All methods are at the {bound}: the 95% interval of each macro {_DEFINITIONS[bound]} (the {word} is "
        f"{label(farthest)} with {percent(interval.estimate):.2f}% {interval_text(interval, signed=False)}). "
        "Differences between them say little about the methods."
    )


def _consequence(bound: Bound) -> str:
    if bound == "floor":
        return "An easier set, or more training, is the next step."
    return f"The next step is a harder frozen set made by the same certifiers: {HARDER}."
