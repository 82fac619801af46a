"""Orbit log-masses of items of many operations, exact where every legal prefix fits and estimated elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from vcrt.objective.masked_paths import Masses
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder
from vcrt.policy.drawing import Draw, draw_orders
from vcrt.policy.scoring import Backend, CausalModel, Prompt, score_prefixes
from vcrt.randomness import derive_seed
from vcrt.training.poset_items import PosetItem
from vcrt.training.poset_trees import fits, legal_leaves, tree_of
from vcrt.training.sampled_update import EstimateConfig, next_choices_of, orbit_view

#: Masked paths of an estimate that is made once and then compared with in every update.
NUM_PATHS = 64
#: Cells of the masks of all trees that are scored at once.
_MASK_CELLS = 2**26


@torch.no_grad()
def poset_log_masses(
    model: CausalModel,
    items: Sequence[PosetItem],
    *,
    config: EstimateConfig,
    seed: int,
    backend: Backend = "auto",
    batch_size: int = 64,
) -> Tensor:
    """Orbit log-mass ``[len(items)]`` of each item under ``model``, on the CPU.

    Estimates are of ``NUM_PATHS`` paths, drawn from ``seed`` and the record's name, so that other items beside it or
    another ``batch_size`` change no more than the last bits. Called with the model before its first update, this is
    the frozen backbone's mass.
    """
    model.eval()
    found = torch.zeros(len(items))
    # Whatever else is in the list, what fits is exact.
    exact = [fits([item.order], config.max_legal_prefixes) for item in items]
    for kind in (True, False):
        places = [place for place, one in enumerate(exact) if one is kind]
        at_a_time = batch_size if kind else min(batch_size, _prompts_that_fit(items))
        for start in range(0, len(places), at_a_time):
            batch = places[start : start + at_a_time]
            masses = read_masses(
                model,
                [items[place].prompt for place in batch],
                [items[place].order for place in batch],
                config=config,
                num_paths=NUM_PATHS,
                backend=backend,
                generator=[
                    torch.Generator().manual_seed(
                        derive_seed(seed, "frozen masses", items[place].record_id)
                    )
                    for place in batch
                ],
            )
            found[batch] = masses.log_inside.float().cpu()
    return found


def _prompts_that_fit(items: Sequence[PosetItem]) -> int:
    """How many prompts' trees of paths are scored at once: the mask of a tree grows with the square of its rows."""
    rows = NUM_PATHS * max(item.prompt.num_operations for item in items)
    return max(1, _MASK_CELLS // rows**2)


def read_masses(
    model: CausalModel,
    prompts: Sequence[Prompt],
    orders: Sequence[PartialOrder],
    *,
    config: EstimateConfig,
    num_paths: int,
    backend: Backend,
    generator: torch.Generator | Sequence[torch.Generator],
) -> Masses:
    """The masses ``[B]`` of each prompt's linear extensions: exact if all legal prefixes fit, else an estimate."""
    lengths = [prompt.num_operations for prompt in prompts]
    paths: list[list[Order]] | None = None
    if fits(orders, config.max_legal_prefixes):
        ends = [legal_leaves(order) for order in orders]
    else:
        (paths,) = draw_orders(
            next_choices_of(model, prompts, backend=backend),
            [Draw(count=num_paths, scheme=config.scheme, within=orders)],
            num_prompts=len(prompts),
            num_operations=lengths,
            generator=generator,
        )
        ends = [[path[: len(path) - 2] for path in some] for some in paths]
    trees = [tree_of(n, some, max(lengths)) for n, some in zip(lengths, ends, strict=True)]
    scores = score_prefixes(model, prompts, trees, interface="pointers", backend=backend)
    view = orbit_view(trees, orders, paths, scores.choice_log_probs, scores.used)
    return view.masses(scores.choice_log_probs, scores.used)
