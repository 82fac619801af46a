"""Compute a half-precision model's root-mean-square norms in few passes over the activations, on a processor.

transformers writes six tensors forward and some nine backward for each norm; this module writes four and five. A layer
that computes something else (some scale by ``1 + weight``) is not changed.

Shapes: ``x [..., d]``, ``weight [d]``. Source: Zhang and Sennrich, 2019 (RMSNorm).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vcrt.randomness import derive_seed
from vcrt_train.policy.kernels.switch import own_kernels_are_used

#: The share of a layer's results on examples that may differ, by a last bit, from those of such a norm.
SHARE = 0.01


class RootMeanSquareNorm(torch.autograd.Function):
    """``weight * x / sqrt(mean(x^2) + eps)``, in float32 except for the weight, with a gradient only for ``x``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """Return ``[..., d]`` in the number format of ``x``."""
        wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
        size = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        inverse = size.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        wide = wide * inverse if wide is x else wide.mul_(inverse)
        ctx.save_for_backward(wide, inverse, weight)
        return wide.to(x.dtype, copy=True).mul_(weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient of ``x``."""
        wide, inverse, weight = ctx.saved_tensors
        above = gradient.to(wide.dtype, copy=True).mul_(weight)
        along = (above * wide).mean(-1, keepdim=True)
        return above.addcmul_(wide, along, value=-1).mul_(inverse).to(gradient.dtype), None, None


class _Fused:
    """The base class that a fused norm has before its own class."""

    weight: Tensor

    def forward(self, hidden_states: Tensor) -> Tensor:
        is_trained = self.weight.requires_grad and torch.is_grad_enabled()
        narrow = hidden_states.dtype == torch.bfloat16 == self.weight.dtype
        if is_trained or not narrow or hidden_states.is_cuda or not own_kernels_are_used():
            found: Tensor = super().forward(hidden_states)  # type: ignore[misc]
        else:
            found = RootMeanSquareNorm.apply(hidden_states, self.weight, _eps(self))  # type: ignore[no-untyped-call]
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _blank, (own_class(self),), self.__dict__


def fuse_norms(model: torch.nn.Module) -> int:
    """Replace the model's root-mean-square norms in bfloat16 by :class:`RootMeanSquareNorm`; return their number."""
    draw = torch.Generator().manual_seed(derive_seed(0, "norms") % 2**63)
    found = [module for module in model.modules() if _is_alike(module, draw)]
    for module in found:
        own: Any = type(module)
        module.__class__ = _fused(own)
    return len(found)


def own_class(module: object) -> type:
    """Return the class of a module without the class of this package."""
    kind = type(module)
    return kind.__mro__[2] if issubclass(kind, _Fused) else kind


@cache
def _fused(own: type) -> type:
    return type(own.__name__, (_Fused, own), {"__module__": own.__module__})


def _blank(own: type) -> object:
    kind: Any = _fused(own)
    return object.__new__(kind)


@torch.no_grad()
def _is_alike(module: torch.nn.Module, draw: torch.Generator) -> bool:
    """Return whether a layer is such a norm, by its name and its results on examples, nearly all equal to the bit."""
    weight, eps = getattr(module, "weight", None), _eps(module)
    if isinstance(module, _Fused) or not type(module).__name__.endswith("RMSNorm"):
        return False
    if weight is None or eps is None or weight.dim() != 1:
        return False
    if weight.dtype != torch.bfloat16 or weight.device.type != "cpu":
        return False
    # In some of the examples, eps is a large part.
    sizes = torch.tensor([1.0, eps**0.5]).repeat(8)[:, None]
    x = (sizes * torch.randn(16, len(weight), generator=draw)).to(weight.dtype)
    try:
        expected = module(x)
    except TypeError:  # It takes a gate, or something else beside.
        return False
    found = RootMeanSquareNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    steps = (found - expected).abs() / expected.abs().clamp_min(torch.finfo(found.dtype).tiny)
    return bool(steps.max() <= 2**-7 and (steps > 0).float().mean() <= SHARE)


def _eps(module: object) -> float | None:
    found: float | None = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    return found
