"""Hold what an update fixes before its first step, on prefix trees, and read each term's value from a policy's scores.

The choices of a policy are scored at the rows of a prefix tree for each prompt: of all orders where they are few, and
of drawn ones elsewhere. Everything here is the same for both; only how the mass of a set is read differs, which each
kind of set knows. Not covered: which prefixes are scored, and how the samples are drawn.

Shapes: ``B`` prompts, ``G`` samples a prompt, ``R`` rows of the largest tree, ``n`` slots, ``T`` choices, ``M`` orders,
``E`` events (the listed orders, in the tokens interface the malformed answers last), ``H`` swap histories.
"""

from __future__ import annotations

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
    log_choice,
    orbit_log_mass,
    path_terms,
    split_log_masses,
)


@dataclass(frozen=True, kw_only=True)
class ListedOrders:
    """A set of orders of each prompt among all orders, which a tree of all of them lists. Its mass is exact."""

    #: ``[B, M]`` bool.
    members: Tensor

    def masses(self, orders: Tensor) -> Masses:
        """The mass inside and outside of the set, from log-probabilities ``[B, M]``."""
        inside, outside = split_log_masses(orders, self.members)
        exact = torch.zeros_like(inside.detach())
        return Masses(
            log_inside=inside, log_outside=outside, standard_error=exact, effective_paths=exact
        )

    def mean_log_prob(self, orders: Tensor) -> Tensor:
        """``[B]``: the mean over the set of the orders' log-probabilities, from those of all, ``[B, M]``."""
        return orders.masked_fill(~self.members, 0.0).sum(-1) / self.members.sum(-1)


@dataclass(frozen=True, kw_only=True)
class LegalPrefixes:
    """The linear extensions of a partial order of each prompt, by a tree with all its prefixes. Their mass is exact."""

    #: ``[B, R, n]`` bool: the moves that keep the partial order.
    legal: Tensor
    rows: LegalRows

    def masses(self, choices: Tensor, used: Tensor) -> Masses:
        """The mass inside and outside of the set, from ``choices [B, R, n]``."""
        return exact_masses(choices, self.legal, used, self.rows)

    def mean_log_prob(self, choices: Tensor) -> Tensor:
        """``[B]``: the mean over the linear extensions of their log-probabilities, from ``choices [B, R, n]``."""
        # A row that leaves one choice has an order for each legal move, as the last operation is forced.
        ends = self.legal & self.rows.last[..., None]
        orders = (self.rows.reached(choices)[..., None] + choices).masked_fill(~ends, 0.0)
        return orders.sum((1, 2)) / ends.sum((1, 2))


@dataclass(frozen=True, kw_only=True)
class MaskedPaths:
    """The linear extensions of a partial order of each prompt, by some of them. Their mass is an estimate."""

    #: ``[B, R, n]`` bool: the moves that keep the partial order.
    legal: Tensor
    #: ``[B, K, T]``, and their log-probability among legal paths ``[B, K]`` under the policy that drew them.
    paths: Paths
    behaviour_log_q: Tensor

    def masses(self, choices: Tensor, used: Tensor) -> Masses:
        """The mass inside and outside of the set, from ``choices [B, R, n]``."""
        terms = path_terms(choices, self.legal, used, self.paths)
        return estimate_masses(terms, self.behaviour_log_q)

    def mean_log_prob(self, choices: Tensor) -> Tensor:
        """``[B]``: an estimate of the mean over the linear extensions, from ``choices [B, R, n]``.

        The paths were drawn by ``q`` and not uniformly, so each weighs ``1 / q``, self-normalised: consistent, but
        biased towards the mean over ``q`` where the weights are few. Training draws paths uniformly instead.
        """
        weights = (-self.behaviour_log_q).softmax(-1)
        return (weights * log_choice(choices, self.paths).sum(-1)).sum(-1)


OrderSet: TypeAlias = ListedOrders | LegalPrefixes | MaskedPaths


