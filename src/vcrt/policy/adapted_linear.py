"""Compute a linear layer and its low-rank adapter together, in one pass over the activations.

PEFT computes ``Wx + s B(Ax)`` as five operations, each of which writes an activation of the layer's width, and on a
layer in half precision reads its input once more in float32. Here the adapter's product is added to the layer's own as
it is made, forward and backward, and products with an adapter are in the layer's number format, as in automatic mixed
precision; adapters, their gradients and their optimiser stay in float32. In float32 the results differ by rounding
alone.

Shapes: ``x [..., in]``, ``W [out, in]``, ``A [rank, in]``, ``B [out, rank]``. Source: Hu et al., 2021 (LoRA).
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor


class AdaptedLinear(Linear):
    """PEFT's layer with a single adapter, whose forward pass is :class:`AdaptedProduct`."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """``[..., out]``; PEFT's own forward pass where adapters are off or merged, or more is given."""
        if args or kwargs or self.disable_adapters or self.merged or len(self.active_adapters) != 1:
            found: Tensor = super().forward(x, *args, **kwargs)
            return found
        (name,) = self.active_adapters
        down = self.lora_A[name].weight
        mask = getattr(self.lora_dropout[name], "mask", None)
        if mask is not None:
            # Dropped features of the input are dropped columns.
            down = down * mask.to(down.dtype)
        base, up = self.get_base_layer(), self.lora_B[name].weight
        result: Tensor = AdaptedProduct.apply(  # type: ignore[no-untyped-call]
            x, base.weight, base.bias, down, up, self.scaling[name]
        )
        return result


class AdaptedProduct(torch.autograd.Function):
    """``x W^T + bias + scale (x A^T) B^T`` with gradients for ``x``, ``A`` and ``B``; ``W`` is frozen."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        """``[..., out]`` in the number format of ``x``."""
        rows = x.reshape(-1, x.shape[-1])
        down, up = a.to(x.dtype), b.to(x.dtype)
        inner = (rows @ down.t()).mul_(scale)
        result = torch.nn.functional.linear(rows, weight, bias).addmm_(inner, up.t())
        ctx.save_for_backward(rows, weight, down, up, inner)
        ctx.scale, ctx.formats = scale, (a.dtype, b.dtype)
        return result.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of ``x``, ``A`` and ``B``, the latter in the formats of these."""
        rows, weight, down, up, inner = ctx.saved_tensors
        above = gradient.reshape(-1, gradient.shape[-1])
        through = (above @ up).mul_(ctx.scale)
        below = None
        if ctx.needs_input_grad[0]:
            below = (above @ weight).addmm_(through, down).view(*gradient.shape[:-1], -1)
        of_a, of_b = through.t() @ rows, above.t() @ inner
        return below, None, None, of_a.to(ctx.formats[0]), of_b.to(ctx.formats[1]), None
