"""Paired differences of two methods, item by item and seed by seed.

Not covered: which methods are compared, and what a difference means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vcrt.protocol.statistics import (
    Interval,
    negative_comparisons,
    paired_differences,
)
from vcrt.report import paper
from vcrt.report.contents import ReportContents
from vcrt.report.estimates import Estimate, Scores, over_items, resample

#: The name under which rows show the backbone before training.
FROZEN = "Frozen backbone"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """``method`` minus ``minus``, paired by item and by seed; ``macro`` only if both have every fold."""

    method: str
    minus: str
    folds: Mapping[str, Estimate]
    macro: Estimate | None
    num_negative: int
    num_comparisons: int
    #: The macro difference of each seed that has every fold, with the interval over items.
    run_macros: Mapping[int, Interval]
    #: Each fold's share of the macro difference; empty without one, or where there is nothing to share.
    shares: Mapping[str, Estimate]
    #: The mean difference on the folds other than the one to which the paper owes most of its gain.
    mean_of_others: Estimate | None


def differences(contents: ReportContents, method: str, other: str) -> Scores:
    """The differences ``[runs, items]`` of each fold that both have; ``other`` may be the frozen backbone."""
    found, rows = {}, {}
    for fold in contents.folds:
        first = contents.runs_of(method, fold)
        seeds = paired_seeds(contents, method, other, fold)
        if seeds:
            second = contents.runs_of(other, fold)
            baseline = [
                contents.frozen[fold].held_out_passes
                if other == FROZEN
                else second[seed].held_out_passes
                for seed in seeds
            ]
            found[fold] = paired_differences(
                [first[seed].held_out_passes for seed in seeds], baseline
            )
            rows[fold] = seeds
    return Scores(by_fold=found, seeds=rows, sources=contents.sources)


def paired_seeds(contents: ReportContents, method: str, other: str, fold: str) -> list[int]:
    """The seeds that both methods have on a fold, in the order of the first."""
    second = contents.runs_of(other, fold)
    return [s for s in contents.runs_of(method, fold) if other == FROZEN or s in second]


def compare(contents: ReportContents, method: str, other: str) -> Comparison:
    """``method`` minus ``other`` on every fold that both have."""
    scores = differences(contents, method, other)
    name = f"{method}-{other}"
    resampled = resample(contents, scores, "difference", name)
    macro = resampled.macro(contents.folds)
    num_negative, num_comparisons = negative_comparisons(scores.by_fold)
    others = [fold for fold in scores.by_fold if not paper.same_name(fold, paper.LARGEST_SHARE[0])]
    return Comparison(
        method=method,
        minus=other,
        folds=resampled.by_fold(),
        macro=macro,
        num_negative=num_negative,
        num_comparisons=num_comparisons,
        run_macros=_run_macros(scores) if macro is not None else {},
        shares=resampled.shares() if macro is not None and len(scores.by_fold) > 1 else {},
        mean_of_others=resampled.mean(others) if paper.same_folds(tuple(scores.by_fold)) else None,
    )


def _run_macros(scores: Scores) -> dict[int, Interval]:
    rows = {fold: {seed: k for k, seed in enumerate(of)} for fold, of in scores.seeds.items()}
    first, *rest = rows.values()
    return {
        seed: over_items(scores, {fold: k[seed] for fold, k in rows.items()})
        for seed in first
        if all(seed in seeds for seeds in rest)
    }
