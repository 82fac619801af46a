"""The complete objective where orders are too many to score: every term from a few prefix trees, one for each prompt.

The terms are those of :mod:`vcrt.objective.total`; what differs is where their numbers come from. Ratios of single
orders are exact. Orbit masses are exact where the tree holds every legal prefix, and estimated from masked paths
elsewhere. The action KL is exact at each prefix and a mean over the sampled orders' prefixes; the commutation loss is a
mean over drawn histories. Not covered: the tokens interface, whose answers may be no orders.

Shapes: ``B`` prompts, ``G`` samples and ``K`` masked paths a prompt, ``T`` choices, ``R`` rows, ``n`` slots, ``H``
histories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vcrt.objective.anti_diamond_margin import separation_loss
from vcrt.objective.augmented_lagrangian import penalties
from vcrt.objective.clipped_loss import clip_fraction, clipped_loss
from vcrt.objective.commutation import commutation_loss
from vcrt.objective.contrastive import contrastive_loss
from vcrt.objective.masked_paths import (
    LegalRows,
    Masses,
    Paths,
    estimate_masses,
    exact_masses,
    log_choice,
    path_terms,
)
from vcrt.objective.retention import retention_loss
from vcrt.objective.total import CONSTRAINT_NAMES, ObjectiveConfig


@dataclass(frozen=True, kw_only=True)
class OrbitView:
    """A set of orders, as one partial order for each prompt gives it, and how its mass is read from scores.

    Either ``rows`` or ``paths`` with the behaviour policy's ``log_q [B, K]`` is there: all legal prefixes, or a few
    masked paths.
    """

    #: ``[B, R, n]`` bool: the moves that keep the partial order.
    legal: Tensor
    rows: LegalRows | None = None
    paths: Paths | None = None
    behaviour_log_q: Tensor | None = None

    def masses(self, choice_log_probs: Tensor, used: Tensor) -> Masses:
        """The mass inside and outside of the set."""
        if self.rows is not None:
            return exact_masses(choice_log_probs, self.legal, used, self.rows)
        assert self.paths is not None
        assert self.behaviour_log_q is not None
        terms = path_terms(choice_log_probs, self.legal, used, self.paths)
        return estimate_masses(terms, self.behaviour_log_q)


@dataclass(frozen=True, kw_only=True)
class SampledBatch:
    """What an update fixes before its first step; no tensor here carries a gradient."""

    #: Where the sampled orders make their choices.
    samples: Paths
    #: ``[B, G]``: their rewards (a positive one is a success), their advantages, their behaviour log-probabilities.
    rewards: Tensor
    advantages: Tensor
    behaviour: Tensor
    #: ``[B, R, n]``: the behaviour policy's choices.
    behaviour_choices: Tensor
    #: ``[B]``: orbit log-mass of the frozen backbone.
    frozen_log_mass: Tensor
    #: The certified orbit.
    orbit: OrbitView
    #: The set whose mass is a success's ratio, with its behaviour log-mass ``[B]``; None for the sampled order alone.
    credit: OrbitView | None
    behaviour_log_mass: Tensor | None
    #: The set that the anti-diamond loss sets against the other orders; None leaves the loss out.
    margin: OrbitView | None
    #: ``[H, 3]``: (prompt, row after ab, row after ba) of drawn certified swaps.
    histories: Tensor
    #: ``[B, R, n]`` bool: the slots that each row has used.
    used: Tensor


@dataclass(frozen=True, kw_only=True)
class SampledTerms:
    """The objective and what it is made of. Scalars; only ``loss`` carries a gradient."""

    loss: Tensor
    policy_loss: Tensor
    values: Mapping[str, Tensor]
    penalties: Mapping[str, Tensor]
    anti_diamond_loss: Tensor
    contrastive_loss: Tensor
    orbit_mass: Tensor
    illegal_mass: Tensor
    malformed_mass: Tensor
    mean_reward: Tensor
    clip_fraction: Tensor
    zero_advantage_share: Tensor
    max_log_ratio: Tensor
    #: Mean standard error of the log-mass of the certified orbit, and mean share of its paths that are effective.
    orbit_log_mass_error: Tensor
    effective_path_share: Tensor


def sampled_objective(
    choices: Tensor,
    *,
    batch: SampledBatch,
    config: ObjectiveConfig,
    duals: Mapping[str, float] | None,
    policy_term: bool = True,
    contrast: bool = False,
) -> SampledTerms:
    """The objective of the current policy, given by ``choices [B, R, n]``.

    The other arguments are those of :func:`vcrt.objective.total.objective`.
    """
    orbit = batch.orbit.masses(choices, batch.used)
    of_samples = log_choice(choices, batch.samples)
    log_ratio = of_samples.sum(-1) - batch.behaviour
    if batch.credit is not None:
        same = batch.credit is batch.orbit
        assert batch.behaviour_log_mass is not None
        credit = orbit if same else batch.credit.masses(choices, batch.used)
        gain = credit.log_inside - batch.behaviour_log_mass
        log_ratio = torch.where(batch.rewards > 0, gain[:, None], log_ratio)
    policy_loss = clipped_loss(log_ratio, batch.advantages, config.clip)
    values = {
        "commutation": commutation_loss(choices, batch.histories, batch.used),
        "retention": retention_loss(orbit.log_inside, batch.frozen_log_mass),
        "action_kl": _action_kl(choices, batch),
    }
    in_order = torch.stack([values[name] for name in CONSTRAINT_NAMES])
    constrained = torch.zeros_like(in_order)
    if duals is not None:
        multipliers = [duals[name] for name in CONSTRAINT_NAMES]
        constrained = penalties(config.constraints, in_order, multipliers, config.mu)
    loss = constrained.sum() + (policy_loss if policy_term else torch.zeros_like(policy_loss))
    if batch.margin is not None:
        same = batch.margin is batch.orbit
        parted = orbit if same else batch.margin.masses(choices, batch.used)
        separation = separation_loss(parted.log_inside - parted.log_outside, config.margin)
        loss = loss + config.alpha * separation.mean()
    contrasted = contrastive_loss(of_samples.mean(-1) * _share(batch), batch.rewards > 0)
    if contrast:
        loss = loss + config.alpha * contrasted
    margins = (orbit.log_inside - orbit.log_outside).detach()
    num_paths = 1 if batch.orbit.paths is None else batch.orbit.paths.rows.shape[1]
    return SampledTerms(
        loss=loss,
        policy_loss=policy_loss.detach(),
        values={name: value.detach() for name, value in values.items()},
        penalties=dict(zip(CONSTRAINT_NAMES, constrained.detach(), strict=True)),
        anti_diamond_loss=separation_loss(margins, config.margin).mean(),
        contrastive_loss=contrasted.detach(),
        orbit_mass=orbit.log_inside.detach().exp().mean(),
        illegal_mass=orbit.log_outside.detach().exp().mean(),
        malformed_mass=torch.zeros(()),
        mean_reward=batch.rewards.mean(),
        clip_fraction=clip_fraction(log_ratio, batch.advantages, config.clip),
        zero_advantage_share=(batch.advantages == 0).all(-1).to(log_ratio.dtype).mean(),
        max_log_ratio=log_ratio.detach().abs().max(),
        orbit_log_mass_error=orbit.standard_error.mean(),
        effective_path_share=(orbit.effective_paths / num_paths).mean(),
    )


def _action_kl(choices: Tensor, batch: SampledBatch) -> Tensor:
    """Mean over prompts, samples and choices of ``KL(behaviour || policy)`` in nats: the chain rule, sample by sample.

    Samples are of the behaviour policy, so the mean has the exact action KL (:mod:`vcrt.objective.action_kl`) as its
    expectation.
    """
    prompt = torch.arange(len(choices), device=choices.device)[:, None, None]
    rows = batch.samples.rows
    old, new = batch.behaviour_choices[prompt, rows], choices[prompt, rows]
    gone = batch.used[prompt, rows]
    log_ratio = old.masked_fill(gone, 0.0) - new.masked_fill(gone, 0.0)
    return ((old.exp() * log_ratio).sum(-1) * _share(batch)[..., None]).mean()


def _share(batch: SampledBatch) -> Tensor:
    """``[B, 1]``: turns a mean over a path's places into one over its own choices, fewer of a shorter record."""
    own = (~batch.used[:, 0]).sum(-1, keepdim=True) - 1
    return batch.samples.rows.shape[-1] / own
