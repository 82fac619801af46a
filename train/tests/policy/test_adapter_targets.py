"""Which projections adapters are put on, by the class of model; and the paper's presets."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from configs import resolved as config
from language_models import MODELS, locked_model
from training_fixtures import supervised_records
from vcrt.errors import BackboneError, ConfigError, RunError, UnknownNameError
from vcrt_train.config_files import load_config
from vcrt_train.policy.adapters import TARGETS, find_targets, with_adapters
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.scoring import score_orders
from vcrt_train.randomness import generator
from vcrt_train.training.run import start
from vcrt_train.training.update import trainable_parameters

DENSE = dict.fromkeys(TARGETS, 2)
DELTA_NET = {"in_proj_qkv": 3, "in_proj_z": 3, "in_proj_b": 3, "in_proj_a": 3, "out_proj": 3}
ATTENTION_ONCE = dict.fromkeys(("q_proj", "k_proj", "v_proj", "o_proj"), 1)
#: By class: how often each name is adapted, and what is added for recurrent layers.
EXPECTED = {
    "qwen3": (DENSE, None),
    "llama": (DENSE, None),
    "granite": (DENSE, None),
    "qwen3_5": (ATTENTION_ONCE | dict.fromkeys(TARGETS[4:], 4), DELTA_NET),
    # Mamba's output projection is left alone: fused kernels read its weight past an adapter.
    "granite_hybrid": (
        ATTENTION_ONCE | {"input_linear": 2, "output_linear": 2},
        {"in_proj": 1},
    ),
}


@pytest.mark.parametrize("kind", EXPECTED)
def test_targets_by_class_of_model(kind):
    model = MODELS[kind](300)
    named, recurrent = EXPECTED[kind]
    assert Counter(name.split(".")[-1] for name in find_targets(model)) == named
    if recurrent is None:
        with pytest.raises(BackboneError, match="no recurrent projection"):
            find_targets(model, recurrent=True)
    else:
        found = Counter(name.split(".")[-1] for name in find_targets(model, recurrent=True))
        assert found == named | recurrent


@pytest.mark.parametrize("kind", ["qwen3_5", "granite_hybrid"])
@pytest.mark.parametrize("recurrent", [False, True])
def test_exactly_the_targets_are_adapted(kind, recurrent):
    model = MODELS[kind](300)
    targets = find_targets(model, recurrent=recurrent)
    adapted = with_adapters(model, rank=2, scale=2.0, seed=0, dropout=0.05, recurrent=recurrent)
    names = {name.split(".lora_")[0] for name in trainable_parameters(adapted)}
    assert names == {f"base_model.model.{name}" for name in targets}
    dropouts = [m for n, m in adapted.named_modules() if n.endswith("lora_dropout.default")]
    assert [module.rate for module in dropouts] == [0.05] * len(targets)


def test_a_model_of_other_names_is_refused_with_those_names():
    model = torch.nn.ModuleDict(
        {
            "mixer": torch.nn.Linear(2, 2),
            "q_proj": torch.nn.Linear(2, 2),
            "head": torch.nn.Linear(2, 2),
        }
    )
    with pytest.raises(BackboneError, match="nothing to adapt: no MLP projection") as error:
        find_targets(model)
    assert error.value.found == "linear layers head, mixer, q_proj"
    with pytest.raises(BackboneError, match="no attention projection"):
        find_targets(torch.nn.ModuleDict({"up_proj": torch.nn.Linear(2, 2)}))


def test_on_bfloat16_adapters_are_float32_and_all_parameters_are_refused(tmp_path):
    reference = locked_model(tmp_path / "m", dtype="bfloat16")
    backbone = load_backbone(reference)
    prompts = [
        backbone.encode(item.record, "sorted", generator(0, "x", index))
        for index, item in enumerate(supervised_records(2))
    ]
    before = score_orders(backbone.model, prompts, interface="pointers").order_log_probs
    with pytest.raises(RunError, match="lost in the rounding") as error:
        start(config(updates=1), backbone, seed=0)
    assert "--lora-rank" in error.value.remedy
    state = start(config(updates=1, rank=2, dropout=0.05), backbone, seed=0)
    trained = trainable_parameters(state.model)
    assert trained
    assert {p.dtype for p in trained.values()} == {torch.float32}
    after = score_orders(state.model, prompts, interface="pointers").order_log_probs
    assert torch.equal(before, after)
    assert after.dtype == torch.float32


def test_the_papers_presets():
    presets = [load_config(settings=name) for name in ("qwen3.5-2b", "granite-4.1-3b")]
    assert {one.model.backbone for one in presets} == {
        "Qwen/Qwen3.5-2B",
        "ibm-granite/granite-4.1-3b",
    }
    for one in presets:
        adapter = one.adapter
        assert (adapter.rank, adapter.alpha, adapter.dropout) == (64, 128, 0.05)
        assert (one.optimiser.learning_rate, one.schedule.updates) == (5e-6, 400)
        assert one.model.dtype == "bfloat16"
        assert one.resolved().adapter.scale == 2.0
    with pytest.raises(UnknownNameError, match=r"did you mean 'qwen3\.5-2b'"):
        load_config(settings="qwen3.5-2B")


@pytest.mark.parametrize("wrong", [{"dropout": 0.1}, {"recurrent": True}])
def test_options_of_adapters_need_a_rank(wrong):
    with pytest.raises(ConfigError, match=f"adapter.{next(iter(wrong))} is not possible"):
        config(updates=1, **wrong)
    config(updates=1, rank=2, **wrong)
    with pytest.raises(ConfigError, match=r"adapter\.dropout is not possible"):
        config(updates=1, rank=2, dropout=1.0)
