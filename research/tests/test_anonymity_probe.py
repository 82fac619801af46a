"""The probe is at chance on honest records, and finds each leak that is planted in them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anonymity_support import (
    anti_relation,
    dumped,
    guess,
    made_records,
    rewritten,
    with_anti,
    with_pointers,
)
from vcrt.records.policy_view import render
from vcrt_research.anonymity import views
from vcrt_research.anonymity.auc import cross_validated_auc
from vcrt_research.anonymity.hidden import HIDDEN_VIEWS
from vcrt_research.anonymity.probe import WORD_PENALTY, probe_records
from vcrt_research.anonymity.tasks import CONTROLS, TARGETS, make_task
from vcrt_research.anonymity.views import WORD_VIEWS, word_features
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.randomness import generator

#: The level of one of 22 simultaneous intervals.
LEVEL = 1 - 0.05 / 22
LAST, MEAN = HIDDEN_VIEWS


@pytest.fixture(scope="module")
def records():
    return made_records(200, seed=1)


@pytest.fixture(scope="module")
def fewer():
    """Enough of them to see a leak."""
    return made_records(140, seed=1)


@pytest.fixture(scope="module")
def backbone():
    return load_backbone("embedded")


def found(auc):
    return auc.interval(LEVEL)[0] > 0.5 and auc.p_value < 0.02


@pytest.mark.parametrize(
    "target",
    [t if t == "environment" else pytest.param(t, marks=pytest.mark.slow) for t in TARGETS],
)
def test_honest_records_are_at_chance(records, backbone, target):
    for view in (*WORD_VIEWS, *HIDDEN_VIEWS):
        auc = guess(records, target, view, backbone=backbone)
        low, high = auc.interval(LEVEL)
        assert low <= 0.5, view
        assert high - low < 0.25
    if target != "legal order" and target != "environment":
        low, _ = guess(records, target, "row order").interval(LEVEL)
        assert low <= 0.5


@pytest.mark.parametrize("control", CONTROLS)
def test_controls_see_what_records_show(records, backbone, control):
    for view in WORD_VIEWS:
        assert guess(records, control, view).value > 0.98
    for view in HIDDEN_VIEWS:
        auc = guess(records, control, view, backbone=backbone)
        assert found(auc), view
        assert auc.value > 0.6


def pool_by_environment(probed, draw):
    start = {"a": 0, "b": 1, "c": 2}[probed.environment]
    pointers = start + draw.permutation(6)[:4]
    return rewritten(probed, with_pointers(probed.record, [int(p) for p in pointers]))


def relations_by_role(probed, draw):
    if probed.environment != "a":
        return probed
    relations = sorted(probed.record.relations, key=lambda r: r.kind == "commutes")
    return replace(probed, text=dumped(probed.record, relations))


def role_by_schema(probed, draw):
    if not probed.schema.endswith("0"):
        return probed
    relations = sorted(probed.record.relations, key=lambda r: r.kind == "commutes")
    return replace(probed, text=dumped(probed.record, relations))


def identity_by_environment(probed, draw):
    digit = "0123456789abcdef"["abc".index(probed.environment) * 5 + int(draw.integers(6))]
    record = replace(probed.record, record_id=digit + probed.record_id[1:])
    return rewritten(probed, record)


def space_by_environment(probed, draw):
    return replace(probed, text=probed.text.replace(",", ", ", probed.environment == "b"))


def slots_in_reference_order(probed, draw):
    first, second = sorted(int(i) for i in draw.permutation(4)[:2])
    return rewritten(probed, with_anti(probed.record, first, second))


LEAKS = [
    (pool_by_environment, "environment", (*WORD_VIEWS, *HIDDEN_VIEWS)),
    (relations_by_role, "environment", ("file row",)),
    (role_by_schema, "schema", ("file row",)),
    (identity_by_environment, "environment", ("file row",)),
    (space_by_environment, "environment", ("file row",)),
    (slots_in_reference_order, "legal order", (*WORD_VIEWS, *HIDDEN_VIEWS)),
]


@pytest.mark.parametrize(("plant", "target", "where"), LEAKS)
def test_a_planted_leak_is_found(fewer, backbone, plant, target, where):
    draw = generator(0, "leak")
    leaking = [plant(probed, draw) for probed in fewer]
    for view in where:
        auc = guess(leaking, target, view, backbone=backbone)
        assert found(auc), view
        assert auc.value > 0.6, view


def test_a_leak_in_one_view_leaves_the_others_at_chance(records, backbone):
    draw = generator(0, "leak")
    leaking = [space_by_environment(probed, draw) for probed in records]
    for view in ("prompt, sorted", MEAN):
        low, _ = guess(leaking, "environment", view, backbone=backbone).interval(LEVEL)
        assert low <= 0.5


def test_rows_in_the_order_of_certification_are_found(records):
    leaking = []
    for environment in "abc":
        of_file = [r for r in records if r.environment == environment]
        of_file.sort(key=lambda r: (r.schema, r.record_id))
        leaking += [replace(r, row=row) for row, r in enumerate(of_file)]
    assert found(guess(leaking, "schema", "row order"))


def test_environments_one_after_the_other_in_one_file_are_found(records):
    one_file = [
        replace(r, file="policy/all.jsonl.gz", row=row, num_rows=len(records))
        for row, r in enumerate(sorted(records, key=lambda r: (r.environment, r.record_id)))
    ]
    assert found(guess(one_file, "environment", "row order"))
    fair = [
        replace(r, row=row) for row, r in enumerate(sorted(one_file, key=lambda r: r.record_id))
    ]
    low, _ = guess(fair, "environment", "row order").interval(LEVEL)
    assert low <= 0.5


def test_environments_in_turn_in_one_file_are_found(records):
    by_environment = [[r for r in records if r.environment == e] for e in "abc"]
    in_turn = [r for group in zip(*by_environment, strict=True) for r in group]
    one_file = [
        replace(r, file="policy/all.jsonl.gz", row=row, num_rows=len(records))
        for row, r in enumerate(in_turn)
    ]
    assert guess(one_file, "environment", "row order").value > 0.95


def test_a_serialisation_that_forgets_to_draw_directions_is_found(records, monkeypatch):
    """Shuffled prompts promise either direction; without it, the left one of two pointers comes first."""

    def forgetful(record, serialisation, draw):
        words = render(record, serialisation, draw)
        for at, word in enumerate(words):
            if word in ("r2", "r4"):
                words[at - 1 : at + 2] = [
                    words[at + 1],
                    {"r2": "r1", "r4": "r3"}[word],
                    words[at - 1],
                ]
        return words

    shuffled = ("prompt, shuffled", "prompt in words, shuffled")
    assert not any(found(guess(records, "legal order", view)) for view in shuffled)
    monkeypatch.setattr(views, "render", forgetful)
    assert all(found(guess(records, "legal order", view)) for view in shuffled)


def test_unequal_relation_types_alone_are_no_leak():
    """Environments that differ in how many of their steps conflict are told apart only without matching."""
    records = made_records(300, seed=2, environments=("a", "b"))
    unequal = [
        replace(r, file="policy/all.jsonl.gz")
        for i, r in enumerate(records)
        if r.environment == "a" or anti_relation(r.record).kind == "precedes" or i % 10 == 1
    ]
    for view in WORD_VIEWS:
        low, _ = guess(unequal, "environment", view).interval(LEVEL)
        assert low <= 0.5
    # Matched within the file only, the relation types tell.
    task = make_task("environment", unequal, 0, by_file=True)
    unmatched = cross_validated_auc(
        word_features(task, "file row", 0),
        task.design,
        generator(0, "permutations"),
        penalty=WORD_PENALTY,
        num_permutations=60,
    )
    assert found(unmatched)


@pytest.mark.nightly
def test_simultaneous_intervals_rarely_cry_wolf(backbone):
    """Whole probes of honest records: about one in twenty may miss 0.5 somewhere, and misses of AUCs are few."""
    alarms = misses = 0
    for seed in range(3):
        results, _, _ = probe_records(
            made_records(60, seed=seed), backbone, seed=seed, num_permutations=60
        )
        assert len(results) == 22
        alarms += any(not result.at_chance for result in results)
        misses += sum(not result.at_chance for result in results)
    # At one in twenty, two alarms of three come once in 140 times.
    assert alarms <= 1
    assert misses <= 2
