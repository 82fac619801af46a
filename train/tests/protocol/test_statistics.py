"""Statistics against enumeration and SciPy; simulation is in test_coverage.py."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from vcrt_train.protocol import statistics
from vcrt_train.protocol.statistics import (
    Interval,
    hierarchical_bootstrap,
    hierarchical_replicates,
    macro,
    negative_comparisons,
    paired_bootstrap,
    paired_differences,
    paired_replicates,
    pass_rate,
    proportion_interval,
    run_means,
    share_intervals,
)
from vcrt_train.randomness import generator

SMALL = {
    "a": np.array([[1, 0, -1, 0], [1, 1, 0, 0]], dtype=float),
    "b": np.array([[0, 1, 1], [-1, 0, 1]], dtype=float),
}


def enumerate_fold(scores: np.ndarray, *, with_runs: bool) -> dict[float, float]:
    """The exact distribution of one fold's resampled mean, by every possible draw."""
    num_runs, num_items = scores.shape
    run_draws = (
        list(itertools.product(range(num_runs), repeat=num_runs))
        if with_runs
        else [tuple(range(num_runs))]
    )
    counts: Counter[float] = Counter()
    for runs in run_draws:
        for items in itertools.product(range(num_items), repeat=num_items):
            counts[round(float(scores[np.ix_(runs, items)].mean()), 9)] += 1
    total = sum(counts.values())
    return {value: count / total for value, count in counts.items()}


def enumerate_macro(folds: Mapping[str, np.ndarray], *, with_runs: bool) -> dict[float, float]:
    exact: dict[float, float] = {}
    each = [enumerate_fold(scores, with_runs=with_runs) for scores in folds.values()]
    for combination in itertools.product(*(d.items() for d in each)):
        value = round(sum(v for v, _ in combination) / len(each), 8)
        exact[value] = exact.get(value, 0.0) + float(np.prod([p for _, p in combination]))
    return exact


@pytest.mark.parametrize(
    ("replicates", "with_runs"), [(paired_replicates, False), (hierarchical_replicates, True)]
)
@pytest.mark.parametrize("folds", [SMALL, {"a": SMALL["a"]}, {"b": SMALL["b"]}])
def test_replicates_have_the_enumerated_distribution(replicates, with_runs, folds) -> None:
    exact = enumerate_macro(folds, with_runs=with_runs)
    assert sum(exact.values()) == pytest.approx(1.0)
    size = 60_000
    by_fold = replicates(folds, generator(1, "enumeration"), num_resamples=size)
    draws = sum(by_fold.values()) / len(by_fold)
    seen = Counter(np.round(draws, 8).tolist())
    assert set(seen) <= set(exact)
    for value, probability in exact.items():
        five_sigma = 5 * np.sqrt(probability * (1 - probability) / size)
        assert seen[value] / size == pytest.approx(probability, abs=five_sigma), value


def test_blocks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hierarchical_bootstrap(SMALL, generator(3, "blocks"), 997)
    monkeypatch.setattr(statistics, "MAX_BLOCK_ELEMENTS", 64)
    assert hierarchical_bootstrap(SMALL, generator(3, "blocks"), 997) == whole


class SameDraws(np.random.Generator):
    """A generator whose ``integers`` are indices of items with exactly the counts that the library draws.

    It draws the library's counts of distinct columns and names the first item of each column as often: SciPy then
    resamples item by item what the library resamples by counting.
    """

    def __init__(self, folds: Mapping[str, np.ndarray], *names: str) -> None:
        source = generator(7, *names)
        super().__init__(source.bit_generator)
        self._folds = itertools.cycle(folds[name] for name in sorted(folds))

    def integers(self, low, high, size, **_):
        _, first, multiplicity = np.unique(
            next(self._folds), axis=1, return_index=True, return_counts=True
        )
        assert (low, high) == (0, multiplicity.sum())
        counts = self.multinomial(high, multiplicity / high, size=size[0])
        return np.array([np.repeat(first, row) for row in counts])


@pytest.mark.parametrize("num_folds", [1, 3])
@pytest.mark.parametrize("num_runs", [1, 3])
def test_paired_interval_is_scipys_on_the_same_resamples(num_folds: int, num_runs: int) -> None:
    rng = generator(5, "scipy")
    folds = {
        f"fold{k}": (
            rng.integers(0, 2, (num_runs, 90 + 50 * k))
            - rng.integers(0, 2, (num_runs, 90 + 50 * k))
        ).astype(float)
        for k in range(num_folds)
    }
    reference = scipy.stats.bootstrap(
        tuple(d.mean(axis=0) for d in folds.values()),
        lambda *samples, axis: sum(np.mean(s, axis=axis) for s in samples) / len(samples),
        method="percentile",
        n_resamples=2000,
        batch=2000,
        rng=SameDraws(folds, "same"),
    )
    replicates = paired_replicates(folds, generator(7, "same"), num_resamples=2000)
    ours = paired_bootstrap(folds, generator(7, "same"), 2000)
    assert reference.bootstrap_distribution == pytest.approx(
        sum(replicates.values()) / num_folds, abs=1e-12
    )
    assert len(np.unique(reference.bootstrap_distribution)) > 20
    assert (ours.low, ours.high) == pytest.approx(tuple(reference.confidence_interval), abs=1e-12)


