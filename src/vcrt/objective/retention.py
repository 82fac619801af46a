"""The retention constraint: source orbits should not lose mass against the frozen backbone.

Shapes: ``B`` prompts.
"""

from __future__ import annotations

from torch import Tensor


def retention_loss(policy_log_mass: Tensor, frozen_log_mass: Tensor) -> Tensor:
    """Mean decline ``Z_frozen(O | x) - Z_policy(O | x)`` of the orbit mass, as probability; negative after a gain.

    Takes log-masses ``[B]`` twice and returns a scalar. Not to be mixed up with the reported source retention, which
    is a greedy pass rate. Source: the paper's cap on source-orbit mass decline.
    """
    return (frozen_log_mass.exp() - policy_log_mass.exp()).mean()
