"""Compute linear layers and their low-rank adapters together, in one pass over the activations.

PEFT computes ``Wx + s B(Ax)`` as five operations, each of which writes an activation of the layer's width, and for a
layer in half precision it reads the input once more in float32. Here the adapter's product is added to the layer's own
while that is computed, forward and backward, and products with an adapter are in the layer's number format, as in
automatic mixed precision; adapters, their gradients and their optimiser stay in float32. In float32 the results differ
only by rounding. On a processor, products of half precision first reorder a weight; here a frozen weight is reordered
once (:class:`OrderedWeight`).

Queries, keys and values read one input, and so do the two layers of a gated MLP. The first products of their adapters
are computed as one, forward and backward, and the gradients of their input are summed as they are computed. While the
surrounding module runs, the first layer that is called also computes for its siblings, which take their results if they
are called with the same tensor object.

Shapes: ``x [..., in]``, ``W [out, in]``, ``A [rank, in]``, ``B [out, rank]``. Source: Hu et al., 2021 (LoRA).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from peft.tuners.lora import Linear
from torch import Tensor
from torch.autograd.function import once_differentiable

from vcrt_train.policy.kernels.switch import own_kernels_are_used


class Frozen(NamedTuple):
    """The parts of a layer that are not trained."""

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
        """Return ``[..., out]`` of each layer in the format of ``x``; ``adapters`` are all ``A`` and then all ``B``."""
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
            # Callers could not write to one of several views.
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
        """Return the gradient of ``x``, and those of all ``A`` and then all ``B``, in their own formats."""
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
    """Layers inside one module; keep the input of the first call and the results for the others."""

    def __init__(self, layers: Sequence[Any]) -> None:
        self._layers = list(layers)
        self._is_open = False
        self._input: tuple[Tensor, int] | None = None
        self._results: dict[int, Tensor] = {}

    def watch(self, around: torch.nn.Module) -> None:
        """Share results while ``around`` runs, and keep none afterwards."""
        around.register_forward_pre_hook(self._open)
        around.register_forward_hook(self._close, always_call=True)

    def result(self, layer: object, x: Tensor) -> Tensor | None:
        """Return ``[..., out]`` of one of the layers; None if the layer must compute by itself."""
        if not self._is_open or x.is_inference():
            return None
        if self._input is None or self._input[0] is not x or self._input[1] != x._version:
            parts = [one.parts() for one in self._layers]
            # Other layers keep their own arithmetic, to the bit.
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


#: The most bytes of a model's adapted weights that are kept in two further orders, each of the same size.
MOST_ORDERED_BYTES = 2**30
#: Names of layers that read the same input.
SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
#: The expected number of rows of a product: the order of a weight suits such products best, and serves all.
_ROWS = 128


class OrderedWeight:
    """A frozen weight in the orders in which ``x W^T`` and ``g W`` read it; copies of this object reorder anew.

    Like autograd, this object does not notice writes to ``weight.data``: call :func:`forget_orders` after them.
    """

    def __init__(self) -> None:
        self._weight: Tensor | None = None
        self._version = -1
        self._forward: Tensor | None = None
        self._backward: Tensor | None = None

    def __reduce__(self) -> tuple[type[OrderedWeight], tuple[()]]:
        return OrderedWeight, ()

    def of(self, weight: Tensor) -> OrderedWeight | None:
        """Return this object, reset if ``weight`` has changed; None if there is no such order for the weight."""
        if (
            not own_kernels_are_used()
            or weight.dtype != torch.bfloat16
            or weight.device.type != "cpu"
        ):
            return None
        own = weight.detach()
        version = -1 if weight.is_inference() else weight._version
        if (
            self._weight is None
            or self._weight.data_ptr() != own.data_ptr()
            or version != self._version
        ):
            self._weight, self._version = own, version
            self._forward = self._backward = None
        return self

    def forward(self, rows: Tensor, bias: Tensor | None) -> Tensor:
        """Return ``x W^T + bias``."""
        if self._forward is None and self._weight is not None:
            self._forward = torch.ops.mkldnn._reorder_linear_weight(self._weight, _ROWS)
        return _product(rows, self._forward, bias)

    def backward(self, above: Tensor, beside: Tensor | None = None) -> Tensor:
        """Return ``g W``, plus ``beside`` if it is given."""
        if self._backward is None and self._weight is not None:
            turned = self._weight.t().contiguous()
            self._backward = torch.ops.mkldnn._reorder_linear_weight(turned, _ROWS)
        return _product(above, self._backward, None, beside)


class AdaptedLinear(Linear):
    """PEFT's layer with a single adapter, whose forward pass is :class:`AdaptedProducts`."""

    #: None if the weight is not reordered.
    ordered: OrderedWeight | None = None
    #: The layers that read the same input, including this one, or None.
    siblings: Siblings | None = None

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return ``[..., out]``; use PEFT's forward pass if adapters are off or merged, or for further arguments."""
        parts = found = None
        if not args and not kwargs:
            found = None if self.siblings is None else self.siblings.result(self, x)
            parts = self.parts() if found is None else None
        if parts is not None:
            frozen, a, b = parts
            (found,) = AdaptedProducts.apply(x, [frozen], a, b)  # type: ignore[no-untyped-call]
        result: Tensor = super().forward(x, *args, **kwargs) if found is None else found
        return result

    def parts(self) -> tuple[Frozen, Tensor, Tensor] | None:
        """Return the factors of the product, ``A`` and ``B`` last; None unless one adapter is on and not merged."""
        if self.disable_adapters or self.merged or len(self.active_adapters) != 1:
            return None
        (name,) = self.active_adapters
        down: Any = self.lora_A[name].weight
        mask = getattr(self.lora_dropout[name], "mask", None)
        if mask is not None:
            # A dropped feature of the input is a dropped column of ``A``.
            down = down * mask.to(down.dtype)
        base: Any = self.get_base_layer()
        up: Any = self.lora_B[name].weight
        ordered = None if self.ordered is None else self.ordered.of(base.weight)
        return Frozen(base.weight, base.bias, self.scaling[name], ordered), down, up

    def merge(self, *args: Any, **kwargs: Any) -> None:
        """Merge the adapter into the weight, as PEFT does."""
        super().merge(*args, **kwargs)
        forget_orders(self)

    def unmerge(self) -> None:
        """Take the adapter out of the weight, as PEFT does."""
        super().unmerge()
        forget_orders(self)


