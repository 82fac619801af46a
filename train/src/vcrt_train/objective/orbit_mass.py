"""Exact orbit mass: the probability of a set of orders, as a logarithm.

Promises finite gradients for every set, the empty one included. Not covered: estimates from a subset of the set.

Shapes: ``B`` prompts, ``M`` orders (or other events) in the column order of :func:`vcrt.orders.all_orders`.
"""

from __future__ import annotations

import torch
from torch import Tensor


def orbit_log_mass(order_log_probs: Tensor, members: Tensor) -> Tensor:
    """``log Z(O | x)``, the log of the summed probabilities of each row's members.

    Takes log-probabilities ``[B, M]`` and booleans ``[B, M]``; returns ``[B]``, ``-inf`` (with zero gradient) where a
    row has no members. Its gradient is the posterior-weighted mean of the members' gradients.
    Source: the paper's equations for the orbit mass and for its gradient, Section "Exact Orbit Mass".
    """
    if order_log_probs.shape != members.shape:
        raise ValueError(
            f"members {tuple(members.shape)} must have the shape of order_log_probs "
            f"{tuple(order_log_probs.shape)}"
        )
    return order_log_probs.masked_fill(~members, -torch.inf).logsumexp(-1)


def split_log_masses(order_log_probs: Tensor, legal: Tensor) -> tuple[Tensor, Tensor]:
    """``log Z(O+)`` and ``log Z(O-)``, where O+ are a row's legal orders and O- all its other orders; ``[B]`` twice.

    Both masses are summed in log space, because ``1 - Z(O+)`` loses ``Z(O-)`` to rounding long before it is small.
    """
    both = order_log_probs.expand(2, *order_log_probs.shape)
    inside, outside = orbit_log_mass(both, torch.stack([legal, ~legal])).unbind()
    return inside, outside
