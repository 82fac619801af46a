"""Predicted relations against certified ones: every count by hand, every interval by its meaning."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from vcrt.environments.contract import Footprint
from vcrt.orders import all_orders
from vcrt_research.relation_predictors import (
    by_answers,
    by_footprints,
    by_policy,
    by_shared_words,
    question,
)
from vcrt_research.relation_scores import (
    LabelledPair,
    Prediction,
    best_threshold,
    relation_scores,
    weighted_auroc,
)
from vcrt_train.randomness import generator


def pair(number, forward, *, episode="e", first=0, second=1):
    kind = "commutes" if forward is None else "precedes"
    return LabelledPair(
        episode_id=episode,
        source=f"s{number}",
        first=first,
        second=second,
        kind=kind,
        forward=forward,
    )


PAIRS = [pair(0, True), pair(1, False), pair(2, True), pair(3, None), pair(4, None), pair(5, None)]


def scored(edges, forward=None, threshold=0.5, probabilities=True):
    predictions = [
        Prediction(edge, 0.5 if forward is None else forward[i]) for i, edge in enumerate(edges)
    ]
    return relation_scores(PAIRS, predictions, threshold=threshold, probabilities=probabilities)


def test_counts_by_hand():
    found = scored([0.9, 0.6, 0.1, 0.7, 0.2, 0.0], forward=[0.9, 0.9, 0.5, 0.1, 0.5, 0.5])
    assert (found.pairs, found.edges, found.missed, found.superfluous) == (6, 3, 1, 1)
    # Of three that were found, two are edges, and of these the second is the other way around.
    assert (found.directed, found.turned) == (2, 1)
    assert found.f1.value == pytest.approx(2 * 2 / (2 * 2 + 1 + 1))
    # Of nine pairs of an edge and another, the edge has the higher score in 3 + 2 + 1.
    assert found.auroc.value == pytest.approx(6 / 9)
    assert found.f1.low <= found.f1.value <= found.f1.high
    assert found.auroc.low <= found.auroc.value <= found.auroc.high
    gaps = [abs(1 - 0.9), abs(1 - 0.6), abs(1 - 0.1), abs(0 - 0.7), abs(0 - 0.2), 0]
    assert found.calibration == pytest.approx(sum(gaps) / 6)


def test_auroc_is_that_of_scikit_learn():
    draw = generator(3, "auroc")
    edges = draw.integers(2, size=200).astype(float)
    scores = draw.integers(12, size=200) / 12
    weights = draw.integers(3, size=200).astype(float)
    _, rank = np.unique(scores, return_inverse=True)
    expected = roc_auc_score(edges, scores, sample_weight=weights)
    assert weighted_auroc(edges, rank, weights) == pytest.approx(expected, abs=1e-12)


def test_what_is_always_right_and_always_wrong():
    right = scored([1, 1, 1, 0, 0, 0], forward=[1, 0, 1, 0.5, 0.5, 0.5])
    assert (right.missed, right.superfluous, right.turned, right.calibration) == (0, 0, 0, 0)
    assert (right.f1.low, right.f1.high, right.auroc.low) == (1, 1, 1)
    wrong = scored([0, 0, 0, 1, 1, 1])
    assert (wrong.missed, wrong.superfluous, wrong.f1.value, wrong.auroc.value) == (3, 3, 0, 0)
    assert scored([1] * 6, probabilities=False).calibration is None


def test_pairs_of_one_kind_have_no_auroc():
    edges = relation_scores(PAIRS[:3], [Prediction(1.0)] * 3, threshold=0.5, probabilities=True)
    assert edges.auroc is None
    assert edges.f1.value == 1


def test_the_same_seed_gives_the_same_intervals():
    one, again = (scored([0.9, 0.6, 0.1, 0.7, 0.2, 0.0]) for _ in range(2))
    assert one == again


def test_sources_are_resampled_and_not_pairs():
    """Many pairs of one source are one observation."""
    many = [pair(0, True), *[pair(1, None)] * 50]
    predictions = [Prediction(1.0), *[Prediction(1.0)] * 50]
    found = relation_scores(many, predictions, threshold=0.5, probabilities=False)
    # Of two sources, a quarter of the resamples has the first one alone: F1 is 1 there.
    assert (found.f1.low, found.f1.high) == (0, 1)


def test_the_threshold_is_where_f1_is_largest():
    predictions = [Prediction(e) for e in (0.9, 0.6, 0.3, 0.4, 0.2, 0.0)]
    # All edges and one other: 6/7; one higher loses an edge.
    assert best_threshold(PAIRS, predictions) == 0.3
    assert best_threshold(PAIRS[3:], predictions[3:]) == 0.5


def slow_threshold(pairs, predictions):
    """F1 of each score by hand, one after another."""
    found = []
    for threshold in sorted({prediction.edge for prediction in predictions}):
        taken = [prediction.edge >= threshold for prediction in predictions]
        right = sum(t and pair.is_edge for t, pair in zip(taken, pairs, strict=True))
        wrong = sum(t != pair.is_edge for t, pair in zip(taken, pairs, strict=True))
        found.append((2 * right / (2 * right + wrong), -threshold))
    return -max(found)[1] if any(pair.is_edge for pair in pairs) else 0.5


def test_the_threshold_is_that_of_trying_every_score():
    draw = generator(0, "thresholds")
    for _ in range(300):
        size, steps = int(draw.integers(1, 12)), int(draw.integers(1, 6))
        pairs = [pair(n, True if draw.random() < 0.4 else None) for n in range(size)]
        predictions = [Prediction(int(draw.integers(0, steps + 1)) / steps) for _ in range(size)]
        assert best_threshold(pairs, predictions) == slow_threshold(pairs, predictions)


def test_a_threshold_among_many_scores_is_found_at_once():
    """200,000 scores, all different: each tried on all of them would take hours."""
    draw = generator(1, "thresholds")
    of = [pair(0, True), pair(1, None)] * 100_000
    scores = draw.random(len(of))
    predictions = [Prediction(float(score)) for score in scores]
    best = best_threshold(of, predictions)
    edges, taken = np.array([p.is_edge for p in of]), scores >= best
    assert taken.mean() > 0.99
    assert 2 * (edges & taken).sum() / (edges.sum() + taken.sum()) >= 2 / 3


def test_footprints_that_meet_and_who_goes_first():
    steps = {
        "e": [
            Footprint(reads=("a",), writes=("b",)),
            Footprint(reads=("b",), writes=()),
            Footprint(reads=(), writes=("b",)),
            Footprint(reads=("a",), writes=("c",)),
        ]
    }
    asked = {
        (0, 1): (1, 1.0),
        (1, 2): (1, 0.0),
        (0, 2): (1, 0.5),
        (0, 3): (0, 0.5),
        (1, 3): (0, 0.5),
    }
    for (first, second), (edge, forward) in asked.items():
        found = by_footprints([pair(0, None, first=first, second=second)], steps)
        assert found == [Prediction(edge, forward)]


def test_rare_words_tell_and_common_ones_do_not():
    texts = {"e": ["relax 0->5", "relax 5->7"], "f": ["relax 1->2", "relax 3->4"]}
    shared, apart = by_shared_words([pair(0, None), pair(1, None, episode="f")], texts)
    # All four steps have the first word; two have the 5.
    assert (shared.edge, apart.edge) == (1.0, 0.0)
    three = {"e": ["a b", "a b c"], "f": ["c", "d"], "g": ["a", "b"]}
    one, other = by_shared_words([pair(0, None), pair(1, None, episode="g")], three)
    assert one.edge == 1.0
    assert other.edge == 0.0
    assert log(6 / 3) > 0


def test_the_likelier_answer_of_two_counts():
    asked = [pair(0, True), pair(1, None)]
    shares = {("e", 0, 1): 0.6, ("e", 1, 0): 0.2}
    (found, _) = by_answers(asked, shares)
    assert (found.edge, found.forward) == (0.6, pytest.approx(0.75))
    assert "Task: t\nStep 1: a\nStep 2: b\n" in question("t", "a", "b")
    assert question("", "a", "b").startswith("Step 1: a")


def test_a_policy_says_by_its_orders_what_commutes():
    orders = all_orders(3)
    chain = {"e": [float(order == (0, 1, 2)) for order in orders]}
    free = {"e": [1 / 6] * 6}
    # Two orders that differ in the last two alone.
    last = {"e": [0.5 * (order[0] == 0) for order in orders]}
    asked = [pair(0, None, first=a, second=b) for a, b in ((0, 1), (2, 1))]
    assert by_policy(asked, chain) == [Prediction(1.0, 1.0), Prediction(1.0, 0.0)]
    for said in by_policy(asked, free):
        assert (said.edge, said.forward) == (pytest.approx(0), pytest.approx(0.5))
    first, second = by_policy(asked, last)
    assert (first.edge, first.forward) == (pytest.approx(1), pytest.approx(1))
    assert second.edge == pytest.approx(0)
    # What is no order takes no part.
    half = {"e": [p / 2 for p in chain["e"]]}
    assert by_policy(asked, half) == by_policy(asked, chain)
