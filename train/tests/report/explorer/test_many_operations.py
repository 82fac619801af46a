"""What the explorer says of episodes whose orders are too many to be drawn, and of a run that was trained on them."""

from __future__ import annotations

from dataclasses import replace

import pytest

import poset_environment as posets
from configs import config
from explorer_support import without_processes
from vcrt.certificates.episodes import PRESETS
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.records.anonymise import anonymise
from vcrt.records.audit import certified_from_row
from vcrt.records.dataset import load_items, open_dataset, read_audit
from vcrt.replay.config import given
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.reference import BackboneReference
from vcrt_train.protocol.decision import load_policy, read_many
from vcrt_train.protocol.evaluation import encoded, evaluate
from vcrt_train.protocol.experiment import create_experiment
from vcrt_train.protocol.planned_training import train
from vcrt_train.protocol.planning import make_plan
from vcrt_train.protocol.scores import read_scores
from vcrt_train.report.explorer.explorer_contents import gather_explorer
from vcrt_train.report.explorer.explorer_page import page_json

NAMES = ("left", "right")
FACTORIES = {name: type(name.title(), (posets.Posets,), {"name": name}) for name in NAMES}
RUN = "vcrt/right/0"


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    """Two environments of six steps; one run, evaluated."""
    folder = tmp_path_factory.mktemp("many")
    episodes = [
        replace(posets.random_episode(6, 10 * number + seed), environment=name)
        for number, name in enumerate(NAMES)
        for seed in range(3)
    ]
    with without_processes():
        asked = given(episodes, preset=PRESETS["posets6"])
        dataset = make_dataset(asked, folder / "data", jobs=1, factories=FACTORIES)
        verify_agreement(dataset, jobs=1, factories=FACTORIES)
        plan = make_plan(
            dataset,
            backbone=BackboneReference(name="embedded-long"),
            backbone_digest=load_backbone("embedded-long").digest,
            methods=("vcrt",),
            seeds=(0,),
            held_out=("right",),
            config=config(updates=2, checkpoints=(1, 2), retention_share=0.4).resolved(),
        )
        made = create_experiment(plan, folder / "experiment")
        train(made, jobs=1)
        evaluate(made, jobs=1)
    return made


@pytest.fixture(scope="module")
def shown(experiment):
    dataset = open_dataset(experiment.path.parent / "data")
    contents = gather_explorer(dataset, experiment=experiment, factories=FACTORIES)
    return contents, page_json(contents)


def test_the_page_has_a_partial_order_instead_of_orders(shown):
    _, page = shown
    assert page["orders"] == page["swaps"] == []
    for episode in page["episodes"]:
        directed = [r for r in episode["relations"] if r[2] != "commutes"]
        assert directed
        assert episode["orders"] == []
        assert 0 < episode["numLegal"] < episode["numOrders"] == 720


def test_the_page_says_what_was_replayed(shown, tmp_path):
    (note,) = [note for note in shown[0].notes if "In place of every order" in note]
    assert "every step in every reachable context" in note
    asked = replace(PRESETS["posets6"], sampled=True)
    with without_processes():
        asked = given([posets.random_episode(6, 1)], preset=asked)
        factories = {"posets": posets.Posets}
        dataset = make_dataset(asked, tmp_path / "data", jobs=1, factories=factories)
    notes = gather_explorer(dataset, factories=factories).notes
    assert any("sampled, not complete" in note for note in notes)


def test_what_a_run_says_is_what_its_weights_say(experiment, shown):
    _, page = shown
    policy = load_policy(experiment, next(r for r in experiment.plan.runs if r.name == RUN))
    dataset = open_dataset(experiment.path.parent / "data")
    rows = {row["episode_id"]: row for row in read_audit(dataset, "right")}
    items = load_items(dataset, "right")
    seed = experiment.plan.seed
    for item, ready in zip(
        items, encoded(policy.backbone, items, policy.method, seed), strict=True
    ):
        (episode,) = [e for e in page["episodes"] if e["id"] == item.episode_id]
        (said,) = episode["runs"]
        assert said["role"] == "held out"
        assert len(said["masses"]) == 3
        last = said["masses"][-1]
        found = read_many(
            policy.model, ready.prompt, ready.orbit, backend=policy.backend, seed=seed
        )
        assert last["z"] == round(1e6 * found.orbit_mass)
        error = found.standard_error
        assert last["error"] == (None if error is None else round(1e6 * error))
        certified = certified_from_row(rows[item.episode_id], dataset.manifest.preset)
        manifest = dataset.manifest
        slots = anonymise(certified, manifest.seed, manifest.record_form).slot_of_operation
        answer = [int(step) for step in last["answer"]]
        assert tuple(slots[step] for step in answer) == found.greedy
        required = [(a, b) for a, b, kind in episode["relations"] if kind != "commutes"]
        kept = all(answer.index(a) < answer.index(b) for a, b in required)
        assert last["passes"] == kept == item.supervised.order.allows(found.greedy)
        assert (last["p"], last["greedy"]) == ([], None)


def test_it_is_what_the_evaluation_recorded(experiment, shown):
    contents, page = shown
    passes = read_scores(experiment).runs[RUN].held_out
    ids = [item.episode_id for item in load_items(open_dataset(experiment.plan.dataset), "right")]
    for name, passed in zip(ids, passes, strict=True):
        (episode,) = [e for e in page["episodes"] if e["id"] == name]
        assert episode["runs"][0]["masses"][-1]["passes"] == (passed == "1")
    (note,) = [note for note in contents.notes if "The evaluation recorded" in note]
    assert "9 greedy answers" in note
    assert "9 are the same" in note
