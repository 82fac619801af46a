"""The complete objective of one batch: policy loss, anti-diamond loss and the three penalties, summed.

A method leaves a term out by its arguments; the values of all terms are reported all the same, so that every method's
log has the same columns. Not covered: where the numbers come from (scoring) and what is done with them (training).

Shapes: ``B`` prompts, ``G`` samples a prompt, ``M`` orders, ``E`` events (``M``, or ``M + 1`` with the malformed event
of the tokens interface last), ``R`` rows of the order tree, ``n`` slots, ``K`` swap histories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vcrt.objective.action_kl import action_kl
from vcrt.objective.anti_diamond_margin import (
    anti_diamond_loss,
    separation_loss,
    split_log_masses,
)
from vcrt.objective.augmented_lagrangian import Constraint, penalties
from vcrt.objective.clipped_loss import clip_fraction, clipped_loss
from vcrt.objective.commutation import commutation_loss
from vcrt.objective.contrastive import contrastive_loss
from vcrt.objective.orbit_mass import orbit_log_mass
from vcrt.objective.ratio import orbit_log_ratio, trajectory_log_ratio
from vcrt.objective.retention import retention_loss

CONSTRAINT_NAMES = ("commutation", "retention", "action_kl")


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveConfig:
    """The weights and caps of the objective; the defaults are this library's demonstration preset."""

    #: Half-width of the interval around 1 to which policy ratios are clipped.
    clip: float = 0.2
    #: Weight of the anti-diamond loss, and of the contrastive loss of the method that has one.
    alpha: float = 0.1
    #: By how much the legal log-mass should exceed the illegal one, in nats.
    margin: float = 2.0
    #: Stiffness of the penalties and size of the dual steps.
    mu: float = 10.0
    #: Cap on the expected commutation loss, in nats.
    commutation_cap: float = 0.01
    #: Cap on the mean decline of source-orbit mass, as probability.
    retention_cap: float = 0.05
    #: Cap on the action KL, in nats per choice.
    action_kl_cap: float = 0.20

    def __post_init__(self) -> None:
        if not 0 < self.clip < 1:
            raise ValueError(f"clip must lie between 0 and 1, got {self.clip}")
        if self.mu <= 0:
            raise ValueError(f"mu must be positive, got {self.mu}")
        if self.alpha < 0:
            raise ValueError(f"alpha must not be negative, got {self.alpha}")

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The three constraints, in the order of ``CONSTRAINT_NAMES``."""
        caps = (self.commutation_cap, self.retention_cap, self.action_kl_cap)
        return tuple(
            Constraint(name=name, cap=cap) for name, cap in zip(CONSTRAINT_NAMES, caps, strict=True)
        )


@dataclass(frozen=True, kw_only=True)
class FrozenBatch:
    """What an update fixes before its first step; no tensor here carries a gradient."""

    #: ``[B, G]``: the sampled events.
    samples: Tensor
    #: ``[B, G]``: their rewards; a positive reward is a success.
    rewards: Tensor
    #: ``[B, G]``: their leave-one-out advantages.
    advantages: Tensor
    #: ``[B, E]``: event log-probabilities of the behaviour policy.
    behaviour: Tensor
    #: ``[B]``: orbit log-mass of the frozen backbone.
    frozen_log_mass: Tensor
    #: ``[B, M]`` bool: the certified orbit.
    legal: Tensor
    #: ``[B, M]`` bool: the set whose mass is a success's ratio; None for the ratio of the sampled order alone.
    credit: Tensor | None
    #: ``[B, M]`` bool: the set that the anti-diamond loss sets against the other orders; None leaves the loss out.
    margin_set: Tensor | None
    #: ``[K, 3]``: (prompt, tree row after ab, tree row after ba) of each certified swap.
    histories: Tensor
    #: ``[R, n]`` bool: the slots that each tree row has used.
    used: Tensor
    #: How many choices an order consists of.
    num_choices: int


@dataclass(frozen=True, kw_only=True)
class ObjectiveTerms:
    """The objective and everything that it is made of. Scalars; only ``loss`` carries a gradient.

    What a log reports beside the loss is computed when it is first asked for: most epochs nobody asks.
    """

    loss: Tensor
    policy_loss: Tensor
    #: The value of each constraint, by name.
    values: Mapping[str, Tensor]
    #: The penalty of each constraint, by name; 0 where the method has no constraints.
    penalties: Mapping[str, Tensor]
    #: ``[B, E]`` and ``[B, G]``: what the terms were computed from, without gradient.
    events: Tensor
    log_ratio: Tensor
    batch: FrozenBatch
    config: ObjectiveConfig

    @property
    def max_log_ratio(self) -> Tensor:
        """Largest absolute log-ratio of a sample; exactly 0 before the first step of an update."""
        return self.log_ratio.abs().max()

    @property
    def anti_diamond_loss(self) -> Tensor:
        """Between the certified orbit and the other orders, whatever set the method's margin is about."""
        orbit, others = self._log_masses
        return separation_loss(orbit - others, self.config.margin).mean()

    @property
    def contrastive_loss(self) -> Tensor:
        """Between correct and incorrect samples, whether the method has that loss or not."""
        return _contrastive_loss(self.events, self.batch)

    @property
    def mean_reward(self) -> Tensor:
        """Mean reward of the sampled events."""
        return self.batch.rewards.mean()

    @property
    def orbit_mass(self) -> Tensor:
        """Mean probability of the certified orbit; with the next two it sums to 1."""
        return self._log_masses[0].exp().mean()

    @property
    def illegal_mass(self) -> Tensor:
        """Mean probability of the other orders."""
        return self._log_masses[1].exp().mean()

    @property
    def malformed_mass(self) -> Tensor:
        """Mean probability of answers that are no orders."""
        return self.events[:, self.batch.legal.shape[1] :].exp().sum(-1).mean()

    @property
    def clip_fraction(self) -> Tensor:
        """Share of samples whose gradient the clip stops."""
        return clip_fraction(self.log_ratio, self.batch.advantages, self.config.clip)

    @property
    def zero_advantage_share(self) -> Tensor:
        """Share of prompts on which the policy loss is silent because all advantages are 0."""
        return (self.batch.advantages == 0).all(-1).to(self.events.dtype).mean()

    @cached_property
    def _log_masses(self) -> tuple[Tensor, Tensor]:
        """``[B]`` twice: log-mass of the certified orbit and of the other orders."""
        legal = self.batch.legal
        return split_log_masses(self.events[:, : legal.shape[1]], legal)


