"""Define the equations of the paper, and two losses beside them, as pure functions on tensors.

An event is an order or, in the tokens interface, the malformed event in the last column. Where old and new
log-probabilities are the same numbers, a log-ratio is exactly 0. Not covered: what the functions are given
(:class:`vcrt_train.objective.batch.Reading`), and how they are summed (:mod:`vcrt_train.objective.total`).

Shapes: ``B`` prompts, ``G`` samples a prompt, ``M`` orders, ``E`` events (``M``, or ``M + 1`` with the malformed one),
``R`` rows of the order tree, ``n`` slots, ``K`` swap histories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from vcrt_train.objective.orbit_mass import split_log_masses

#: Log-ratios above this are cut, against overflow only: the ratio is then 5e8 and its gradient norm still a number.
MAX_LOG_RATIO = 20.0


def leave_one_out_advantage(rewards: Tensor) -> Tensor:
    """Each reward minus the mean of the other rewards of its group, ``[B, G] -> [B, G]``.

    No division by a standard deviation. A group of equal rewards has advantage 0 throughout.
    Source: the paper's equation for ``A_i``, Section "Orbit-GRPO".
    """
    num_samples = rewards.shape[-1]
    if num_samples < 2:
        raise ValueError(
            f"a leave-one-out baseline needs at least 2 samples a prompt, got {num_samples}"
        )
    others = rewards.sum(-1, keepdim=True) - rewards
    return rewards - others / (num_samples - 1)


def trajectory_log_ratio(new: Tensor, old: Tensor, samples: Tensor) -> Tensor:
    """``log pi_new(e) - log pi_old(e)`` of each sampled event, without length normalisation.

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


def clipped_loss(log_ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """``-mean(min(rho A, clip(rho, 1 - clip, 1 + clip) A))`` over prompts and samples, a scalar.

    Takes ``[B, G]`` twice. Source: the paper's equation for ``L_orbit``, Section "Orbit-GRPO"; the clip is PPO's.
    """
    ratio = log_ratio.clamp(max=MAX_LOG_RATIO).exp()
    clipped = ratio.clamp(1 - clip, 1 + clip)
    return -torch.minimum(ratio * advantages, clipped * advantages).mean()


def clip_fraction(log_ratio: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """The share of samples whose gradient the clip stops: too likely and good, or too unlikely and bad. A scalar."""
    ratio = log_ratio.detach().clamp(max=MAX_LOG_RATIO).exp()
    stopped = ((ratio > 1 + clip) & (advantages > 0)) | ((ratio < 1 - clip) & (advantages < 0))
    return stopped.to(ratio.dtype).mean()


def log_mass_margin(order_log_probs: Tensor, legal: Tensor) -> Tensor:
    """``Delta = log Z(O+) - log Z(O-)``, ``[B]``; ``+inf`` (with zero gradient) where no order is illegal.

    The malformed event is not an order and has no part here. Source: the paper's equation for ``Delta``.
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


def commutation_loss(choice_log_probs: Tensor, histories: Tensor, used: Tensor) -> Tensor:
    """Mean Jensen-Shannon divergence (nats, at most log 2) between the next choices after ``ab`` and after ``ba``.

    Takes log-probabilities ``[B, R, n]``, indices ``[K, 3]`` of (prompt, row after ab, row after ba) and the slots that
    each row has used, boolean ``[R, n]``, or ``[B, R, n]`` if prompts have trees of their own. Operations keep their
    slot when they are swapped, so the paper's alignment of canonical signatures is the identity on slots. Both
    distributions are renormalised over the remaining slots, so that the tokens interface is compared on the same
    ground; every remaining slot needs a finite log-probability, used ones may hold ``-inf``. Returns a scalar, 0 for
    ``K = 0``. Every swap counts alike, so that a prompt weighs as much as it has swaps.
    Source: the paper's equation for ``L_comm``, Section "Dependency Separation and Constraints".
    """
    if histories.shape[0] == 0:
        return choice_log_probs.new_zeros(())
    # [K, 2, n]: after ab and after ba side by side, in half as many operations.
    prompt, rows = histories[:, :1], histories[:, 1:]
    is_used = used[rows] if used.ndim == 2 else used[prompt, rows]
    kept = choice_log_probs[prompt, rows].masked_fill(is_used, -torch.inf)
    # A finite number in place of -inf: 0 * inf in the divergence would make the gradient NaN.
    after = kept.log_softmax(-1).masked_fill(is_used, 0.0)
    middle = torch.logaddexp(after[:, 0], after[:, 1]) - math.log(2)
    surprise = after.exp() * (after - middle[:, None])
    return surprise.masked_fill(is_used, 0.0).sum() / (2 * len(histories))


def retention_loss(policy_log_mass: Tensor, frozen_log_mass: Tensor) -> Tensor:
    """Mean decline ``Z_frozen(O | x) - Z_policy(O | x)`` of the orbit mass, as probability; negative after a gain.

    Takes log-masses ``[B]`` twice and returns a scalar. Not to be mixed up with the reported source retention, which
    is a greedy pass rate. Source: the paper's cap on source-orbit mass decline.
    """
    return (frozen_log_mass.exp() - policy_log_mass.exp()).mean()


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


def contrastive_loss(scores: Tensor, successes: Tensor) -> Tensor:
    """``-log(sum of exp(scores) of correct samples / that of all)``, across prompts plus the mean within one, halved.

    Takes ``scores [B, G]`` and booleans ``[B, G]``; a scalar. A pool in which all samples are correct, or none, has
    nothing to contrast and counts 0. In the manner of MCPO (arXiv:2605.25443), which contrasts rollouts within and
    across domains through a learned head; here a sample's own log-probability a choice is its score, so that all
    methods train the same parameters.
    """
    across = _contrast(scores.reshape(1, -1), successes.reshape(1, -1))
    return 0.5 * (across.mean() + _contrast(scores, successes).mean())


def _contrast(scores: Tensor, successes: Tensor) -> Tensor:
    """``[P]``: the contrast of each row of ``scores [P, K]``."""
    # A row without a success keeps all samples, which gives 0 with a gradient of 0 instead of a NaN.
    is_left_out = ~successes & successes.any(-1, keepdim=True)
    return scores.logsumexp(-1) - scores.masked_fill(is_left_out, -torch.inf).logsumexp(-1)


def penalties(values: Tensor, caps: Sequence[float], duals: Sequence[float], mu: float) -> Tensor:
    """``Phi = (max(0, dual + mu (value - cap))^2 - dual^2) / (2 mu)`` of each constraint; its slope is the next dual.

    Takes ``values [C]``, which should be at most their ``caps``, and returns ``[C]``. Source: the method of multipliers
    for inequality constraints (Rockafellar 1973), the paper's ``Phi``.
    """
    multipliers = values.new_tensor(duals)
    active = (multipliers + mu * (values - values.new_tensor(caps))).clamp(min=0)
    return (active.square() - multipliers.square()) / (2 * mu)


def dual_step(value: float, cap: float, dual: float, mu: float) -> float:
    """The next dual, ``max(0, dual + mu (value - cap))``."""
    return max(0.0, dual + mu * (value - cap))
