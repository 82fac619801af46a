r"""Compute the mass of a set of orders, as a logarithm: exact over a list or a tree, or estimated from a few paths.

For the estimate, a path is drawn from the policy masked to legal moves, :math:`q(\tau) = \prod_t \pi(a_t | h_t) / m_t`,
where :math:`m_t` is the policy's probability of all legal moves at the path's t-th choice. Then :math:`w(\tau) =
\prod_t m_t` has mean :math:`Z^+` under :math:`q`, and :math:`1 - w` has mean :math:`Z^-`. Both lie between 0 and 1.
Each is computed in log space from its own sums, so rounding loses neither.

After an optimiser step the paths are still those of the behaviour policy. Their weights are :math:`r = (q / q_b)^c`,
self-normalised, with :math:`c = K / (K - 1)`. At the behaviour policy all weights are equal and the estimate is the
plain mean, which is unbiased. Its gradient there is that of :math:`w` plus a score-function term. The exponent
:math:`c` makes the mean of the *other* paths this term's baseline, so the gradient of :math:`Z^+` is unbiased too. Away
from the behaviour policy both are biased by O(1/K); ``research/estimator.md`` measures the bias.

Gradients are finite for every set, the empty one included. This module does not draw paths
(:mod:`vcrt_train.policy.order_sampling`) and does not treat answers that are no orders.

Shapes: ``B`` prompts, ``M`` orders (or other events) in the column order of :func:`vcrt.orders.all_orders`, ``K``
paths, ``T`` choices, ``R`` rows of the prefix trees, ``n`` slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


def orbit_log_mass(order_log_probs: Tensor, members: Tensor) -> Tensor:
    """Return ``log Z(O | x)``, the log of the summed probabilities of each row's members.

    Takes log-probabilities and booleans of the same shape ``[B, M]`` (else raises ``ValueError``); returns ``[B]``,
    ``-inf`` (with zero gradient) for a row without members. The gradient is the posterior-weighted mean of the members'
    gradients. Source: the paper's equations for the orbit mass and its gradient, Section "Exact Orbit Mass".
    """
    if order_log_probs.shape != members.shape:
        raise ValueError(
            f"members {tuple(members.shape)} must have the shape of order_log_probs "
            f"{tuple(order_log_probs.shape)}"
        )
    return order_log_probs.masked_fill(~members, -torch.inf).logsumexp(-1)


def split_log_masses(order_log_probs: Tensor, legal: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``log Z(O+)`` and ``log Z(O-)``, ``[B]`` each: O+ are a row's legal orders, and O- all its other orders.

    Both masses are summed in log space, because ``1 - Z(O+)`` loses a small ``Z(O-)`` to rounding.
    """
    both = order_log_probs.expand(2, *order_log_probs.shape)
    inside, outside = orbit_log_mass(both, torch.stack([legal, ~legal])).unbind()
    return inside, outside


@dataclass(frozen=True, kw_only=True)
class Paths:
    """The rows and slots of the paths' choices in the prefix trees of their prompts: indices ``[B, K, T]`` each."""

    rows: Tensor
    slots: Tensor


@dataclass(frozen=True, kw_only=True)
class PathTerms:
    """The log-probabilities that a policy gives to each path, ``[B, K]`` each."""

    #: ``log q``: the path's log-probability among legal paths.
    log_q: Tensor
    #: ``log w``: the summed log-probabilities of legal moves.
    log_inside: Tensor
    #: ``log(1 - w)``; ``-inf`` if no move along the path could have been illegal.
    log_outside: Tensor


@dataclass(frozen=True, kw_only=True)
class Masses:
    """``log Z+`` and ``log Z-``, ``[B]`` each, with gradients; the masses and that of malformed answers sum to 1."""

    log_inside: Tensor
    log_outside: Tensor
    #: ``[B]``: standard error of ``log_inside`` by the delta method, as for independent paths; 0 if it is exact.
    standard_error: Tensor
    #: ``[B]``: effective number of paths, from 1 to ``K``, in the posterior weights of the gradient of ``log_inside``;
    #: 0 if it is exact.
    effective_paths: Tensor


def log_choice(choice_log_probs: Tensor, paths: Paths) -> Tensor:
    """Return ``[B, K, T]``: the log-probability of each choice of each path, from ``choice_log_probs [B, R, n]``."""
    prompt = torch.arange(len(choice_log_probs), device=choice_log_probs.device)[:, None, None]
    return choice_log_probs[prompt, paths.rows, paths.slots]