def objective(
    events: Tensor,
    choice_log_probs: Tensor,
    batch: FrozenBatch,
    *,
    config: ObjectiveConfig,
    duals: Mapping[str, float] | None,
    policy_term: bool = True,
    contrast: bool = False,
) -> ObjectiveTerms:
    """The objective of the current policy, given by ``events [B, E]`` and ``choice_log_probs [B, R, n]``.

    ``policy_term`` switches the clipped policy loss and ``contrast`` the contrastive loss; ``batch.margin_set`` holds
    the set of the anti-diamond loss; ``duals`` holds each constraint's multiplier, None leaves the penalties out.
    Source: the paper's equation for the complete objective, Section "Dependency Separation and Constraints".
    """
    orders = events[:, : batch.legal.shape[1]]
    log_ratio = _log_ratio(events, batch)
    policy_loss = clipped_loss(log_ratio, batch.advantages, config.clip)
    values = {
        "commutation": commutation_loss(choice_log_probs, batch.histories, batch.used),
        "retention": retention_loss(orbit_log_mass(orders, batch.legal), batch.frozen_log_mass),
        "action_kl": action_kl(batch.behaviour, events, batch.num_choices),
    }
    constrained = _penalties(values, duals, config)
    loss = constrained.sum() + (policy_loss if policy_term else torch.zeros_like(policy_loss))
    if batch.margin_set is not None:
        anti_loss = anti_diamond_loss(orders, batch.margin_set, config.margin)
        loss = loss + config.alpha * anti_loss.mean()
    if contrast:
        loss = loss + config.alpha * _contrastive_loss(events, batch)
    return ObjectiveTerms(
        loss=loss,
        policy_loss=policy_loss.detach(),
        values={name: value.detach() for name, value in values.items()},
        penalties=dict(zip(CONSTRAINT_NAMES, constrained.detach(), strict=True)),
        events=events.detach(),
        log_ratio=log_ratio.detach(),
        batch=batch,
        config=config,
    )


def _log_ratio(events: Tensor, batch: FrozenBatch) -> Tensor:
    if batch.credit is None:
        return trajectory_log_ratio(events, batch.behaviour, batch.samples)
    return orbit_log_ratio(
        events,
        batch.behaviour,
        batch.samples,
        successes=batch.rewards > 0,
        orbit=batch.credit,
    )


def _contrastive_loss(events: Tensor, batch: FrozenBatch) -> Tensor:
    scores = events.gather(1, batch.samples) / batch.num_choices
    return contrastive_loss(scores, batch.rewards > 0)


def _penalties(
    values: Mapping[str, Tensor], duals: Mapping[str, float] | None, config: ObjectiveConfig
) -> Tensor:
    """``[3]``: the penalty of each constraint, in the order of ``CONSTRAINT_NAMES``; zeros without multipliers."""
    in_order = torch.stack([values[name] for name in CONSTRAINT_NAMES])
    if duals is None:
        return torch.zeros_like(in_order)
    return penalties(
        config.constraints, in_order, [duals[name] for name in CONSTRAINT_NAMES], config.mu
    )
