"""Compute a linear layer and its low-rank adapter together, in one pass over the activations.

PEFT computes ``Wx + s B(Ax)`` as five operations, each of which writes an activation of the layer's width, and on a
layer in half precision reads its input once more in float32. Here the adapter's product is added to the layer's own as
it is made, forward and backward, and products with an adapter are in the layer's number format, as in automatic mixed
precision; adapters, their gradients and their optimiser stay in float32. In float32 the results differ by rounding
alone. On a processor, whose products of half precision first bring a weight into an order of their own, a frozen weight
is brought into it once (:class:`OrderedWeight`).

Shapes: ``x [..., in]``, ``W [out, in]``, ``A [rank, in]``, ``B [out, rank]``. Source: Hu et al., 2021 (LoRA).
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor

from vcrt_train.policy.kernels.adapted_products import AdaptedProducts, Frozen, Siblings
from vcrt_train.policy.kernels.switch import own_kernels_are_used

#: The most bytes of a model's adapted weights that are kept in two further orders, each of the same size.
MOST_ORDERED_BYTES = 2**30
#: Names of layers that read the same input.
SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
#: How many rows a product is expected to have: the order of a weight suits such products best, and serves all.
_ROWS = 128


class OrderedWeight:
    """A frozen weight in the orders in which products read it, ``x W^T`` and ``g W``; copies of it are made anew.

    Writing to ``weight.data`` goes unnoticed, as autograd does not notice it: :func:`forget_orders` then.
    """

    def __init__(self) -> None:
        self._weight: Tensor | None = None
        self._version = -1
        self._forward: Tensor | None = None
        self._backward: Tensor | None = None

    def __reduce__(self) -> tuple[type[OrderedWeight], tuple[()]]:
        return OrderedWeight, ()

    def of(self, weight: Tensor) -> OrderedWeight | None:
        """Itself, made again if ``weight`` is no longer what it was; None where there is no such order for it."""
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
        """``x W^T + bias``."""
        if self._forward is None and self._weight is not None:
            self._forward = torch.ops.mkldnn._reorder_linear_weight(self._weight, _ROWS)
        return _product(rows, self._forward, bias)

    def backward(self, above: Tensor, beside: Tensor | None = None) -> Tensor:
        """``g W``, and ``beside`` added to it."""
        if self._backward is None and self._weight is not None:
            turned = self._weight.t().contiguous()
            self._backward = torch.ops.mkldnn._reorder_linear_weight(turned, _ROWS)
        return _product(above, self._backward, None, beside)


class AdaptedLinear(Linear):
    """PEFT's layer with a single adapter, whose forward pass is :class:`AdaptedProducts`."""

    #: None for a weight that is read as it is.
    ordered: OrderedWeight | None = None
    #: The layers that read the same input, this one among them, or None.
    siblings: Siblings | None = None

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """``[..., out]``; PEFT's own forward pass where adapters are off or merged, or more is given."""
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
        """What its product is of, ``A`` and ``B`` last; None where adapters are off or merged, or not one."""
        if self.disable_adapters or self.merged or len(self.active_adapters) != 1:
            return None
        (name,) = self.active_adapters
        down: Any = self.lora_A[name].weight
        mask = getattr(self.lora_dropout[name], "mask", None)
        if mask is not None:
            # Dropped features of the input are dropped columns.
            down = down * mask.to(down.dtype)
        base: Any = self.get_base_layer()
        up: Any = self.lora_B[name].weight
        ordered = None if self.ordered is None else self.ordered.of(base.weight)
        return Frozen(base.weight, base.bias, self.scaling[name], ordered), down, up

    def merge(self, *args: Any, **kwargs: Any) -> None:
        """As PEFT's, which changes the weight."""
        super().merge(*args, **kwargs)
        forget_orders(self)

    def unmerge(self) -> None:
        """As PEFT's, which changes the weight."""
        super().unmerge()
        forget_orders(self)


def forget_orders(model: torch.nn.Module) -> None:
    """Make the ordered weights of a model anew when they are next read."""
    for module in model.modules():
        if isinstance(module, AdaptedLinear) and module.ordered is not None:
            module.ordered = OrderedWeight()


def has_ordered_products() -> bool:
    """Whether this PyTorch and this processor multiply weights of half precision in an order of their own."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    names = ("_is_mkldnn_bf16_supported", "_reorder_linear_weight", "_linear_pointwise")
    found: bool = all(hasattr(torch.ops.mkldnn, name) for name in names)
    return found and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def order_weights(model: torch.nn.Module) -> None:
    """Keep the adapted weights of a model in the orders of products, unless they are more than is worth the memory.

    Layers whose weights are so kept compute with their siblings (:mod:`vcrt_train.policy.kernels.adapted_products`).
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
