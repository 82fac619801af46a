"""Hold what an update fixes before its first step, on prefix trees: the samples, and the sets of orders of each term.

The choices of a policy are scored at the rows of a prefix tree for each prompt: of all orders where they are few, and
of drawn ones elsewhere. Everything here is the same for both; only how the mass of a set is read differs, which each
kind of set knows. Not covered: which prefixes are scored, and how the samples are drawn.

Shapes: ``B`` prompts, ``G`` samples a prompt, ``R`` rows of the largest tree, ``n`` slots, ``T`` choices, ``M`` orders,
``E`` events (the listed orders, in the tokens interface the malformed answers last), ``H`` swap histories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from vcrt_train.objective.masked_paths import (
    LegalRows,
    Masses,
    Paths,
    estimate_masses,
    exact_masses,
    log_choice,
    path_terms,
)
from vcrt_train.objective.orbit_mass import split_log_masses


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
