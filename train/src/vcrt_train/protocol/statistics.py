"""Compute pass rates, paired differences and their bootstrap intervals, as pure functions on arrays.

Scores of one method on one held-out fold are an array ``[runs, items]``: for passes of 0 and 1, for paired
differences of -1, 0 and 1. Everything is a fraction of 1; only the report multiplies by 100.

Both bootstraps use that items with equal scores in every run are exchangeable: to draw ``n`` items with replacement
is to draw multinomial counts of the distinct columns. That is the same distribution as drawing indices, at a cost
that does not grow with the number of items.

Not covered: bootstrap intervals other than percentile intervals, and the choice of what is compared with what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vcrt.errors import VcrtError

FloatArray = npt.NDArray[np.float64]
#: Ends of intervals are sums of floats: what is nearer to zero than this is zero.
ZERO = 1e-12
#: Upper bound on the elements of one block of resampled counts (32 MiB of 8-byte integers).
MAX_BLOCK_ELEMENTS = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """An estimate and its interval.

    ``over_runs`` says whether it was made to hold for new runs too (:mod:`vcrt_train.protocol.crossed`): only then does
    its sign decide anything about methods.
    """

    estimate: float
    low: float
    high: float
    over_runs: bool = False

    @property
    def sign(self) -> int:
        """1 if the whole interval lies above zero, -1 if below, 0 if it includes zero."""
        if self.low > ZERO:
            return 1
        return -1 if self.high < -ZERO else 0


def proportion_interval(count: int, total: int, level: float = 0.95) -> tuple[float, float]:
    """The exact (Clopper-Pearson) interval of a proportion: ``count`` of ``total`` independent comparisons."""
    checked_level(level)
    if not 0 <= count <= total or total < 1:
        raise VcrtError(
            "not a proportion",
            found=f"{count} of {total}",
            expected="0 <= count <= total, total >= 1",
        )
    from scipy.special import betaincinv

    tail = (1.0 - level) / 2.0
    low = 0.0 if count == 0 else float(betaincinv(count, total - count + 1, tail))
    high = 1.0 if count == total else float(betaincinv(count + 1, total - count, 1.0 - tail))
    return low, high


def pass_rate(passes: npt.ArrayLike) -> float:
    """Mean over runs and items of ``passes [runs, items]`` (every run has the same items, so the order is moot)."""
    return float(checked_scores(passes, "passes").mean())


def run_means(scores: npt.ArrayLike) -> FloatArray:
    """The mean over items of each run: ``[runs, items] -> [runs]``."""
    means: FloatArray = checked_scores(scores, "scores").mean(axis=1)
    return means


def macro(rates_by_fold: Mapping[str, float]) -> float:
    """The mean over folds with equal weight, whatever their numbers of items."""
    if not rates_by_fold:
        raise VcrtError("no fold to average over", expected="at least one fold")
    return float(np.mean([rates_by_fold[fold] for fold in sorted(rates_by_fold)]))


def paired_differences(passes: npt.ArrayLike, baseline: npt.ArrayLike) -> FloatArray:
    """Item-level differences ``[runs, items]`` of two methods on the same items, run by run."""
    first, second = checked_scores(passes, "passes"), checked_scores(baseline, "baseline")
    if first.shape != second.shape:
        raise VcrtError(
            "paired scores need equal runs and items",
            found=f"[runs, items] {first.shape} and {second.shape}",
            expected="two arrays of one shape",
        )
    return first - second


def negative_comparisons(differences_by_fold: Mapping[str, npt.ArrayLike]) -> tuple[int, int]:
    """How many fold-by-run mean differences are below zero, and how many there are."""
    means = [run_means(differences) for differences in differences_by_fold.values()]
    return sum(int((m < 0).sum()) for m in means), sum(m.size for m in means)


def paired_replicates(
    differences_by_fold: Mapping[str, npt.ArrayLike],
    generator: np.random.Generator,
    *,
    num_resamples: int,
) -> dict[str, FloatArray]:
    """Each fold's mean differences ``[num_resamples]`` when its items are resampled and its runs averaged."""
    folds = _folds(differences_by_fold, num_resamples)
    return {
        fold: _resampled_run_means(scores, generator, num_resamples).mean(axis=1)
        for fold, scores in folds.items()
    }


def hierarchical_replicates(
    differences_by_fold: Mapping[str, npt.ArrayLike],
    generator: np.random.Generator,
    *,
    num_resamples: int,
) -> dict[str, FloatArray]:
    """Each fold's mean differences ``[num_resamples]`` when its runs and its items are both resampled.

    Runs and items are crossed: every run is scored on the same items, so one resample of items serves all runs.
    """
    replicates = {}
    for fold, scores in _folds(differences_by_fold, num_resamples).items():
        num_runs = scores.shape[0]
        runs = generator.multinomial(num_runs, _uniform(num_runs), size=num_resamples)
        means = _resampled_run_means(scores, generator, num_resamples)
        replicates[fold] = (runs * means).sum(axis=1) / num_runs
    return replicates


