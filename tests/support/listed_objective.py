"""The objective on listed orders, as it was before it was read from prefix trees: frozen, an oracle for the tests.

Scored by events: log-probabilities of all orders, of four operations at most, and of the malformed answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vcrt_train.config import ObjectiveConfig
from vcrt_train.objective.batch import FrozenBatch, ListedOrders
from vcrt_train.objective.losses import (
    action_kl,
    anti_diamond_loss,
    clip_fraction,
    clipped_loss,
    commutation_loss,
    contrastive_loss,
    penalties,
    retention_loss,
    separation_loss,
    trajectory_log_ratio,
)
from vcrt_train.objective.orbit_mass import Paths, orbit_log_mass, split_log_masses
from vcrt_train.policy.prefix_tree import OrderTree

CONSTRAINT_NAMES = ("commutation", "retention", "action_kl")


@dataclass(frozen=True, kw_only=True)
class ListedBatch:
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
class ListedTerms:
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
    batch: ListedBatch
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
    def augmentation_loss(self) -> Tensor:
        """Of the certified orders, whether the method trains on them or not."""
        return _augmentation_loss(self.events, self.batch)

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


def listed_objective(
    events: Tensor,
    choice_log_probs: Tensor,
    batch: ListedBatch,
    *,
    config: ObjectiveConfig,
    duals: Mapping[str, float] | None,
    policy_term: bool = True,
    contrast: bool = False,
    augment: bool = False,
) -> ListedTerms:
    """The objective of the current policy, given by ``events [B, E]`` and ``choice_log_probs [B, R, n]``.

    ``policy_term`` switches the clipped policy loss, ``contrast`` the contrastive and ``augment`` the augmentation
    loss; ``batch.margin_set`` holds the set of the anti-diamond loss; ``duals`` holds each constraint's multiplier,
    None leaves the penalties out.
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
    if augment:
        loss = loss + _augmentation_loss(events, batch)
    return ListedTerms(
        loss=loss,
        policy_loss=policy_loss.detach(),
        values={name: value.detach() for name, value in values.items()},
        penalties=dict(zip(CONSTRAINT_NAMES, constrained.detach(), strict=True)),
        events=events.detach(),
        log_ratio=log_ratio.detach(),
        batch=batch,
        config=config,
    )


def _log_ratio(events: Tensor, batch: ListedBatch) -> Tensor:
    single = trajectory_log_ratio(events, batch.behaviour, batch.samples)
    if batch.credit is None:
        return single
    count = batch.credit.shape[1]
    new, old = (orbit_log_mass(each[:, :count], batch.credit) for each in (events, batch.behaviour))
    return torch.where(batch.rewards > 0, (new - old)[:, None], single)


def _contrastive_loss(events: Tensor, batch: ListedBatch) -> Tensor:
    scores = events.gather(1, batch.samples) / batch.num_choices
    return contrastive_loss(scores, batch.rewards > 0)


def _augmentation_loss(events: Tensor, batch: ListedBatch) -> Tensor:
    """Item by item and order by order."""
    found = []
    for of_item, legal in zip(events, batch.legal.tolist(), strict=True):
        own = [of_item[column] for column, is_legal in enumerate(legal) if is_legal]
        found.append(-sum(own[1:], own[0]) / len(own))
    return torch.stack(found).mean()


def _penalties(
    values: Mapping[str, Tensor], duals: Mapping[str, float] | None, config: ObjectiveConfig
) -> Tensor:
    """``[3]``: the penalty of each constraint, in the order of ``CONSTRAINT_NAMES``; zeros without multipliers."""
    in_order = torch.stack([values[name] for name in CONSTRAINT_NAMES])
    if duals is None:
        return torch.zeros_like(in_order)
    caps = (config.commutation_cap, config.retention_cap, config.action_kl_cap)
    return penalties(in_order, caps, [duals[name] for name in CONSTRAINT_NAMES], config.mu)


def as_frozen(batch: ListedBatch, tree: OrderTree, behaviour_choices: Tensor) -> FrozenBatch:
    """The same batch as the objective on prefix trees takes it; without a margin's set, the orbit's is there."""
    orbit = ListedOrders(members=batch.legal)
    credit = orbit
    mass = None
    if batch.credit is not None:
        if batch.credit is not batch.legal:
            credit = ListedOrders(members=batch.credit)
        mass = orbit_log_mass(batch.behaviour[:, : batch.credit.shape[1]], batch.credit)
    margin = orbit
    if batch.margin_set is not None and batch.margin_set is not batch.legal:
        margin = ListedOrders(members=batch.margin_set)
    return FrozenBatch(
        orders=Paths(rows=torch.tensor(tree.order_rows), slots=torch.tensor(tree.order_slots)),
        samples=batch.samples,
        rewards=batch.rewards,
        advantages=batch.advantages,
        behaviour_choices=behaviour_choices,
        behaviour=batch.behaviour,
        frozen_log_mass=batch.frozen_log_mass,
        orbit=orbit,
        credit=None if batch.credit is None else credit,
        behaviour_log_mass=mass,
        margin=margin,
        histories=batch.histories,
        used=batch.used,
        num_choices=torch.full((len(batch.samples), 1), batch.num_choices),
    )
