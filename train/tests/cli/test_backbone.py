"""A language model from a folder through the whole protocol on the command line, and its refusals."""

from __future__ import annotations

import functools
import json
import shutil
import sys

import pytest

import toy_environment as toy
import vcrt_train
from command_line import refused, run
from language_models import byte_level_tokenizer, save_model
from one_process import in_this_process
from vcrt.cli import main
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import make_dataset
from vcrt.records.policy_view import PointerRelation, PolicyRecord
from vcrt.replay.config import sampled
from vcrt_train.api.experimenting import trained_policy
from vcrt_train.cli.backbone import _next
from vcrt_train.protocol.experiment import open_experiment
from vcrt_train.protocol.scores import read_scores
from vcrt_train.protocol.search import read_search
from vcrt_train.randomness import generator

TWO_TOYS = {name: toy.THREE_TOYS[name] for name in ("toy-a", "toy-b")}
SMALL = ("--held-out", "toy-b", "--methods", "vcrt", "--updates", "2")
ADAPTERS = ("--lora-rank", "2", "--lora-dropout", "0.05", "--learning-rate", "1e-3")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A verified dataset and a locked Granite with a chat template, side by side."""
    path = tmp_path_factory.mktemp("backbone")
    config = sampled(dict.fromkeys(TWO_TOYS, ("needs", "overwrite")), 8)
    frozen = make_dataset(config, path / "data", jobs=1, factories=TWO_TOYS)
    verify_agreement(frozen, jobs=1, factories=TWO_TOYS)
    save_model(path / "granite", "granite", tokenizer=byte_level_tokenizer(chat=True))
    main(["backbone", "lock", str(path / "granite"), "--revision", "made by a test"])
    return path


def planned(folder, name, *options):
    experiment = folder / name
    main(
        [
            *("plan", str(folder / "data"), "--output", str(experiment), "--runs", "1"),
            *("--backbone", str(folder / "granite"), *SMALL, *options),
        ]
    )
    return experiment


@pytest.fixture(scope="module")
def evaluated(folder):
    shown = ("--prompt-style", "chat", "--relation-names", "words")
    experiment = planned(folder, "experiment", *ADAPTERS, *shown)
    with in_this_process():
        for command in ("train", "evaluate"):
            main([command, str(experiment), "--jobs", "1"])
    main(["report", str(experiment)])
    return experiment


@pytest.mark.slow
def test_the_whole_way_with_adapters_in_a_chat_and_relations_in_words(folder, evaluated):
    plan = open_experiment(evaluated).plan
    assert plan.backbone.name == "granite"
    assert plan.backbone.prompt_style == "chat"
    assert plan.backbone.relation_names == "words"
    assert plan.backbone_revision == "made by a test"
    lock = json.loads((folder / "granite" / "vcrt-lock.json").read_text())
    assert plan.backbone_digest == lock["digest"]
    assert plan.how_chosen.startswith("The learning rate was given, not searched for.")
    assert "adapter.rank" in plan.how_chosen
    scores = read_scores(open_experiment(evaluated))
    assert set(scores.runs) == {"vcrt/toy-b/0"}
    weights = evaluated / "runs" / "vcrt" / "toy-b" / "0" / "update-000002" / "weights.safetensors"
    from safetensors.torch import load_file

    tensors = load_file(weights)
    assert all("lora_" in name for name in tensors)
    assert all(tensor.abs().max() > 0 for tensor in tensors.values())
    page = (evaluated / "report" / "report.html").read_text()
    assert f"granite ({lock['digest'][:12]})" in page
    assert "of unknown training, relations in words" in page
    assert str(folder) not in page


@pytest.mark.slow
def test_a_decision_and_an_exported_model_name_the_form_of_relations(evaluated, capsys, tmp_path):
    record = tmp_path / "record.json"
    record.write_text('{"operations": ["a", "b", "c"], "relations": [["b", "a", "precedes"]]}')
    _, out, _ = run(capsys, "decide", evaluated, record)
    (line,) = [line for line in out.splitlines() if line.startswith("backbone")]
    assert line.endswith(", revision made by a test, relations in words")
    _, out, _ = run(capsys, "decide", evaluated, record, "--json")
    assert json.loads(out)["policy"]["relation_names"] == "words"
    backbone = trained_policy(evaluated).backbone
    relations = (PointerRelation(0, 1, "precedes"),)
    asked = PolicyRecord(record_id="any", pointers=(0, 1), relations=relations)
    prompt = backbone.encode(asked, "sorted", generator(0, "any"))
    text = backbone.tokenizer.decode(list(prompt.token_ids))
    assert "\nRelations: A must come before B.<" in text
    main(["export-model", str(evaluated), "--output", str(tmp_path / "model")])
    assert "relations in words" in (tmp_path / "model" / "README.md").read_text()


def test_all_methods_of_a_plan_share_how_relations_are_shown(folder, capsys):
    hashes = {}
    for names in ("opaque", "words"):
        options = ("--methods", "vcrt", "canonical-grpo", "--relation-names", names)
        experiment = folder / f"shared {names}"
        code, out, _ = run(
            capsys,
            *("plan", folder / "data", "--output", experiment, "--runs", "1"),
            *("--backbone", folder / "granite", *SMALL[:2], *options, "--updates", "2"),
        )
        assert code == 0
        said = {"opaque": "relations by opaque names", "words": "relations in words"}[names]
        assert f"backbone  granite, made by a test, of unknown training, {said}\n" in out
        plan = open_experiment(experiment).plan
        assert {plan.config_of(one).model.relation_names for one in plan.runs} == {names}
        assert len({one.method for one in plan.runs}) == 2
        assert plan.backbone.relation_names == names
        hashes[names] = plan.plan_hash
        written = json.loads((experiment / "plan.json").read_text())["plan"]
        assert written["config"]["model"]["relation_names"] == names
        assert written["backbone"]["relation_names"] == names
    assert hashes["opaque"] != hashes["words"]
    message = refused(
        capsys,
        *("plan", folder / "data", "--output", folder / "refused", "--relation-names", "words"),
    )
    assert "one form of prompt" in message
    assert "float32, plain, words" in message
    assert not (folder / "refused").exists()
    message = refused(
        capsys,
        *("search", folder / "data", "--output", folder / "refused", "--relation-names", "words"),
    )
    assert "one form of prompt" in message


@pytest.mark.parametrize(
    ("name", "said", "rate"),
    [
        ("smollm2-135m", "--settings smollm2-135m", 5e-5),
        ("Qwen/Qwen3.5-2B", "--settings qwen3.5-2b", 5e-6),
        ("models/own", "--backbone models/own --lora-rank 64 --learning-rate 5e-5", 5e-5),
    ],
)
def test_what_is_said_to_come_next_trains_adapters(monkeypatch, name, said, rate):
    line = _next(name)
    assert line == f"next: vcrt plan DATASET --output EXPERIMENT {said}"
    seen = []

    @functools.wraps(vcrt_train.plan)
    def planned(**asked):
        sys.exit(seen.append(asked["config"]))

    monkeypatch.setattr(vcrt_train, "plan", planned)
    with pytest.raises(SystemExit):
        main(line.split()[2:])
    (found,) = seen
    assert (found.model.backbone, found.adapter.rank) == (name, 64)
    assert found.optimiser.learning_rate == rate


@pytest.mark.slow
def test_experiment_dataset_and_backbone_can_be_moved_together(folder, evaluated, tmp_path):
    names = ("data", "granite", "experiment")
    for name in names:
        shutil.copytree(folder / name, tmp_path / "moved" / name)
    planned_hash = open_experiment(evaluated).plan.plan_hash
    hidden = [(folder / name).rename(folder / f"hidden-{name}") for name in names]
    try:
        moved = open_experiment(tmp_path / "moved" / "experiment").plan
    finally:
        for path in hidden:
            path.rename(path.with_name(path.name.removeprefix("hidden-")))
    assert moved.backbone.folder == str(tmp_path / "moved" / "granite")
    assert moved.dataset == str(tmp_path / "moved" / "data")
    assert moved.plan_hash == planned_hash


def test_training_refuses_a_changed_weight_and_names_the_file(folder, capsys):
    experiment = planned(folder, "changed", *ADAPTERS)
    weights = folder / "granite" / "model.safetensors"
    original = weights.read_bytes()
    try:
        weights.write_bytes(original[:-1] + bytes([original[-1] ^ 1]))
        for command in (
            ("train", experiment),
            ("backbone", "check", folder / "granite"),
            ("plan", folder / "data", "--output", folder / "p", "--backbone", folder / "granite"),
            (
                *("search", folder / "data", "--output", folder / "s.json"),
                *("--backbone", folder / "granite"),
            ),
        ):
            message = refused(capsys, *command)
            assert "backbone file model.safetensors is not the one that was locked" in message
    finally:
        weights.write_bytes(original)
    assert not (experiment / "runs").exists()
    code, out, _ = run(capsys, "backbone", "check", folder / "granite")
    assert code == 0
    assert "files of revision made by a test as locked" in out


def test_training_refuses_another_lock_than_the_planned_one(folder, capsys, tmp_path):
    experiment = planned(folder, "relocked", *ADAPTERS)
    lock = folder / "granite" / "vcrt-lock.json"
    original = lock.read_bytes()
    try:
        lock.unlink()
        assert "not locked" in refused(capsys, "train", experiment)
        main(["backbone", "lock", str(folder / "granite"), "--revision", "another"])
        message = refused(capsys, "train", experiment)
        assert "backbone is not the one that was planned" in message
        assert "revision another" in message
    finally:
        lock.write_bytes(original)


@pytest.mark.slow
def test_a_search_and_its_plan_have_the_same_backbone(folder, capsys):
    output = folder / "search.json"
    code, _, err = run(
        capsys,
        *("search", folder / "data", "--output", output, *SMALL, *ADAPTERS),
        *("--backbone", folder / "granite", "--trials", "2", "--jobs", "1"),
    )
    assert code == 0, err
    search = read_search(output)
    assert search.trials[0].settings["optimiser.learning_rate"] == 1e-3
    assert str(folder) not in output.read_text()
    common = ("--search", output, "--runs", 1, *SMALL[:4], "--updates", 2)
    adapters = (*ADAPTERS[:4], "--backbone", folder / "granite")
    plan = ("plan", folder / "data", "--output", folder / "searched")
    message = refused(capsys, *plan, *common, *adapters, "--prompt-style", "chat")
    assert "the search is not of this experiment" in message
    assert "backbone" in message
    message = refused(capsys, *plan, *common, *adapters, "--relation-names", "words")
    assert "the search is not of this experiment" in message
    assert "'relation_names': 'words'" in message
    code, _, err = run(capsys, *plan, *common, *adapters)
    assert code == 0, err


def test_what_cannot_be_trained_is_refused_when_it_is_planned(
    folder, capsys, tmp_path, monkeypatch
):
    plan = ("plan", folder / "data", "--output", tmp_path / "e")
    save_model(tmp_path / "qwen3")
    unlocked = refused(capsys, *plan, "--backbone", tmp_path / "qwen3")
    assert "not locked" in unlocked
    assert "vcrt backbone lock" in unlocked
    main(["backbone", "lock", str(tmp_path / "qwen3"), "--lock", str(tmp_path / "q.json")])
    backbone = ("--backbone", tmp_path / "qwen3", "--lock", tmp_path / "q.json")
    assert "no chat template" in refused(capsys, *plan, *backbone, "--prompt-style", "chat")
    assert "lost in the rounding" in refused(capsys, *plan, *backbone, "--dtype", "bfloat16")
    assert "no recurrent projection" in refused(
        capsys, *plan, *backbone, "--lora-rank", 2, "--lora-recurrent"
    )
    assert "adapter.alpha is not possible" in refused(capsys, *plan, *backbone, "--lora-alpha", 8)
    assert "needs a lock file" in refused(capsys, *plan, "--settings", "qwen3.5-2b")
    assert "one number format" in refused(
        capsys, *plan, "--settings", "qwen3.5-2b", "--backbone", "embedded"
    )
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    message = refused(
        capsys, "backbone", "lock", "Qwen/Qwen3.5-2B", "--lock", tmp_path / "qwen.json"
    )
    assert "offline" in message
    assert "hf download Qwen/Qwen3.5-2B" in message
    assert not (tmp_path / "e").exists()


def test_a_preset_gives_a_plan_the_papers_settings(folder, tmp_path):
    main(
        [
            *("plan", str(folder / "data"), "--output", str(tmp_path / "e"), "--runs", "1"),
            *("--backbone", str(folder / "granite"), "--settings", "granite-4.1-3b"),
        ]
    )
    plan = open_experiment(tmp_path / "e").plan
    adapter = plan.config.adapter
    assert (plan.config.schedule.updates, plan.config.optimiser.learning_rate) == (400, 5e-6)
    assert (adapter.rank, adapter.scale, adapter.dropout) == (64, 2.0, 0.05)
    assert plan.backbone.dtype == "bfloat16"
    assert "Preset granite-4.1-3b" in plan.how_chosen


def test_the_embedded_backbone_needs_no_lock(capsys):
    code, out, _ = run(capsys, "backbone", "check", "embedded")
    assert code == 0
    assert "files as locked" in out
    assert "a lock of its own" in refused(capsys, "backbone", "lock", "embedded")
    assert "which backbone" in refused(capsys, "backbone", "lock")


@pytest.mark.parametrize(
    ("action", "option", "value"),
    [
        ("fetch", "--dtype", "bfloat16"),
        ("fetch", "--output", "x"),
        ("fetch", "--lock", "x"),
        ("import", "--source", "hub"),
        ("import", "--revision", "main"),
        ("lock", "--dtype", "bfloat16"),
        ("check", "--output", "x"),
    ],
)
def test_an_option_that_an_action_would_not_heed_is_refused(capsys, action, option, value):
    said = refused(capsys, "backbone", action, "smollm2-135m", option, value)
    assert f"vcrt backbone {action} takes no {option}" in said
