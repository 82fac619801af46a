"""Compute the orbit mass of items and how it is spread over the orbit.

Both are exact if orders are listed or all legal prefixes fit, otherwise they are estimates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vcrt.certificates.episodes import counted_extensions
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder
from vcrt.randomness import derive_seed
from vcrt_train.config import Backend, EstimatorConfig, Interface
from vcrt_train.objective.batch import LegalPrefixes, ListedOrders, MaskedPaths
from vcrt_train.objective.orbit_mass import Masses, orbit_log_mass
from vcrt_train.policy.causal_model import CausalModel, Prompt
from vcrt_train.policy.order_sampling import Draw, sample_orders
from vcrt_train.policy.scoring import score_orders, score_prefixes
from vcrt_train.training.batch_trees import next_choices_of, partial_order_set
from vcrt_train.training.items import EncodedItem
from vcrt_train.training.legal_trees import fits, legal_leaves, tree_of

#: The number of masked paths of an estimate that is made once and that every update compares with.
NUM_PATHS = 64
#: The most cells in the masks of all trees that are scored at once.
_MASK_CELLS = 2**26


class OrbitSpread(NamedTuple):
    """The orbits of some items under a policy: tensors ``[items]``, on the CPU."""

    #: The logarithm of the orbit's probability.
    log_mass: Tensor
    #: The entropy of the policy within the orbit, in nats.
    entropy: Tensor
    #: The logarithm of the orbit's number of orders: the largest possible entropy.
    log_size: Tensor

    def pass_at(self, k: int) -> float:
        """Return the mean probability that at least one of ``k`` independent answers is in the orbit.

        No answer is drawn: it is :math:`1 - (1 - Z)^k` (pass@k of Chen et al., arXiv:2107.03374, with ``n`` infinite).
        """
        failing = (1 - self.log_mass.double().exp()).clamp(0, 1)
        return float((1 - failing**k).mean())

    @property
    def shares(self) -> Tensor:
        """``[items]``: entropy over its largest value, from 0 to 1; nan for an orbit of one order."""
        return (self.entropy.double() / self.log_size.double()).clamp(0, 1)

    @property
    def evenness(self) -> float | None:
        """Mean share of the largest entropy, from 0 (one order) to 1 (all alike); None if no orbit has two orders."""
        several = self.log_size > 0
        return float(self.shares[several].mean()) if several.any() else None


def orbit_log_masses(
    model: CausalModel,
    items: Sequence[EncodedItem],
    *,
    interface: Interface,
    config: EstimatorConfig | None = None,
    seed: int = 0,
    backend: Backend = "auto",
    batch_size: int = 64,
) -> Tensor:
    """Return the log-masses of :func:`orbit_spread`.

    With the model before its first update, this is the frozen backbone's mass for
    :func:`vcrt_train.training.update.update`, without a second copy of the model.
    """
    config = config or EstimatorConfig()
    return _spread(model, items, interface, config, seed, backend, batch_size).log_mass


def orbit_spread(
    model: CausalModel,
    items: Sequence[EncodedItem],
    *,
    interface: Interface,
    config: EstimatorConfig | None = None,
    seed: int = 0,
    backend: Backend = "auto",
    batch_size: int = 64,
) -> OrbitSpread:
    """Return the orbit mass of each item under ``model``, and how it is spread.

    The last bits of a float depend on how prompts are padded together; the same list gives the same bits. Estimates use
    ``config`` and ``seed`` and have ``NUM_PATHS`` paths, drawn from the seed and the record's name, so other items in
    the list or another ``batch_size`` change only the last bits. The sizes of orbits are exact up to
    ``vcrt.limits.MAX_COUNTED`` operations.
    """
    config = config or EstimatorConfig()
    found = _spread(model, items, interface, config, seed, backend, batch_size)
    for place, item in enumerate(items):
        if isinstance(item.orbit, PartialOrder) and (number := counted_extensions(item.orbit)):
            found.log_size[place] = math.log(number)
    return found


@torch.no_grad()
def _spread(
    model: CausalModel,
    items: Sequence[EncodedItem],
    interface: Interface,
    config: EstimatorConfig,
    seed: int,
    backend: Backend,
    batch_size: int,
) -> OrbitSpread:
    model.eval()
    found = torch.zeros(3, len(items))
    kinds: dict[str, list[int]] = {"listed": [], "exact": [], "estimated": []}
    for place, item in enumerate(items):
        # An item that fits is exact, whatever else is in the list.
        kind = "listed"
        if isinstance(item.orbit, PartialOrder):
            kind = "exact" if fits([item.orbit], config.max_legal_prefixes) else "estimated"
        kinds[kind].append(place)
    for kind, places in kinds.items():
        size = batch_size if kind != "estimated" else min(batch_size, _prompts_that_fit(items))
        for start in range(0, len(places), size):
            some = places[start : start + size]
            batch = [items[place] for place in some]
            if kind == "listed":
                found[:, some] = _listed(model, batch, interface, backend)
                continue
            orbit, choices, used = read_orbits(
                model,
                [item.prompt for item in batch],
                [item.orbit for item in batch if isinstance(item.orbit, PartialOrder)],
                config=config,
                num_paths=NUM_PATHS,
                backend=backend,
                generator=[
                    torch.Generator().manual_seed(
                        derive_seed(seed, "frozen masses", item.record_id)
                    )
                    for item in batch
                ],
            )
            even = orbit.evenness(choices, used)
            read = orbit.masses(choices, used).log_inside, even.entropy, even.log_size
            found[:, some] = torch.stack(read).float().cpu()
    return OrbitSpread(*found)


def _listed(
    model: CausalModel, items: Sequence[EncodedItem], interface: Interface, backend: Backend
) -> Tensor:
    scores = score_orders(
        model, [item.prompt for item in items], interface=interface, backend=backend
    )
    members = torch.stack([item.listed.members for item in items if item.listed is not None])
    orders = scores.order_log_probs.cpu()
    even = ListedOrders(members=members).evenness(orders)
    return torch.stack([orbit_log_mass(orders, members), even.entropy, even.log_size]).float()


def _prompts_that_fit(items: Sequence[EncodedItem]) -> int:
    """Return how many prompts are scored at once: the mask of a tree of paths grows with the square of its rows."""
    rows = NUM_PATHS * max(item.prompt.num_operations for item in items)
    return max(1, _MASK_CELLS // rows**2)


def read_masses(
    model: CausalModel,
    prompts: Sequence[Prompt],
    orders: Sequence[PartialOrder],
    *,
    config: EstimatorConfig,
    num_paths: int,
    backend: Backend,
    generator: torch.Generator | Sequence[torch.Generator],
) -> Masses:
    """Return the masses ``[B]`` of each prompt's linear extensions: exact if all legal prefixes fit, else estimated."""
    orbit, choices, used = read_orbits(
        model,
        prompts,
        orders,
        config=config,
        num_paths=num_paths,
        backend=backend,
        generator=generator,
    )
    return orbit.masses(choices, used)


