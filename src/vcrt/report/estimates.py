"""An estimate with both of its intervals: the one over runs and items that decides, and the paper's bootstrap.

A bootstrap interval depends on the contents' seed and on its own name, not on which other intervals are computed.
Everything is a fraction of 1. Not covered: what is estimated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vcrt.protocol.crossed import crossed_interval
from vcrt.protocol.statistics import (
    FloatArray,
    Interval,
    macro_interval,
    paired_replicates,
    pass_rate,
    share_intervals,
)
from vcrt.randomness import generator
from vcrt.report.contents import ReportContents

#: The least and the greatest mean of passes, and of differences between passes.
RATES, CHANGES = (0.0, 1.0), (-1.0, 1.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """One estimate with both intervals.

    ``runs_and_items`` decides, where it is over runs at all; ``items`` is the paper's, a percentile bootstrap of the
    items for exactly these runs, and decides nothing. ``is_nothing`` says that every score is zero.
    """

    items: Interval
    runs_and_items: Interval
    is_nothing: bool = False

    @property
    def value(self) -> float:
        """The estimate itself, the same for both intervals."""
        return self.items.estimate

    @property
    def sign(self) -> int:
        """1 or -1 where the interval over runs and items excludes zero; 0 otherwise, and always for a single run."""
        return self.runs_and_items.sign if self.runs_and_items.over_runs else 0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scores:
    """Scores ``[runs, items]`` by fold, with the seeds of the rows and the source of each item where it is known.

    ``within`` are the least and the greatest possible score; ``same_runs`` is for a model that runs cannot change,
    ``shared_items`` for folds that have items in common.
    """

    by_fold: Mapping[str, FloatArray]
    seeds: Mapping[str, list[int]]
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    within: tuple[float, float] = CHANGES
    same_runs: bool = False
    shared_items: bool = False

    def interval(self, folds: Iterable[str]) -> Interval:
        """The mean over some folds with its interval over runs and items."""
        return self.interval_of({fold: self.by_fold[fold] for fold in folds}, self.within)

    def interval_of(
        self, values: Mapping[str, FloatArray], within: tuple[float, float]
    ) -> Interval:
        """The same of other values for the same runs and items."""
        return crossed_interval(
            values,
            sources=self.sources,
            seeds=self.seeds,
            within=within,
            same_runs=self.same_runs,
            shared_items=self.shared_items,
        )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Resampled:
    """Scores, and the replicates of each fold's mean ``[resamples]`` when items are resampled."""

    scores: Scores
    items: Mapping[str, FloatArray]

    def mean(self, folds: Iterable[str]) -> Estimate:
        """The mean over some folds with equal weight."""
        scores = {fold: self.scores.by_fold[fold] for fold in folds}
        return Estimate(
            items=macro_interval(scores, self.items),
            runs_and_items=self.scores.interval(scores),
            is_nothing=not any(values.any() for values in scores.values()),
        )

    def by_fold(self) -> dict[str, Estimate]:
        """Each fold's mean."""
        return {fold: self.mean([fold]) for fold in self.scores.by_fold}

    def macro(self, folds: Iterable[str]) -> Estimate | None:
        """The macro mean, if no fold of ``folds`` is missing."""
        found = self.scores.by_fold
        return self.mean(found) if set(folds) == set(found) else None

    def shares(self) -> dict[str, Estimate]:
        """Each fold's share of the macro mean; empty where that is not determined to differ from zero.

        The interval over runs and items is that of the share's linear part (delta method).
        """
        scores = self.scores.by_fold
        items = share_intervals(scores, self.items)
        total = sum(map(pass_rate, scores.values()))
        macro = self.scores.interval(scores)
        if not items or not (macro.over_runs and macro.sign):
            return {}
        found = {}
        for fold, share in items.items():
            linear = {
                name: len(scores) * ((name == fold) - share.estimate) / total * values
                for name, values in scores.items()
            }
            error = self.scores.interval_of(linear, (float("-inf"), float("inf")))
            found[fold] = Estimate(
                items=share,
                runs_and_items=Interval(
                    estimate=share.estimate,
                    low=share.estimate + error.low,
                    high=share.estimate + error.high,
                    level=error.level,
                    over_runs=error.over_runs,
                ),
            )
        return found


def resample(contents: ReportContents, scores: Scores, *names: str) -> Resampled:
    """The replicates of every fold's mean."""
    items = {
        fold: paired_replicates(
            {fold: values},
            generator(contents.seed, "report", "items", *names, fold),
            num_resamples=contents.num_resamples,
        )[fold]
        for fold, values in scores.by_fold.items()
    }
    return Resampled(scores=scores, items=items)


def over_items(scores: Scores, rows: Mapping[str, int]) -> Interval:
    """The macro mean of a single run, the row of each fold that is given, with the interval over items."""
    return crossed_interval(
        {fold: scores.by_fold[fold][row : row + 1] for fold, row in rows.items()},
        sources=scores.sources,
        within=scores.within,
    )


def by_run(scores: Scores) -> dict[str, dict[int, Interval]]:
    """Each single run's mean by fold and seed."""
    return {
        fold: {seed: over_items(scores, {fold: row}) for row, seed in enumerate(seeds)}
        for fold, seeds in scores.seeds.items()
    }
