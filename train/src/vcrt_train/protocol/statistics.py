"""Compute pass rates, paired differences and their bootstrap intervals, as pure functions on arrays.

Scores of one method on one held-out fold are an array ``[runs, items]``, which holds 0 and 1 for passes, and -1, 0 and
1 for paired differences. All values are fractions of 1; only the report multiplies by 100.

In both bootstraps, items with equal scores in every run are exchangeable: a draw of ``n`` items with replacement is a
draw of multinomial counts of the distinct columns. This has the same distribution as a draw of indices, and its cost
does not grow with the number of items.

Not covered: bootstrap intervals other than percentile intervals, and the choice of comparisons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vcrt.errors import VcrtError

FloatArray = npt.NDArray[np.float64]
#: Ends of intervals are sums of floats; a value nearer to zero than this counts as zero.
ZERO = 1e-12
#: Upper bound on the elements of one block of resampled counts (32 MiB of 8-byte integers).
MAX_BLOCK_ELEMENTS = 4 * 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """An estimate and its interval.

    ``over_runs`` says whether the interval holds for new runs too (:mod:`vcrt_train.protocol.crossed`); its sign may
    decide between methods only if it does.
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
    """Return the exact (Clopper-Pearson) interval of a proportion: ``count`` of ``total`` independent comparisons."""
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
    """Return the mean of ``passes [runs, items]`` over runs and items."""
    return float(checked_scores(passes, "passes").mean())


def run_means(scores: npt.ArrayLike) -> FloatArray:
    """Return the mean over items of each run: ``[runs, items] -> [runs]``."""
    means: FloatArray = checked_scores(scores, "scores").mean(axis=1)
    return means


def macro(rates_by_fold: Mapping[str, float]) -> float:
    """Return the mean over folds with equal weight, for any numbers of items."""
    if not rates_by_fold:
        raise VcrtError("no fold to average over", expected="at least one fold")
    return float(np.mean([rates_by_fold[fold] for fold in sorted(rates_by_fold)]))


def paired_differences(passes: npt.ArrayLike, baseline: npt.ArrayLike) -> FloatArray:
    """Return the item-level differences ``[runs, items]`` of two methods on the same items, run by run."""
    first, second = checked_scores(passes, "passes"), checked_scores(baseline, "baseline")
    if first.shape != second.shape:
        raise VcrtError(
            "paired scores need equal runs and items",
            found=f"[runs, items] {first.shape} and {second.shape}",
            expected="two arrays of one shape",
        )
    return first - second


def negative_comparisons(differences_by_fold: Mapping[str, npt.ArrayLike]) -> tuple[int, int]:
    """Count the fold-by-run mean differences that are below zero, and all of them."""
    means = [run_means(differences) for differences in differences_by_fold.values()]
    return sum(int((m < 0).sum()) for m in means), sum(m.size for m in means)


def paired_replicates(
    differences_by_fold: Mapping[str, npt.ArrayLike],
    generator: np.random.Generator,
    *,
    num_resamples: int,
) -> dict[str, FloatArray]:
    """Return each fold's mean differences ``[num_resamples]`` with its items resampled and its runs averaged."""
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
    """Return each fold's mean differences ``[num_resamples]`` with both its runs and its items resampled.

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
    """Return the paper's interval: episode-paired, runs averaged first, folds of equal weight, percentiles.

    It covers the choice of items for exactly these runs; it is too narrow for new runs. ``differences_by_fold`` maps
    each fold to ``[runs, items]``; a single fold is allowed. The order of folds and of items does not change the
    result.
    """
    replicates = paired_replicates(differences_by_fold, generator, num_resamples=num_resamples)
    return macro_interval(differences_by_fold, replicates, level)


def hierarchical_bootstrap(
    differences_by_fold: Mapping[str, npt.ArrayLike],
    generator: np.random.Generator,
    num_resamples: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """Return the interval that resamples both runs and items; arguments as for :func:`paired_bootstrap`.

    With one run, it equals the paired interval in distribution. With few runs, it is still too narrow: the resampling
    of R runs shows only (R - 1) / R of their variance.
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
    """Return the macro mean of ``scores_by_fold`` with the percentile interval of its folds' replicates."""
    estimate = macro({fold: pass_rate(scores) for fold, scores in scores_by_fold.items()})
    total = sum((replicates[fold] for fold in sorted(scores_by_fold)), start=np.zeros(()))
    return _percentile_interval(estimate, total / len(scores_by_fold), level)


def share_intervals(
    differences_by_fold: Mapping[str, npt.ArrayLike],
    replicates: Mapping[str, FloatArray],
    level: float = 0.95,
) -> dict[str, Interval]:
    """Return each fold's share of the macro difference, with an interval from the replicates.

    The share is the fold's mean over the sum of all folds' means. The result is empty if this sum is zero, in the
    scores or in a resample. Shares mean little if the interval of the sum includes zero; the caller must check this.
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
    """Return run means ``[num_resamples, runs]`` over items drawn with replacement."""
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
    # Folds are sorted, so that the draws do not depend on the order of the mapping.
    return {
        fold: checked_scores(differences_by_fold[fold], fold)
        for fold in sorted(differences_by_fold)
    }


def checked_scores(values: npt.ArrayLike, name: str) -> FloatArray:
    """Return ``values`` as finite floats ``[runs, items]``; raises :class:`VcrtError` if they are not."""
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
    """Return the level; raises :class:`VcrtError` if it is not between 0 and 1."""
    if not 0.0 < level < 1.0:
        raise VcrtError("not a level", found=str(level), expected="a number between 0 and 1")
    return level
