"""Read a policy's answer through one of two interfaces: as pointers, or as tokens of the whole vocabulary.

``pointers``: each choice is normalised over the pointers that remain, so that every answer is an order and the last
choice is forced. ``tokens``: each choice is an ordinary next-token distribution, so that mass also falls on answers
that are no orders (*malformed*: a token that is not a remaining pointer). Not covered: pointers of several tokens.

Legend: ``B`` prompts, ``R`` rows of the order tree, ``V`` vocabulary, ``n`` operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vcrt_train.config import Interface


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The distribution of the next choice at each row of the order tree."""

    #: ``[B, R, n]``: log-probability of each slot; for ``pointers``, used slots have ``-inf``.
    log_probs: Tensor
    #: ``[B, R]``: log-probability of every token that is not a remaining pointer; None for ``pointers``.
    malformed_log_probs: Tensor | None


def tree_depth(num_operations: int, interface: Interface) -> int:
    """The depth of the order tree that ``interface`` needs: pointers leave the forced last choice out."""
    return max(num_operations - 2, 0) if interface == "pointers" else num_operations - 1


def choices(logits: Tensor, pointer_ids: Tensor, used: Tensor, interface: Interface) -> Choices:
    """The choices behind ``logits [B, R, V]``, with ``pointer_ids [B, n]`` and ``used [R, n]``.

    Computed in float32, or in float64 if the logits are. Gradients are finite as long as the caller selects entries
    instead of multiplying ``-inf`` by zero.
    """
    logits = _wide(logits)
    at_pointers = _gather(logits, pointer_ids)
    if interface == "pointers":
        remaining = at_pointers.masked_fill(used, -torch.inf)
        return Choices(log_probs=remaining.log_softmax(-1), malformed_log_probs=None)
    # Summing what is outside, instead of subtracting what is inside from 1, keeps masses far below epsilon exact.
    normaliser = logits.logsumexp(-1, keepdim=True)
    outside = logits.scatter(
        -1, _index(pointer_ids, logits), at_pointers.masked_fill(~used, -torch.inf)
    )
    return Choices(
        log_probs=at_pointers - normaliser,
        malformed_log_probs=outside.logsumexp(-1) - normaliser.squeeze(-1),
    )


def greedy_slots(logits: Tensor, pointer_ids: Tensor, used: Tensor, interface: Interface) -> Tensor:
    """``[B, R]``: the slot that greedy decoding picks at each row, or -1.

    -1 stands where the best token of the vocabulary is not a remaining pointer. Arguments as for :func:`choices`. Equal
    logits go to the lowest slot, or for ``tokens`` to the lowest token id.
    """
    logits = _wide(logits)
    if interface == "pointers":
        return _gather(logits, pointer_ids).masked_fill(used, -torch.inf).argmax(-1)
    hits = (logits.argmax(-1, keepdim=True) == pointer_ids[:, None, :]) & ~used
    return torch.where(hits.any(-1), hits.long().argmax(-1), -1)


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def _index(pointer_ids: Tensor, logits: Tensor) -> Tensor:
    return pointer_ids[:, None, :].expand(-1, logits.shape[1], -1)


def _gather(logits: Tensor, pointer_ids: Tensor) -> Tensor:
    return logits.gather(-1, _index(pointer_ids, logits))
