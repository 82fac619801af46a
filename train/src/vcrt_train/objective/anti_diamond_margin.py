"""Compute the anti-diamond margin: legal orders must outweigh illegal ones by a log-mass margin.

Shapes: ``B`` prompts, ``M`` orders. The malformed event of the tokens interface is not an order and has no part here.
"""

from __future__ import annotations

from torch import Tensor

from vcrt_train.objective.orbit_mass import split_log_masses
from vcrt_train.objective.reading import Reading


def log_mass_margin(order_log_probs: Tensor, legal: Tensor) -> Tensor:
    """``Delta = log Z(O+) - log Z(O-)``, ``[B]``; ``+inf`` (with zero gradient) where no order is illegal.

    Source: the paper's equation for ``Delta``.
    """
    inside, outside = split_log_masses(order_log_probs, legal)
    return inside - outside


def separation_loss(deltas: Tensor, margin: float) -> Tensor:
    """``max(0, margin - Delta)^2 / 2`` of each margin ``Delta``."""
    return 0.5 * (margin - deltas).clamp(min=0).square()


def anti_diamond_loss(order_log_probs: Tensor, legal: Tensor, margin: float) -> Tensor:
    """The separation loss of each prompt, ``[B]``; 0 where no order is illegal.

    Takes log-probabilities and booleans ``[B, M]``; each row needs a legal order, or the loss is infinite.
    Source: the paper's equation for ``L_anti``, Section "Dependency Separation and Constraints".
    """
    return separation_loss(log_mass_margin(order_log_probs, legal), margin)


def separation(reading: Reading) -> Tensor:
    """The mean separation loss of a batch, between the margin's set of orders and the other orders; a scalar."""
    masses = reading.masses(reading.batch.margin)
    return separation_loss(masses.log_inside - masses.log_outside, reading.config.margin).mean()
