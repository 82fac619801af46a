"""Compute the retention constraint: source orbits should not lose mass against the frozen backbone.

Shapes: ``B`` prompts.
"""

from __future__ import annotations

from torch import Tensor

from vcrt_train.objective.reading import Reading


def retention_loss(policy_log_mass: Tensor, frozen_log_mass: Tensor) -> Tensor:
    """Mean decline ``Z_frozen(O | x) - Z_policy(O | x)`` of the orbit mass, as probability; negative after a gain.

    Takes log-masses ``[B]`` twice and returns a scalar. Not to be mixed up with the reported source retention, which
    is a greedy pass rate. Source: the paper's cap on source-orbit mass decline.
    """
    return (frozen_log_mass.exp() - policy_log_mass.exp()).mean()


def retention(reading: Reading) -> Tensor:
    """The mean decline of a batch's certified orbits, a scalar."""
    return retention_loss(reading.log_mass(reading.batch.orbit), reading.batch.frozen_log_mass)
