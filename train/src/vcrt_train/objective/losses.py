"""Define the equations of the paper, and a contrastive loss, as pure functions on tensors.

An event is an order or, in the tokens interface, the malformed event in the last column. If old and new
log-probabilities are the same numbers, a log-ratio is exactly 0. This module does not compute the arguments
(:class:`vcrt_train.objective.batch.Reading`) and does not sum the losses (:mod:`vcrt_train.objective.total`).

Shapes: ``B`` prompts, ``G`` samples a prompt, ``M`` orders, ``E`` events (``M``, or ``M + 1`` with the malformed one),
``R`` rows of the order tree, ``n`` slots, ``K`` swap histories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from vcrt_train.objective.orbit_mass import split_log_masses

#: Log-ratios are at most this, only to prevent overflow: the ratio is then 5e8, and its gradient norm is finite.
MAX_LOG_RATIO = 20.0


def leave_one_out_advantage(rewards: Tensor) -> Tensor:
    """Return each reward minus the mean of the other rewards of its group, ``[B, G] -> [B, G]``.

    It is not divided by a standard deviation; equal rewards all have advantage 0. Raises ``ValueError`` for fewer than
    two samples. Source: the paper's equation for ``A_i``, Section "Orbit-GRPO".
    """
    num_samples = rewards.shape[-1]
    if num_samples < 2:
        raise ValueError(
            f"a leave-one-out baseline needs at least 2 samples a prompt, got {num_samples}"
        )
    others = rewards.sum(-1, keepdim=True) - rewards
    return rewards - others / (num_samples - 1)


def scaled_by_deviation(advantages: Tensor, rewards: Tensor) -> Tensor:
    """Divide advantages by the standard deviation of their group's rewards, ``[B, G]`` each.

    As TRL's ``scale_rewards="group"`` does, which adds 1e-4 to it. Source: GRPO (arXiv:2402.03300).
    """
    return advantages / (rewards.std(-1, keepdim=True) + 1e-4)


def step_advantages(rewards: Tensor, groups: Tensor) -> Tensor:
    """Return the advantage of each choice of each sample, ``[B, G, T]``, by the states before the choices.

    Takes rewards ``[B, G]`` and a number ``[B, G, T]`` for the state before each choice; within a prompt, equal numbers
    mean equal states. A choice has the advantage of its sample, plus that of the sample among the samples that make
    their choice at the same state; each is leave-one-out, and 0 in a group of one. Source: GiGPO (arXiv:2505.10978),
    with weight 1, no discount (the reward comes last, and all orders are equally long) and no deviation.
    """
    together = (groups[:, :, None] == groups[:, None]).to(rewards.dtype)
    others = together - torch.eye(rewards.shape[1], dtype=rewards.dtype)[:, :, None]
    number = others.sum(2)
    mean = torch.einsum("bijt,bj->bit", others, rewards) / number.clamp(min=1)
    in_state = torch.where(number > 0, rewards[:, :, None] - mean, 0.0)
    return leave_one_out_advantage(rewards)[:, :, None] + in_state


def trajectory_log_ratio(new: Tensor, old: Tensor, samples: Tensor) -> Tensor:
    """Return ``log pi_new(e) - log pi_old(e)`` of each sampled event, without length normalisation.

    Takes event log-probabilities ``[B, E]`` twice and event indices ``[B, G]``; returns ``[B, G]``. Source: the ratio
    of a singleton orbit, Section "Reduction to ordinary trajectory optimization".
    """
    # Gathering comes first, to keep -inf - -inf of events that were not sampled out of the graph.
    return new.gather(1, samples) - old.gather(1, samples)


def orbit_log_ratio(
    new_mass: Tensor, old_mass: Tensor, of_failures: Tensor, *, successes: Tensor
) -> Tensor:
    """Return ``log Z_new(O) - log Z_old(O)`` for each successful sample, and the given log-ratio for each failure.

    Takes the new and old log-mass ``[B]`` of the set that a prompt's successes stand for, log-ratios ``[B, G]``, and
    booleans ``[B, G]``. Returns ``[B, G]``. In the paper a failure has the log-ratio of the sampled event, malformed
    samples that of the malformed event. Source: the paper's equation for ``rho_i``, Section "Orbit-GRPO".
    """
    return torch.where(successes, (new_mass - old_mass)[:, None], of_failures)


def clipped_loss(log_ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """Return ``-mean(min(rho A, clip(rho, 1 - clip, 1 + clip) A))`` over prompts and samples, a scalar.

    Takes tensors of one shape, ``[B, G]`` or, with a ratio for each choice, ``[B, G, T]``. With ``clip`` 0, nothing is
    clipped. Source: the paper's equation for ``L_orbit``, Section "Orbit-GRPO"; the clip is PPO's.
    """
    ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp()
    if clip == 0:
        return -(ratio * advantages).mean()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratio * advantages, clipped * advantages).mean()


def clip_fraction(
    log_ratio: Tensor, advantages: Tensor, clip: float, num_choices: Tensor | None = None
) -> Tensor:
    """Return the share of samples whose gradient the clip stops: too likely and good, or too unlikely and bad.

    For ratios of choices ``[B, G, T]``, it is the mean share of the ``num_choices [B, 1]`` that a record has.
    """
    if clip == 0:
        return log_ratio.new_zeros(())
    ratio = log_ratio.detach().clamp(max=MAX_LOG_RATIO).exp()
    stopped = ((ratio > 1 + clip) & (advantages > 0)) | ((ratio < 1 - clip) & (advantages < 0))
    found = stopped.to(ratio.dtype)
    if num_choices is not None and ratio.ndim == 3:
        found = found * ratio.shape[-1] / num_choices[..., None]
    return found.mean()


def log_mass_margin(order_log_probs: Tensor, legal: Tensor) -> Tensor:
    """Return ``Delta = log Z(O+) - log Z(O-)``, ``[B]``; ``+inf`` (with zero gradient) if no order is illegal.

    The malformed event is not an order and does not count. Source: the paper's equation for ``Delta``.
    """
    inside, outside = split_log_masses(order_log_probs, legal)
    return inside - outside


def separation_loss(deltas: Tensor, margin: float) -> Tensor:
    """Return ``max(0, margin - Delta)^2 / 2`` of each margin ``Delta``."""
    return 0.5 * (margin - deltas).clamp(min=0).square()


def anti_diamond_loss(order_log_probs: Tensor, legal: Tensor, margin: float) -> Tensor:
    """Return the separation loss of each prompt, ``[B]``; 0 if no order is illegal.

    Takes log-probabilities and booleans ``[B, M]``; the loss is infinite for a row without a legal order. Source: the
    paper's equation for ``L_anti``, Section "Dependency Separation and Constraints".
    """
    return separation_loss(log_mass_margin(order_log_probs, legal), margin)


def commutation_loss(choice_log_probs: Tensor, histories: Tensor, used: Tensor) -> Tensor:
    """Return the mean Jensen-Shannon divergence (nats, at most log 2) of the next choices after ``ab`` and ``ba``.

    Takes log-probabilities ``[B, R, n]``, indices ``[K, 3]`` of (prompt, row after ab, row after ba), and the slots
    that each row has used: booleans ``[R, n]``, or ``[B, R, n]`` if each prompt has its own tree. Operations keep their
    slots in a swap, so the paper's alignment of canonical signatures is the identity on slots. Both distributions are
    renormalised over the remaining slots, so that both interfaces are compared alike; every remaining slot needs a
    finite log-probability, used ones may hold ``-inf``. Returns a scalar, 0 for ``K = 0``. All swaps have equal weight,
    so a prompt weighs as much as it has swaps. Source: the paper's equation for ``L_comm``, Section "Dependency
    Separation and Constraints".
    """
    if histories.shape[0] == 0:
        return choice_log_probs.new_zeros(())
    # [K, 2, n]: one tensor for after ab and after ba halves the number of operations.
    prompt, rows = histories[:, :1], histories[:, 1:]
    is_used = used[rows] if used.ndim == 2 else used[prompt, rows]
    kept = choice_log_probs[prompt, rows].masked_fill(is_used, -torch.inf)
    # A finite number in place of -inf: 0 * inf in the divergence would make the gradient NaN.
    after = kept.log_softmax(-1).masked_fill(is_used, 0.0)
    middle = torch.logaddexp(after[:, 0], after[:, 1]) - math.log(2)
    surprise = after.exp() * (after - middle[:, None])
    return surprise.masked_fill(is_used, 0.0).sum() / (2 * len(histories))


def retention_loss(policy_log_mass: Tensor, frozen_log_mass: Tensor) -> Tensor:
    """Return the mean decline ``Z_frozen(O | x) - Z_policy(O | x)`` of the orbit mass; negative after a gain.

    Takes log-masses ``[B]`` of policy and frozen backbone and returns a scalar. The reported source retention is
    another quantity, a greedy pass rate. Source: the paper's cap on source-orbit mass decline.
    """
    return (frozen_log_mass.exp() - policy_log_mass.exp()).mean()


def action_kl(behaviour: Tensor, policy: Tensor, num_choices: int | Tensor) -> Tensor:
    """Return the mean over prompts of ``KL(behaviour || policy) / num_choices`` in nats, exact over all events.

    Takes event log-probabilities ``[B, E]`` of both policies, and the number of choices in an order; returns a scalar.
    By the chain rule, the KL of whole orders is the sum over choices of each choice's KL, averaged over the behaviour
    policy's prefixes; hence the division. The malformed event is one event, so in the tokens interface the result is at
    most the KL over all token sequences. Events of behaviour probability 0 add nothing. Source: the paper's cap on
    action KL.
    """
    impossible = behaviour == -float("inf")
    log_ratio = behaviour.masked_fill(impossible, 0.0) - policy.masked_fill(impossible, 0.0)
    return (behaviour.exp() * log_ratio).sum(-1).mean() / num_choices


def contrastive_loss(scores: Tensor, successes: Tensor) -> Tensor:
    """Return half the sum of the contrast across all prompts and the mean contrast within one prompt; a scalar.

    The contrast of a pool is ``-log(sum of exp(scores) of correct samples / sum over all samples)``, and 0 if all
    samples are correct or none is. Takes ``scores [B, G]`` and booleans ``[B, G]``. The loss follows MCPO
    (arXiv:2605.25443), which contrasts rollouts within and across domains through a learned head; here a sample's score
    is its log-probability per choice, so that all methods train the same parameters.
    """
    across = _contrast(scores.reshape(1, -1), successes.reshape(1, -1))
    return 0.5 * (across.mean() + _contrast(scores, successes).mean())


def _contrast(scores: Tensor, successes: Tensor) -> Tensor:
    """Return ``[P]``: the contrast of each row of ``scores [P, K]``."""
    # A row without a success keeps all samples, which gives 0 with a gradient of 0 instead of a NaN.
    is_left_out = ~successes & successes.any(-1, keepdim=True)
    return scores.logsumexp(-1) - scores.masked_fill(is_left_out, -torch.inf).logsumexp(-1)


def penalties(values: Tensor, caps: Sequence[float], duals: Sequence[float], mu: float) -> Tensor:
    """Return ``Phi = (max(0, dual + mu (value - cap))^2 - dual^2) / (2 mu)`` of each constraint, ``[C]``.

    Takes ``values [C]``, which should be at most their ``caps``. The slope of ``Phi`` is the next dual. Source: the
    method of multipliers for inequality constraints (Rockafellar 1973), the paper's ``Phi``.
    """
    multipliers = values.new_tensor(duals)
    active = (multipliers + mu * (values - values.new_tensor(caps))).clamp(min=0)
    return (active.square() - multipliers.square()) / (2 * mu)


def dual_step(value: float, cap: float, dual: float, mu: float) -> float:
    """Return the next dual, ``max(0, dual + mu (value - cap))``."""
    return max(0.0, dual + mu * (value - cap))
