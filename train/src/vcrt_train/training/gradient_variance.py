r"""Account for the variance of the policy gradient on one record: between the classes, within successes and failures.

Let :math:`p` be the policy's probability of the certified orbit, :math:`s(\tau) = \nabla \log \pi(\tau)` the score of
an answer, :math:`s_S` and :math:`s_F` the mean scores of successes and failures, and :math:`W_S`, :math:`W_F` the
variances of the scores about them, summed over all parameters. A sample adds :math:`A_i s(\tau_i)` to the gradient.
Given the rewards, the answers of a class are independent, so the variance of a group of :math:`G` samples with
leave-one-out advantages has exactly three parts. The ratio of the orbit takes away the second, and the ratio of both
classes the third too (:class:`Variance`); ``docs/mathematics.md`` proves it.

``G``: samples of a group.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from vcrt.partial_orders import PartialOrder
from vcrt.randomness import derive_seed
from vcrt_train.config import Backend, EstimatorConfig, Interface
from vcrt_train.objective.orbit_mass import log_choice
from vcrt_train.policy.causal_model import CausalModel
from vcrt_train.policy.order_sampling import Draw, sample_orders
from vcrt_train.policy.scoring import score_orders, score_prefixes
from vcrt_train.training.batch_trees import next_choices_of
from vcrt_train.training.items import EncodedItem
from vcrt_train.training.legal_trees import paths_in, tree_of
from vcrt_train.training.orbit_masses import NUM_PATHS, read_masses


class Variance(NamedTuple):
    """The parts of a gradient's variance, each summed over all parameters."""

    #: Of the number of successes in a group: only more samples, or the exact gradient, take this away.
    between: float
    #: Of which success was sampled: the ratio of the orbit takes this away.
    within_successes: float
    #: Of which failure was sampled: the ratio of both classes takes this away too.
    within_failures: float

    @property
    def total(self) -> float:
        """The variance with the ratio of the sampled order."""
        return sum(self)

    def shares(self) -> dict[str, float] | None:
        """Return each part over the total, by name; None if there is no variance."""
        if not self.total > 0:
            return None
        return {name: part / self.total for name, part in self._asdict().items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class GradientMoments:
    """What a policy's score function is like on one record: exact, or estimated from samples.

    In an estimate a value is None if fewer than two samples of a class were drawn.
    """

    #: The probability of the certified orbit.
    p: float
    #: The squared norm of ``s_S - s_F``, which is the gradient of the log-odds; 0 if a class is empty.
    odds: float | None
    #: The variances of the scores within the classes; 0 in an empty class.
    within_successes: float | None
    within_failures: float | None

    @property
    def signal(self) -> float | None:
        """The squared norm of the gradient of ``p``, which is the mean of every ratio's gradient."""
        return None if self.odds is None else (self.p * (1 - self.p)) ** 2 * self.odds

    def variance(self, num_samples: int) -> Variance | None:
        """Return the variance of a group's gradient, the mean over ``num_samples``; None if a moment is not known.

        It is 0 if the policy always passes, or never. Raises ``ValueError`` for fewer than two samples.
        """
        if num_samples < 2:
            raise ValueError(f"a group has at least 2 samples, got {num_samples}")
        if self.odds is None or self.within_successes is None or self.within_failures is None:
            return None
        p, q, others = self.p, 1 - self.p, num_samples - 1
        # A group of k successes has the gradient k (G - k) / (G (G - 1)) (s_S - s_F), but for what is within.
        products = [k * (num_samples - k) for k in range(num_samples + 1)]
        chances = [
            math.comb(num_samples, k) * p**k * q ** (num_samples - k)
            for k in range(num_samples + 1)
        ]
        mean = num_samples * others * p * q
        spread = math.fsum(c * (n - mean) ** 2 for c, n in zip(chances, products, strict=True))
        # The mean square of a success's advantage is q^2 + p q / (G - 1), that of a failure's p^2 + the same.
        noise = p * q / others
        return Variance(
            between=spread * self.odds / (num_samples * others) ** 2,
            within_successes=p * (q * q + noise) * self.within_successes / num_samples,
            within_failures=q * (p * p + noise) * self.within_failures / num_samples,
        )


def gradient_moments(
    model: CausalModel,
    item: EncodedItem,
    *,
    interface: Interface = "pointers",
    num_samples: int = 64,
    seed: int = 0,
    config: EstimatorConfig | None = None,
    backend: Backend = "auto",
) -> GradientMoments:
    """Return the moments of the score function on an item, with respect to all parameters that are trained.

    They are exact if the item's orders are listed: one backward pass for each order, and one for all answers that are
    no orders, which count as one answer. Otherwise ``num_samples`` orders are drawn with ``seed``, and the estimates
    are unbiased, so they may lie below 0; ``p`` is exact or an estimate, as ``config`` says. Draws nothing from other
    generators, and leaves the model and its gradients as they are.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    if item.listed is not None:
        with torch.enable_grad():
            scores = score_orders(model, [item.prompt], interface=interface, backend=backend)
            events = scores.order_log_probs[0]
            if scores.malformed_log_prob is not None:
                events = torch.cat([events, scores.malformed_log_prob])
        passes = torch.zeros(len(events), dtype=torch.bool)
        passes[: len(item.listed.members)] = item.listed.members
        return moments_of(events, passes, parameters)
    config = config or EstimatorConfig()
    return _sampled(model, item, parameters, num_samples, seed, config, backend)


class _Sums(NamedTuple):
    """Of a class: the weighted sum of the scores, and that of their squared norms; both are 0 if it is empty."""

    score: Tensor
    square: float

    @property
    def norm(self) -> float:
        return float(self.score.square().sum())


def _sums(events: Tensor, weights: Mapping[int, float], parameters: Sequence[Tensor]) -> _Sums:
    """Sum the gradients of some events, one at a time, as vectors over all parameters."""
    size = sum(p.numel() for p in parameters)
    total = torch.zeros(size, dtype=torch.float64, device=events.device)
    square = 0.0
    for event, weight in weights.items():
        # What cannot happen adds nothing, and a single order has no choice, so no gradient.
        if weight == 0 or not events.requires_grad:
            continue
        found = torch.autograd.grad(
            events[event],
            parameters,
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        score = torch.cat([part.flatten() for part in found]).double()
        total.add_(score, alpha=weight)
        square += weight * float(score.square().sum())
    return _Sums(total, square)


def _between(classes: Sequence[_Sums], numbers: Sequence[float]) -> float:
    """Return the squared distance between the mean scores of two classes."""
    one, other = (of.score / number for of, number in zip(classes, numbers, strict=True))
    return float((one - other).square().sum())


def moments_of(events: Tensor, passes: Tensor, parameters: Sequence[Tensor]) -> GradientMoments:
    """Return the exact moments from the log-probabilities of all answers ``[E]``, with their graph.

    ``passes [E]`` says which of them are successes. The probabilities must sum to 1.
    """
    log_probs = events.detach().double().cpu()
    # What cannot happen is in no class: a policy may always pass, or never.
    members_of = [members & (log_probs != -torch.inf) for members in (passes, ~passes)]
    classes = []
    for members in members_of:
        within = log_probs.masked_fill(~members, -torch.inf).softmax(-1)
        weights = {e: float(within[e]) for e in members.nonzero()[:, 0].tolist()}
        classes.append(_sums(events, weights, parameters))
    is_single = not all(members.any() for members in members_of)
    p = log_probs.masked_fill(~passes, -torch.inf).logsumexp(-1).exp().clamp(max=1)
    return GradientMoments(
        p=float(members_of[0].any()) if is_single else float(p),
        odds=0.0 if is_single else _between(classes, (1.0, 1.0)),
        within_successes=max(classes[0].square - classes[0].norm, 0.0),
        within_failures=max(classes[1].square - classes[1].norm, 0.0),
    )


def _sampled(
    model: CausalModel,
    item: EncodedItem,
    parameters: Sequence[Tensor],
    num_samples: int,
    seed: int,
    config: EstimatorConfig,
    backend: Backend,
) -> GradientMoments:
    assert isinstance(item.orbit, PartialOrder)
    length = item.prompt.num_operations
    draw = torch.Generator().manual_seed(derive_seed(seed, "gradient moments", item.record_id))
    ((drawn,),) = sample_orders(
        next_choices_of(model, [item.prompt], backend=backend),
        [Draw(count=num_samples, scheme="independent")],
        num_prompts=1,
        num_operations=[length],
        generator=draw,
    )
    (p,) = (
        read_masses(
            model,
            [item.prompt],
            [item.orbit],
            config=config,
            num_paths=NUM_PATHS,
            backend=backend,
            generator=draw,
        )
        .log_inside.detach()
        .exp()
    )
    counts = Counter(drawn)
    orders = list(counts)
    tree = tree_of(length, [order[: length - 2] for order in orders], length)
    with torch.enable_grad():
        scores = score_prefixes(model, [item.prompt], [tree], interface="pointers", backend=backend)
        events = log_choice(scores.choice_log_probs, paths_in([tree], [orders])).sum(-1)[0]
    classes, numbers, within = [], [], list[float | None]()
    for is_legal in (True, False):
        weights = {
            e: float(counts[order])
            for e, order in enumerate(orders)
            if item.is_legal(order) == is_legal
        }
        found, number = _sums(events, weights, parameters), sum(weights.values())
        classes.append(found)
        numbers.append(number)
        spread = None
        if number >= 2:
            spread = (found.square - found.norm / number) / (number - 1)
        within.append(0.0 if _is_empty(item.orbit, is_legal) else spread)
    odds: float | None = None
    if not item.orbit.pairs:
        odds = 0.0
    elif within[0] is not None and within[1] is not None:
        # The squared distance of the means, less what their own variances add to it.
        odds = _between(classes, numbers)
        odds -= within[0] / numbers[0] + within[1] / numbers[1]
    return GradientMoments(
        p=min(float(p), 1.0), odds=odds, within_successes=within[0], within_failures=within[1]
    )


def _is_empty(orbit: PartialOrder, is_legal: bool) -> bool:
    """Return whether no order is in a class: a partial order always allows one, and without pairs all."""
    return not is_legal and not orbit.pairs
