"""Contrast correct samples with incorrect ones, within a prompt and across the prompts of an update.

In the manner of MCPO (multi-domain contrastive policy optimisation, arXiv:2605.25443), which contrasts rollouts within
and across domains through a learned head. Here a sample's own log-probability a choice is its score, so that all
methods train the same parameters. Not covered: contrast of hidden states.

Shapes: ``B`` prompts, ``G`` samples a prompt.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vcrt_train.objective.reading import Reading


def contrastive_loss(scores: Tensor, successes: Tensor) -> Tensor:
    """``-log(sum of exp(scores) of correct samples / that of all)``, across prompts plus the mean within one, halved.

    Takes ``scores [B, G]`` and booleans ``[B, G]``; a scalar. A pool in which all samples are correct, or none, has
    nothing to contrast and counts 0.
    """
    across = _contrast(scores.reshape(1, -1), successes.reshape(1, -1))
    return 0.5 * (across.mean() + _contrast(scores, successes).mean())


def _contrast(scores: Tensor, successes: Tensor) -> Tensor:
    """``[P]``: the contrast of each row of ``scores [P, K]``."""
    # A row without a success keeps all samples, which gives 0 with a gradient of 0 instead of a NaN.
    is_left_out = ~successes & successes.any(-1, keepdim=True)
    return scores.logsumexp(-1) - scores.masked_fill(is_left_out, -torch.inf).logsumexp(-1)


def contrast_of_samples(reading: Reading) -> Tensor:
    """The contrastive loss of a batch's samples, by their log-probability a choice; a scalar."""
    batch = reading.batch
    return contrastive_loss(reading.samples / batch.num_choices, batch.rewards > 0)
