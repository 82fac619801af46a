"""Importance ratios of sampled events, in log space and without length normalisation.

An event is an order or, in the tokens interface, the malformed event in the last column. Nothing is clamped here (the
loss cuts log-ratios at :data:`vcrt_train.objective.clipped_loss.MAX_LOG_RATIO`): where old and new log-probabilities
are the same numbers, the log-ratio is exactly 0.

Shapes: ``B`` prompts, ``G`` samples a prompt, ``M`` orders, ``E`` events (``M``, or ``M + 1`` with the malformed one).
"""

from __future__ import annotations

import torch
from torch import Tensor


def trajectory_log_ratio(new: Tensor, old: Tensor, samples: Tensor) -> Tensor:
    """``log pi_new(e) - log pi_old(e)`` of each sampled event.

    Takes event log-probabilities ``[B, E]`` twice and event indices ``[B, G]``; returns ``[B, G]``.
    Source: the ratio of a singleton orbit, Section "Reduction to ordinary trajectory optimization".
    """
    # Gathering before subtracting keeps -inf - -inf of events that nobody sampled out of the graph.
    return new.gather(1, samples) - old.gather(1, samples)


def orbit_log_ratio(
    new_mass: Tensor, old_mass: Tensor, single: Tensor, *, successes: Tensor
) -> Tensor:
    """``log Z_new(O) - log Z_old(O)`` of each successful sample; failures are singletons.

    Takes the log-masses ``[B]`` of the set that a prompt's successes stand for, the log-ratios ``[B, G]`` of single
    sampled events, and booleans ``[B, G]``. Returns ``[B, G]``. Malformed samples are failures: their ratio is
    the malformed event's. Source: the paper's equation for ``rho_i``, Section "Orbit-GRPO".
    """
    return torch.where(successes, (new_mass - old_mass)[:, None], single)
