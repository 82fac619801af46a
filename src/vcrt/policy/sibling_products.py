"""Compute adapted layers that read the same input together: queries, keys and values; the two of a gated MLP.

Their adapters' first products are one, forward and backward, and the gradients of their input are summed as they are
made. While the module around them runs, the first layer that is called computes for its siblings as well, which find
their result if they are called with the very same tensor. For layers whose weights are kept in the order of products
(:class:`vcrt.policy.adapted_linear.OrderedWeight`).

Shapes: ``x [..., in]``, of each layer ``W [out, in]``, ``A [rank, in]``, ``B [out, rank]``; ``N`` rows of ``x``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Part(NamedTuple):
    """What a layer's product is of: ``x W^T + bias + scale (x A^T) B^T``."""

    weight: Tensor
    bias: Tensor | None
    a: Tensor
    b: Tensor
    scale: float
    #: An :class:`~vcrt.policy.adapted_linear.OrderedWeight` of ``weight``, or None.
    ordered: Any


class SiblingProducts(torch.autograd.Function):
    """The products of several layers of one ``scale``, with gradients for ``x`` and for each ``A`` and ``B``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, parts: Sequence[Part], *adapters: Tensor
    ) -> tuple[Tensor, ...]:
        """``[..., out]`` of each layer in the format of ``x``; ``adapters`` are all ``A`` and then all ``B``."""
        rows, count = x.reshape(-1, x.shape[-1]), len(parts)
        down = torch.cat([a.to(x.dtype) for a in adapters[:count]])
        ups = [b.to(x.dtype) for b in adapters[count:]]
        ctx.ranks = [len(a) for a in adapters[:count]]
        inner = (rows @ down.t()).mul_(parts[0].scale)
        owns = [part.ordered.forward(rows, part.bias) for part in parts]
        for own, some, up in zip(owns, inner.split_with_sizes(ctx.ranks, 1), ups, strict=True):
            own.addmm_(some, up.t())
        ctx.save_for_backward(rows, down, inner, *ups)
        ctx.parts, ctx.formats = parts, [adapter.dtype for adapter in adapters]
        # Views would not let callers write to them, being several.
        return tuple(torch.ops.aten._unsafe_view(own, [*x.shape[:-1], -1]) for own in owns)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of ``x``, and those of all ``A`` and then all ``B``, in the formats of these."""
        rows, down, inner, *ups = ctx.saved_tensors
        through, below = torch.empty_like(inner), None
        pieces = zip(
            *(each.split_with_sizes(ctx.ranks, 1) for each in (inner, through)), strict=True
        )
        of_adapters = []
        for part, gradient, up, (some, piece) in zip(
            ctx.parts, gradients, ups, pieces, strict=True
        ):
            above = gradient.reshape(len(rows), -1)
            torch.mm(above, up, out=piece)
            of_adapters.append(above.t() @ some)
            if ctx.needs_input_grad[0]:
                below = part.ordered.backward(above, below)
        through.mul_(ctx.parts[0].scale)
        if below is not None:
            below = below.addmm_(through, down).view(*gradients[0].shape[:-1], -1)
        of_adapters = [*(through.t() @ rows).split_with_sizes(ctx.ranks), *of_adapters]
        found = [one.to(kind) for one, kind in zip(of_adapters, ctx.formats, strict=True)]
        return below, None, *found


class Siblings:
    """Layers inside one module; what the first was called with and what is computed for the others."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self._layers = list(layers)
        self._is_open = False
        self._input: tuple[Tensor, int] | None = None
        self._results: dict[int, Tensor] = {}

    def watch(self, around: torch.nn.Module) -> None:
        """Share results while ``around`` runs, and keep none beyond."""
        around.register_forward_pre_hook(self._open)
        around.register_forward_hook(self._close, always_call=True)

    def result(self, layer: object, x: Tensor) -> Tensor | None:
        """``[..., out]`` of one of the layers; None where it is to compute by itself."""
        if not self._is_open or x.is_inference():
            return None
        place = next(n for n, one in enumerate(self._layers) if one is layer)
        if self._input is None or self._input[0] is not x or self._input[1] != x._version:
            parts = [one.part() for one in self._layers]
            if any(
                part is None or part.ordered is None or part.scale != parts[0].scale
                for part in parts
            ):
                return None
            adapters = [*(part.a for part in parts), *(part.b for part in parts)]
            found = SiblingProducts.apply(x, parts, *adapters)  # type: ignore[no-untyped-call]
            self._input, self._results = (x, x._version), dict(enumerate(found))
        return self._results.pop(place, None)

    def _open(self, *_: object) -> None:
        self._is_open, self._input, self._results = True, None, {}

    def _close(self, *_: object) -> None:
        self._is_open, self._input, self._results = False, None, {}