def event_log_probs(choices: Tensor, malformed: Tensor | None, orders: Paths) -> Tensor:
    """Log-probabilities ``[B, E]`` of listed orders, and of answers that are no orders if there are any.

    Takes ``choices [B, R, n]``, the malformed answers' total log-probability ``[B]`` (None for pointers), and where the
    orders make their choices: all orders ``[M, T]``, or some for each prompt ``[B, G, T]``.
    """
    if orders.rows.ndim == 2:
        found = choices[:, orders.rows, orders.slots].sum(-1)
    else:
        found = log_choice(choices, orders).sum(-1)
    return found if malformed is None else torch.cat([found, malformed[:, None]], dim=1)


@dataclass(frozen=True, kw_only=True)
class FrozenBatch:
    """What an update fixes before its first step; no tensor here carries a gradient."""

    #: The listed orders: all of them ``[M, T]``, or those that were sampled ``[B, G, T]``.
    orders: Paths
    #: ``[B, G]``: the sampled events, columns of ``[B, E]``.
    samples: Tensor
    #: ``[B, G]``: their rewards; a positive reward is a success.
    rewards: Tensor
    #: ``[B, G]``: their leave-one-out advantages.
    advantages: Tensor
    #: ``[B, R, n]`` and ``[B, E]``: log-probabilities of choices and events under the behaviour policy.
    behaviour_choices: Tensor
    behaviour: Tensor
    #: ``[B]``: orbit log-mass of the frozen backbone.
    frozen_log_mass: Tensor
    #: The certified orbit.
    orbit: OrderSet
    #: The set whose mass is a success's ratio, with its behaviour log-mass ``[B]``; None for the sampled order alone.
    credit: OrderSet | None
    behaviour_log_mass: Tensor | None
    #: The set that the anti-diamond loss sets against the other orders.
    margin: OrderSet
    #: ``[B, K, T]``: linear extensions drawn uniformly, for a method that trains on them where not all are scored.
    uniform_paths: Paths | None = None
    #: ``[H, 3]``: (prompt, row after ab, row after ba) of certified swaps.
    histories: Tensor
    #: ``[R, n]`` or ``[B, R, n]`` bool: the slots that each row has used.
    used: Tensor
    #: ``[B, 1]``: how many choices an order of a prompt consists of.
    num_choices: Tensor

    @property
    def lists_all_orders(self) -> bool:
        """Whether the trees are those of all orders, so that nothing is estimated."""
        return self.orders.rows.ndim == 2


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The scores of the current policy on a batch; what is asked for carries a gradient if ``choices`` do."""

    #: ``[B, R, n]``: each slot's log-probability after each prefix.
    choices: Tensor
    #: ``[B]``: log-probability of all answers that are no orders; None for the pointer interface.
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
        """``[B, G]``: the log-ratio of each sample to the behaviour policy, a success's by the mass of its set."""
        batch = self.batch
        if batch.credit is None or batch.behaviour_log_mass is None:
            return trajectory_log_ratio(self.events, batch.behaviour, batch.samples)
        if isinstance(batch.credit, ListedOrders):
            mass = orbit_log_mass(self._listed(), batch.credit.members)
        else:
            mass = self.masses(batch.credit).log_inside
        successes = batch.rewards > 0
        single = trajectory_log_ratio(self.events, batch.behaviour, batch.samples)
        return orbit_log_ratio(mass, batch.behaviour_log_mass, single, successes=successes)

    def log_mass(self, orders: OrderSet) -> Tensor:
        """``[B]``: the log-probability of a set of orders, exact or an estimate."""
        if isinstance(orders, ListedOrders):
            return orbit_log_mass(self.orders, orders.members)
        return self.masses(orders).log_inside

    def masses(self, orders: OrderSet) -> Masses:
        """The mass inside and outside of a set of orders, read once."""
        if id(orders) not in self._masses:
            if isinstance(orders, ListedOrders):
                found = orders.masses(self.orders)
            else:
                found = orders.masses(self.choices, self.batch.used)
            self._masses[id(orders)] = found
        return self._masses[id(orders)]

    def begin(self) -> None:
        """Read what every objective reads."""
        if self.batch.lists_all_orders:
            _ = self.orders
        else:
            self.masses(self.batch.orbit)

    def of_the_orbit(self) -> Reading:
        """The same without gradient, and with the certified orbit in the margin: what a log reports."""
        return Reading(
            choices=self.choices.detach(),
            malformed=None if self.malformed is None else self.malformed.detach(),
            batch=replace(self.batch, margin=self.batch.orbit),
            config=self.config,
        )

    def policy_loss(self) -> Tensor:
        """The clipped loss of the samples, a scalar."""
        return clipped_loss(self.log_ratio, self.batch.advantages, self.config.clip)

    def commutation(self) -> Tensor:
        """The commutation loss of the swap histories, a scalar."""
        return commutation_loss(self.choices, self.batch.histories, self.batch.used)

    def retention(self) -> Tensor:
        """The mean decline of the certified orbits, a scalar."""
        return retention_loss(self.log_mass(self.batch.orbit), self.batch.frozen_log_mass)

    def action_kl(self) -> Tensor:
        """The action KL, a scalar: exact where the trees list all orders, else a mean over the samples."""
        batch = self.batch
        if batch.lists_all_orders:
            return action_kl(batch.behaviour, self.events, batch.num_choices[0, 0])
        return self.sampled_action_kl()

    def sampled_action_kl(self) -> Tensor:
        """Mean over prompts, samples and choices of ``KL(behaviour || policy)`` in nats: the chain rule by samples.

        Samples are of the behaviour policy, so the mean has the exact action KL as its expectation.
        """
        batch, choices = self.batch, self.choices
        prompt = torch.arange(len(choices), device=choices.device)[:, None, None]
        rows = batch.orders.rows
        old, new = batch.behaviour_choices[prompt, rows], choices[prompt, rows]
        gone = batch.used[prompt, rows]
        log_ratio = old.masked_fill(gone, 0.0) - new.masked_fill(gone, 0.0)
        # Turns a mean over a path's places into one over its own choices, fewer of a shorter record.
        share = rows.shape[-1] / batch.num_choices
        return ((old.exp() * log_ratio).sum(-1) * share[..., None]).mean()

    def separation(self) -> Tensor:
        """The mean separation loss between the margin's set of orders and the other orders; a scalar."""
        masses = self.masses(self.batch.margin)
        return separation_loss(masses.log_inside - masses.log_outside, self.config.margin).mean()

    def contrast(self) -> Tensor:
        """The contrastive loss of the samples, by their log-probability a choice; a scalar."""
        return contrastive_loss(self.samples / self.batch.num_choices, self.batch.rewards > 0)

    def augmentation_loss(self) -> Tensor:
        r"""The mean negative log-likelihood of the certified orders, in nats an order; a scalar.

        Order-centric data augmentation (arXiv:2502.19907) fine-tunes on traces whose independent steps were reordered,
        all reorderings alike. Over *all* orders of an orbit that is the cross entropy from the uniform distribution on
        it: :math:`-|O|^{-1} \sum_{\tau \in O} \log \pi(\tau) = \log |O| + \mathrm{KL}(U_O \| \pi)`. By Jensen's
        inequality it is at least :math:`\log |O| - \log Z(O)`; what is between them is how unevenly the policy spreads
        the orbit's mass, which :math:`Z` leaves free.
        """
        return -self.mean_orbit_log_prob().mean()

    def mean_orbit_log_prob(self) -> Tensor:
        """``[B]``: the mean log-probability of the certified orders: exact, or over uniform or weighted paths."""
        batch = self.batch
        if batch.uniform_paths is not None:
            return log_choice(self.choices, batch.uniform_paths).sum(-1).mean(-1)
        if isinstance(batch.orbit, ListedOrders):
            return batch.orbit.mean_log_prob(self.orders)
        return batch.orbit.mean_log_prob(self.choices)
