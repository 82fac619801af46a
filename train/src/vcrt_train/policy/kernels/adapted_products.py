"""Compute linear layers and their low-rank adapters together; layers that read the same input at once.

Queries, keys and values read one input, and so do the two layers of a gated MLP. Their adapters' first products are
one, forward and backward, and the gradients of their input are summed as they are made. While the module around them
runs, the first of them that is called computes for its siblings as well, which find their result if they are called
with the very same tensor.

Shapes: ``x [..., in]``, of each layer ``W [out, in]``, ``A [rank, in]``, ``B [out, rank]``. Source: Hu et al., 2021
(LoRA).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Frozen(NamedTuple):
    """What of a layer is not trained."""

    weight: Tensor
    bias: Tensor | None
    scale: float
    #: An :class:`~vcrt_train.policy.kernels.adapted_linear.OrderedWeight` of ``weight``, or None.
    ordered: Any = None


class AdaptedProducts(torch.autograd.Function):
    """``x W^T + bias + scale (x A^T) B^T`` for layers of one ``scale``, with gradients for ``x``, ``A`` and ``B``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, layers: Sequence[Frozen], *adapters: Tensor
    ) -> tuple[Tensor, ...]:
        """``[..., out]`` of each layer in the format of ``x``; ``adapters`` are all ``A`` and then all ``B``."""
        rows = x.reshape(-1, x.shape[-1])
        narrow = [adapter.to(x.dtype) for adapter in adapters]
        downs, ups = narrow[: len(layers)], narrow[len(layers) :]
        ranks = [len(down) for down in downs]
        down = torch.cat(downs) if len(layers) > 1 else downs[0]
        inner = (rows @ down.t()).mul_(layers[0].scale)
        found = []
        for layer, some, up in zip(layers, inner.split_with_sizes(ranks, 1), ups, strict=True):
            own = (
                torch.nn.functional.linear(rows, layer.weight, layer.bias)
                if layer.ordered is None
                else layer.ordered.forward(rows, layer.bias)
            )
            # Of several views, callers could write to none.
            found.append(
                torch.ops.aten._unsafe_view.default(own.addmm_(some, up.t()), (*x.shape[:-1], -1))
            )
        ctx.save_for_backward(rows, down, inner, *ups, *(layer.weight for layer in layers))
        ctx.ordered, ctx.scale = [layer.ordered for layer in layers], layers[0].scale
        ctx.ranks, ctx.formats = ranks, [adapter.dtype for adapter in adapters]
        return tuple(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The gradient of ``x``, and those of all ``A`` and then all ``B``, in the formats of these."""
        rows, down, inner, *others = ctx.saved_tensors
        ups, weights = others[: len(gradients)], others[len(gradients) :]
        through, below = torch.empty_like(inner), None
        aboves = [gradient.reshape(len(rows), -1) for gradient in gradients]
        some, pieces = (each.split_with_sizes(ctx.ranks, 1) for each in (inner, through))
        for above, up, piece in zip(aboves, ups, pieces, strict=True):
            torch.mm(above, up, out=piece)
        through.mul_(ctx.scale)
        if ctx.needs_input_grad[0]:
            for above, weight, ordered in zip(aboves, weights, ctx.ordered, strict=True):
                if ordered is not None:
                    below = ordered.backward(above, below)
                else:
                    below = above @ weight if below is None else below.addmm_(above, weight)
            assert below is not None
            below = below.addmm_(through, down).view(*gradients[0].shape[:-1], -1)
        of_adapters = [
            *(through.t() @ rows).split_with_sizes(ctx.ranks),
            *(above.t() @ part for above, part in zip(aboves, some, strict=True)),
        ]
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
        if self._input is None or self._input[0] is not x or self._input[1] != x._version:
            parts = [one.parts() for one in self._layers]
            # Others keep the arithmetic of their own, to the bit.
            if not all(part and part[0].ordered for part in parts):
                return None
            layers, *adapters = zip(*parts, strict=True)
            if len({one.scale for one in layers}) > 1:
                return None
            found = AdaptedProducts.apply(x, layers, *adapters[0], *adapters[1])  # type: ignore[no-untyped-call]
            self._input, self._results = (x, x._version), dict(enumerate(found))
        place = next(n for n, one in enumerate(self._layers) if one is layer)
        return self._results.pop(place, None)

    def _open(self, *_: object) -> None:
        self._is_open = True

    def _close(self, *_: object) -> None:
        self._is_open, self._input, self._results = False, None, {}
