"""Choose the number format of a backbone's weights: bfloat16 where that is faster and training survives it.

Matrix products in bfloat16 take half the memory traffic, and far fewer instructions where the machine has some for
them; elsewhere they are slower than in float32. Adapters and their optimiser stay in float32 in either case.
"""

from __future__ import annotations

from typing import NamedTuple

from vcrt.config import EMBEDDED_NAMES, Dtype, RunConfig

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
    found = instructions()
    if found:
        reason = f"because the processor has instructions for it ({', '.join(found)})"
        return NumberFormat("bfloat16", reason)
    return NumberFormat("float32", "because the processor has no instructions for bfloat16")


def instructions() -> tuple[str, ...]:
    """The processor's instructions for products in bfloat16, of those that are known to pay."""
    import torch

    capabilities = torch.cpu.get_capabilities()
    return tuple(name for name in BFLOAT16_INSTRUCTIONS if capabilities.get(name))
