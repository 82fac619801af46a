"""Further test sets of a plan: frozen with it, opened once with its fold, scored and reported beside it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

import poset_environment as posets
import toy_environment as toy
from configs import config
from explorer_support import without_processes
from vcrt.certificates.episodes import PRESETS
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import BackboneError, DatasetError, RunError
from vcrt.records.dataset import load_items, open_dataset
from vcrt.records.ledger import openings_path, recorded_openings
from vcrt.records.record_form import RecordForm
from vcrt.replay.config import given, sampled
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.reference import BackboneReference
from vcrt_train.policy.scoring import greedy_orders, score_orders
from vcrt_train.protocol import evaluation
from vcrt_train.protocol.evaluation import encoded, evaluate, spread_of
from vcrt_train.protocol.experiment import (
    create_experiment,
    open_experiment,
    trained_models,
)
from vcrt_train.protocol.plan import PLAN_FILE
from vcrt_train.protocol.planned_training import train
from vcrt_train.protocol.planning import frozen_plan, make_plan
from vcrt_train.protocol.scores import SCORES_FILE, Scores, passes_array, read_scores
from vcrt_train.report.analysis import analyse
from vcrt_train.report.gather import gather
from vcrt_train.report.tables import report_tables
from vcrt_train.training.methods import method

HELD_OUT = "toy-b"
FORM = RecordForm(commutations="omitted", pool="large")
LONG = BackboneReference(name="embedded-long")


def long_toy(name):
    """Posets of six steps under the name of a toy environment."""
    return type(f"Long_{name[-1]}", (posets.Posets,), {"name": name})


LONG_TOYS = {name: long_toy(name) for name in toy.THREE_TOYS}


def frozen(path, config, factories, form=None):
    dataset = make_dataset(config, path, jobs=1, factories=factories, form=form)
    verify_agreement(dataset, jobs=1, factories=factories)
    return dataset


def six_steps(path, names=tuple(LONG_TOYS), first_seed=0):
    episodes = [
        replace(posets.random_episode(6, seed, schema="posets6"), environment=name)
        for number, name in enumerate(names)
        for seed in range(first_seed + 100 * number, first_seed + 100 * number + 4)
    ]
    config = given(episodes, preset=PRESETS["posets6"])
    return frozen(path, config, {name: LONG_TOYS[name] for name in names})


@pytest.fixture(scope="module", autouse=True)
def quick():
    with without_processes():
        yield


@pytest.fixture(scope="module")
def datasets(tmp_path_factory, quick):
    folder = tmp_path_factory.mktemp("sets")
    config = sampled(dict.fromkeys(toy.THREE_TOYS, ("needs", "overwrite")), 4)
    return {
        "four": frozen(folder / "four", config, toy.THREE_TOYS, FORM),
        "six": six_steps(folder / "six"),
    }


def planned(datasets, *others, **changes):
    options = {
        "backbone": LONG,
        "backbone_digest": load_backbone("embedded-long").digest,
        "methods": ("canonical-grpo", "vcrt"),
        "seeds": (0,),
        "held_out": (HELD_OUT,),
        "config": config(updates=2, checkpoints=(1, 2), retention_share=0.3).resolved(),
    }
    return make_plan(datasets["four"], **{**options, **changes}, also_test=others)


@pytest.fixture(scope="module")
def whole(datasets, tmp_path_factory):
    """An experiment on four steps that was evaluated on four and on six."""
    folder = tmp_path_factory.mktemp("whole")
    for name, dataset in datasets.items():
        shutil.copytree(dataset.path, folder / name)
    own = {name: open_dataset(folder / name) for name in datasets}
    experiment = create_experiment(planned(own, own["six"]), folder / "experiment")
    train(experiment, jobs=1)
    shutil.copytree(folder, folder / "trained")
    evaluate(experiment, jobs=1)
    return folder


# --- the plan -----------------------------------------------------------------------------------------


def test_a_plan_without_test_sets_has_the_bytes_it_had(datasets, tmp_path):
    plan = planned(datasets)
    assert "also_test" not in plan.model_dump(mode="json")
    assert "also_test" not in plan.without_places
    experiment = create_experiment(plan, tmp_path / "e")
    assert "also_test" not in (experiment.path / PLAN_FILE).read_text()
    assert open_experiment(experiment.path).plan == plan
    assert "also_test" not in Scores(frozen={}, runs={}, checkpoints={}).model_dump_json()


def test_a_plan_freezes_its_test_sets_and_not_where_they_lie(datasets, tmp_path):
    plan = planned(datasets, datasets["six"])
    assert [(one.name, one.root_hash) for one in plan.also_test] == [
        ("six", datasets["six"].manifest.root_hash)
    ]
    assert plan.plan_hash != planned(datasets).plan_hash
    shutil.copytree(datasets["six"].path, tmp_path / "elsewhere" / "six")
    moved = open_dataset(tmp_path / "elsewhere" / "six")
    assert planned(datasets, moved).plan_hash == plan.plan_hash
    shutil.copytree(datasets["six"].path, tmp_path / "renamed")
    assert planned(datasets, open_dataset(tmp_path / "renamed")).plan_hash != plan.plan_hash


def test_impossible_test_sets_are_refused_before_anything_is_trained(datasets, tmp_path):
    six = datasets["six"]
    with pytest.raises(RunError, match="is named twice"):
        planned(datasets, datasets["four"])
    with pytest.raises(RunError, match="is named twice"):
        planned(datasets, six, six)
    with pytest.raises(RunError, match="name of a test set is not possible") as error:
        planned(datasets, six_steps(tmp_path / "own", first_seed=20))
    assert "is not 'own'" in error.value.expected
    with pytest.raises(RunError, match="two test sets of one name"):
        planned(datasets, six, six_steps(tmp_path / "six", first_seed=20))
    with pytest.raises(RunError, match="lacks an environment that is held out") as error:
        planned(datasets, six_steps(tmp_path / "part", ("toy-a", "toy-c")))
    assert "certify toy-b" in error.value.remedy
    with pytest.raises(RunError, match="answers in tokens") as error:
        planned(datasets, six, methods=("outcome-grpo", "vcrt"))
    assert "outcome-grpo, 6 operations" in error.value.found
    with pytest.raises(RunError, match="answers in tokens") as error:
        planned({**datasets, "four": six}, methods=("vcrt", "outcome-grpo"))
    assert error.value.where == str(six.path)


def test_a_backbone_of_too_few_pointers_and_an_unverified_set_are_refused(datasets, tmp_path):
    plain = frozen(
        tmp_path / "plain",
        sampled(dict.fromkeys(toy.THREE_TOYS, ("needs", "overwrite")), 4),
        toy.THREE_TOYS,
    )
    options = {
        "methods": ("vcrt",),
        "held_out": (HELD_OUT,),
        "runs": 1,
        "config": config(),
        "seed": 0,
    }
    assert not frozen_plan(plain.path, **options).also_test
    with pytest.raises(BackboneError, match="does not know the pointers") as error:
        frozen_plan(plain.path, **options, also_test=[datasets["six"].path])
    assert error.value.where == str(datasets["six"].path)
    assert "embedded-long" in error.value.remedy
    with pytest.raises(BackboneError, match="does not know the pointers"):
        frozen_plan(datasets["four"].path, **options)
    shutil.copytree(datasets["six"].path, tmp_path / "unverified")
    (tmp_path / "unverified" / "agreement.json").unlink()
    with pytest.raises(DatasetError):
        frozen_plan(plain.path, **options, also_test=[tmp_path / "unverified"])


# --- the evaluation -----------------------------------------------------------------------------------


def test_runs_are_scored_on_the_held_out_environment_of_each_set(whole):
    experiment = open_experiment(whole / "experiment")
    scores = read_scores(experiment)
    (name,) = scores.also_test
    passes = scores.also_test[name]
    assert set(passes.runs) == {run.name for run in experiment.plan.runs}
    backbone = load_backbone("embedded-long")
    items = load_items(open_dataset(whole / "six"), HELD_OUT)
    assert {item.environment for item in items} == {HELD_OUT}
    for run in experiment.plan.runs:
        chosen = method(run.method)
        ready = evaluation.encoded(backbone, items, chosen, experiment.plan.seed)
        (trained,) = trained_models(experiment, run, backbone, updates=[2])
        answers = greedy_orders(
            trained.model, [one.prompt for one in ready], interface=chosen.interface
        )
        expected = [one.is_legal(order) for one, order in zip(ready, answers, strict=True)]
        assert passes_array(passes.runs[run.name]).tolist() == expected


def test_sampled_answers_are_read_from_the_probabilities_after_the_last_update(whole):
    experiment = open_experiment(whole / "experiment")
    scores = read_scores(experiment)
    backbone = load_backbone("embedded-long")
    items = load_items(open_dataset(whole / "four"), HELD_OUT)
    legal = torch.tensor([item.supervised.legal for item in items])

    def expected(model, chosen):
        prompts = [one.prompt for one in encoded(backbone, items, chosen, experiment.plan.seed)]
        with torch.no_grad():
            found = score_orders(model, prompts, interface="pointers").order_log_probs.double()
        inside = found.exp() * legal
        mass = inside.sum(-1, keepdim=True)
        share = inside / mass
        entropy = -torch.where(legal, share * share.log(), 0.0).sum(-1)
        pass_at = {k: float((1 - (1 - mass) ** k).mean()) for k in (1, 4, 16, 64)}
        return pass_at, float((entropy / legal.sum(-1).log()).mean())

    def check(spread, model, chosen):
        pass_at, evenness = expected(model, chosen)
        assert spread.pass_at == pytest.approx(pass_at, abs=1e-5)
        assert spread.evenness == pytest.approx(evenness, abs=1e-5)

    for by_fold in scores.frozen.values():
        check(by_fold[HELD_OUT].spread, backbone.model, method("canonical-grpo"))
    for run in experiment.plan.runs:
        assert all(one.spread is None for one in scores.checkpoints[run.name].values())
        *_, last = trained_models(experiment, run, load_backbone("embedded-long"))
        check(scores.runs[run.name].spread, last.model, method(run.method))
    # Of six steps some are looked at; a sample of contexts is no verdict on an order.
    longer, chosen = load_items(open_dataset(whole / "six"), HELD_OUT), method("vcrt")
    ready = encoded(backbone, longer, chosen, 0)
    arguments = (chosen, experiment.plan, 8)
    assert spread_of(backbone.model, longer, ready, *arguments).items == len(longer) == 4
    few = spread_of(backbone.model, longer * 40, ready * 40, *arguments)
    assert few.items == 160 // 3 + 1
    sampled = [replace(longer[0], unreplayed=object()), *longer[1:]]
    assert spread_of(backbone.model, sampled, ready, *arguments) is None
    contents = gather(experiment)
    (table,) = [each for each in report_tables(analyse(contents)) if each.name == "spread"]
    assert f"{len(items)} items each" in table.note
    assert [row[0] for row in table.rows] == ["Frozen backbone", "Canonical-GRPO", "VCRT"]
    (run,) = contents.runs_of("vcrt", HELD_OUT).values()
    assert table.rows[2][1] == round(100 * run.spread.pass_at[1], 2)
    assert table.rows[2][-1] == round(100 * run.spread.evenness, 2)


def test_one_opening_is_recorded_beside_every_dataset(whole):
    experiment = open_experiment(whole / "experiment")
    (opened,) = (entry.body for entry in experiment.ledger.entries("opening"))
    for name in ("four", "six"):
        (beside,) = recorded_openings(whole / name)
        assert beside.body == {"plan_hash": experiment.plan.plan_hash, **opened}
    with pytest.raises(RunError, match="opened before"):
        evaluate(experiment, jobs=1)


def test_the_report_sees_a_ledger_beside_a_test_set_that_is_gone(whole):
    experiment = open_experiment(whole / "experiment")
    assert gather(experiment).opening["unknown_to_dataset"] == 0
    beside = openings_path(whole / "six")
    kept = beside.read_bytes()
    beside.unlink()
    try:
        assert gather(experiment).opening["unknown_to_dataset"] == 1
    finally:
        beside.write_bytes(kept)


def test_scores_of_a_test_set_cannot_be_changed_or_left_out(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "w")
    experiment = open_experiment(tmp_path / "w" / "experiment")
    value = json.loads((experiment.path / SCORES_FILE).read_text())
    for also in ({}, {"six": {"frozen": {}, "runs": {}}}):
        (experiment.path / SCORES_FILE).write_text(json.dumps({**value, "also_test": also}))
        with pytest.raises(RunError, match="scores were changed"):
            read_scores(experiment)


def test_an_interrupted_evaluation_goes_on_under_its_own_opening(whole, tmp_path, monkeypatch):
    shutil.copytree(whole / "trained", tmp_path / "w")
    experiment = open_experiment(tmp_path / "w" / "experiment")
    # A plan names places: these are the copies.
    moved = {"dataset": str(tmp_path / "w" / "four")}
    sets = tuple(
        one.model_copy(update={"dataset": str(tmp_path / "w" / one.name)})
        for one in experiment.plan.also_test
    )
    plan = experiment.plan.model_copy(update={**moved, "also_test": sets})
    experiment = replace(experiment, plan=plan)
    monkeypatch.setattr("vcrt_train.protocol.evaluation.open_experiment", lambda path: experiment)

    def broken(*arguments, **options):
        raise RunError("the lights went out")

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "greedy_passes", broken)
        with pytest.raises(RunError, match="the lights went out"):
            evaluate(experiment, jobs=1)
    # It fell between two ledgers, too.
    openings_path(tmp_path / "w" / "six").unlink()
    scores = evaluate(experiment, jobs=1)
    assert scores == read_scores(open_experiment(whole / "experiment"))
    opened = experiment.ledger.entries("opening")
    assert len(opened) == len(recorded_openings(tmp_path / "w" / "four")) == 1
    assert [e.body["nonce"] for e in recorded_openings(tmp_path / "w" / "six")] == [
        opened[0].body["nonce"]
    ]


@pytest.mark.parametrize("harm", ["missing", "another"])
def test_a_test_set_that_is_gone_or_another_spends_no_opening(whole, tmp_path, harm):
    shutil.copytree(whole / "trained", tmp_path / "w")
    experiment = open_experiment(tmp_path / "w" / "experiment")
    place = tmp_path / "six"
    if harm == "another":
        six_steps(place, first_seed=40)
    sets = tuple(
        one.model_copy(update={"dataset": str(place)}) for one in experiment.plan.also_test
    )
    experiment = replace(experiment, plan=experiment.plan.model_copy(update={"also_test": sets}))
    words = (
        "test set six is not where it was" if harm == "missing" else "not the one that was planned"
    )
    with pytest.raises(RunError, match=words):
        evaluate(experiment, jobs=1)
    assert not experiment.ledger.entries("opening")


def test_training_opens_no_test_set(datasets, tmp_path):
    shutil.copytree(datasets["six"].path, tmp_path / "six")
    plan = planned(datasets, open_dataset(tmp_path / "six"), methods=("vcrt",))
    experiment = create_experiment(plan, tmp_path / "e")
    shutil.rmtree(tmp_path / "six")
    assert train(experiment, jobs=1)


# --- the report ---------------------------------------------------------------------------------------


def test_the_report_has_rates_and_differences_of_each_set(whole):
    experiment = open_experiment(whole / "experiment")
    contents = gather(experiment)
    tables = {table.name: table for table in report_tables(analyse(contents))}
    rates, passes = tables["test-sets"], read_scores(experiment).also_test["six"]
    rows = {(row[0], row[2]): row for row in rates.rows}
    assert rates.columns[:3] == ("Test set", "Steps", "Method")
    for name in ("canonical-grpo", "vcrt"):
        mean = 100 * np.mean(passes_array(passes.runs[f"{name}/{HELD_OUT}/0"]))
        shown = {"canonical-grpo": "Canonical-GRPO", "vcrt": "VCRT"}[name]
        assert rows["six", shown][1] == 6
        assert rows["six", shown][4] == pytest.approx(mean, abs=0.01)
    own = next(row for row in tables["main"].rows if row[0] == "VCRT")
    assert rows["own", "VCRT"][4] == own[2]
    differences = {(row[0], row[2]): row[4] for row in tables["test-sets-differences"].rows}
    expected = rows["six", "VCRT"][4] - rows["six", "Canonical-GRPO"][4]
    assert float(differences["six", "Canonical-GRPO"]) == pytest.approx(expected, abs=0.02)
    without = report_tables(analyse(replace(contents, also_test={})))
    assert [
        t for t in report_tables(analyse(contents)) if not t.name.startswith("test-sets")
    ] == list(without)
