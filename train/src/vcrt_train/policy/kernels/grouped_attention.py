"""Compute a half-precision model's attention without repeating its keys and values, on a processor.

Query heads that share a key head are rows of one product (grouped-query attention); transformers' ``eager`` attention
repeats keys and values for each query head, and sums their gradients afterwards. Products are in the model's format,
and scores are scaled, masked and normalised in float32. This is one of transformers' attention interfaces, for classes
whose own ``eager`` function computes the same; other classes (with sinks or soft caps) are not changed.

Legend: ``B`` prompts, ``H`` query heads, ``G`` key heads, ``T`` queries, ``S`` keys, ``d`` width of a head. Source:
Ainslie et al., 2023 (grouped-query attention).
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from vcrt.randomness import derive_seed
from vcrt_train.policy.kernels.switch import own_kernels_are_used

#: The name of this attention among transformers' interfaces.
GROUPED = "grouped"
#: Arguments of attention that ``eager`` functions do not read; with any other one, the class's own function runs.
UNREAD = frozenset({"position_ids", "use_cache", "cache_position", "sliding_window", "is_causal"})
#: The largest relative distance from the class's own results, for the same function; rounding gives some 0.003.
TOLERANCE = 0.02


class GroupedAttention(torch.autograd.Function):
    """``softmax(scaling q k^T + mask) v``, with gradients for ``q``, ``k`` and ``v``."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scaling: float
    ) -> Tensor:
        """Return ``[B, T, H, d]`` from ``[B, H, T, d]``, ``[B, G, S, d]`` twice and ``[B or 1, H or 1, T, S]``."""
        batch, heads, length, width = query.shape
        groups, seen = key.shape[1:3]
        rows = query.reshape(batch * groups, -1, width)
        keys, values = (each.reshape(batch * groups, seen, width) for each in (key, value))
        products = torch.bmm(rows, keys.mT)
        wide = products if products.dtype == torch.float64 else products.float()
        scores = wide.mul_(scaling).view(batch, heads, length, seen)
        if mask is not None:
            scores += mask.to(wide.dtype)
        weights = wide.softmax(-1).to(query.dtype)
        ctx.save_for_backward(rows, keys, values, weights)
        ctx.scaling, ctx.of_query, ctx.of_keys = scaling, query.shape, key.shape
        return torch.bmm(weights, values).view(query.shape).transpose(1, 2).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of queries, keys and values."""
        rows, keys, values, weights = ctx.saved_tensors
        above = gradient.transpose(1, 2).reshape(rows.shape)
        of_scores = torch._softmax_backward_data(
            torch.bmm(above, values.mT), weights, -1, weights.dtype
        ).mul_(ctx.scaling)
        return (
            torch.bmm(of_scores, keys).view(ctx.of_query),
            torch.bmm(of_scores.mT, rows).view(ctx.of_keys),
            torch.bmm(weights.mT, above).view(ctx.of_keys),
            None,
            None,
        )


def grouped_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return ``[B, T, H, d]``, as an attention interface of transformers; only the class's own also returns weights."""
    narrow = query.dtype == key.dtype == value.dtype == torch.bfloat16 and query.is_cpu
    others = [name for name, given in kwargs.items() if given is not None and name not in UNREAD]
    if scaling is None or dropout or others or not narrow or not own_kernels_are_used():
        own = _own_function(module)
        if scaling is not None:
            kwargs["scaling"] = scaling
        found: tuple[Tensor, Tensor | None] = own(
            module, query, key, value, attention_mask, dropout=dropout, **kwargs
        )
        return found
    result: Tensor = GroupedAttention.apply(query, key, value, attention_mask, scaling)  # type: ignore[no-untyped-call]
    return result, None


def group_attention(model: Any) -> bool:
    """Make a bfloat16 model with ``eager`` attention use :class:`GroupedAttention`; return whether it does."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    config = model.config.get_text_config(decoder=True)
    layers = [module for module in model.modules() if _has_interface(module)]
    if config._attn_implementation != "eager" or model.dtype != torch.bfloat16 or not layers:
        return False
    if model.device.type != "cpu" or not all(map(_is_alike, layers)):
        return False
    AttentionInterface.register(GROUPED, grouped_attention)
    AttentionMaskInterface.register(GROUPED, eager_mask)
    model.set_attn_implementation(GROUPED)
    return bool(config._attn_implementation == GROUPED)


def _has_interface(module: torch.nn.Module) -> bool:
    """Return whether a module may ask transformers for an attention by its name."""
    source = sys.modules.get(type(module).__module__)
    return "Attention" in type(module).__name__ and hasattr(source, "ALL_ATTENTION_FUNCTIONS")


def _own_function(module: torch.nn.Module) -> Any:
    return getattr(sys.modules.get(type(module).__module__), "eager_attention_forward", None)


@torch.no_grad()
def _is_alike(module: torch.nn.Module) -> bool:
    """Return whether a layer's own attention equals this one, on an example with its own numbers of heads."""
    own, repeats = _own_function(module), getattr(module, "num_key_value_groups", None)
    config, scaling = getattr(module, "config", None), getattr(module, "scaling", None)
    heads = getattr(config, "num_attention_heads", None)
    if own is None or not repeats or not heads or not isinstance(scaling, float):
        return False
    draw = torch.Generator().manual_seed(derive_seed(0, "attention") % 2**63)
    query, key, value = (
        torch.randn(2, number, 7, 16, generator=draw).bfloat16()
        for number in (heads, heads // repeats, heads // repeats)
    )
    # Small products reveal a sink, and large ones a cap.
    query[1] *= 16
    mask = torch.randn(2, 1, 7, 7, generator=draw).bfloat16()
    try:
        expected = own(module, query, key, value, mask, scaling=scaling, dropout=0.0)[0]
        found = GroupedAttention.apply(query, key, value, mask, scaling)  # type: ignore[no-untyped-call]
    except (AttributeError, TypeError, RuntimeError):
        return False
    gap = (found - expected).float().norm() / expected.float().norm()
    return expected.shape == found.shape and bool(gap <= TOLERANCE)
