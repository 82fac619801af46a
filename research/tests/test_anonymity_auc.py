"""Cross-validated AUC against scikit-learn and brute force, its calibration under chance, and the matched tasks."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import roc_auc_score

from anonymity_support import made_records
from vcrt_research.anonymity import auc as module
from vcrt_research.anonymity.auc import Auc, Design, cross_validated_auc
from vcrt_research.anonymity.tasks import MIN_RECORDS, NUM_FOLDS, make_task


def drawn_design(rng, num_records=90, num_classes=3, num_strata=2):
    at = np.arange(num_records)
    labels, strata = at % num_classes, at // num_classes % num_strata
    folds = at // (num_classes * num_strata) % NUM_FOLDS
    return Design(labels=labels, strata=strata, folds=folds)


def permuted_auc(features, design, rng, num_permutations=50, penalty=1.0):
    return cross_validated_auc(
        features, design, rng, penalty=penalty, num_permutations=num_permutations
    )


def test_the_value_is_the_mean_of_aucs_of_ridge_classifiers():
    rng = np.random.default_rng(0)
    design = drawn_design(rng)
    features = rng.normal(size=(90, 6)) + 0.7 * design.labels[:, None] * rng.normal(size=6)
    scaled = (features - features.mean(0)) / features.std(0) / np.sqrt(6)
    values = []
    for fold in range(NUM_FOLDS):
        fit, held_out = design.folds != fold, design.folds == fold
        for k in range(3):
            classifier = RidgeClassifier(alpha=0.5).fit(scaled[fit], design.labels[fit] == k)
            for stratum in range(2):
                cell = held_out & (design.strata == stratum)
                scores = classifier.decision_function(scaled[cell])
                values.append(roc_auc_score(design.labels[cell] == k, scores))
    found = permuted_auc(features, design, rng, penalty=0.5)
    assert found.value == pytest.approx(np.mean(values), abs=1e-6)


def test_delong_error_is_the_error_of_two_sample_placements():
    """For two classes in one cell, the textbook formula."""
    rng = np.random.default_rng(1)
    labels = np.arange(40) % 2
    scores = rng.normal(size=(40, 1, 2)).astype(np.float32)
    scores[:, :, 1] = scores[:, :, 1] + labels[:, None]
    scores[:, :, 0] = -scores[:, :, 1]
    positive, negative = scores[labels == 1, 0, 1], scores[labels == 0, 0, 1]
    above = positive[:, None] > negative[None, :]
    variance = above.mean(1).var(ddof=1) / 20 + above.mean(0).var(ddof=1) / 20
    found = module._delong_error(scores, labels, [np.arange(40)])
    assert found == pytest.approx(np.sqrt(variance))


@pytest.mark.nightly
def test_the_interval_is_calibrated_under_chance_where_delong_alone_is_not():
    """Under chance, the error of a cross-validated AUC is larger than DeLong's, which holds the probes fixed."""
    values, errors, p_values, delong = [], [], [], []
    for trial in range(150):
        rng = np.random.default_rng(trial)
        design = drawn_design(rng, num_records=60, num_classes=2, num_strata=1)
        features = rng.normal(size=(60, 40))
        found = permuted_auc(features, design, rng)
        scores = module._scores(module._scaled(features), design.labels[:, None], design, 1.0)
        delong.append(module._delong_error(scores, design.labels, design.cells()))
        values.append(found.value)
        errors.append(found.standard_error)
        p_values.append(found.p_value)
    true = np.std(values)
    assert abs(np.mean(values) - 0.5) < 3 * true / np.sqrt(150)
    assert 0.85 < np.mean(errors) / true < 1.2
    assert np.mean(delong) / true < 0.85
    assert 0.01 < np.mean(np.array(p_values) < 0.1) < 0.2


def test_a_whole_stratum_or_fold_tells_nothing():
    rng = np.random.default_rng(2)
    design = drawn_design(rng)
    features = np.stack([design.strata, design.folds, rng.normal(size=90)], axis=1)
    low, high = permuted_auc(features, design, rng).interval(0.99)
    assert low <= 0.5 <= high
    telling = np.concatenate([features, design.labels[:, None] == np.arange(3)], axis=1)
    assert permuted_auc(telling, design, rng).value > 0.99


def test_features_without_variation_give_chance():
    found = permuted_auc(np.ones((90, 3)), drawn_design(None), np.random.default_rng(3))
    low, high = found.interval(0.95)
    assert low <= 0.5 <= high


