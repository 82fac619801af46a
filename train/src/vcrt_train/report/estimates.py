"""Estimate rates and paired differences with both intervals: over runs and items, which decides, and the bootstrap.

The bootstrap over items is the paper's. Its intervals depend on the contents' seed and on their own names, but not on
other intervals. All values are fractions of 1. Not covered: which methods to compare, and conclusions from differences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from vcrt_train.protocol.crossed import crossed_interval
from vcrt_train.protocol.statistics import (
    FloatArray,
    Interval,
    macro_interval,
    negative_comparisons,
    paired_differences,
    paired_replicates,
    pass_rate,
    share_intervals,
)
from vcrt_train.randomness import generator
from vcrt_train.report.contents import ReportContents

#: The least and the greatest mean of passes, and of differences between passes.
RATES, CHANGES = (0.0, 1.0), (-1.0, 1.0)


#: The name under which rows show the backbone before training.
FROZEN = "Frozen backbone"


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """One estimate with both intervals.

    ``runs_and_items`` decides, if it is over runs; ``items`` is the paper's, a percentile bootstrap of the items for
    exactly these runs, and decides nothing. ``is_nothing`` says that every score is zero.
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
        """1 or -1 if the interval over runs and items excludes zero; 0 otherwise, and always for a single run."""
        return self.runs_and_items.sign if self.runs_and_items.over_runs else 0


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Scores:
    """Scores ``[runs, items]`` by fold, with the seeds of the rows and the source of each item if known.

    ``within`` holds the least and the greatest possible score; ``same_runs`` is for a model that is the same in all
    runs, ``shared_items`` for folds that have items in common. ``replicates`` holds each fold's mean ``[resamples]``
    over resampled items (:func:`resample`).
    """

    by_fold: Mapping[str, FloatArray]
    seeds: Mapping[str, list[int]]
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    within: tuple[float, float] = CHANGES
    same_runs: bool = False
    shared_items: bool = False
    replicates: Mapping[str, FloatArray] = field(default_factory=dict)

    def interval(
        self,
        values: Mapping[str, FloatArray],
        within: tuple[float, float] | None = None,
        reach: float | None = None,
    ) -> Interval:
        """Return the mean over folds of values for these runs and items, with its interval over runs and items."""
        return crossed_interval(
            values,
            sources=self.sources,
            seeds=self.seeds,
            within=within or self.within,
            same_runs=self.same_runs,
            shared_items=self.shared_items,
            reach=reach,
        )

    def mean(self, folds: Iterable[str]) -> Estimate:
        """Estimate the mean over some folds with equal weight."""
        scores = {fold: self.by_fold[fold] for fold in folds}
        return Estimate(
            items=macro_interval(scores, self.replicates),
            runs_and_items=self.interval(scores),
            is_nothing=not any(values.any() for values in scores.values()),
        )

    def means(self) -> dict[str, Estimate]:
        """Estimate each fold's mean."""
        return {fold: self.mean([fold]) for fold in self.by_fold}

    def macro(self, folds: Iterable[str]) -> Estimate | None:
        """Estimate the macro mean; return None if a fold of ``folds`` is missing."""
        return self.mean(self.by_fold) if set(folds) == set(self.by_fold) else None

    def shares(self) -> dict[str, Estimate]:
        """Estimate each fold's share of the macro mean; empty if the mean's interval does not exclude zero.

        The interval over runs and items is that of the share's linear part (delta method).
        """
        scores = self.by_fold
        items = share_intervals(scores, self.replicates)
        total = sum(map(pass_rate, scores.values()))
        macro = self.interval(scores)
        if not items or not (macro.over_runs and macro.sign):
            return {}
        found = {}
        for fold, share in items.items():
            factors = {
                name: len(scores) * ((name == fold) - share.estimate) / total for name in scores
            }
            linear = {name: factors[name] * values for name, values in scores.items()}
            low, high = self.within
            reach = max(
                abs(factors[name]) * max(pass_rate(values) - low, high - pass_rate(values))
                for name, values in scores.items()
            )
            error = self.interval(linear, (float("-inf"), float("inf")), reach)
            found[fold] = Estimate(
                items=share,
                runs_and_items=replace(
                    error,
                    estimate=share.estimate,
                    low=share.estimate + error.low,
                    high=share.estimate + error.high,
                ),
            )
        return found


def resample(contents: ReportContents, scores: Scores, *names: str) -> Scores:
    """Return the scores with the replicates of every fold's mean."""
    replicates = {
        fold: paired_replicates(
            {fold: values},
            generator(contents.seed, "report", "items", *names, fold),
            num_resamples=contents.num_resamples,
        )[fold]
        for fold, values in scores.by_fold.items()
    }
    return replace(scores, replicates=replicates)


def over_items(scores: Scores, rows: Mapping[str, int]) -> Interval:
    """Return the macro mean of a single run, given by its row in each fold, with the interval over items."""
    return crossed_interval(
        {fold: scores.by_fold[fold][row : row + 1] for fold, row in rows.items()},
        sources=scores.sources,
        within=scores.within,
    )


def by_run(scores: Scores) -> dict[str, dict[int, Interval]]:
    """Return each single run's mean by fold and seed."""
    return {
        fold: {seed: over_items(scores, {fold: row}) for row, seed in enumerate(seeds)}
        for fold, seeds in scores.seeds.items()
    }


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
    #: Each fold's share of the macro difference; empty with a single fold, or if the difference may be zero.
    shares: Mapping[str, Estimate]

    @property
    def negative_text(self) -> str:
        """The number of negative fold-by-run comparisons, such as ``2 of 9``."""
        return f"{self.num_negative} of {self.num_comparisons}"


def differences(contents: ReportContents, method: str, other: str) -> Scores:
    """Return ``method`` minus ``other``, which may be the frozen backbone, on every common fold, paired by seed."""
    found, seeds = {}, {}
    for fold in contents.folds:
        first = contents.runs_of(method, fold)
        frozen = dict.fromkeys(first, contents.frozen[fold])
        second = frozen if other == FROZEN else contents.runs_of(other, fold)
        paired = [seed for seed in first if seed in second]
        if paired:
            seeds[fold] = paired
            found[fold] = paired_differences(
                [first[seed].held_out_passes for seed in paired],
                [second[seed].held_out_passes for seed in paired],
            )
    scores = Scores(by_fold=found, seeds=seeds, sources=contents.sources)
    return resample(contents, scores, "difference", f"{method}-{other}")


def compare(contents: ReportContents, method: str, other: str) -> Comparison:
    """Compute every estimate of ``method`` minus ``other``."""
    scores = differences(contents, method, other)
    macro = scores.macro(contents.folds)
    num_negative, num_comparisons = negative_comparisons(scores.by_fold)
    return Comparison(
        method=method,
        minus=other,
        folds=scores.means(),
        macro=macro,
        num_negative=num_negative,
        num_comparisons=num_comparisons,
        run_macros=_run_macros(scores) if macro is not None else {},
        shares=scores.shares() if macro is not None and len(scores.by_fold) > 1 else {},
    )


def _run_macros(scores: Scores) -> dict[int, Interval]:
    rows = {fold: {seed: k for k, seed in enumerate(of)} for fold, of in scores.seeds.items()}
    first, *rest = rows.values()
    return {
        seed: over_items(scores, {fold: k[seed] for fold, k in rows.items()})
        for seed in first
        if all(seed in seeds for seeds in rest)
    }
