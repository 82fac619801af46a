"""Low-rank adapters (LoRA, through PEFT) on a backbone's attention and MLP projections.

Adapters begin as zero, so that the adapted model is the backbone until its first update. They have no dropout: with it
the ratio of an update's first epoch would not be 1. Not covered: saving (a checkpoint holds every trainable parameter).
"""

from __future__ import annotations

import math
from typing import Any

import torch

from vcrt.errors import BackboneError
from vcrt.policy.scoring import CausalModel
from vcrt.randomness import derive_seed

#: The paper's targets: "attention and MLP projection".
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def with_adapters(model: CausalModel, *, rank: int, scale: float, seed: int) -> CausalModel:
    """The model with its own weights frozen and adapters of ``rank``, whose product is multiplied by ``scale``.

    Draws come from ``seed`` alone. Raises :class:`BackboneError` if the model has none of the projections.
    """
    # Slow to import, and needed for adapters alone.
    from peft import LoraConfig, get_peft_model

    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    found = [name for name in TARGETS if name in names]
    if not found:
        raise BackboneError(
            "there is nothing to adapt",
            where=type(model).__name__,
            found="no projection of a known name",
            expected=f"modules named {', '.join(TARGETS)}",
            remedy="train all parameters (rank 0)",
        )
    # The library asks for an integer here, and computes lora_alpha / r with whatever it gets.
    alpha: Any = scale * rank
    config = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=0.0, target_modules=found, bias="none"
    )
    # The library initialises from the global generator: leave that as it was, and draw again from our own.
    with torch.random.fork_rng(devices=[]):
        adapted = get_peft_model(model, config)
    draw = torch.Generator().manual_seed(derive_seed(seed, "adapters") % 2**63)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_A" in name:
                # As the library does: uniform, of variance 1 / (3 * inputs).
                bound = 1 / math.sqrt(parameter.shape[1])
                parameter.uniform_(-bound, bound, generator=draw)
    return adapted.eval()
