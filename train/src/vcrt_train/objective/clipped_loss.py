"""Compute the clipped policy loss over sampled events.

Shapes: ``B`` prompts, ``G`` samples a prompt.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vcrt_train.objective.reading import Reading

#: Log-ratios above this are cut, against overflow only: the ratio is then 5e8 and its gradient norm still a number.
MAX_LOG_RATIO = 20.0


def clipped_loss(log_ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """``-mean(min(rho A, clip(rho, 1 - clip, 1 + clip) A))`` over prompts and samples, a scalar.

    Takes ``[B, G]`` twice. Source: the paper's equation for ``L_orbit``, Section "Orbit-GRPO"; the clip is PPO's.
    """
    ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratio * advantages, clipped * advantages).mean()


def clip_fraction(log_ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """The share of samples whose gradient the clip stops: too likely and good, or too unlikely and bad. A scalar."""
    ratio = log_ratio.detach().clamp(max=MAX_LOG_RATIO).exp()
    stopped = ((ratio > 1 + clip) & (advantages > 0)) | ((ratio < 1 - clip) & (advantages < 0))
    return stopped.to(ratio.dtype).mean()


def policy_loss(reading: Reading) -> Tensor:
    """The clipped loss of a batch's samples, a scalar."""
    return clipped_loss(reading.log_ratio, reading.batch.advantages, reading.config.clip)