def paired_bootstrap(
    differences_by_fold: Mapping[str, npt.ArrayLike],
    generator: np.random.Generator,
    num_resamples: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """The paper's interval: episode-paired, runs averaged first, folds of equal weight, percentiles.

    It says how the items drawn matter, for exactly these runs; it is too narrow as a statement about new runs.
    ``differences_by_fold`` maps each fold to ``[runs, items]``; one fold alone is allowed. The order of folds
    and of items does not change the result.
    """
    replicates = paired_replicates(differences_by_fold, generator, num_resamples=num_resamples)
    return macro_interval(differences_by_fold, replicates, level)


def hierarchical_bootstrap(
    differences_by_fold: Mapping[str, npt.ArrayLike],
    generator: np.random.Generator,
    num_resamples: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """The interval that resamples runs as well as items; arguments as for :func:`paired_bootstrap`.

    With one run it has nothing to resample and equals the paired interval in distribution. With few runs it is still
    too narrow: resampling R runs shows only (R - 1) / R of their variance.
    """
    replicates = hierarchical_replicates(
        differences_by_fold, generator, num_resamples=num_resamples
    )
    return macro_interval(differences_by_fold, replicates, level)


def macro_interval(
    scores_by_fold: Mapping[str, npt.ArrayLike],
    replicates: Mapping[str, FloatArray],
    level: float = 0.95,
) -> Interval:
    """The macro mean of ``scores_by_fold`` with the percentile interval of its folds' replicates."""
    estimate = macro({fold: pass_rate(scores) for fold, scores in scores_by_fold.items()})
    total = sum((replicates[fold] for fold in sorted(scores_by_fold)), start=np.zeros(()))
    return _percentile_interval(estimate, total / len(scores_by_fold), level)


def share_intervals(
    differences_by_fold: Mapping[str, npt.ArrayLike],
    replicates: Mapping[str, FloatArray],
    level: float = 0.95,
) -> dict[str, Interval]:
    """Each fold's share of the macro difference, its mean over the sum of all folds' means, from their replicates.

    Empty where the sum is zero, in the scores or in a resample: there is no share of nothing. Where the sum's own
    interval includes zero, shares mean little; that is for the caller to see.
    """
    estimates = {fold: pass_rate(scores) for fold, scores in differences_by_fold.items()}
    total = sum(replicates.values(), start=np.zeros(()))
    if abs(sum(estimates.values())) <= ZERO or (abs(total) <= ZERO).any():
        return {}
    return {
        fold: _percentile_interval(
            estimates[fold] / sum(estimates.values()), replicates[fold] / total, level
        )
        for fold in estimates
    }


def _resampled_run_means(
    scores: FloatArray, generator: np.random.Generator, num_resamples: int
) -> FloatArray:
    """Run means ``[num_resamples, runs]`` over items drawn with replacement."""
    columns, multiplicity = np.unique(scores, axis=1, return_counts=True)
    num_items = scores.shape[1]
    weights = multiplicity / num_items
    sums = np.empty((num_resamples, scores.shape[0]))
    block = max(1, MAX_BLOCK_ELEMENTS // weights.size)
    for start in range(0, num_resamples, block):
        stop = min(start + block, num_resamples)
        counts = generator.multinomial(num_items, weights, size=stop - start)
        sums[start:stop] = counts @ columns.T
    means: FloatArray = sums / num_items
    return means


def _percentile_interval(estimate: float, replicates: FloatArray, level: float) -> Interval:
    tail = (1.0 - checked_level(level)) / 2.0
    low, high = np.quantile(replicates, [tail, 1.0 - tail])
    return Interval(estimate=estimate, low=float(low), high=float(high))


def _folds(
    differences_by_fold: Mapping[str, npt.ArrayLike], num_resamples: int
) -> dict[str, FloatArray]:
    if not differences_by_fold:
        raise VcrtError("no fold to resample", expected="at least one fold of differences")
    if num_resamples < 1:
        raise VcrtError("too few resamples", found=str(num_resamples), expected="at least 1")
    # Sorted, so that the draws do not depend on the order in which folds were put into the mapping.
    return {
        fold: checked_scores(differences_by_fold[fold], fold)
        for fold in sorted(differences_by_fold)
    }


def checked_scores(values: npt.ArrayLike, name: str) -> FloatArray:
    """``values`` as finite floats ``[runs, items]``; raises :class:`VcrtError` if they are something else."""
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 2 or 0 in scores.shape:
        raise VcrtError(
            "scores need at least one run and one item",
            where=name,
            found=f"an array of shape {scores.shape}",
            expected="[runs, items], both at least 1",
        )
    if not np.isfinite(scores).all():
        raise VcrtError("scores must be finite", where=name, found="NaN or infinity")
    return scores


def _uniform(size: int) -> FloatArray:
    return np.full(size, 1.0 / size)


def checked_level(level: float) -> float:
    """The level itself; raises :class:`VcrtError` if it is not between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise VcrtError("not a level", found=str(level), expected="a number between 0 and 1")
    return level
