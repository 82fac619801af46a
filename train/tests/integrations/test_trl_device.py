"""TRL's trainer with a model on another device: samples, orbits and their scores come to it."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed: make test-integrations")

from accelerate import Accelerator
from transformers import TrainingArguments

from letters import Letters
from pretended_device import DEVICE, PretendedDevice
from trl_support import ORDERS, load_model, reward, rows, save_model, settings, tokenizer, train
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer
from vcrt_train.policy import backends


def rollouts(prompts, trainer):
    """Some order of the letters a, b and c for each prompt, which depends on the step alone."""
    draw = torch.Generator().manual_seed(trainer.state.global_step)
    made = tokenizer()
    chosen = torch.randint(len(ORDERS), (len(prompts),), generator=draw).tolist()
    return {
        "prompt_ids": made(prompts)["input_ids"],
        "completion_ids": [
            [*made(ORDERS[each])["input_ids"], made.eos_token_id] for each in chosen
        ],
        "logprobs": None,
    }


@pytest.mark.parametrize("level", ["token", "trajectory"])
@pytest.mark.parametrize("online", [True, False], ids=["online", "listed"])
def test_it_trains_there_as_on_the_processor(online, level, tmp_path, monkeypatch):
    # Padding, which the device alone has, changes sums by rounding.
    monkeypatch.setattr(backends, "STEP", 1)
    folder = save_model(tmp_path / "model")
    changes = {"orbit_alpha": 0.1, "orbit_augmentation": 0.1, "importance_sampling_level": level}
    options = settings(tmp_path, max_completion_length=4, beta=0.05, **changes)
    given = rows()

    def trained():
        how = {"rollout_func": rollouts}
        if online:
            how["environment"] = Letters
        dataset = given.remove_columns(["orbit", "illegal"]).add_column("letters", ["abc"] * 8)
        _, logs, gradients = train(
            OrbitGRPOTrainer,
            OrbitGRPOConfig(**options),
            load_model(folder),
            dataset if online else given,
            None if online else reward,
            **how,
        )
        return [row["loss"] for row in logs], gradients

    expected, gradients = trained()
    own = TrainingArguments.device
    with PretendedDevice() as device:
        monkeypatch.setattr(Accelerator, "device", property(lambda self: DEVICE))
        # The library's own property sets the process up.
        there = property(lambda self: (own.fget(self), DEVICE)[1])
        monkeypatch.setattr(TrainingArguments, "device", there)
        found, others = trained()
        assert all(device.holds(one) for one in others)
    assert any(expected)
    assert found == expected
    assert all(torch.equal(one, other) for one, other in zip(gradients, others, strict=True))
