"""An estimate with both of its intervals, from one resampling of each fold by a generator of its own name.

An interval depends on the contents' seed and on its own name, not on which other intervals are computed. Everything is
a fraction of 1. Not covered: what is estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vcrt.protocol.statistics import (
    FloatArray,
    Interval,
    hierarchical_replicates,
    macro_interval,
    paired_bootstrap,
    paired_replicates,
    share_intervals,
)
from vcrt.randomness import generator
from vcrt.report.contents import ReportContents


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """One estimate with both intervals: items resampled (the paper's), and runs and items resampled."""

    items: Interval
    runs_and_items: Interval

    @property
    def value(self) -> float:
        """The estimate itself, the same for both intervals."""
        return self.items.estimate


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Resampled:
    """Scores ``[runs, items]`` by fold, and the replicates of each fold's mean ``[resamples]`` of both kinds."""

    scores: Mapping[str, FloatArray]
    items: Mapping[str, FloatArray]
    runs_and_items: Mapping[str, FloatArray]

    def mean(self, folds: Iterable[str]) -> Estimate:
        """The mean over some folds with equal weight."""
        scores = {fold: self.scores[fold] for fold in folds}
        return Estimate(
            items=macro_interval(scores, self.items),
            runs_and_items=macro_interval(scores, self.runs_and_items),
        )

    def by_fold(self) -> dict[str, Estimate]:
        """Each fold's mean."""
        return {fold: self.mean([fold]) for fold in self.scores}

    def macro(self, folds: Iterable[str]) -> Estimate | None:
        """The macro mean, if no fold of ``folds`` is missing."""
        return self.mean(self.scores) if set(folds) == set(self.scores) else None

    def shares(self) -> dict[str, Estimate]:
        """Each fold's share of the macro mean; empty where there is nothing to share."""
        items = share_intervals(self.scores, self.items)
        both = share_intervals(self.scores, self.runs_and_items)
        return {
            fold: Estimate(items=items[fold], runs_and_items=both[fold])
            for fold in self.scores
            if fold in items and fold in both
        }


def resample(contents: ReportContents, scores: Mapping[str, FloatArray], *names: str) -> Resampled:
    """Both kinds of replicates of every fold's mean."""
    items, both = (
        {
            fold: replicates(
                {fold: values},
                generator(contents.seed, "report", kind, *names, fold),
                num_resamples=contents.num_resamples,
            )[fold]
            for fold, values in scores.items()
        }
        for kind, replicates in (("items", paired_replicates), ("runs", hierarchical_replicates))
    )
    return Resampled(scores=scores, items=items, runs_and_items=both)


def deciding_interval(estimate: Estimate, num_runs: int) -> Interval:
    """The interval that decides: over runs and items, or over items for a single run, which shows no other."""
    return estimate.items if num_runs == 1 else estimate.runs_and_items


def over_items(contents: ReportContents, scores: Mapping[str, FloatArray], *names: str) -> Interval:
    """The macro mean of ``scores`` of a single run, with the interval over items."""
    rng = generator(contents.seed, "report", "items", *names)
    return paired_bootstrap(scores, rng, contents.num_resamples)


def by_run(
    contents: ReportContents,
    scores: Mapping[str, FloatArray],
    seeds: Mapping[str, list[int]],
    *names: str,
) -> dict[str, dict[int, Interval]]:
    """Each single run's mean by fold and seed."""
    return {
        fold: {
            seed: over_items(contents, {fold: values[row : row + 1]}, *names, fold, str(seed))
            for row, seed in enumerate(seeds[fold])
        }
        for fold, values in scores.items()
    }
