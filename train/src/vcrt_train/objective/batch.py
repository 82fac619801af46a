"""Hold the tensors that an update fixes before its first step, and compute each term's value from a policy's scores.

A policy's choices are scored at the rows of a prefix tree for each prompt: a tree of all orders if they are few, else a
tree of drawn orders. Each kind of set of orders computes its own mass, and the action KL has two forms; all else is the
same for both trees. This module does not choose the scored prefixes and does not draw the samples.

Shapes: ``B`` prompts, ``G`` samples a prompt, ``R`` rows of the largest tree, ``n`` slots, ``T`` choices, ``M`` orders,
``E`` events (the listed orders, and last, in the tokens interface, the malformed answers), ``H`` swap histories.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor

from vcrt_train.config import ObjectiveConfig
from vcrt_train.objective.losses import (
    action_kl,
    clipped_loss,
    commutation_loss,
    contrastive_loss,
    orbit_log_ratio,
    retention_loss,
    separation_loss,
    trajectory_log_ratio,
)
from vcrt_train.objective.orbit_mass import (
    LegalRows,
    Masses,
    Paths,
    estimate_masses,
    exact_masses,
    failing_log_mass,
    log_choice,
    orbit_log_mass,
    path_log_weights,
    path_terms,
    split_log_masses,
)


@dataclass(frozen=True, kw_only=True)
class ListedOrders:
    """For each prompt, a set of orders among all orders, which the prompt's tree lists. The mass is exact."""

    #: ``[B, M]`` bool: whether each order is in the set.
    members: Tensor

    def masses(self, orders: Tensor) -> Masses:
        """Return the masses inside and outside of the set, from log-probabilities ``[B, M]``."""
        inside, outside = split_log_masses(orders, self.members)
        exact = torch.zeros_like(inside.detach())
        return Masses(
            log_inside=inside, log_outside=outside, standard_error=exact, effective_paths=exact
        )

    def mean_log_prob(self, orders: Tensor) -> Tensor:
        """Return ``[B]``: the mean log-probability of the set's orders, from those of all orders ``[B, M]``."""
        return orders.masked_fill(~self.members, 0.0).sum(-1) / self.members.sum(-1)

    def evenness(self, orders: Tensor) -> Evenness:
        """Return how the probability is spread over the set's orders, from log-probabilities ``[B, M]``."""
        return _evenness(orders, self.members)


@dataclass(frozen=True, kw_only=True)
class LegalPrefixes:
    """For each prompt, the linear extensions of a partial order, on a tree of all their prefixes. The mass is exact."""

    #: ``[B, R, n]`` bool: the moves that keep the partial order.
    legal: Tensor
    rows: LegalRows

    def masses(self, choices: Tensor, used: Tensor) -> Masses:
        """Return the masses inside and outside of the set, from ``choices [B, R, n]``."""
        return exact_masses(choices, self.legal, used, self.rows)

    def mean_log_prob(self, choices: Tensor) -> Tensor:
        """Return ``[B]``: the mean log-probability of the linear extensions, from ``choices [B, R, n]``."""
        # At a row that leaves one choice, each legal move completes one order: the last operation is forced.
        ends = self.legal & self.rows.last[..., None]
        orders = (self.rows.reached(choices)[..., None] + choices).masked_fill(~ends, 0.0)
        return orders.sum((1, 2)) / ends.sum((1, 2))

    def evenness(self, choices: Tensor, used: Tensor) -> Evenness:
        """Return how the probability is spread over the linear extensions, from ``choices [B, R, n]``."""
        ends = (self.legal & self.rows.last[..., None]).flatten(1)
        return _evenness((self.rows.reached(choices)[..., None] + choices).flatten(1), ends)


