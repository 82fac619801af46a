"""Compute the leave-one-out advantage of sampled orders.

Shapes: ``B`` prompts, ``G`` samples a prompt.
"""

from __future__ import annotations

from torch import Tensor


def leave_one_out_advantage(rewards: Tensor) -> Tensor:
    """Each reward minus the mean of the other rewards of its group, ``[B, G] -> [B, G]``.

    No division by a standard deviation. A group of equal rewards has advantage 0 throughout.
    Source: the paper's equation for ``A_i``, Section "Orbit-GRPO".
    """
    num_samples = rewards.shape[-1]
    if num_samples < 2:
        raise ValueError(
            f"a leave-one-out baseline needs at least 2 samples a prompt, got {num_samples}"
        )
    others = rewards.sum(-1, keepdim=True) - rewards
    return rewards - others / (num_samples - 1)
