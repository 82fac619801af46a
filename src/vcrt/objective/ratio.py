"""Importance ratios of sampled events, in log space and without length normalisation.

An event is an order or, in the tokens interface, the malformed event in the last column. Nothing is clamped here (the
loss cuts log-ratios at :data:`vcrt.objective.clipped_loss.MAX_LOG_RATIO`): where old and new log-probabilities are the
same numbers, the log-ratio is exactly 0.

Shapes: ``B`` prompts, ``G`` samples a prompt, ``M`` orders, ``E`` events (``M``, or ``M + 1`` with the malformed one).
"""

from __future__ import annotations

import torch
from torch import Tensor

from vcrt.objective.orbit_mass import orbit_log_mass


def trajectory_log_ratio(new: Tensor, old: Tensor, samples: Tensor) -> Tensor:
    """``log pi_new(e) - log pi_old(e)`` of each sampled event.

    Takes event log-probabilities ``[B, E]`` twice and event indices ``[B, G]``; returns ``[B, G]``.
    Source: the ratio of a singleton orbit, Section "Reduction to ordinary trajectory optimization".
    """
    # Gathering before subtracting keeps -inf - -inf of events that nobody sampled out of the graph.
    return new.gather(1, samples) - old.gather(1, samples)


def orbit_log_ratio(
    new: Tensor, old: Tensor, samples: Tensor, *, successes: Tensor, orbit: Tensor
) -> Tensor:
    """``log Z_new(O) - log Z_old(O)`` of each successful sample; failures are singletons.

    ``successes`` is boolean ``[B, G]``; ``orbit`` is boolean ``[B, M]``, the set whose mass a prompt's successes stand
    for. Returns ``[B, G]``. Malformed samples are failures: their ratio is the malformed event's.
    Source: the paper's equation for ``rho_i``, Section "Orbit-GRPO".
    """
    num_orders = orbit.shape[1]
    orbit_ratio = orbit_log_mass(new[:, :num_orders], orbit) - orbit_log_mass(
        old[:, :num_orders], orbit
    )
    singletons = trajectory_log_ratio(new, old, samples)
    return torch.where(successes, orbit_ratio[:, None], singletons)