def forget_orders(model: torch.nn.Module) -> None:
    """Make a model reorder its weights at their next use."""
    for module in model.modules():
        if isinstance(module, AdaptedLinear) and module.ordered is not None:
            module.ordered = OrderedWeight()


def has_ordered_products() -> bool:
    """Return whether this PyTorch and this processor multiply weights of half precision in an order of their own."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    names = ("_is_mkldnn_bf16_supported", "_reorder_linear_weight", "_linear_pointwise")
    found: bool = all(hasattr(torch.ops.mkldnn, name) for name in names)
    return found and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def order_weights(model: torch.nn.Module) -> None:
    """Keep a model's adapted weights in the orders of products, unless these need too much memory.

    Layers with such weights compute with their siblings (:class:`Siblings`).
    """
    if not has_ordered_products():
        return
    layers = [module for module in model.modules() if isinstance(module, AdaptedLinear)]
    bases: list[Any] = [layer.get_base_layer() for layer in layers]
    if sum(base.weight.nbytes for base in bases) <= MOST_ORDERED_BYTES:
        for layer in layers:
            layer.ordered = OrderedWeight()
        for module in model.modules():
            for names in SIBLINGS:
                found = [getattr(module, name, None) for name in names]
                siblings = [one for one in found if isinstance(one, AdaptedLinear)]
                if len(siblings) == len(names):
                    shared = Siblings(siblings)
                    shared.watch(module)
                    for layer in siblings:
                        layer.siblings = shared


def _product(
    rows: Tensor, weight: Tensor | None, bias: Tensor | None, beside: Tensor | None = None
) -> Tensor:
    linear = torch.ops.mkldnn._linear_pointwise
    found: Tensor = (
        linear.default(rows, weight, bias, "none", [], "")
        if beside is None
        else linear.binary(rows, beside, weight, bias, "add")
    )
    return found
