"""Probabilities on the explorer's page: exact, as the evaluation has them, and none of what is still held out."""

from __future__ import annotations

import shutil

import pytest
import torch

import toy_environment as toy
from configs import config
from explorer_support import without_processes
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import DatasetError, RunError, UnknownNameError
from vcrt.orders import all_orders
from vcrt.records.anonymise import anonymise
from vcrt.records.audit import certified_from_row
from vcrt.records.dataset import load_items, open_dataset, read_audit
from vcrt.replay.config import sampled
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.reference import EMBEDDED
from vcrt_train.policy.scoring import score_orders
from vcrt_train.protocol.decision import load_policy
from vcrt_train.protocol.evaluation import encoded, evaluate
from vcrt_train.protocol.experiment import create_experiment, load_sources, open_experiment
from vcrt_train.protocol.planned_training import train
from vcrt_train.protocol.planning import make_plan
from vcrt_train.protocol.scores import FROZEN_AS, openings
from vcrt_train.report.explorer import masses
from vcrt_train.report.explorer.explorer_contents import gather_explorer
from vcrt_train.report.explorer.explorer_page import page_json
from vcrt_train.training.methods import method

TOYS = toy.THREE_TOYS
HELD_OUT = "toy-b"
RUN = f"vcrt/{HELD_OUT}/0"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A dataset with an experiment that was planned, trained and evaluated, and copies of the stages before."""
    folder = tmp_path_factory.mktemp("masses")
    with without_processes():
        asked = sampled(dict.fromkeys(TOYS, ("needs",)), 4)
        dataset = make_dataset(asked, folder / "data", jobs=1, factories=TOYS)
        verify_agreement(dataset, jobs=1, factories=TOYS)
        plan = make_plan(
            dataset,
            backbone=EMBEDDED,
            backbone_digest=load_backbone("embedded").digest,
            methods=("vcrt", "outcome-grpo"),
            seeds=(0,),
            held_out=(HELD_OUT,),
            config=EMBEDDED.resolved(
                config(updates=2, checkpoints=(1, 2), learning_rate=1e-2, retention_share=0.3)
            ),
        )
        experiment = create_experiment(plan, folder / "experiment")
        shutil.copytree(experiment.path, folder / "planned")
        train(experiment, jobs=1)
        shutil.copytree(experiment.path, folder / "trained")
        evaluate(experiment, jobs=1)
    return folder


def gathered(folder, name, **options):
    return gather_explorer(
        open_dataset(folder / "data"),
        experiment=open_experiment(folder / name),
        factories=TOYS,
        **options,
    )


@pytest.fixture(scope="module")
def evaluated(whole):
    return gathered(whole, "experiment")


def of_run(contents, name=RUN):
    (found,) = [run for run in contents.runs if run.run.name == name]
    return found


def test_every_kept_update_of_every_run(evaluated):
    assert [run.run.name for run in evaluated.runs] == [RUN, f"outcome-grpo/{HELD_OUT}/0"]
    for run in evaluated.runs:
        assert run.updates == (0, 1, 2)
        assert len(run.masses) == 12
        for some in run.masses.values():
            for mass in some:
                assert sum(mass.probabilities) + mass.malformed == pytest.approx(1, abs=1e-5)
    assert any(mass.malformed for some in evaluated.runs[1].masses.values() for mass in some)


@pytest.mark.parametrize("environment", ["toy-a", HELD_OUT])
def test_probabilities_are_those_of_score_orders_in_the_episodes_own_steps(
    whole, evaluated, environment
):
    dataset, experiment = (
        open_dataset(whole / "data"),
        open_experiment(whole / "experiment"),
    )
    (run,) = [run for run in experiment.plan.runs if run.name == RUN]
    policy = load_policy(experiment, run, update=2)
    rows = {row["episode_id"]: row for row in read_audit(dataset, environment)}
    for item in load_items(dataset, environment):
        (prompt,) = [
            one.prompt
            for one in encoded(policy.backbone, [item], method("vcrt"), experiment.plan.seed)
        ]
        with torch.no_grad():
            scores = score_orders(policy.model, [prompt], interface="pointers", backend="naive")
        by_slots = dict(zip(all_orders(4), scores.order_log_probs[0].exp().tolist(), strict=True))
        certified = certified_from_row(rows[item.episode_id], dataset.manifest.preset)
        slots = anonymise(certified, dataset.manifest.seed).slot_of_operation
        mass = of_run(evaluated).masses[item.episode_id][2]
        for order, probability in zip(all_orders(4), mass.probabilities, strict=True):
            assert probability == pytest.approx(by_slots[tuple(slots[o] for o in order)], abs=1e-6)
        expected = sum(by_slots[tuple(slots[o] for o in order)] for order in certified.orbit)
        assert mass.legal == pytest.approx(expected, abs=1e-6)


def test_training_changed_them(evaluated):
    some = of_run(evaluated).masses.values()
    assert all(abs(one[0].legal - one[2].legal) > 1e-4 for one in some)


def test_the_greedy_answers_are_those_that_the_evaluation_recorded(whole, evaluated):
    (note,) = [note for note in evaluated.notes if "greedy answer" in note]
    # Two runs, four episodes, the frozen backbone and two updates.
    assert "24 greedy answers" in note
    assert "24 are the same" in note
    experiment, scored = open_experiment(whole / "experiment"), list(evaluated.runs)
    names = {
        HELD_OUT: [r["episode_id"] for r in read_audit(open_dataset(whole / "data"), HELD_OUT)]
    }
    assert masses.recorded_agreement(experiment, scored, names) == (24, 24)
    wrong = {HELD_OUT: ["no such episode", *names[HELD_OUT]]}
    with pytest.raises(IndexError):
        masses.recorded_agreement(experiment, scored, wrong)


def test_the_page_has_them_in_millionths(evaluated):
    data = page_json(evaluated)
    (number,) = [k for k, run in enumerate(data["runs"]) if run["name"] == RUN]
    for episode in data["episodes"]:
        shown = episode["runs"][number]["masses"][2]
        mass = of_run(evaluated).masses[episode["id"]][2]
        assert shown["p"] == [round(1e6 * p) for p in mass.probabilities]
        assert shown["z"] == round(1e6 * mass.legal)
        legal = [
            p for p, (is_legal, _) in zip(shown["p"], episode["orders"], strict=True) if is_legal
        ]
        assert sum(legal) == pytest.approx(shown["z"], abs=12)


def test_what_an_episode_is_to_a_run(whole, evaluated):
    experiment = open_experiment(whole / "experiment")
    split = load_sources(experiment.plan, open_dataset(whole / "data"), HELD_OUT)
    expected = {item.episode_id: "trained on" for item in split.training}
    expected |= {item.episode_id: "set aside" for item in split.retention}
    expected |= {name: "held out" for name in of_run(evaluated).roles if HELD_OUT in name}
    assert of_run(evaluated).roles == expected
    assert set(expected.values()) == {"trained on", "set aside", "held out"}


def test_before_the_evaluation_what_is_held_out_stays_closed(whole):
    contents = gathered(whole, "trained")
    assert any("No evaluation is recorded" in note for note in contents.notes)
    for run in contents.runs:
        assert {name for name, role in run.roles.items() if role == "closed"} == {
            name for name in run.roles if name.startswith(HELD_OUT)
        }
        assert not [name for name in run.masses if name.startswith(HELD_OUT)]
        assert len(run.masses) == 8
    data = page_json(contents)
    closed = [e for e in data["episodes"] if e["environment"] == HELD_OUT]
    assert len(closed) == 4
    assert all(run == {"role": "closed", "masses": []} for e in closed for run in e["runs"])
    # The episode's own evidence is no secret: it is the dataset's.
    assert all(len(e["orders"]) == 24 for e in closed)
    assert openings(open_experiment(whole / "trained")) == []


def test_scoring_before_the_evaluation_opens_no_file_of_the_held_out_environment(
    whole, monkeypatch
):
    opened = []
    real = masses.load_items
    monkeypatch.setattr(
        masses,
        "load_items",
        lambda dataset, name, **options: (
            opened.append((name, dataset.closed)) or real(dataset, name, **options)
        ),
    )
    gathered(whole, "trained", runs=[RUN])
    assert opened == [("toy-a", {HELD_OUT}), ("toy-c", {HELD_OUT})]
    dataset = masses.planned_dataset(open_experiment(whole / "trained").plan, without=(HELD_OUT,))
    with pytest.raises(DatasetError, match="stays closed"):
        load_items(dataset, HELD_OUT, only=())


def test_an_opening_without_scores_is_no_evaluation(whole, tmp_path):
    shutil.copytree(whole / "data", tmp_path / "data")
    shutil.copytree(whole / "trained", tmp_path / "trained")
    experiment = open_experiment(tmp_path / "trained")
    experiment.ledger.append("opening", {"at": "2026-01-01", "reason": None, "nonce": "0"})
    contents = gathered(tmp_path, "trained", runs=[RUN])
    assert set(of_run(contents).roles.values()) >= {"closed"}


def test_scores_that_were_changed_open_nothing(whole, tmp_path):
    shutil.copytree(whole / "data", tmp_path / "data")
    shutil.copytree(whole / "experiment", tmp_path / "experiment")
    scores = tmp_path / "experiment" / "scores.json"
    scores.write_text(scores.read_text().replace("1", "0"))
    with pytest.raises(RunError, match="changed after"):
        gathered(tmp_path, "experiment")


def test_a_plan_without_finished_runs_has_no_probabilities(whole):
    contents = gathered(whole, "planned")
    assert contents.runs == ()
    assert any("No run of the experiment is finished" in note for note in contents.notes)
    with pytest.raises(RunError, match="not finished"):
        gathered(whole, "planned", runs=[RUN])


def test_runs_that_were_not_planned_and_other_datasets_are_refused(whole, tmp_path):
    with pytest.raises(UnknownNameError, match="did you mean"):
        gathered(whole, "experiment", runs=[RUN.replace("vcrt", "vcr")])
    with without_processes():
        other = make_dataset(
            sampled({"toy-a": ("needs",)}, 2), tmp_path / "other", jobs=1, factories=TOYS
        )
    with pytest.raises(RunError, match="another dataset"):
        gather_explorer(other, experiment=open_experiment(whole / "experiment"), factories=TOYS)


def test_the_frozen_backbone_is_asked_as_the_runs_method_asks_it(evaluated):
    assert method(FROZEN_AS).interface == method("vcrt").interface
    frozen = {
        run.run.method: run.masses[f"{name}"][0]
        for run in evaluated.runs
        for name in list(run.masses)[:1]
    }
    assert frozen["vcrt"].malformed == 0
    assert frozen["outcome-grpo"].malformed > 0
