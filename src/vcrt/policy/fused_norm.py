"""Compute a half-precision model's root-mean-square norms in few passes over the activations, on a processor.

transformers writes six tensors forward and some nine backward for each norm; here it is four and five. A layer whose
own result is another (some scale by ``1 + weight``) is left as it is.

Shapes: ``x [..., d]``, ``weight [d]``. Source: Zhang and Sennrich, 2019 (RMSNorm).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vcrt.randomness import derive_seed

#: What a layer's result may differ by from its own class's, relative to its size: a step of bfloat16.
TOLERANCE = 2**-7


class RootMeanSquareNorm(torch.autograd.Function):
    """``weight * x / sqrt(mean(x^2) + eps)``, in float32 but for the weight, with a gradient for ``x`` alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """``[..., d]`` in the number format of ``x``."""
        wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
        size = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        inverse = size.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        wide = wide * inverse if wide is x else wide.mul_(inverse)
        ctx.save_for_backward(wide, inverse, weight)
        return wide.to(x.dtype, copy=True).mul_(weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of ``x``."""
        wide, inverse, weight = ctx.saved_tensors
        above = gradient.to(wide.dtype, copy=True).mul_(weight)
        along = (above * wide).mean(-1, keepdim=True)
        return above.addcmul_(wide, along, value=-1).mul_(inverse).to(gradient.dtype), None, None


class _Fused:
    """Put before a norm's own class."""

    weight: Tensor

    def forward(self, hidden_states: Tensor) -> Tensor:
        is_trained = self.weight.requires_grad and torch.is_grad_enabled()
        if is_trained or hidden_states.dtype != torch.bfloat16 or hidden_states.is_cuda:
            found: Tensor = super().forward(hidden_states)  # type: ignore[misc]
        else:
            found = RootMeanSquareNorm.apply(hidden_states, self.weight, _eps(self))  # type: ignore[no-untyped-call]
        return found


def fuse_norms(model: torch.nn.Module) -> int:
    """Let the model's root-mean-square norms in bfloat16 be :class:`RootMeanSquareNorm`; returns how many it has."""
    draw = torch.Generator().manual_seed(derive_seed(0, "norms") % 2**63)
    fused: dict[type, type] = {}
    found = [module for module in model.modules() if _is_alike(module, draw)]
    for module in found:
        own = type(module)
        module.__class__ = fused.setdefault(own, type(own.__name__, (_Fused, own), {}))
    return len(found)


@torch.no_grad()
def _is_alike(module: torch.nn.Module, draw: torch.Generator) -> bool:
    """Whether a layer is such a norm, by its name and by what it makes of an example."""
    weight, eps = getattr(module, "weight", None), _eps(module)
    if not type(module).__name__.endswith("RMSNorm") or weight is None or eps is None:
        return False
    if weight.dim() != 1 or weight.dtype != torch.bfloat16 or weight.device.type != "cpu":
        return False
    x = torch.randn(3, len(weight), generator=draw).to(weight.dtype)
    try:
        expected = module(x)
    except TypeError:  # It takes a gate, or something else beside.
        return False
    found = RootMeanSquareNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    return bool(((found - expected).abs() <= TOLERANCE * expected.abs()).all())


def _eps(module: object) -> float | None:
    found: float | None = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    return found