def read_orbits(
    model: CausalModel,
    prompts: Sequence[Prompt],
    orders: Sequence[PartialOrder],
    *,
    config: EstimatorConfig,
    num_paths: int,
    backend: Backend,
    generator: torch.Generator | Sequence[torch.Generator],
) -> tuple[LegalPrefixes | MaskedPaths, Tensor, Tensor]:
    """Score each prompt's linear extensions: all legal prefixes if they fit, otherwise drawn paths.

    Returns the sets, and the ``choices`` and ``used`` slots that their methods take.
    """
    lengths = [prompt.num_operations for prompt in prompts]
    paths: list[list[Order]] | None = None
    if fits(orders, config.max_legal_prefixes):
        ends = [legal_leaves(order) for order in orders]
    else:
        (paths,) = sample_orders(
            next_choices_of(model, prompts, backend=backend),
            [Draw(count=num_paths, scheme=config.scheme, within=orders)],
            num_prompts=len(prompts),
            num_operations=lengths,
            generator=generator,
        )
        ends = [[path[: len(path) - 2] for path in some] for some in paths]
    trees = [tree_of(n, some, max(lengths)) for n, some in zip(lengths, ends, strict=True)]
    scores = score_prefixes(model, prompts, trees, interface="pointers", backend=backend)
    choices, used = scores.choice_log_probs, scores.used
    return partial_order_set(trees, orders, paths, choices, used), choices, used