def test_hierarchical_replicates_are_plain_resampling_of_runs_and_items() -> None:
    """Run by run and item by item, with indices that have the library's counts."""
    folds = {"a": SMALL["a"], "b": generator(3, "b").integers(-1, 2, (3, 40)).astype(float)}
    num_resamples = 300
    replicates = hierarchical_replicates(folds, generator(7, "h"), num_resamples=num_resamples)
    draws = SameDraws(folds, "h")
    for name, scores in folds.items():
        num_runs, num_items = scores.shape
        run_counts = draws.multinomial(num_runs, np.full(num_runs, 1 / num_runs), num_resamples)
        items = draws.integers(0, num_items, size=(num_resamples, num_items))
        for k in range(num_resamples):
            runs = np.repeat(np.arange(num_runs), run_counts[k])
            mean = np.mean([scores[run, item] for run in runs for item in items[k]])
            assert replicates[name][k] == pytest.approx(mean, abs=1e-12)


@pytest.mark.parametrize("num_folds", [1, 3])
def test_paired_interval_agrees_with_scipys_own_resamples(num_folds: int) -> None:
    rng = generator(5, "scipy")
    folds = {
        f"fold{k}": rng.integers(0, 2, (3, 150 + 50 * k)) - rng.integers(0, 2, (3, 150 + 50 * k))
        for k in range(num_folds)
    }
    item_means = tuple(d.mean(axis=0) for d in folds.values())
    reference = scipy.stats.bootstrap(
        item_means,
        lambda *samples, axis: sum(np.mean(s, axis=axis) for s in samples) / len(samples),
        method="percentile",
        n_resamples=20_000,
        batch=1000,
        rng=np.random.default_rng(6),
    )
    ours = paired_bootstrap(folds, generator(7, "scipy"), 20_000)
    # The Monte Carlo error of a 2.5% quantile of 20,000 draws is about 0.02 standard errors.
    tolerance = 0.12 * reference.standard_error
    assert ours.low == pytest.approx(reference.confidence_interval.low, abs=tolerance)
    assert ours.high == pytest.approx(reference.confidence_interval.high, abs=tolerance)


def test_continuous_scores_agree_with_scipy() -> None:
    scores = generator(8, "continuous").normal(0.1, 1.0, (1, 200))
    reference = scipy.stats.bootstrap(
        (scores[0],), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(1)
    )
    ours = paired_bootstrap({"x": scores}, generator(9, "continuous"))
    assert ours.low == pytest.approx(
        reference.confidence_interval.low, abs=0.15 * reference.standard_error
    )
    assert ours.estimate == pytest.approx(scores.mean())


def test_same_generator_same_interval_and_order_is_moot() -> None:
    first = paired_bootstrap(SMALL, generator(2, "x"))
    assert first == paired_bootstrap(SMALL, generator(2, "x"))
    assert first != paired_bootstrap(SMALL, generator(2, "y"))
    turned = {fold: SMALL[fold][:, ::-1] for fold in reversed(SMALL)}
    assert paired_bootstrap(turned, generator(2, "x")) == first


def test_folds_have_equal_weight() -> None:
    folds = {"large": np.ones((1, 1000)), "small": np.zeros((1, 10))}
    interval = paired_bootstrap(folds, generator(0, "w"), 100)
    assert (interval.low, interval.estimate, interval.high) == (0.5, 0.5, 0.5)


def test_one_run_makes_both_intervals_alike() -> None:
    scores = {"a": generator(4, "one").integers(-1, 2, (1, 400))}
    paired = paired_bootstrap(scores, generator(4, "p"), 20_000)
    hierarchical = hierarchical_bootstrap(scores, generator(4, "h"), 20_000)
    width = paired.high - paired.low
    assert hierarchical.low == pytest.approx(paired.low, abs=0.04 * width)
    assert hierarchical.high == pytest.approx(paired.high, abs=0.04 * width)


def test_levels_nest() -> None:
    wide, narrow = (paired_bootstrap(SMALL, generator(2, "l"), level=v) for v in (0.99, 0.5))
    assert wide.low < narrow.low <= narrow.high < wide.high