@dataclass(frozen=True, kw_only=True)
class MaskedPaths:
    """For each prompt, the linear extensions of a partial order, of which some were drawn. The mass is an estimate."""

    #: ``[B, R, n]`` bool: the moves that keep the partial order.
    legal: Tensor
    #: Paths ``[B, K, T]``, and their log-probabilities ``[B, K]`` among legal paths under the policy that drew them.
    paths: Paths
    behaviour_log_q: Tensor

    def masses(self, choices: Tensor, used: Tensor) -> Masses:
        """Estimate the masses inside and outside of the set, from ``choices [B, R, n]``."""
        terms = path_terms(choices, self.legal, used, self.paths)
        return estimate_masses(terms, self.behaviour_log_q)

    def mean_log_prob(self, choices: Tensor) -> Tensor:
        """Return ``[B]``: an estimate of the mean log-probability of the linear extensions, from ``choices [B, R, n]``.

        The paths were drawn from ``q``, not uniformly, so each has weight ``1 / q``, self-normalised. The estimate is
        consistent, but with few paths it is biased towards the mean over ``q``. Training draws paths uniformly instead.
        """
        weights = (-self.behaviour_log_q).softmax(-1)
        return (weights * log_choice(choices, self.paths).sum(-1)).sum(-1)

    def evenness(self, choices: Tensor, used: Tensor) -> Evenness:
        """Estimate how the probability is spread over the linear extensions, from ``choices [B, R, n]``.

        Both values are consistent; the entropy of few paths is too low.
        """
        terms = path_terms(choices, self.legal, used, self.paths)
        log_weights = path_log_weights(terms, self.behaviour_log_q) + terms.log_inside
        log_mass = log_weights.logsumexp(-1)
        mean = (log_weights.softmax(-1) * (terms.log_q + terms.log_inside)).sum(-1)
        number = (-self.behaviour_log_q).logsumexp(-1) - math.log(terms.log_q.shape[1])
        return Evenness(entropy=log_mass - mean, log_size=number)


@dataclass(frozen=True, kw_only=True)
class Evenness:
    """How a policy spreads the probability of a set over its orders, ``[B]`` each, in nats."""

    #: The entropy of the policy within the set; it is at most ``log_size``, which it is for an even spread.
    entropy: Tensor
    #: The logarithm of the number of orders.
    log_size: Tensor


def _evenness(log_probs: Tensor, members: Tensor) -> Evenness:
    """Return the evenness over the members of each row, ``[B, M]`` twice."""
    within = log_probs.masked_fill(~members, -torch.inf).log_softmax(-1)
    return Evenness(
        entropy=-(within.exp() * within.masked_fill(~members, 0.0)).sum(-1),
        log_size=members.sum(-1).to(log_probs.dtype).log(),
    )


OrderSet: TypeAlias = ListedOrders | LegalPrefixes | MaskedPaths


def event_log_probs(choices: Tensor, malformed: Tensor | None, orders: Paths) -> Tensor:
    """Return the log-probabilities ``[B, E]`` of the listed orders and, if there can be any, of malformed answers.

    Takes ``choices [B, R, n]``, the total log-probability ``[B]`` of malformed answers (None for pointers), and the
    places of the listed orders' choices: all orders ``[M, T]``, or some for each prompt ``[B, G, T]``.
    """
    if orders.rows.ndim == 2:
        found = choices[:, orders.rows, orders.slots].sum(-1)
    else:
        found = log_choice(choices, orders).sum(-1)
    return found if malformed is None else torch.cat([found, malformed[:, None]], dim=1)


