"""The action KL: how far the policy has moved from the behaviour policy, per choice.

Shapes: ``B`` prompts, ``E`` events (all orders, and in the tokens interface the malformed event last).
"""

from __future__ import annotations

from torch import Tensor


def action_kl(behaviour: Tensor, policy: Tensor, num_choices: int) -> Tensor:
    """Mean over prompts of ``KL(behaviour || policy) / num_choices`` in nats, exact over all events; a scalar.

    Takes event log-probabilities ``[B, E]`` twice. By the chain rule the KL of whole orders is the sum over choices of
    the KL of each choice, averaged over the behaviour policy's prefixes; hence the division. The malformed event counts
    as one event, so in the tokens interface this bounds the KL over all token sequences from below. Events that the
    behaviour policy cannot produce add nothing. Source: the paper's cap on action KL.
    """
    impossible = behaviour == -float("inf")
    log_ratio = behaviour.masked_fill(impossible, 0.0) - policy.masked_fill(impossible, 0.0)
    return (behaviour.exp() * log_ratio).sum(-1).mean() / num_choices