@given(
    st.integers(1, 4),
    st.integers(1, 12),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_intervals_stay_within_the_scores(num_runs: int, num_items: int, seed: int) -> None:
    scores = {"a": generator(seed, "p").integers(-1, 2, (num_runs, num_items))}
    for bootstrap in (paired_bootstrap, hierarchical_bootstrap):
        interval = bootstrap(scores, generator(seed, "b"), 200)
        assert scores["a"].min() - 1e-12 <= interval.low <= interval.high
        assert interval.high <= scores["a"].max() + 1e-12
        assert interval.estimate == pytest.approx(scores["a"].mean())


@pytest.mark.parametrize(
    "scores",
    [np.empty((2, 0)), np.empty((0, 3)), np.zeros(3), np.zeros((1, 2, 2)), [[np.nan, 1.0]]],
)
@pytest.mark.parametrize("bootstrap", [paired_bootstrap, hierarchical_bootstrap])
def test_degenerate_scores_are_refused_by_name(bootstrap, scores) -> None:
    with pytest.raises(ValueError, match="where: lean"):
        bootstrap({"lean": scores}, generator(0, "d"))


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 95.0])
def test_levels_outside_the_unit_interval_are_refused(level: float) -> None:
    with pytest.raises(ValueError, match="level"):
        paired_bootstrap(SMALL, generator(0, "d"), level=level)


def test_no_fold_and_no_resample_are_refused() -> None:
    with pytest.raises(ValueError, match="fold"):
        paired_bootstrap({}, generator(0, "d"))
    with pytest.raises(ValueError, match="fold"):
        macro({})
    with pytest.raises(ValueError, match="resamples"):
        paired_bootstrap(SMALL, generator(0, "d"), 0)


def test_rates_and_signs() -> None:
    passes = np.array([[True, True, False, False], [True, True, True, False]])
    assert pass_rate(passes) == pytest.approx(0.625)
    assert run_means(passes).tolist() == [0.5, 0.75]
    assert negative_comparisons(SMALL) == (0, 4)
    assert negative_comparisons({"a": -SMALL["a"], "b": SMALL["b"]}) == (1, 4)
    baseline = np.array([[False, True, True, False], [True, False, True, False]])
    # Passes that the baseline does not have count as gains.
    assert paired_differences(passes, baseline).tolist() == [[1, 0, -1, 0], [0, 1, 0, 0]]
    with pytest.raises(ValueError, match="one shape"):
        paired_differences(passes, passes[:, :3])


def test_sign_of_an_interval() -> None:
    def interval(low: float, high: float) -> Interval:
        return Interval(estimate=0.0, low=low, high=high)

    ends = ((0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1), (0.0, 0.1), (1e-17, 0.1), (-0.1, -1e-17))
    assert [interval(*pair).sign for pair in ends] == [1, -1, 0, 0, 0, 0]


def shares(folds: Mapping[str, np.ndarray], num_resamples: int = 2000) -> dict[str, Interval]:
    replicates = paired_replicates(folds, generator(1, "shares"), num_resamples=num_resamples)
    return share_intervals(folds, replicates)


def test_shares_of_folds_sum_to_one_and_hold_their_estimates() -> None:
    rng = generator(2, "shares")
    folds = {
        name: (rng.random((2, 500)) < gain).astype(float)
        for name, gain in (("a", 0.6), ("b", 0.1), ("c", 0.05))
    }
    found = shares(folds)
    means = {name: float(scores.mean()) for name, scores in folds.items()}
    for name, share in found.items():
        assert share.estimate == pytest.approx(means[name] / sum(means.values()))
        assert share.low < share.estimate < share.high
    assert sum(share.estimate for share in found.values()) == pytest.approx(1.0)
    doubled = {name: 2 * scores for name, scores in folds.items()}
    for name, share in shares(doubled).items():
        assert (share.low, share.high) == pytest.approx((found[name].low, found[name].high))
    assert shares({"a": folds["a"]})["a"].low == shares({"a": folds["a"]})["a"].high == 1.0


def test_there_is_no_share_of_nothing() -> None:
    one = np.ones((1, 5))
    assert shares({"a": one, "b": -one}) == {}
    # Not zero in the scores, but in some resamples.
    assert shares({"a": np.array([[1.0, 0.0]]), "b": np.zeros((1, 2))}) == {}


@pytest.mark.parametrize(("count", "total"), [(0, 1), (0, 5000), (3, 70), (70, 70), (1, 2)])
def test_proportion_interval_agrees_with_scipy(count: int, total: int) -> None:
    reference = scipy.stats.binomtest(count, total).proportion_ci(0.9, method="exact")
    assert proportion_interval(count, total, 0.9) == pytest.approx(tuple(reference), abs=1e-9)


@pytest.mark.parametrize(("count", "total"), [(0, 0), (-1, 3), (4, 3)])
def test_what_is_no_proportion_is_refused(count: int, total: int) -> None:
    with pytest.raises(ValueError, match="proportion"):
        proportion_interval(count, total)
