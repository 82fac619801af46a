"""Compute the orbit log-mass of items: exact if orders are listed or all legal prefixes fit, otherwise estimated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder
from vcrt.randomness import derive_seed
from vcrt_train.config import Backend, EstimatorConfig, Interface
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


@torch.no_grad()
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
    """Return the orbit log-mass ``[len(items)]`` of each item under ``model``, on the CPU.

    With the model before its first update, this is the frozen backbone's mass for
    :func:`vcrt_train.training.update.update`, without a second copy of the model. The last bits of a float depend on
    how prompts are padded together; the same list gives the same bits. Estimates use ``config`` and ``seed`` and have
    ``NUM_PATHS`` paths, drawn from the seed and the record's name, so other items in the list or another ``batch_size``
    change only the last bits.
    """
    model.eval()
    config = config or EstimatorConfig()
    found = torch.zeros(len(items))
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
                found[some] = _listed(model, batch, interface, backend)
                continue
            masses = read_masses(
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
            found[some] = masses.log_inside.float().cpu()
    return found


def _listed(
    model: CausalModel, items: Sequence[EncodedItem], interface: Interface, backend: Backend
) -> Tensor:
    scores = score_orders(
        model, [item.prompt for item in items], interface=interface, backend=backend
    )
    members = torch.stack([item.listed.members for item in items if item.listed is not None])
    return orbit_log_mass(scores.order_log_probs.cpu(), members).float()


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
    found = partial_order_set(trees, orders, paths, choices, used)
    return found.masses(choices, used)
