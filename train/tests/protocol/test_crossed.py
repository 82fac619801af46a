"""The interval over runs and items: against analysis of variance by hand, a slow reference, and simulation."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from coverage_support import bench
from vcrt.errors import VcrtError
from vcrt_train.protocol.crossed import crossed_interval, runs_interval
from vcrt_train.protocol.statistics import (
    hierarchical_bootstrap,
    paired_bootstrap,
    proportion_interval,
)
from vcrt_train.randomness import generator

ANYWHERE = (float("-inf"), float("inf"))
T = scipy.stats.t.ppf


def test_two_by_three_by_hand() -> None:
    """Mean squares of runs 13.5, of items 6.5 and of the rest 1.5, by pen on paper."""
    scores = {"a": np.array([[1.0, 2.0, 3.0], [3.0, 4.0, 8.0]])}
    half = (T(0.975, 1) ** 2 * 13.5 / 6 + T(0.975, 2) ** 2 * (6.5 - 1.5) / 6) ** 0.5
    found = crossed_interval(scores, within=ANYWHERE)
    assert (found.estimate, found.over_runs) == (3.5, True)
    assert (found.low, found.high) == pytest.approx((3.5 - half, 3.5 + half))
    assert half == pytest.approx(19.4598, abs=1e-4)


def reference(folds, sources, level):
    """The half-width from components that are summed one by one."""
    tail = (1 - level) / 2
    num_folds, new_items, these = len(folds), 0.0, 0.0
    for name, scores in folds.items():
        num_runs, num_items = scores.shape
        members = [
            [item for item in range(num_items) if sources[name][item] == source]
            for source in sorted(set(sources[name]))
        ]
        groups = len(members)
        total = sum((len(m) / num_items) ** 2 for m in members)
        deviation = [
            [sum(scores[run][i] - np.mean(scores[run]) for i in m) for m in members]
            for run in range(num_runs)
        ]
        mean = [np.mean([row[g] for row in deviation]) for g in range(groups)]
        scale = groups / (groups - 1) / num_items**2
        between = scale * sum(one**2 for one in mean)
        error = 0.0
        if num_runs > 1:
            rest = sum((row[g] - mean[g]) ** 2 for row in deviation for g in range(groups))
            error = scale * rest / (num_runs - 1) / num_runs
        t = T(1 - tail, 1 / total - 1)
        new_items += (t / num_folds) ** 2 * max(0.0, between - error)
        these += (t / num_folds) ** 2 * (max(0.0, between - error) + error)
    num_runs = len(next(iter(folds.values())))
    runs = 0.0
    if num_runs > 1:
        macros = [
            np.mean([scores[run].mean() for scores in folds.values()]) for run in range(num_runs)
        ]
        runs = T(1 - tail, num_runs - 1) ** 2 * np.var(macros, ddof=1) / num_runs
    return max(these, new_items + runs if num_runs > 1 else 0.0) ** 0.5


def some_folds(seed, num_runs, num_folds=2, num_items=9, num_sources=4):
    rng = generator(seed, "crossed")
    names = [f"fold{k}" for k in range(num_folds)]
    return (
        {
            name: rng.normal(rng.normal(0, 0.2, (num_runs, 1)), 0.3, (num_runs, num_items))
            for name in names
        },
        {
            name: [*range(num_sources), *rng.integers(0, num_sources, num_items - num_sources)]
            for name in names
        },
    )


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
@pytest.mark.parametrize("num_runs", [1, 2, 3, 10])
def test_components_are_those_of_a_slow_reference(num_runs: int, level: float) -> None:
    for seed in range(5):
        folds, sources = some_folds(seed, num_runs)
        apart = {name: range(9) for name in folds}
        for given_sources in (sources, apart):
            found = crossed_interval(folds, sources=given_sources, level=level, within=ANYWHERE)
            half = reference(folds, given_sources, level)
            assert (found.high - found.low) / 2 == pytest.approx(half, rel=1e-9)
        # Items without a source are each their own.
        assert crossed_interval(folds, level=level) == crossed_interval(
            folds, sources=apart, level=level
        )


@given(st.integers(1, 5), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_only_what_is_scored_matters(num_runs: int, seed: int) -> None:
    folds, sources = some_folds(seed, num_runs)

    def ends(scores, of=sources, **options):
        found = crossed_interval(scores, sources=of, within=ANYWHERE, **options)
        return np.array([found.low, found.estimate, found.high])

    before = ends(folds)
    rng = generator(seed, "turned")
    runs, items = rng.permutation(num_runs), rng.permutation(9)
    turned = {name: scores[runs][:, items] for name, scores in folds.items()}
    order = {name: [of[i] for i in items] for name, of in sources.items()}
    assert ends(turned, order) == pytest.approx(before)
    assert ends(dict(reversed(turned.items())), order) == pytest.approx(before)
    assert ends(
        {n: s[runs] if n == "fold0" else s for n, s in folds.items()},
        seeds={n: list(runs) if n == "fold0" else list(range(num_runs)) for n in folds},
    ) == pytest.approx(before)
    assert ends({name: scores + 0.7 for name, scores in folds.items()}) == pytest.approx(
        before + 0.7
    )
    assert ends({name: -3 * scores for name, scores in folds.items()}) == pytest.approx(
        -3 * before[::-1]
    )
    widths = [np.ptp(ends(folds, level=level)) for level in (0.5, 0.9, 0.95, 0.999)]
    assert widths == sorted(widths)


def test_the_readmes_example() -> None:
    """Macro differences of +1.72, 0.00 and +8.29 points by run: nothing is shown, though the bootstraps show it."""
    alone = {"a": np.repeat([[0.0172], [0.0], [0.0829]], 3, axis=1)}
    found = crossed_interval(alone)
    assert (100 * found.low, 100 * found.high) == pytest.approx((-7.53, 14.20), abs=0.01)
    # With 2,500 items on each of three folds, where one fold makes the difference.
    lean = np.zeros((3, 2500))
    for run, share in enumerate((0.0516, 0.0, 0.2487)):
        lean[run, : round(2500 * share)] = 1
    folds = {"lean": lean, "clrs": np.zeros((3, 2500)), "proofwriter": np.zeros((3, 2500))}
    found = crossed_interval(folds)
    assert (100 * found.low, 100 * found.high) == pytest.approx((-7.5, 14.2), abs=0.1)
    assert found.sign == 0
    for bootstrap in (paired_bootstrap, hierarchical_bootstrap):
        assert bootstrap(folds, generator(0, "readme")).low >= 0


@pytest.mark.parametrize("num_runs", [1, 2, 10])
@pytest.mark.parametrize("num_items", [1, 2, 18, 2500])
def test_equal_scores_are_never_without_a_width(num_items: int, num_runs: int) -> None:
    """The exact interval of a proportion, for items; runs that are all alike are no further items."""
    ones = np.ones((num_runs, num_items))
    found = crossed_interval({"a": ones}, within=(0.0, 1.0))
    low, high = proportion_interval(num_items, num_items)
    assert (found.low, found.high) == pytest.approx((low if num_items > 1 else 0.0, high))
    zero = crossed_interval({"a": 0 * ones})
    assert (zero.low, zero.high, zero.sign) == (-zero.high, zero.high, 0)
    assert zero.high == pytest.approx(1 - low if num_items > 1 else 1.0)
    if num_items > 1:
        three = crossed_interval(dict.fromkeys("abc", ones), within=(0.0, 1.0))
        assert three.low == pytest.approx(proportion_interval(3 * num_items, 3 * num_items)[0])


@pytest.mark.parametrize("of_all", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("num_items", [10, 50, 400])
def test_all_items_alike_leave_every_truth_that_often_looks_so(num_items, of_all) -> None:
    """Fifty differences of +1: of a truth of 0.90, from 5% of items at -1, 7.7% of samples look so."""
    found = crossed_interval({"a": np.full((3, num_items), of_all)})
    others = np.linspace(0, 1, 2001)
    often = others[(1 - others) ** num_items >= 0.025]
    for unseen in (-1.0, 0.0, 1.0):
        truths = of_all + often * (unseen - of_all)
        assert (found.low <= truths + 1e-9).all()
        assert (truths - 1e-9 <= found.high).all()
    # No wider than that: the farthest of them is the end.
    reach = 1 + abs(of_all)
    assert found.high - found.low == pytest.approx(
        (1 + (of_all == 0)) * reach * (1 - 0.025 ** (1 / num_items))
    )


def test_items_of_one_fold_weigh_as_far_as_they_can_lie_there() -> None:
    """All +1 on one fold and 0 on two others: what is unseen on the first alone is held."""
    zero = np.zeros((2, 50))
    found = crossed_interval({"a": zero + 1, "b": zero, "c": zero})
    unseen = 1 - 0.025 ** (1 / 50)
    assert found.low <= (1 - 2 * unseen) / 3
    assert found.high >= (1 + unseen) / 3


def test_coverage_of_differences_of_few_items_is_near_its_level() -> None:
    """Exact, over all samples of 20 items with scores of -1, 0 and 1: 84% at the least before the reach counted."""
    num_items = 20
    counts = [
        (down, num_items - down - up, up)
        for down in range(num_items + 1)
        for up in range(num_items + 1 - down)
    ]
    ends = []
    for down, same, up in counts:
        scores = np.repeat([-1.0, 0.0, 1.0], [down, same, up])
        found = crossed_interval({"a": scores[np.newaxis]})
        ends.append((found.low - 1e-9, found.high + 1e-9))
    low, high = np.array(ends).T
    for down in np.arange(0, 1.001, 0.04):
        for up in np.arange(0, 1.001 - down, 0.04):
            chances = [down, max(0.0, 1 - down - up), up]
            held = (low <= up - down) & (up - down <= high)
            how_often = scipy.stats.multinomial.pmf(counts, num_items, chances)[held].sum()
            assert how_often > 0.91, chances


def test_a_reach_is_for_scores_that_are_no_whole_numbers() -> None:
    half = {"a": np.full((2, 50), 0.5)}
    assert crossed_interval(half).low == 0.5
    unseen = 1 - 0.025 ** (1 / 50)
    assert crossed_interval(half, reach=1.5).low == pytest.approx(0.5 - 1.5 * unseen)
    # Whole numbers without bounds have none.
    ones = {"a": np.ones((2, 50))}
    assert crossed_interval(ones, within=ANYWHERE).low == 1
    assert crossed_interval(ones, within=ANYWHERE, reach=2.0).low == pytest.approx(1 - 2 * unseen)


def test_runs_that_are_all_alike_at_a_bound_are_not_without_a_width() -> None:
    found = runs_interval({"a": [1.0, 1.0, 1.0], "b": [1.0, 1.0, 1.0]})
    assert found.low == pytest.approx(1 - 2 * (1 - 0.025 ** (1 / 3)))
    zero = runs_interval({"a": [0.0] * 10})
    assert (zero.low, zero.high) == pytest.approx((-zero.high, 1 - 0.025 ** (1 / 10)))
    assert zero.sign == 0


def test_items_of_equal_sources_count_once() -> None:
    ones = np.ones((3, 40))
    found = crossed_interval({"a": ones}, sources={"a": [k // 4 for k in range(40)]}, within=(0, 1))
    assert found.low == pytest.approx(proportion_interval(10, 10)[0])


def test_one_run_has_no_interval_over_runs() -> None:
    scores = generator(1, "one").normal(0.1, 0.2, (1, 30))
    found = crossed_interval({"a": scores})
    reference = scipy.stats.ttest_1samp(scores[0], 0).confidence_interval()
    assert not found.over_runs
    assert (found.low, found.high) == pytest.approx(tuple(reference))
    # One fold with a single run is enough; what runs cannot change is another matter.
    assert not crossed_interval({"a": scores, "b": np.vstack([scores, scores])}).over_runs
    assert crossed_interval({"a": scores}, same_runs=True).over_runs


def test_runs_that_are_alike_by_chance_are_not_taken_to_be_so() -> None:
    """Two runs with equal means, each on other items: never narrower than for exactly these runs."""
    scores = np.array([[1, 0] * 20, [0, 1] * 20], dtype=float)
    found = crossed_interval({"a": scores}, within=(0, 1))
    error = ((scores - 0.5) ** 2).sum() / 39 / 80
    assert (found.high - found.low) / 2 == pytest.approx(T(0.975, 39) * error**0.5)


def test_one_source_alone_says_nothing_of_other_sources() -> None:
    folds, _ = some_folds(3, 3)
    one = {name: ["x"] * 9 for name in folds}
    assert crossed_interval(folds, sources=one) == crossed_interval(folds)


def test_other_seeds_on_other_folds_are_taken_to_go_together() -> None:
    folds, _ = some_folds(4, 3)
    ends = crossed_interval(folds, within=ANYWHERE)
    apart = crossed_interval(folds, seeds={"fold0": [0, 1, 2], "fold1": [1, 2, 3]}, within=ANYWHERE)
    halves = [crossed_interval({n: s}, within=ANYWHERE) for n, s in folds.items()]
    assert apart.high - apart.low > ends.high - ends.low
    assert apart.high - apart.low <= sum(one.high - one.low for one in halves) / 2 + 1e-12


def test_items_that_folds_share_tell_no_more_for_being_on_several() -> None:
    scores = generator(2, "shared").normal(0.1, 0.2, (1, 30))
    alone = crossed_interval({"a": scores})
    twice = crossed_interval({"a": scores, "b": scores}, shared_items=True)
    assert (twice.low, twice.high) == pytest.approx((alone.low, alone.high))
    assert crossed_interval({"a": scores, "b": scores}).high < twice.high
    zero = {"a": np.zeros((2, 30))}
    both = crossed_interval({**zero, "b": zero["a"]}, shared_items=True)
    assert both.high == pytest.approx(crossed_interval(zero).high)


@pytest.mark.parametrize("scores", [np.empty((2, 0)), np.zeros(3), [[np.nan, 1.0]]])
def test_degenerate_scores_are_refused_by_name(scores) -> None:
    with pytest.raises(ValueError, match="where: lean"):
        crossed_interval({"lean": scores})
    with pytest.raises(ValueError, match="one source"):
        crossed_interval({"lean": np.zeros((2, 3))}, sources={"lean": ["a", "b"]})
    with pytest.raises(ValueError, match="fold"):
        crossed_interval({})


def covered(repetitions, **design):
    """How often the crossed, paired and hierarchical intervals hold the difference of new runs."""
    cell = bench.Cell(
        **{"level": "middle", "run_effect": 0.5, "num_items": 300, "num_runs": 3} | design
    )
    hits, _ = bench.repeat(cell, 0, repetitions, 200, 11)
    return dict(zip(bench.INTERVALS, hits[:, 1] / repetitions, strict=True))


@pytest.mark.parametrize(
    "design",
    [
        {},
        pytest.param({"num_folds": 1}, marks=pytest.mark.slow),
        pytest.param({"num_runs": 2}, marks=pytest.mark.slow),
        {"num_runs": 2, "num_folds": 1},
    ],
)
def test_the_crossed_interval_holds_where_bootstraps_do_not(design) -> None:
    found = covered(300, **design)
    # Five standard errors below 95%.
    assert found["crossed"] > 0.887
    assert found["hierarchical"] < 0.887, found


def test_it_holds_where_items_share_sources() -> None:
    found = covered(
        200, run_effect=0.0, items_of_source=10, source_effect=1.0, num_items=200, num_runs=5
    )
    assert found["crossed"] > 0.88
    assert found["paired"] < 0.80


def test_a_quantile_for_each_component_holds_where_satterthwaites_for_their_sum_does_not() -> None:
    """Two normal components, of two runs and of 300 items: 87% where items add a twentieth."""
    rng, size = generator(0, "components"), 100_000
    for ratio in (0.0, 0.05, 0.5, 4.0):
        runs = rng.chisquare(1, size)
        items = ratio * rng.chisquare(299, size) / 299
        error = np.abs(rng.standard_normal(size)) * (1 + ratio) ** 0.5
        freedom = (runs + items) ** 2 / (runs**2 + items**2 / 299)
        satterthwaite = T(0.975, freedom) * (runs + items) ** 0.5
        banerjee = (T(0.975, 1) ** 2 * runs + T(0.975, 299) ** 2 * items) ** 0.5
        assert (error < banerjee).mean() > 0.948
        if ratio == 0.05:
            assert (error < satterthwaite).mean() == pytest.approx(0.872, abs=0.005)


def test_runs_alone_have_the_t_interval_of_their_seeds() -> None:
    means = {"a": [0.1, 0.2, 0.6], "b": [0.3, 0.0, 0.1]}
    seeds = {"a": [0, 1, 2], "b": [2, 0, 1]}
    by_seed = [0.05, 0.15, 0.45]
    found = runs_interval(means, seeds=seeds)
    half = T(0.975, 2) * np.std(by_seed, ddof=1) / 3**0.5
    assert (found.low, found.high) == pytest.approx(
        (np.mean(by_seed) - half, np.mean(by_seed) + half)
    )
    assert found.over_runs
    # Other seeds: as if both folds' deviations went together.
    apart = runs_interval(means, seeds={**seeds, "b": [0, 1, 3]}, within=ANYWHERE)
    halves = [T(0.975, 2) * np.std(one, ddof=1) / 3**0.5 for one in means.values()]
    assert apart.high - apart.estimate == pytest.approx(np.mean(halves))


def test_one_number_a_run_is_what_the_crossed_interval_says_of_runs_whose_items_are_alike() -> None:
    means = {"a": np.array([0.1, 0.2, 0.6]), "b": np.array([0.3, 0.0, 0.1])}
    scores = {fold: np.repeat(one[:, None], 5, axis=1) for fold, one in means.items()}
    crossed, alone = (
        crossed_interval(scores, within=ANYWHERE),
        runs_interval(means, within=ANYWHERE),
    )
    assert (alone.low, alone.high) == pytest.approx((crossed.low, crossed.high))


def test_a_single_run_says_nothing_of_others() -> None:
    found = runs_interval({"a": [0.5, 0.4], "b": [0.25]})
    assert (found.estimate, found.low, found.high, found.over_runs) == (0.35, -1.0, 1.0, False)
    for nothing in ({}, {"a": []}, {"a": [float("nan")]}):
        with pytest.raises(VcrtError):
            runs_interval(nothing)
