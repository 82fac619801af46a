"""Choose the number format of a backbone's weights: bfloat16 where that is faster and training survives it.

Matrix products in bfloat16 take half the memory traffic, and far fewer instructions where the machine has some for
them; elsewhere they are slower than in float32. Some processors have such instructions and are slower with them, so
there a product is timed. Adapters and their optimiser stay in float32 in either case.
"""

from __future__ import annotations

import time
from functools import cache
from typing import NamedTuple

from vcrt_train.config import EMBEDDED_NAMES, Dtype, RunConfig

#: Instructions for products in bfloat16, by their names in :func:`torch.cpu.get_capabilities`.
BFLOAT16_INSTRUCTIONS = ("amx_bf16", "avx512_bf16")


class NumberFormat(NamedTuple):
    """A number format, and why it is that one, as the end of a sentence."""

    dtype: Dtype
    reason: str


def number_format(config: RunConfig) -> NumberFormat:
    """The format of a run's backbone: the one that is given, or for ``auto`` the faster one that can be trained."""
    model = config.model
    if model.dtype != "auto":
        return NumberFormat(model.dtype, "as given")
    if model.backbone in EMBEDDED_NAMES:
        return NumberFormat("float32", "its own")
    if not config.adapter.rank:
        reason = "because all parameters are trained, and steps would be lost in rounding them"
        return NumberFormat("float32", f"{reason} (adapters, --lora-rank 64, allow bfloat16)")
    # Slow to import, and needed here alone.
    import torch

    if torch.cuda.is_available():
        if torch.cuda.is_bf16_supported(including_emulation=False):
            return NumberFormat("bfloat16", "because the GPU computes in it")
        return NumberFormat("float32", "because the GPU does not compute in bfloat16")
    found = ", ".join(instructions())
    if not found:
        return NumberFormat("float32", "because the processor has no instructions for bfloat16")
    speed = bfloat16_speed()
    if speed > 1:
        reason = (
            f"because its matrix products are {speed:.1f} times as fast as float32's here ({found})"
        )
        return NumberFormat("bfloat16", reason)
    reason = f"because bfloat16's matrix products take {1 / speed:.1f} times as long here, in spite of {found}"
    return NumberFormat("float32", reason)


def instructions() -> tuple[str, ...]:
    """The processor's instructions for products in bfloat16."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    return tuple(name for name in BFLOAT16_INSTRUCTIONS if capabilities.get(name))


@cache
def bfloat16_speed() -> float:
    """Time of a layer's matrix product in float32 over that in bfloat16, on one core; takes a tenth of a second.

    The least of several turns counts, so other work on the machine says little. A process measures once.
    """
    import torch

    def seconds(dtype: torch.dtype) -> float:
        inputs, weight = torch.ones(512, 576, dtype=dtype), torch.ones(1536, 576, dtype=dtype)
        began = time.perf_counter()
        torch.nn.functional.linear(inputs, weight)
        return time.perf_counter() - began

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        turns = [(seconds(torch.float32), seconds(torch.bfloat16)) for _ in range(6)]
    finally:
        torch.set_num_threads(threads)
    in_float32, in_bfloat16 = map(min, zip(*turns, strict=True))
    speed: float = in_float32 / in_bfloat16
    return speed
