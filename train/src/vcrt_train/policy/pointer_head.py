"""Compute the output layer at the pointers' columns alone, for the pointer interface, which reads no other logit.

A vocabulary of 250,000 words would cost more memory in logits than the model in activations. In half precision the few
columns are computed in float32, so that logits are not rounded to 8 bits. Not covered: output layers that are not plain
linear layers (adapted, quantised), and small vocabularies in float32, which keep the model's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor
from torch.nn import Linear

from vcrt_train.policy.prompts import CausalModel, unwrapped

HALF = frozenset({torch.bfloat16, torch.float16})
#: From this many words on, logits of the whole vocabulary are worth avoiding.
WIDE_VOCABULARY = 4096


@contextmanager
def at_pointers(model: CausalModel, pointer_ids: Tensor) -> Iterator[Tensor]:
    """Inside, ``model`` gives logits ``[..., K]`` of the ``K`` different tokens among ``pointer_ids [B, n]``.

    Yields where each pointer's logit lies, ``[B, n]``: ``pointer_ids`` themselves if nothing changed.
    """
    head = _plain_head(model)
    if head is None:
        yield pointer_ids
        return
    columns, places = torch.unique(pointer_ids.to(head.weight.device), return_inverse=True)
    # Through the dictionary, as the class's method is only hidden, not replaced.
    head.__dict__["forward"] = partial(_narrow, head, columns)
    try:
        yield places
    finally:
        del head.__dict__["forward"]


def _plain_head(model: CausalModel) -> Linear | None:
    """The output layer if it is to be narrowed."""
    head = getattr(unwrapped(model), "get_output_embeddings", lambda: None)()
    # Another library's replacement of this layer or of its forward pass is left alone.
    if type(head) is not Linear or "forward" in head.__dict__:
        return None
    wide = head.out_features >= WIDE_VOCABULARY
    return head if wide or head.weight.dtype in HALF else None


def _narrow(head: Linear, columns: Tensor, hidden: Tensor) -> Tensor:
    weight, bias = head.weight[columns], None if head.bias is None else head.bias[columns]
    if weight.dtype in HALF:
        hidden, weight = hidden.float(), weight.float()
        bias = None if bias is None else bias.float()
    return torch.nn.functional.linear(hidden, weight, bias)
