"""Where the signs of our differences agree with the paper's, in a sentence.

Signs only, since sizes are not comparable, and only where our own sign is determined. Not covered: our own verdicts.
"""

from __future__ import annotations

from vcrt.report import paper
from vcrt.report.analysis import Comparison
from vcrt.report.judgement import fold_sign, macro_sign
from vcrt.report.wording import label, listed

#: By the product of our determined sign and the paper's.
_AGREEMENT = {1: "is the paper's", -1: "is not the paper's", 0: "is not determined here"}


def against_paper(comparison: Comparison) -> list[str]:
    """Where signs agree with the paper's: signs only, since sizes are not comparable, and only where ours is one."""
    published = paper.published_difference(comparison.method, comparison.minus)
    if published is None or comparison.macro is None:
        return [
            f"The paper's strongest baseline is {paper.HEADLINE.minus}; "
            f"it prints no interval for a difference from {label(comparison.minus)}."
        ]
    parts = [
        _macro_against_paper(comparison, published),
        *_folds_against_paper(comparison, published),
    ]
    return [f"{'; '.join(parts)}."]


def _macro_against_paper(comparison: Comparison, published: paper.PublishedDifference) -> str:
    if not paper.same_folds(tuple(comparison.folds)):
        return (
            f"The published macro is over {listed(paper.ENVIRONMENTS)}: "
            "the sign of the macro difference is not compared"
        )
    sign = macro_sign(comparison)
    low, high = published.interval or (published.macro, published.macro)
    return (
        f"The sign of the macro difference {_AGREEMENT[sign * _sign(published.macro)]} "
        f"(the paper: {published.macro:+.2f} points [{low:+.2f}, {high:+.2f}] on {paper.BACKBONE}, "
        "not comparable in size)"
    )


def _folds_against_paper(comparison: Comparison, published: paper.PublishedDifference) -> list[str]:
    """One clause for the folds of each kind of agreement; nothing if the paper has none of the folds."""
    kinds: dict[int, list[str]] = {1: [], -1: [], 0: []}
    for fold in comparison.folds:
        value = paper.in_fold(published.folds, fold)
        if value is not None:
            kinds[fold_sign(comparison, fold) * _sign(value)].append(label(fold))
    clauses = [f"{_AGREEMENT[kind]} on {listed(folds)}" for kind, folds in kinds.items() if folds]
    return [f"by fold it {listed(clauses)}"] if clauses else []


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
