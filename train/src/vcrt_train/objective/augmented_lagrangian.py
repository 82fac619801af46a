"""Augmented-Lagrangian penalties for constraints of the form ``value <= cap``.

Source: the method of multipliers for inequality constraints (Rockafellar 1973), the paper's ``Phi``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Constraint:
    """A batch quantity called ``name`` that should be at most ``cap``."""

    name: str
    cap: float


def penalties(
    constraints: Sequence[Constraint], values: Tensor, duals: Sequence[float], mu: float
) -> Tensor:
    """``Phi = (max(0, dual + mu (value - cap))^2 - dual^2) / (2 mu)`` of each constraint; its slope is the next dual.

    Takes ``values [C]`` and returns ``[C]``.
    """
    caps = values.new_tensor([constraint.cap for constraint in constraints])
    multipliers = values.new_tensor(duals)
    active = (multipliers + mu * (values - caps)).clamp(min=0)
    return (active.square() - multipliers.square()) / (2 * mu)


def dual_step(constraint: Constraint, value: float, dual: float, mu: float) -> float:
    """The next dual, ``max(0, dual + mu (value - cap))``."""
    return max(0.0, dual + mu * (value - constraint.cap))