@dataclass(frozen=True, kw_only=True)
class FrozenBatch:
    """The tensors that an update fixes before its first step; none carries a gradient."""

    #: The listed orders: all of them ``[M, T]``, or those that were sampled ``[B, G, T]``.
    orders: Paths
    #: ``[B, G]``: the sampled events, as columns of ``[B, E]``.
    samples: Tensor
    #: ``[B, G]``: their rewards; a positive reward is a success.
    rewards: Tensor
    #: ``[B, G]``: their leave-one-out advantages; ``[B, G, T]``: those of each of their choices.
    advantages: Tensor
    #: ``[B, R, n]`` and ``[B, E]``: log-probabilities of choices and events under the behaviour policy.
    behaviour_choices: Tensor
    behaviour: Tensor
    #: ``[B]``: orbit log-mass of the frozen backbone.
    frozen_log_mass: Tensor
    #: The certified orbit.
    orbit: OrderSet
    #: The set whose mass gives a success its ratio, and its behaviour log-mass ``[B]``; None if the single order does.
    credit: OrderSet | None
    behaviour_log_mass: Tensor | None
    #: ``[B]``: behaviour log-mass of all answers outside of the orbit; None if a failure has the single order's ratio.
    behaviour_log_failing: Tensor | None = None
    #: The set that the anti-diamond loss compares with the other orders.
    margin: OrderSet
    #: ``[B, K, T]``: uniformly drawn linear extensions, for a method that trains on them, if not all are scored.
    uniform_paths: Paths | None = None
    #: ``[H, 3]``: (prompt, row after ab, row after ba) of certified swaps.
    histories: Tensor
    #: ``[R, n]`` or ``[B, R, n]`` bool: the slots that each row has used.
    used: Tensor
    #: ``[B, 1]``: the number of choices in an order of each prompt.
    num_choices: Tensor

    @property
    def lists_all_orders(self) -> bool:
        """Whether the trees hold all orders, so that nothing is estimated."""
        return self.orders.rows.ndim == 2


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The scores of the current policy on a batch; values computed from them carry a gradient if ``choices`` do."""

    #: ``[B, R, n]``: each slot's log-probability after each prefix.
    choices: Tensor
    #: ``[B]``: log-probability of all malformed answers, which are no orders; None for the pointer interface.
    malformed: Tensor | None
    batch: FrozenBatch
    config: ObjectiveConfig
    _masses: dict[int, Masses] = field(default_factory=dict)

    @cached_property
    def events(self) -> Tensor:
        """``[B, E]``: log-probabilities of the listed orders, and of the malformed answers last."""
        return event_log_probs(self.choices, self.malformed, self.batch.orders)

    @cached_property
    def orders(self) -> Tensor:
        """``[B, M]``: log-probabilities of the listed orders."""
        return self._listed()

    def _listed(self) -> Tensor:
        return self.events[:, : self.batch.orders.rows.shape[-2]]

    @cached_property
    def samples(self) -> Tensor:
        """``[B, G]``: log-probabilities of the sampled events."""
        return self.events.gather(1, self.batch.samples)

    @cached_property
    def log_ratio(self) -> Tensor:
        """Each sample's log-ratio to the behaviour policy, of the shape of the advantages.

        For a success it may be that of its set's mass, for a failure that of all failing answers; or there is one for
        each choice.
        """
        batch = self.batch
        if batch.advantages.ndim == 3:
            return self._chosen(self.choices) - self._chosen(batch.behaviour_choices)
        if batch.credit is None or batch.behaviour_log_mass is None:
            return trajectory_log_ratio(self.events, batch.behaviour, batch.samples)
        if isinstance(batch.credit, ListedOrders):
            mass = orbit_log_mass(self._listed(), batch.credit.members)
        else:
            mass = self.masses(batch.credit).log_inside
        successes = batch.rewards > 0
        if batch.behaviour_log_failing is None:
            failed = trajectory_log_ratio(self.events, batch.behaviour, batch.samples)
        else:
            failed = (self.log_failing - batch.behaviour_log_failing)[:, None].expand_as(successes)
        return orbit_log_ratio(mass, batch.behaviour_log_mass, failed, successes=successes)

    @property
    def log_failing(self) -> Tensor:
        """``[B]``: log-probability of all answers outside of the certified orbit, malformed ones included."""
        return failing_log_mass(self.masses(self.batch.orbit), self.malformed)

    def _chosen(self, choices: Tensor) -> Tensor:
        """Return ``[B, G, T]``: the log-probability of each choice of the samples, from ``choices [B, R, n]``."""
        orders, samples = self.batch.orders, self.batch.samples
        if self.batch.lists_all_orders:
            orders = Paths(rows=orders.rows[samples], slots=orders.slots[samples])
        return log_choice(choices, orders)

    def log_mass(self, orders: OrderSet) -> Tensor:
        """Return ``[B]``: the log-probability of a set of orders, exact or estimated."""
        if isinstance(orders, ListedOrders):
            return orbit_log_mass(self.orders, orders.members)
        return self.masses(orders).log_inside

    def masses(self, orders: OrderSet) -> Masses:
        """Return the masses inside and outside of a set of orders; they are computed once."""
        if id(orders) not in self._masses:
            if isinstance(orders, ListedOrders):
                found = orders.masses(self.orders)
            else:
                found = orders.masses(self.choices, self.batch.used)
            self._masses[id(orders)] = found
        return self._masses[id(orders)]

    def begin(self) -> None:
        """Compute the values that every objective needs."""
        if self.batch.lists_all_orders:
            _ = self.orders
        else:
            self.masses(self.batch.orbit)

    def of_the_orbit(self) -> Reading:
        """Return a copy for the log, without gradient and with the certified orbit in the margin."""
        return Reading(
            choices=self.choices.detach(),
            malformed=None if self.malformed is None else self.malformed.detach(),
            batch=replace(self.batch, margin=self.batch.orbit),
            config=self.config,
        )

    def policy_loss(self) -> Tensor:
        """Return the clipped loss of the samples, a scalar."""
        return clipped_loss(self.log_ratio, self.batch.advantages, self.config.clip)

    def commutation(self) -> Tensor:
        """Return the commutation loss of the swap histories, a scalar."""
        return commutation_loss(self.choices, self.batch.histories, self.batch.used)

    def retention(self) -> Tensor:
        """Return the mean decline of the certified orbits' mass, a scalar."""
        return retention_loss(self.log_mass(self.batch.orbit), self.batch.frozen_log_mass)

    def action_kl(self) -> Tensor:
        """Return the action KL, a scalar: exact if the trees list all orders, otherwise a mean over the samples."""
        batch = self.batch
        if batch.lists_all_orders:
            return action_kl(batch.behaviour, self.events, batch.num_choices[0, 0])
        return self.sampled_action_kl()

    def sampled_action_kl(self) -> Tensor:
        """Return the mean over prompts, samples and choices of ``KL(behaviour || policy)`` in nats, by the chain rule.

        The samples come from the behaviour policy, so the expectation of this mean is the exact action KL.
        """
        batch, choices = self.batch, self.choices
        prompt = torch.arange(len(choices), device=choices.device)[:, None, None]
        rows = batch.orders.rows
        old, new = batch.behaviour_choices[prompt, rows], choices[prompt, rows]
        gone = batch.used[prompt, rows]
        log_ratio = old.masked_fill(gone, 0.0) - new.masked_fill(gone, 0.0)
        # A shorter record has fewer choices than places in a path; this factor makes the mean one over its own choices.
        share = rows.shape[-1] / batch.num_choices
        return ((old.exp() * log_ratio).sum(-1) * share[..., None]).mean()

    def separation(self) -> Tensor:
        """Return the mean separation loss between the margin's set of orders and the other orders, a scalar."""
        masses = self.masses(self.batch.margin)
        return separation_loss(masses.log_inside - masses.log_outside, self.config.margin).mean()

    def reward_loss(self) -> Tensor:
        """Return minus the mean orbit mass, a scalar: the policy gradient of all samples at once, without a baseline.

        No baseline is needed, because nothing is drawn.
        """
        return -self.log_mass(self.batch.orbit).exp().mean()

    def log_reward_loss(self) -> Tensor:
        """Return minus the mean orbit log-mass, a scalar."""
        return -self.log_mass(self.batch.orbit).mean()

    def log_odds_loss(self) -> Tensor:
        r"""Return minus the mean log-odds of the orbits, a scalar; a prompt that nothing fails counts as 0.

        Its gradient is :math:`\nabla p / (p (1 - p))`: the exact policy gradient, divided by the reward's variance.
        """
        odds = self.masses(self.batch.orbit).log_inside - self.log_failing
        return -odds.masked_fill(odds == torch.inf, 0.0).mean()

    def uniformity(self) -> Tensor:
        r"""Return the mean over prompts of :math:`\mathrm{KL}(\pi(\cdot | O) \| U_O)` in nats, a scalar.

        It does not depend on the orbit's mass. UCPO (arXiv:2605.00365) shows that the reward is indifferent to how mass
        is spread over correct answers, and redistributes the advantages of correct samples. Here the orbit is known, so
        the distance from the even spread is exact (estimated if masses are).
        """
        batch = self.batch
        if isinstance(batch.orbit, ListedOrders):
            found = batch.orbit.evenness(self.orders)
        else:
            found = batch.orbit.evenness(self.choices, batch.used)
        return (found.log_size - found.entropy).mean()

    def contrast(self) -> Tensor:
        """Return the contrastive loss of the samples, whose scores are log-probabilities per choice; a scalar."""
        return contrastive_loss(self.samples / self.batch.num_choices, self.batch.rewards > 0)

    def augmentation_loss(self) -> Tensor:
        r"""Return the mean negative log-likelihood of the certified orders, in nats an order; a scalar.

        Order-centric data augmentation (arXiv:2502.19907) fine-tunes on all reorderings of independent steps alike.
        Over *all* orders of an orbit, this is the cross entropy from the uniform distribution on the orbit:
        :math:`-|O|^{-1} \sum_{\tau \in O} \log \pi(\tau) = \log |O| + \mathrm{KL}(U_O \| \pi)`. By Jensen's inequality
        it is at least :math:`\log |O| - \log Z(O)`. The gap shows how unevenly the policy spreads the mass :math:`Z`
        over the orbit.
        """
        return -self.mean_orbit_log_prob().mean()

    def mean_orbit_log_prob(self) -> Tensor:
        """Return ``[B]``: the mean log-probability of the certified orders, exact or over uniform or weighted paths."""
        batch = self.batch
        if batch.uniform_paths is not None:
            return log_choice(self.choices, batch.uniform_paths).sum(-1).mean(-1)
        if isinstance(batch.orbit, ListedOrders):
            return batch.orbit.mean_log_prob(self.orders)
        return batch.orbit.mean_log_prob(self.choices)