def legal_and_illegal(
    choice_log_probs: Tensor, legal: Tensor, used: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ``[B, R]`` twice: the log-probability of all legal moves of each row, and of all other moves that remain.

    Takes log-probabilities ``[B, R, n]`` and booleans of that shape: the legal moves, and the used slots. If no
    remaining move is illegal, the results are exactly 0 and ``-inf``, without gradient.
    """
    illegal = ~(legal | used)
    inside = choice_log_probs.masked_fill(~legal, -torch.inf).logsumexp(-1)
    outside = _logsumexp(choice_log_probs.masked_fill(~illegal, -torch.inf), -1)
    return torch.where(illegal.any(-1), inside, torch.zeros_like(inside)), outside


def path_terms(choice_log_probs: Tensor, legal: Tensor, used: Tensor, paths: Paths) -> PathTerms:
    """Return each path's terms under the policy with ``choice_log_probs``; all tensors given are ``[B, R, n]``."""
    inside, outside = legal_and_illegal(choice_log_probs, legal, used)
    prompt = torch.arange(len(inside), device=inside.device)[:, None, None]
    along, left = inside[prompt, paths.rows], outside[prompt, paths.rows]
    survived = along.cumsum(-1) - along
    return PathTerms(
        log_q=(log_choice(choice_log_probs, paths) - along).sum(-1),
        log_inside=along.sum(-1),
        log_outside=_logsumexp(survived + left, -1),
    )


def path_log_weights(terms: PathTerms, behaviour_log_q: Tensor) -> Tensor:
    """Return ``[B, K]``: the logarithms of the paths' self-normalised weights in an estimate; they sum to 1."""
    num_paths = terms.log_q.shape[1]
    return ((terms.log_q - behaviour_log_q) * num_paths / (num_paths - 1)).log_softmax(-1)


def failing_log_mass(masses: Masses, malformed: Tensor | None) -> Tensor:
    """Return ``[B]``: the log-probability of all answers outside of a set; ``malformed [B]`` is that of no orders."""
    if malformed is None:
        return masses.log_outside
    return torch.logaddexp(masses.log_outside, malformed)


def estimate_masses(terms: PathTerms, behaviour_log_q: Tensor) -> Masses:
    """Estimate ``Z+`` and ``Z-`` of the policy behind ``terms`` from paths that another policy drew.

    ``behaviour_log_q [B, K]`` is ``log_q`` of the policy that drew them, without gradient. If the two policies are the
    same, the estimate of ``Z+`` is the mean of ``w``, which is unbiased. Raises ``ValueError`` for fewer than two
    paths, which have no standard error and no baseline.
    """
    num_paths = terms.log_q.shape[1]
    if num_paths < 2:
        raise ValueError(f"an estimate needs at least 2 paths a prompt, got {num_paths}")
    log_weights = path_log_weights(terms, behaviour_log_q)
    inside = _logsumexp(log_weights + terms.log_inside, -1)
    weights = log_weights.detach().exp()
    # These are relative to the mean, because the masses themselves may be too small for their number format.
    relative = (terms.log_inside.detach() - inside.detach()[:, None]).exp()
    spread = (weights.square() * (relative - 1).square()).sum(-1)
    posterior = (log_weights + terms.log_inside).detach().softmax(-1)
    return Masses(
        log_inside=inside,
        log_outside=_logsumexp(log_weights + terms.log_outside, -1),
        standard_error=(spread * num_paths / (num_paths - 1)).sqrt(),
        effective_paths=1 / posterior.square().sum(-1),
    )


@dataclass(frozen=True, kw_only=True)
class LegalRows:
    """The legal prefixes among the rows of each prompt's tree, which has all; tensors ``[B, R]``, except ``chain``."""

    #: bool: whether a row's prefix is legal, and whether it also leaves exactly one choice.
    legal: Tensor
    last: Tensor
    #: ``[B, R, D]``: the rows of each row's prefixes, including itself but not the root; padded with 0.
    chain: Tensor
    #: The row before each row, and the slot that leads from there; 0 for the root.
    parent: Tensor
    slot: Tensor

    def reached(self, choice_log_probs: Tensor) -> Tensor:
        """Return ``[B, R]``: the log-probability of each legal row's prefix, from ``[B, R, n]``."""
        prompt = torch.arange(len(choice_log_probs), device=choice_log_probs.device)[:, None]
        came = choice_log_probs[prompt, self.parent, self.slot]
        came = torch.where(self.chain.amax(-1) > 0, came, torch.zeros_like(came))
        return came[prompt[..., None], self.chain].sum(-1)


def exact_masses(choice_log_probs: Tensor, legal: Tensor, used: Tensor, rows: LegalRows) -> Masses:
    """Return ``Z+`` and ``Z-`` from a tree that holds every legal prefix; each illegal order leaves it at one row.

    Takes log-probabilities ``[B, R, n]`` and booleans of that shape: the legal moves, and the used slots.
    """
    inside, outside = legal_and_illegal(choice_log_probs, legal, used)
    reached = rows.reached(choice_log_probs)
    stays = (reached + inside).masked_fill(~rows.last, -torch.inf)
    leaves = (reached + outside).masked_fill(~rows.legal, -torch.inf)
    log_inside = _logsumexp(stays, -1)
    return Masses(
        log_inside=log_inside,
        log_outside=_logsumexp(leaves, -1),
        standard_error=torch.zeros_like(log_inside.detach()),
        effective_paths=torch.zeros_like(log_inside.detach()),
    )


def _logsumexp(values: Tensor, dim: int) -> Tensor:
    """Return ``logsumexp``; if all values are ``-inf``, it is ``-inf`` with a gradient of 0, not NaN."""
    empty = (values == -torch.inf).all(dim, keepdim=True)
    summed = values.masked_fill(empty, 0.0).logsumexp(dim)
    return summed.masked_fill(empty.squeeze(dim), -torch.inf)
