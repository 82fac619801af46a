"""Compute the action KL: how far the policy has moved from the behaviour policy, per choice.

Shapes: ``B`` prompts, ``E`` events (all orders, and in the tokens interface the malformed event last).
"""

from __future__ import annotations

import torch
from torch import Tensor

from vcrt_train.objective.reading import Reading


def action_kl(behaviour: Tensor, policy: Tensor, num_choices: int | Tensor) -> Tensor:
    """Mean over prompts of ``KL(behaviour || policy) / num_choices`` in nats, exact over all events; a scalar.

    Takes event log-probabilities ``[B, E]`` twice, and how many choices an order has. By the chain rule the KL of whole
    orders is the sum over choices of the KL of each choice, averaged over the behaviour policy's prefixes; hence the
    division. The malformed event counts as one event, so in the tokens interface this bounds the KL over all token
    sequences from below. Events that the behaviour policy cannot produce add nothing. Source: the paper's cap on action
    KL.
    """
    impossible = behaviour == -float("inf")
    log_ratio = behaviour.masked_fill(impossible, 0.0) - policy.masked_fill(impossible, 0.0)
    return (behaviour.exp() * log_ratio).sum(-1).mean() / num_choices


def mean_action_kl(reading: Reading) -> Tensor:
    """The action KL of a batch, a scalar: exact where its trees list all orders, else a mean over its samples."""
    batch = reading.batch
    if batch.lists_all_orders:
        return action_kl(batch.behaviour, reading.events, batch.num_choices[0, 0])
    return sampled_action_kl(reading)


def sampled_action_kl(reading: Reading) -> Tensor:
    """Mean over prompts, samples and choices of ``KL(behaviour || policy)`` in nats: the chain rule, sample by sample.

    Samples are of the behaviour policy, so the mean has the exact action KL as its expectation.
    """
    batch, choices = reading.batch, reading.choices
    prompt = torch.arange(len(choices), device=choices.device)[:, None, None]
    rows = batch.orders.rows
    old, new = batch.behaviour_choices[prompt, rows], choices[prompt, rows]
    gone = batch.used[prompt, rows]
    log_ratio = old.masked_fill(gone, 0.0) - new.masked_fill(gone, 0.0)
    # Turns a mean over a path's places into one over its own choices, fewer of a shorter record.
    share = rows.shape[-1] / batch.num_choices
    return ((old.exp() * log_ratio).sum(-1) * share[..., None]).mean()
