"""The plan, the ledger and the splits: what is frozen first and what may not change afterwards."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace

import pytest

import poset_environment as posets
import toy_environment as toy
from configs import config
from explorer_support import without_processes
from vcrt.certificates.episodes import PRESETS
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.errors import RunError, UnknownNameError
from vcrt.records.dataset import load_items
from vcrt.records.ledger import LEDGER_FILE, Ledger
from vcrt.replay.config import given, sampled
from vcrt_train.config import RunConfig
from vcrt_train.config_files import load_config
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.reference import EMBEDDED
from vcrt_train.protocol.experiment import create_experiment, open_experiment
from vcrt_train.protocol.plan import PLAN_FILE, read_plan, require_names
from vcrt_train.protocol.planned_training import train
from vcrt_train.protocol.planning import how_chosen, make_plan
from vcrt_train.protocol.splits import source_split
from vcrt_train.training import methods
from vcrt_train.training.run import episode_order

TOYS = toy.THREE_TOYS


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    config = sampled(dict.fromkeys(TOYS, ("needs", "overwrite")), 10)
    path = tmp_path_factory.mktemp("protocol") / "data"
    frozen = make_dataset(config, path, jobs=2, factories=TOYS)
    verify_agreement(frozen, jobs=2, factories=TOYS)
    return frozen


def plan_on(dataset, **changes):
    options = {
        "backbone": EMBEDDED,
        "backbone_digest": "d",
        "methods": ("canonical-grpo", "vcrt"),
        "seeds": (0, 1),
        "config": EMBEDDED.resolved(config(updates=5)),
    }
    return make_plan(dataset, **{**options, **changes})


def test_a_plan_lists_every_run_and_is_hashed(dataset, tmp_path):
    plan = plan_on(dataset)
    assert len(plan.runs) == 2 * 3 * 2
    assert plan.sources("toy-b") == ("toy-a", "toy-c")
    assert plan.config == EMBEDDED.resolved(config(updates=5))
    experiment = create_experiment(plan, tmp_path / "e")
    assert open_experiment(experiment.path).plan == plan
    assert plan_on(dataset).plan_hash == plan.plan_hash
    assert plan_on(dataset, seeds=(0, 2)).plan_hash != plan.plan_hash


def test_all_methods_of_a_fold_and_seed_see_the_same_episodes(dataset):
    plan = plan_on(dataset)
    assert set(plan.episode_order_hashes) == {f"{fold}/{seed}" for fold in TOYS for seed in (0, 1)}
    assert len(set(plan.episode_order_hashes.values())) == 6


@pytest.mark.parametrize("name", ["both-classes", "exact-log-odds"])
def test_failures_that_were_not_replayed_are_no_class(name, tmp_path):
    """A sample of contexts leaves orders of which nobody knows whether they fail."""
    factories = {"posets": posets.Posets}
    for is_sampled in (False, True):
        asked = replace(PRESETS["posets6"], sampled=is_sampled)
        with without_processes():
            some = given([posets.random_episode(6, 1)], preset=asked)
            frozen = make_dataset(some, tmp_path / f"{is_sampled}", jobs=1, factories=factories)
        require_names(frozen, ("vcrt", "exact-reward", "step-groups"), ())
        if not is_sampled:
            require_names(frozen, (name,), ())
    # What is held out is no source of failures.
    require_names(frozen, (name,), ("posets",))
    with pytest.raises(RunError, match="not all were replayed") as caught:
        require_names(frozen, ("vcrt", name), ())
    assert caught.value.found == f"{name}, and episodes with sampled evidence: 1 of posets"
    assert "without --sampled" in caught.value.remedy


@pytest.mark.parametrize(
    ("steps", "needs", "refused", "lacking"),
    [
        (
            4,
            [],
            (
                *("anti_diamond_loss of vcrt", "log_odds_loss of exact-log-odds"),
                "contrastive_loss of contrastive",
            ),
            "not be swapped",
        ),
        (
            4,
            [(0, 1), (1, 2), (2, 3)],
            (
                *("commutation of vcrt", "commutation of orbit-commutation"),
                "uniformity of uniform-orbit",
            ),
            "commutes",
        ),
        # Nothing is left to choose after two of three steps.
        (
            3,
            [(0, 1)],
            ("commutation of vcrt", "commutation of orbit-commutation"),
            "commutes with two more after it",
        ),
    ],
)
def test_a_term_of_which_no_record_has_anything_is_named(steps, needs, refused, lacking, tmp_path):
    """Only where the records that are trained on have none: what is held out does not matter."""
    both = posets.episode(steps, [(0, 1)])
    one = replace(posets.episode(steps, needs), environment="others")
    factories = {"posets": posets.Posets, "others": posets.Posets}
    with without_processes():
        some = given([both, one], preset=PRESETS["any"])
        frozen = make_dataset(some, tmp_path / "data", jobs=1, factories=factories)
    names = (
        *("vcrt", "exact-log-odds", "orbit-commutation", "contrastive", "uniform-orbit"),
        *("canonical-grpo", "exact-reward"),
    )
    if steps > 3:
        require_names(frozen, names, ("others",))
    require_names(frozen, ("canonical-grpo", "exact-reward", "orbit-retention"), ("posets",))
    with pytest.raises(RunError, match="no samples for a term") as caught:
        require_names(frozen, names, ("posets",))
    assert caught.value.found.startswith(f"{', '.join(refused)}, and no pair of steps of others")
    assert caught.value.found.endswith(lacking)


def test_unknown_names_and_empty_plans_are_refused(dataset):
    with pytest.raises(UnknownNameError, match="did you mean 'vcrt'"):
        plan_on(dataset, methods=("vcrtt",))
    with pytest.raises(UnknownNameError, match="did you mean 'toy-a'"):
        plan_on(dataset, held_out=("toy_a",))
    with pytest.raises(RunError, match="nothing to plan"):
        plan_on(dataset, seeds=())


def test_a_changed_plan_is_refused(dataset, tmp_path):
    experiment = create_experiment(plan_on(dataset), tmp_path / "e")
    path = experiment.path / PLAN_FILE
    original = path.read_text()
    value = json.loads(original)
    value["plan"]["config"]["optimiser"]["learning_rate"] = 0.1
    path.write_text(json.dumps(value))
    with pytest.raises(RunError, match="changed after it was made"):
        open_experiment(experiment.path)
    # A forger who also mends the hash still differs from the ledger.
    from vcrt_train.protocol.plan import Plan

    value["plan_hash"] = Plan.model_validate(value["plan"]).plan_hash
    path.write_text(json.dumps(value))
    read_plan(path)
    with pytest.raises(RunError, match="not the one that the ledger records"):
        open_experiment(experiment.path)
    for broken in ("", "{", "[]", '{"plan": {}}', original.replace('"seeds"', '"seedz"')):
        path.write_text(broken)
        with pytest.raises(RunError, match="plan cannot be read"):
            open_experiment(experiment.path)
    path.unlink()
    with pytest.raises(RunError, match="not an experiment"):
        open_experiment(experiment.path)


@pytest.mark.parametrize("what", ["method vcrt", "torch"])
def test_training_refuses_code_that_was_not_planned(dataset, tmp_path, monkeypatch, what):
    plan = plan_on(dataset, methods=("vcrt",), backbone_digest=load_backbone("embedded").digest)
    experiment = create_experiment(plan, tmp_path / "e")
    if what == "torch":
        monkeypatch.setattr("torch.__version__", "2.0.0")
    else:
        row = replace(methods.METHODS["vcrt"], scale_rewards="group")
        monkeypatch.setattr(methods, "METHODS", {"vcrt": row})
    with pytest.raises(RunError, match="code is not the one") as error:
        train(experiment, jobs=1)
    assert error.value.where == what


@pytest.mark.slow
def test_training_opens_no_file_that_no_fold_trains_on(dataset, tmp_path):
    digest = load_backbone("embedded").digest
    plan = plan_on(dataset, held_out=("toy-b",), seeds=(0,), backbone_digest=digest)
    experiment = create_experiment(plan, tmp_path / "e")
    closed = [path for path in dataset.path.rglob("*") if path.name.startswith("toy-b.")]
    contents = {path: path.read_bytes() for path in closed}
    assert len(contents) == 2
    try:
        for path in closed:
            path.unlink()
        assert len(train(experiment, jobs=1)) == 2
    finally:
        for path, data in contents.items():
            path.write_bytes(data)


def test_the_ledger_is_append_only_and_chained(tmp_path):
    ledger = Ledger(tmp_path / LEDGER_FILE)
    assert ledger.entries() == []
    for number in range(4):
        ledger.append("run", {"run": str(number)})
    assert [e.body["run"] for e in ledger.entries("run")] == ["0", "1", "2", "3"]
    assert ledger.entries("opening") == []


@pytest.mark.parametrize(
    "attack",
    [
        'UPDATE entries SET body = \'{"run":"9"}\' WHERE position = 1',
        "UPDATE entries SET kind = 'opening' WHERE position = 1",
        "UPDATE entries SET hash = 'x' WHERE position = 3",
        "DELETE FROM entries WHERE position = 0",
        "DELETE FROM entries WHERE position = 2",
        "UPDATE entries SET position = 9 WHERE position = 3",
        "UPDATE entries SET body = 'not json' WHERE position = 2",
    ],
)
def test_an_altered_ledger_is_refused(tmp_path, attack):
    ledger = Ledger(tmp_path / LEDGER_FILE)
    for number in range(4):
        ledger.append("run", {"run": str(number)})
    connection = sqlite3.connect(ledger.path)
    connection.execute(attack)
    connection.commit()
    connection.close()
    with pytest.raises(RunError, match="ledger was altered"):
        ledger.entries()
    with pytest.raises(RunError, match="ledger was altered"):
        ledger.append("run", {"run": "4"})


def test_a_file_that_is_no_ledger_is_named(tmp_path):
    path = tmp_path / LEDGER_FILE
    path.write_bytes(b"no database" * 100)
    with pytest.raises(RunError, match="ledger cannot be read"):
        Ledger(path).entries()


def test_the_split_is_by_source_and_never_within_one(dataset):
    items = load_items(dataset, "toy-a")
    shared = [replace(i, source=f"s{k // 4}") for k, i in enumerate(items)]
    split = source_split([shared], 0.3, seed=0)
    assert len(split.retention) == 8
    assert not {i.source for i in split.training} & {i.source for i in split.retention}
    assert {i.episode_id for i in (*split.training, *split.retention)} == {
        i.episode_id for i in items
    }
    assert source_split([shared], 0.3, seed=0) == split
    assert source_split([shared], 0.3, seed=1) != split


def test_the_episode_order_visits_every_item_once_an_epoch():
    order = episode_order(7, 18, seed=3)
    assert sorted(order[:7]) == sorted(order[7:14]) == list(range(7))
    assert len(order) == 18
    assert order != episode_order(7, 18, seed=4)
    assert order[:10] == episode_order(7, 10, seed=3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "source_search.json). Other settings are the library's defaults."),
        ({"objective.margin": 3.0}, "defaults, but for objective.margin 3.0."),
        (
            {"optimiser.learning_rate": 0.5, "schedule.updates": 9},
            "given, not searched for. Other settings are the library's defaults, but for schedule.updates 9.",
        ),
        (
            {"model.backbone": "A/MODEL"},
            "is the paper's. Other settings are the library's defaults.",
        ),
        ({"model.backbone": "A/MODEL", "adapter.rank": 4}, "adapter.rank 4, adapter.alpha 8.0."),
        ({"memory.prompts_at_a_time": 1}, "Other settings are the library's defaults."),
    ],
)
def test_no_setting_that_was_given_is_called_a_default(settings, said):
    assert how_chosen(RunConfig().override(settings).resolved()).endswith(said)


def test_a_preset_is_the_papers_only_while_it_is_whole():
    preset = load_config(settings="qwen3.5-2b")
    whole = preset.override({"model.backbone": "a folder", "model.lock": "a lock"})
    assert how_chosen(whole) == (
        "The settings are the paper's for one of its two language models. "
        "(Preset granite-4.1-3b or qwen3.5-2b.)"
    )
    assert "sampling.samples_per_prompt 4" in how_chosen(
        preset.override({"sampling.samples_per_prompt": 4})
    )