def test_records_that_look_alike_tell_nothing():
    """Ties are ranked in the order of the rows in every comparison, so that they cancel over the classes."""
    for target in ("environment", "schema", "legal order"):
        task = make_task(target, made_records(40, seed=5), 0)
        for features in (np.ones((len(task.records), 1)), task.design.strata[:, None]):
            found = permuted_auc(features, task.design, np.random.default_rng(0), 2)
            assert found.value == pytest.approx(0.5)


def test_intervals_stay_within_zero_and_one():
    assert Auc(value=0.99, standard_error=0.1, p_value=0.01, num_permutations=9).interval(0.95) == (
        pytest.approx(0.99 - 1.959964 * 0.1),
        1.0,
    )


def test_permutations_keep_the_counts_of_every_cell():
    design = drawn_design(None)
    cells = design.cells()
    assert sorted(np.concatenate(cells).tolist()) == list(range(90))
    permuted = module._permuted(design.labels, cells, np.random.default_rng(4), 20)
    for cell in cells:
        expected = np.bincount(design.labels[cell], minlength=3)
        for column in permuted[cell].T:
            assert np.array_equal(np.bincount(column, minlength=3), expected)
    assert len({tuple(column) for column in permuted.T}) == 20


def test_classes_are_matched_and_no_source_stands_on_two_sides():
    records = made_records(400, seed=5)
    # Each source has three records, of one environment, and environments are of different sizes.
    records = [
        replace(r, source=f"{r.environment}/{r.row // 3}")
        for r in records
        if r.environment != "a" or r.row < 350
    ]
    for target in ("environment", "schema", "legal order"):
        task = make_task(target, records, 0)
        sources = [r.source for r in task.records]
        assert len(set(sources)) == len(sources)
        counts = Counter(zip(task.design.strata.tolist(), task.design.labels.tolist(), strict=True))
        for stratum in set(task.design.strata.tolist()):
            found = [n for (s, _), n in counts.items() if s == stratum]
            assert len(found) >= 2
            assert len(set(found)) == 1
            assert found[0] >= MIN_RECORDS
        cells = task.design.cells()
        assert len(cells) == NUM_FOLDS * len(set(task.design.strata.tolist()))
        for cell in cells:
            per_class = np.bincount(task.design.labels[cell])
            assert len(set(per_class[per_class > 0].tolist())) == 1


def test_strata_are_multisets_of_relation_types():
    task = make_task("environment", made_records(40, seed=5), 0)
    for record, stratum in zip(task.records, task.design.strata, strict=True):
        assert ("precedes" in record.relation_types) == bool(stratum)


def test_a_task_depends_on_its_seed_alone():
    records = made_records(40, seed=5)
    one, again, other = (make_task("schema", records, seed) for seed in (0, 0, 1))
    assert one.records == again.records
    assert np.array_equal(one.design.folds, again.design.folds)
    assert one.records != other.records


def test_half_of_the_questions_are_about_legal_orders():
    task = make_task("legal order", made_records(40, seed=5), 0)
    assert task.classes == ("illegal", "legal")
    assert np.bincount(task.design.labels).tolist() == [60, 60]
    for record, question, label in zip(
        task.records, task.questions, task.design.labels, strict=True
    ):
        anti = next(r for r in record.record.relations if r.kind != "commutes")
        assert (question.index(anti.first) < question.index(anti.second)) == bool(label)


def test_what_cannot_be_matched_is_no_task():
    records = made_records(40, seed=5)
    one_environment = [r for r in records if r.environment == "a"]
    assert make_task("environment", one_environment, 0) is None
    assert make_task("environment", records, 0, by_file=True) is None
    disjoint = [
        r
        for r in records
        if (r.environment == "a") == ("precedes" in r.relation_types) and r.environment != "c"
    ]
    assert make_task("environment", disjoint, 0) is None
    assert make_task("schema", disjoint, 0) is not None
    few = made_records(4, seed=5)
    assert all(
        make_task(target, few, 0) is None for target in ("environment", "schema", "legal order")
    )


def test_questions_are_drawn_evenly_from_all_orders():
    task = make_task("legal order", made_records(800, seed=6), 0)
    counts = Counter(task.questions)
    assert len(counts) == 24
    expected = len(task.questions) / 24
    statistic = sum((n - expected) ** 2 / expected for n in counts.values())
    # The 99.9% point of chi-square with 23 degrees of freedom is 49.7.
    assert statistic < 49.7
