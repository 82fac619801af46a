"""Compute an interval of a mean over runs and items that holds for new runs and new items, from two runs on.

Every run is scored on the same items, so runs and items are crossed random effects: a score is mean + run + item +
interaction of both. An analysis of variance (method of moments) estimates the components of the mean's variance; items
of one source (a theory, a run of an algorithm) are one cluster, and folds are strata of equal weight. A seed gives one
run on every fold, so the interval uses the seeds' means over folds, which includes the effect that a seed has on all
folds.

With two or three runs, the interval of a Satterthwaite approximation holds too seldom (87 to 92%), because the
component of the runs is small by chance as often as it is large. So each component has its own t quantile, which is
conservative for independent normal components: Banerjee, "Approximate confidence interval for linear functions of means
of k populations when the population variances are not equal", Sankhya 22 (1960). Variance components: Searle, Casella
and McCulloch, "Variance Components" (1992). Crossed bootstraps, which are too narrow: Owen, "The pigeonhole bootstrap",
Annals of Applied Statistics 1 (2007).

Not covered: folds as a sample of folds, and runs that share more than their seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from vcrt.errors import VcrtError
from vcrt.printable import counted
from vcrt_train.protocol.statistics import (
    FloatArray,
    Interval,
    checked_level,
    checked_scores,
    macro,
)

Sources = npt.NDArray[Any] | Sequence[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class FoldComponents:
    """The components of one fold's variance, each as a variance of the mean over all items.

    ``error`` is the variance of a single run's mean from the interaction; with one run it is 0, and part of ``items``.
    """

    run_means: FloatArray
    items: float
    items_df: float
    error: float
    num_clusters: float
    """The effective number of sources: that of sources of equal size with the same information (Kish)."""


def fold_components(scores: npt.ArrayLike, sources: Sources | None, name: str) -> FoldComponents:
    """Estimate the components of ``scores [runs, items]``; ``sources`` gives each item's source, by default its own.

    A single source cannot show how sources differ: its items then count as independent, and the interval is about items
    of this source.
    """
    values = checked_scores(scores, name)
    num_runs, num_items = values.shape
    clusters = np.arange(num_items)
    if sources is not None:
        names, found = np.unique(np.asarray(sources), return_inverse=True)
        if found.shape != (num_items,):
            raise VcrtError(
                "every item needs one source",
                where=name,
                found=f"{found.size} sources of {counted(num_items, 'item')}",
                expected="as many sources as items",
            )
        clusters = found if names.size > 1 else clusters
    sizes = np.bincount(clusters)
    run_means = values.mean(axis=1)
    residuals = values - run_means[:, np.newaxis]
    if sizes.size < num_items:
        totals = np.zeros((sizes.size, num_runs))
        np.add.at(totals, clusters, residuals.T)
        residuals = totals.T
    means = residuals.mean(axis=0)
    if sizes.size == 1:
        return FoldComponents(
            run_means=run_means, items=np.inf, items_df=1.0, error=0.0, num_clusters=1.0
        )
    scale = sizes.size / (sizes.size - 1) / num_items**2
    error = 0.0
    if num_runs > 1:
        error = scale * float(((residuals - means) ** 2).sum()) / (num_runs - 1)
    effective = num_items**2 / float((sizes.astype(float) ** 2).sum())
    return FoldComponents(
        run_means=run_means,
        items=max(0.0, scale * float((means**2).sum()) - error / num_runs),
        items_df=effective - 1,
        error=error,
        num_clusters=effective,
    )


def crossed_interval(
    scores_by_fold: Mapping[str, npt.ArrayLike],
    *,
    sources: Mapping[str, Sources] | None = None,
    seeds: Mapping[str, Sequence[int]] | None = None,
    level: float = 0.95,
    within: tuple[float, float] = (-1.0, 1.0),
    same_runs: bool = False,
    shared_items: bool = False,
    reach: float | None = None,
) -> Interval:
    """Return the macro mean of ``scores_by_fold`` (``[runs, items]`` each) with its interval over runs and items.

    ``sources`` has the source of each item by fold. ``seeds`` names the rows of each fold, by default their numbers: if
    all folds have the same seeds, the runs of a seed are averaged; otherwise the folds' deviations are added as if they
    were fully correlated. ``within`` holds the least and the greatest possible score. With a single run on a fold, the
    interval is over items, for exactly these runs, and ``over_runs`` is false. ``same_runs`` says that runs cannot
    differ, such as those of a frozen model. ``shared_items`` says that folds may have items in common, such as the
    source items of several folds; the items' deviations are then added as if they were fully correlated.

    Scores that are whole numbers (passes, and their differences) have a least half-width: the exact bound on the share
    of a kind of items that does not occur here, 1 - (tail)^(1/items), times ``reach``, the greatest distance of an
    item's score from its fold's mean. By default, this is the distance to the farther end of ``within``, if both ends
    are finite, and at least 1: 2 for differences that are all 1, 1 for passes. Other scores need a given ``reach``.
    """
    tail = (1.0 - checked_level(level)) / 2.0
    if not scores_by_fold:
        raise VcrtError("no fold to average over", expected="at least one fold of scores")
    names = sorted(scores_by_fold)
    folds = {
        fold: fold_components(scores_by_fold[fold], (sources or {}).get(fold), fold)
        for fold in names
    }
    share = 1.0 / len(folds)
    num_runs = min(one.run_means.size for one in folds.values())
    quantile = {fold: float(stdtrit(one.items_df, 1.0 - tail)) for fold, one in folds.items()}

    def of_items(variances: Mapping[str, float]) -> float:
        parts = np.array([share * quantile[f] * one**0.5 for f, one in variances.items()])
        return float(parts.sum() ** 2 if shared_items else (parts**2).sum())

    new_items = of_items({fold: one.items for fold, one in folds.items()})
    these_runs = of_items(
        {fold: one.items + one.error / one.run_means.size for fold, one in folds.items()}
    )
    # Two runs can be equal by chance, so the interval is at least as wide as that for exactly these runs.
    squared = these_runs
    if num_runs > 1:
        run_means = {fold: one.run_means for fold, one in folds.items()}
        squared = max(squared, new_items + _half_over_runs(run_means, seeds, 1.0 - tail) ** 2)
    means = {fold: float(one.run_means.mean()) for fold, one in folds.items()}
    if reach is None:
        reach = _reach(scores_by_fold, means, within)
    fewest = min(one.num_clusters for one in folds.values())
    unseen = 1.0 - tail ** (1.0 / (fewest if shared_items else fewest / share))
    half = max(float(np.sqrt(squared)), reach * unseen)
    return _around(means, half, within, over_runs=num_runs > 1 or same_runs)


def runs_interval(
    means_by_fold: Mapping[str, npt.ArrayLike],
    *,
    seeds: Mapping[str, Sequence[int]] | None = None,
    level: float = 0.95,
    within: tuple[float, float] = (-1.0, 1.0),
) -> Interval:
    """Return the macro mean of one number for each run (``[runs]`` by fold), with its interval for new runs.

    Arguments are those of :func:`crossed_interval`. A single run on a fold says nothing about others: the interval is
    then ``within``, and ``over_runs`` is false. Numbers that are all whole have a least half-width as there, from the
    bound on the share of a kind of runs that does not occur here.
    """
    tail = (1.0 - checked_level(level)) / 2.0
    if not means_by_fold:
        raise VcrtError("no fold to average over", expected="at least one fold of runs")
    means = {
        fold: checked_scores(np.asarray(means_by_fold[fold])[:, np.newaxis], fold)[:, 0]
        for fold in sorted(means_by_fold)
    }
    over_runs = min(one.size for one in means.values()) > 1
    of_fold = {fold: float(one.mean()) for fold, one in means.items()}
    half = np.inf
    if over_runs:
        unseen = 1.0 - tail ** (1.0 / min(one.size for one in means.values()))
        half = _half_over_runs(means, seeds, 1.0 - tail)
        half = max(half, _reach(means, of_fold, within) * unseen)
    return _around(of_fold, half, within, over_runs=over_runs)


def _around(
    means: Mapping[str, float], half: float, within: tuple[float, float], *, over_runs: bool
) -> Interval:
    """Return the interval of a half-width around the macro mean, cut to the possible scores."""
    estimate = macro(means)
    return Interval(
        estimate=estimate,
        low=max(estimate - half, min(within[0], estimate)),
        high=min(estimate + half, max(within[1], estimate)),
        over_runs=over_runs,
    )


def _half_over_runs(
    run_means: Mapping[str, FloatArray],
    seeds: Mapping[str, Sequence[int]] | None,
    probability: float,
) -> float:
    """Return the half-width that comes from runs, and from the interaction of runs and items."""
    share = 1.0 / len(run_means)
    rows = {
        fold: list(range(means.size)) if seeds is None else list(seeds[fold])
        for fold, means in run_means.items()
    }
    first, *others = rows.values()
    if all(sorted(other) == sorted(first) for other in others):
        by_seed = [run_means[fold][np.argsort(order)] for fold, order in rows.items()]
        return _half_of_runs(share * np.sum(by_seed, axis=0), probability)
    return share * sum(_half_of_runs(means, probability) for means in run_means.values())


def _half_of_runs(means: FloatArray, probability: float) -> float:
    quantile = float(stdtrit(means.size - 1, probability))
    return float(quantile * means.std(ddof=1) / np.sqrt(means.size))


def _reach(
    scores_by_fold: Mapping[str, npt.ArrayLike],
    means: Mapping[str, float],
    within: tuple[float, float],
) -> float:
    """Return how far a score can lie from its fold's mean, at least 1; 0 if scores are unbounded or not whole."""
    far = max(1.0, *(max(mean - within[0], within[1] - mean) for mean in means.values()))
    values = [np.asarray(scores_by_fold[fold], dtype=np.float64) for fold in means]
    are_whole = all((one == np.round(one)).all() for one in values)
    return far if are_whole and np.isfinite(far) else 0.0
