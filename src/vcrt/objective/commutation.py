"""The commutation loss: after a certified swap the policy should go on as if it had not happened.

Operations keep their slot when they are swapped, so the paper's alignment of canonical signatures is the identity on
slots. Not covered: which swaps are certified.

Shapes: ``B`` prompts, ``R`` rows of the order tree, ``n`` slots, ``K`` swap histories.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def commutation_loss(choice_log_probs: Tensor, histories: Tensor, used: Tensor) -> Tensor:
    """Mean Jensen-Shannon divergence (nats, at most log 2) between the next choices after ``ab`` and after ``ba``.

    Takes log-probabilities ``[B, R, n]``, indices ``[K, 3]`` of (prompt, row after ab, row after ba) and the slots that
    each row has used, boolean ``[R, n]``. Both distributions are renormalised over the remaining slots, so that the
    tokens interface is compared on the same ground; every remaining slot needs a finite log-probability, used ones
    may hold ``-inf``. Returns a scalar, 0 for ``K = 0``.
    Source: the paper's equation for ``L_comm``, Section "Dependency Separation and Constraints".
    """
    if histories.shape[0] == 0:
        return choice_log_probs.new_zeros(())
    prompt, row_ab, row_ba = histories.unbind(1)
    remaining = ~used[row_ab]
    after_ab = _over_remaining(choice_log_probs[prompt, row_ab], remaining)
    after_ba = _over_remaining(choice_log_probs[prompt, row_ba], remaining)
    middle = torch.logaddexp(after_ab, after_ba) - math.log(2)
    both = after_ab.exp() * (after_ab - middle) + after_ba.exp() * (after_ba - middle)
    return 0.5 * both.masked_fill(~remaining, 0.0).sum(-1).mean()


def _over_remaining(log_probs: Tensor, remaining: Tensor) -> Tensor:
    """Renormalised log-probabilities ``[K, n]`` of the remaining slots; used slots hold 0, to be masked."""
    # A finite number in place of -inf: 0 * inf in the divergence would make the gradient NaN.
    kept = log_probs.masked_fill(~remaining, -float("inf"))
    return kept.log_softmax(-1).masked_fill(~remaining, 0.0)
