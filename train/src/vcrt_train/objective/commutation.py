"""Compute the commutation loss: after a certified swap the policy should go on as if it had not happened.

Operations keep their slot when they are swapped, so the paper's alignment of canonical signatures is the identity on
slots. Not covered: which swaps are certified.

Shapes: ``B`` prompts, ``R`` rows of the order tree, ``n`` slots, ``K`` swap histories.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from vcrt_train.objective.reading import Reading


def commutation_loss(choice_log_probs: Tensor, histories: Tensor, used: Tensor) -> Tensor:
    """Mean Jensen-Shannon divergence (nats, at most log 2) between the next choices after ``ab`` and after ``ba``.

    Takes log-probabilities ``[B, R, n]``, indices ``[K, 3]`` of (prompt, row after ab, row after ba) and the slots that
    each row has used, boolean ``[R, n]``, or ``[B, R, n]`` if prompts have trees of their own. Both distributions are
    renormalised over the remaining slots, so that the tokens interface is compared on the same ground; every remaining
    slot needs a finite log-probability, used ones may hold ``-inf``. Returns a scalar, 0 for ``K = 0``. Every swap
    counts alike, so that a prompt weighs as much as it has swaps.
    Source: the paper's equation for ``L_comm``, Section "Dependency Separation and Constraints".
    """
    if histories.shape[0] == 0:
        return choice_log_probs.new_zeros(())
    # [K, 2, n]: after ab and after ba side by side, in half as many operations.
    prompt, rows = histories[:, :1], histories[:, 1:]
    is_used = used[rows] if used.ndim == 2 else used[prompt, rows]
    kept = choice_log_probs[prompt, rows].masked_fill(is_used, -torch.inf)
    # A finite number in place of -inf: 0 * inf in the divergence would make the gradient NaN.
    after = kept.log_softmax(-1).masked_fill(is_used, 0.0)
    middle = torch.logaddexp(after[:, 0], after[:, 1]) - math.log(2)
    surprise = after.exp() * (after - middle[:, None])
    return surprise.masked_fill(is_used, 0.0).sum() / (2 * len(histories))


def commutation(reading: Reading) -> Tensor:
    """The commutation loss of a batch's swap histories, a scalar."""
    return commutation_loss(reading.choices, reading.batch.histories, reading.batch.used)
