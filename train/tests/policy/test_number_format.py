"""The number format that is chosen, and why; it reaches the plan, whatever machine reads it later."""

from __future__ import annotations

import pytest
import torch

from vcrt_train.config import RunConfig
from vcrt_train.policy import reference as module
from vcrt_train.policy.reference import (
    BFLOAT16_INSTRUCTIONS,
    bfloat16_speed,
    instructions,
    number_format,
    reference_of,
)

LANGUAGE_MODEL = {"model.backbone": "OWNER/MODEL", "model.lock": "lock.json"}
ADAPTERS = {**LANGUAGE_MODEL, "adapter.rank": 4}


def processor(monkeypatch, *names, speed=2.0):
    """Make the machine one without a GPU, whose processor has these instructions, which make it so much faster."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(module, "bfloat16_speed", lambda: speed)
    capabilities = {"avx2": True, **{n: n in names for n in BFLOAT16_INSTRUCTIONS}}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)


@pytest.mark.parametrize(
    ("settings", "names", "dtype", "reason"),
    [
        (
            ADAPTERS,
            ("avx512_bf16",),
            "bfloat16",
            "2.0 times as fast as float32's here (avx512_bf16)",
        ),
        (ADAPTERS, (), "float32", "no instructions"),
        (LANGUAGE_MODEL, ("amx_bf16",), "float32", "all parameters are trained"),
        ({"adapter.rank": 4}, ("amx_bf16",), "float32", "its own"),
        ({**ADAPTERS, "model.dtype": "float32"}, ("amx_bf16",), "float32", "as given"),
        ({**ADAPTERS, "model.dtype": "bfloat16"}, (), "bfloat16", "as given"),
    ],
)
def test_bfloat16_is_chosen_where_it_pays_and_can_be_trained(
    monkeypatch, settings, names, dtype, reason
):
    processor(monkeypatch, *names)
    config = RunConfig().override(settings)
    found = number_format(config)
    assert found.dtype == dtype
    assert reason in found.reason
    reference = reference_of(config)
    assert reference.dtype == dtype
    assert reference.resolved(config).model.dtype == dtype


def test_instructions_that_do_not_pay_are_left_alone(monkeypatch):
    processor(monkeypatch, "avx512_bf16", speed=0.5)
    config = RunConfig().override(ADAPTERS)
    found = number_format(config)
    assert found.dtype == reference_of(config).dtype == "float32"
    assert "2.0 times as long here, in spite of avx512_bf16" in found.reason


def test_a_processor_is_timed_only_where_it_has_instructions(monkeypatch):
    def timed():
        raise AssertionError("it was timed")

    processor(monkeypatch)
    monkeypatch.setattr(module, "bfloat16_speed", timed)
    assert number_format(RunConfig().override(ADAPTERS)).dtype == "float32"
    processor(monkeypatch, "amx_bf16")
    monkeypatch.setattr(module, "bfloat16_speed", timed)
    with pytest.raises(AssertionError, match="timed"):
        number_format(RunConfig().override(ADAPTERS))


def test_the_time_is_taken_on_one_core_once_a_process():
    threads = torch.get_num_threads()
    first = bfloat16_speed()
    assert first > 0
    assert torch.get_num_threads() == threads
    assert bfloat16_speed() == first


@pytest.mark.parametrize("computes", [False, True])
def test_a_gpu_is_asked_before_the_processor(monkeypatch, computes):
    processor(monkeypatch, "amx_bf16")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: computes)
    assert number_format(RunConfig().override(ADAPTERS)).dtype == (
        "bfloat16" if computes else "float32"
    )


def test_the_instructions_of_this_processor_are_known_ones():
    assert set(instructions()) <= set(torch.cpu.get_capabilities())
