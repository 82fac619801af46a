"""The complete objective of one batch: policy loss, anti-diamond loss and the three penalties, summed.

A method leaves a term out by its arguments; the values of all terms are reported all the same, so that every method's
log has the same columns. Not covered: where the numbers come from (scoring) and what is done with them (training).

Shapes: ``B`` prompts, ``G`` samples a prompt, ``M`` orders, ``E`` events (``M``, or ``M + 1`` with the malformed event
of the tokens interface last), ``R`` rows of the order tree, ``n`` slots, ``K`` swap histories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from vcrt.objective.action_kl import action_kl
from vcrt.objective.anti_diamond_margin import anti_diamond_loss
from vcrt.objective.augmented_lagrangian import Constraint, penalty
from vcrt.objective.clipped_loss import clip_fraction, clipped_loss
from vcrt.objective.commutation import commutation_loss
from vcrt.objective.orbit_mass import orbit_log_mass
from vcrt.objective.ratio import orbit_log_ratio, trajectory_log_ratio
from vcrt.objective.retention import retention_loss

CONSTRAINT_NAMES = ("commutation", "retention", "action_kl")


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectiveConfig:
    """The weights and caps of the objective; the defaults are this library's demonstration preset."""

    #: Half-width of the interval around 1 to which policy ratios are clipped.
    clip: float = 0.2
    #: Weight of the anti-diamond loss.
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
    #: ``[K, 3]``: (prompt, tree row after ab, tree row after ba) of each certified swap.
    histories: Tensor
    #: ``[R, n]`` bool: the slots that each tree row has used.
    used: Tensor
    #: How many choices an order consists of.
    num_choices: int


@dataclass(frozen=True, kw_only=True)
class ObjectiveTerms:
    """The objective and everything that it is made of. Scalars; only ``loss`` carries a gradient."""

    loss: Tensor
    policy_loss: Tensor
    anti_diamond_loss: Tensor
    #: The value of each constraint, by name.
    values: Mapping[str, Tensor]
    #: The penalty of each constraint, by name; 0 where the method has no constraints.
    penalties: Mapping[str, Tensor]
    #: Mean probability of the certified orbit, of the other orders, and of answers that are no orders: they sum to 1.
    orbit_mass: Tensor
    illegal_mass: Tensor
    malformed_mass: Tensor
    clip_fraction: Tensor
    #: Share of prompts on which the policy loss is silent because all advantages are 0.
    zero_advantage_share: Tensor
    #: Largest absolute log-ratio of a sample; exactly 0 before the first step of an update.
    max_log_ratio: Tensor


def objective(
    events: Tensor,
    choice_log_probs: Tensor,
    batch: FrozenBatch,
    *,
    config: ObjectiveConfig,
    margin: bool,
    duals: Mapping[str, float] | None,
) -> ObjectiveTerms:
    """The objective of the current policy, given by ``events [B, E]`` and ``choice_log_probs [B, R, n]``.

    ``margin`` switches the anti-diamond loss; ``duals`` holds each constraint's multiplier, None leaves the penalties
    out. Source: the paper's equation for the complete objective, Section "Dependency Separation and Constraints".
    """
    orders = events[:, : batch.legal.shape[1]]
    log_mass = orbit_log_mass(orders, batch.legal)
    log_ratio = _log_ratio(events, batch)
    policy_loss = clipped_loss(log_ratio, batch.advantages, config.clip)
    anti_loss = anti_diamond_loss(orders, batch.legal, config.margin).mean()
    values = {
        "commutation": commutation_loss(choice_log_probs, batch.histories, batch.used),
        "retention": retention_loss(log_mass, batch.frozen_log_mass),
        "action_kl": action_kl(batch.behaviour, events, batch.num_choices),
    }
    penalties = _penalties(values, duals, config)
    loss = policy_loss + sum(penalties.values())
    if margin:
        loss = loss + config.alpha * anti_loss
    return ObjectiveTerms(
        loss=loss,
        policy_loss=policy_loss.detach(),
        anti_diamond_loss=anti_loss.detach(),
        values={name: value.detach() for name, value in values.items()},
        penalties={name: value.detach() for name, value in penalties.items()},
        orbit_mass=log_mass.detach().exp().mean(),
        illegal_mass=orbit_log_mass(orders, ~batch.legal).detach().exp().mean(),
        malformed_mass=events[:, orders.shape[1] :].detach().exp().sum(-1).mean(),
        clip_fraction=clip_fraction(log_ratio, batch.advantages, config.clip),
        zero_advantage_share=(batch.advantages == 0).all(-1).to(events.dtype).mean(),
        max_log_ratio=log_ratio.detach().abs().max(),
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


def _penalties(
    values: Mapping[str, Tensor], duals: Mapping[str, float] | None, config: ObjectiveConfig
) -> dict[str, Tensor]:
    if duals is None:
        return {name: torch.zeros_like(value) for name, value in values.items()}
    return {
        constraint.name: penalty(
            constraint, values[constraint.name], duals[constraint.name], config.mu
        )
        for constraint in config.constraints
    }
