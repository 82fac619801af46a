"""The whole way in Python, and that it is the same as by the commands."""

from __future__ import annotations

import pytest
import torch

import vcrt
import vcrt_train
from command_line import run
from configs import config
from toy_environment import ToyEnvironment
from vcrt.errors import RunError, UnknownNameError
from vcrt.processes import num_jobs
from vcrt_research.backbone_card import one_anti_diamond_record
from vcrt_train.api.experimenting import jobs_on_device
from vcrt_train.policy import backbone
from vcrt_train.policy.reference import EMBEDDED, BackboneReference
from vcrt_train.randomness import generator

#: The same choices as options of the command.
PLANNED = ("--methods", "vcrt", "--held-out", "clrs", "--runs", 1, "--updates", 2)


def test_an_episode_of_a_registered_environment():
    episode = vcrt.load_environment("clrs").sample("bellman_ford", seed=7)
    certified = vcrt.certify_episode("clrs", episode)
    assert isinstance(certified, vcrt.CertifiedEpisode)
    assert len(certified.orbit) == 12
    assert sorted(r.kind for r in certified.relations) == ["commutes"] * 5 + ["precedes"]


def test_an_environment_need_not_be_registered(tmp_path):
    environments = {"toy": ToyEnvironment}
    data = vcrt.certify(
        tmp_path / "data", schemas=("toy",), episodes=2, jobs=1, environments=environments
    )
    assert data.environments == ("toy",)
    agreement = vcrt.verify(data, environments=environments, jobs=1)
    assert agreement.agreed == agreement.replays > 0
    episode = ToyEnvironment().sample(ToyEnvironment().schemas[0].name, seed=1)
    assert isinstance(vcrt.certify_episode(ToyEnvironment, episode), vcrt.CertifiedEpisode)
    with pytest.raises(UnknownNameError):
        vcrt.certify(tmp_path / "other", schemas=("toy",), episodes=2)


@pytest.mark.slow
def test_the_whole_way_is_that_of_the_commands(tmp_path, capsys):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    schemas = ("clrs/bellman_ford", "proofwriter/relational_join")
    data = vcrt.certify(tmp_path / "a" / "data", schemas=schemas, episodes=12, jobs=1)
    vcrt.verify(str(data.path), jobs=1)
    experiment = vcrt_train.plan(
        data,
        tmp_path / "a" / "experiment",
        methods=("vcrt",),
        held_out=("clrs",),
        runs=1,
        config=config(updates=2),
    )
    digests = vcrt_train.train(experiment)
    scores = vcrt_train.evaluate(experiment.path)
    with pytest.raises(RunError, match="opened"):
        vcrt_train.evaluate(experiment)
    written = vcrt_train.write_report(experiment)
    assert written.files["report.html"].is_file()

    at = tmp_path / "b"
    for command in (
        ["certify", "--output", at / "data", "--schemas", *schemas, "--episodes", 12, "--jobs", 1],
        ["verify", at / "data", "--jobs", 1],
        ["plan", at / "data", "--output", at / "experiment", *PLANNED],
        ["train", at / "experiment"],
    ):
        assert run(capsys, *map(str, command))[0] == 0, command
    assert vcrt.open_dataset(at / "data").manifest.root_hash == data.manifest.root_hash
    again = vcrt_train.open_experiment(at / "experiment")
    assert again.plan.plan_hash == experiment.plan.plan_hash
    assert vcrt_train.train(again) == digests
    assert vcrt_train.evaluate(again).runs == scores.runs

    policy = vcrt_train.trained_policy(experiment)
    record = {"operations": ["a", "b", "c"], "relations": [["a", "c", "precedes"]]}
    decision = vcrt_train.decide(policy, record)
    assert sorted(decision.greedy.order) == [0, 1, 2]
    assert decision.num_legal == 3
    frozen = vcrt_train.decide(vcrt_train.trained_policy(experiment, frozen=True), record)
    assert frozen.orbit_mass != decision.orbit_mass


def test_scores_of_a_record():
    backbone = vcrt_train.load_backbone()
    record, _ = one_anti_diamond_record("precedes", generator(0, "api"))
    prompt = backbone.encode(record, "sorted", generator(0, "api", "draw"))
    scores = vcrt_train.score_orders(backbone.model, [prompt], interface="pointers")
    assert scores.order_log_probs.shape == (1, len(vcrt.all_orders(4)))
    everything = torch.ones(1, 24, dtype=torch.bool)
    assert vcrt_train.orbit_log_mass(scores.order_log_probs, everything).abs().item() < 1e-5


def test_runs_share_a_gpu_only_where_that_is_asked_for(monkeypatch):
    language_model = BackboneReference(name="a/model")
    monkeypatch.setattr(backbone.torch.cuda, "is_available", lambda: True)
    assert jobs_on_device(language_model, None) == 1
    assert jobs_on_device(language_model, 6) == 6
    assert jobs_on_device(EMBEDDED, None) == num_jobs(None)
