"""Low-rank adapters: the backbone until the first update, drawn from their own seed, trained and kept by themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from configs import resolved as config
from training_fixtures import supervised_records
from vcrt.errors import BackboneError
from vcrt_train.policy.adapters import TARGETS, with_adapters
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.scoring import score_orders
from vcrt_train.policy.self_check import self_check
from vcrt_train.policy.tokenizer import encode_record
from vcrt_train.training.methods import method
from vcrt_train.training.run import start, train_run
from vcrt_train.training.run_directory import checkpoint_path
from vcrt_train.training.update import trainable_parameters

CONFIG = config(updates=6, checkpoints=(3, 6), rank=4, learning_rate=3e-3)


@pytest.fixture(scope="module")
def backbone():
    return load_backbone("embedded")


def prompts(backbone, count=3):
    return [
        encode_record(
            backbone.tokenizer, record.record, "sorted", np.random.Generator(np.random.PCG64(0))
        )
        for record in supervised_records(count)
    ]


def test_adapters_begin_as_the_backbone(backbone):
    before = score_orders(backbone.model, prompts(backbone), interface="pointers")
    model = with_adapters(load_backbone("embedded").model, rank=4, scale=2.0, seed=1)
    after = score_orders(model, prompts(backbone), interface="pointers")
    assert torch.equal(before.order_log_probs, after.order_log_probs)
    assert self_check(model, prompts(backbone), interface="tokens").difference < 1e-4


def test_only_adapters_of_every_projection_are_trained():
    model = with_adapters(load_backbone("embedded").model, rank=4, scale=2.0, seed=1)
    names = trainable_parameters(model)
    assert all("lora_" in name for name in names)
    for target in TARGETS:
        # Two matrices in each of the three layers.
        assert sum(f".{target}." in name for name in names) == 2 * 3
    # The paper's rank and scale: 64 and 128.
    assert model.peft_config["default"].lora_alpha == 2.0 * 4


def test_adapters_are_a_function_of_their_seed_and_leave_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, same, other = (
        dict(
            with_adapters(
                load_backbone("embedded").model, rank=4, scale=2.0, seed=seed
            ).named_parameters()
        )
        for seed in (1, 1, 2)
    )
    assert torch.equal(torch.rand(3), expected)
    assert all(torch.equal(one[name], same[name]) for name in one)
    name = next(name for name in one if "lora_A" in name)
    assert not torch.equal(one[name], other[name])
    bound = 1 / one[name].shape[1] ** 0.5
    assert 0.8 * bound < one[name].abs().max() <= bound


def run(directory, config=CONFIG):
    return train_run(
        config,
        method("vcrt"),
        load_backbone("embedded"),
        supervised_records(12),
        directory,
        seed=2,
        encode_seed=0,
    )


def test_a_run_with_adapters_resumes_to_the_same_bits(tmp_path):
    whole = run(tmp_path / "whole")
    assert whole.metrics[-1]["update"] == 6
    assert set(whole.digests) == {3, 6}
    cut = tmp_path / "cut"
    run(cut)
    last = checkpoint_path(cut, 6)
    for path in last.iterdir():
        path.unlink()
    last.rmdir()
    assert run(cut).digests == whole.digests
    full = run(tmp_path / "full", config(updates=6))
    assert full.digest != whole.digest
    small, large = (
        (checkpoint_path(d, 6) / "weights.safetensors").stat().st_size
        for d in (tmp_path / "whole", tmp_path / "full")
    )
    assert small < large / 4


def test_the_frozen_weights_stay_as_they_were(tmp_path):
    backbone = load_backbone("embedded")
    before = {name: p.clone() for name, p in backbone.model.named_parameters()}
    train_run(
        CONFIG, method("vcrt"), backbone, supervised_records(8), tmp_path, seed=0, encode_seed=0
    )
    after = {
        name.replace(".base_layer", ""): p
        for name, p in backbone.model.named_parameters()
        if "lora_" not in name
    }
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    state = start(CONFIG, load_backbone("embedded"), seed=0)
    zeros = [p.abs().max() == 0 for n, p in state.model.named_parameters() if "lora_B" in n]
    assert len(zeros) == 7 * 3
    assert all(zeros)


def test_a_model_without_projections_is_refused():
    with pytest.raises(BackboneError, match="nothing to adapt"):
        with_adapters(torch.nn.Linear(2, 2), rank=2, scale=1.0, seed=0)
