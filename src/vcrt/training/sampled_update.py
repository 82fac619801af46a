"""One online update where orders are too many to score: the steps of :mod:`vcrt.training.update`, on drawn prefixes.

Drawn afresh for each update: orders of the behaviour policy for the rewards, orders masked to legal moves for the orbit
mass (unless every legal prefix fits), and certified swaps. All of them lie in one prefix tree for each prompt, which
both epochs score. Only the pointer interface; not covered: which items an update gets.

Shapes: ``B`` prompts, ``G`` samples a prompt, ``R`` rows of the largest tree, ``n`` slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vcrt.objective.advantage import leave_one_out_advantage
from vcrt.objective.masked_paths import Paths, log_choice, path_terms
from vcrt.objective.sampled import OrbitView, SampledBatch
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder
from vcrt.policy.drawing import Draw, NextChoices, Scheme, draw_orders
from vcrt.policy.prefix_tree import PrefixTree, prefix_tree
from vcrt.policy.scoring import Backend, CausalModel, Prompt, score_prefixes
from vcrt.training.methods import Method
from vcrt.training.poset_items import PosetItem
from vcrt.training.poset_trees import (
    Swap,
    fits,
    legal_leaves,
    legal_moves,
    legal_rows,
    paths_in,
    swaps_along,
    tree_of,
    used_in,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class EstimateConfig:
    """How orbit masses are read where orders are too many to enumerate."""

    #: Legal prefixes of each record of an update up to which masses are exact: all are scored. 0 always estimates.
    max_legal_prefixes: int = 512
    #: Orders masked to legal moves that an estimate is made from, for each prompt.
    num_paths: int = 16
    #: How they are drawn, see :mod:`vcrt.policy.drawing`.
    scheme: Scheme = "systematic"
    #: Certified swaps of each prompt that the commutation loss compares.
    num_swaps: int = 8

    def __post_init__(self) -> None:
        if self.num_paths < 2:
            raise ValueError(f"num_paths must be at least 2, got {self.num_paths}")
        if self.num_swaps < 0 or self.max_legal_prefixes < 0:
            raise ValueError("num_swaps and max_legal_prefixes must not be negative")


@dataclass(frozen=True, kw_only=True)
class DrawnBatch:
    """The trees of an update's prompts, and what was drawn in them."""

    trees: tuple[PrefixTree, ...]
    #: For each prompt, the free orders; the legal ones of the orbit and of the credit (None if exact); its swaps.
    samples: list[list[Order]]
    orbit_paths: list[list[Order]] | None
    credit_paths: list[list[Order]] | None
    swaps: list[list[Swap]]

    @property
    def used(self) -> Tensor:
        """``[B, R, n]`` bool: the slots that each row has used."""
        return used_in(self.trees)


def draw_batch(
    model: CausalModel,
    items: Sequence[PosetItem],
    *,
    method: Method,
    num_samples: int,
    config: EstimateConfig,
    backend: Backend,
    generator: torch.Generator,
    prompts_at_a_time: int | None = None,
) -> DrawnBatch:
    """Draw what an update needs from the current policy, and lay it out in one prefix tree for each prompt.

    ``prompts_at_a_time`` bounds how many are scored at once; what is drawn does not depend on it.
    """
    prompts = [item.prompt for item in items]
    lengths = [prompt.num_operations for prompt in prompts]
    orbits = [item.order for item in items]
    credits = [item.credit for item in items if item.credit is not None]
    if method.ratio != "shuffled_orbit":
        credits = []
    exact_orbit = fits(orbits, config.max_legal_prefixes)
    exact_credit = fits(credits, config.max_legal_prefixes)
    draws = [Draw(count=num_samples, scheme="independent")]
    # Certified swaps lie along legal orders, so some are drawn even where masses are exact.
    draws.append(Draw(count=config.num_paths, scheme=config.scheme, within=orbits))
    if credits and not exact_credit:
        draws.append(Draw(count=config.num_paths, scheme=config.scheme, within=credits))
    drawn = draw_orders(
        next_choices_of(model, prompts, backend=backend, at_a_time=prompts_at_a_time),
        draws,
        num_prompts=len(items),
        num_operations=lengths,
        generator=generator,
    )
    swaps = [
        _some_swaps(order, paths, config.num_swaps, generator)
        for order, paths in zip(orbits, drawn[1], strict=True)
    ]
    orbit_paths = None if exact_orbit else drawn[1]
    credit_paths = drawn[2] if len(drawn) > 2 else None
    trees = []
    for number, item in enumerate(items):
        depth = lengths[number] - 2
        prefixes = [order[:depth] for order in drawn[0][number]]
        sets = [(item.order, orbit_paths)]
        if credits:
            sets.append((credits[number], credit_paths))
        for order, paths in sets:
            some = legal_leaves(order) if paths is None else paths[number]
            prefixes += [prefix[:depth] for prefix in some]
        prefixes += [side for swap in swaps[number] for side in (swap.one, swap.other)]
        trees.append(tree_of(lengths[number], prefixes, max(lengths)))
    return DrawnBatch(
        trees=tuple(trees),
        samples=drawn[0],
        orbit_paths=orbit_paths,
        credit_paths=credit_paths,
        swaps=swaps,
    )


def next_choices_of(
    model: CausalModel,
    prompts: Sequence[Prompt],
    *,
    backend: Backend,
    at_a_time: int | None = None,
) -> NextChoices:
    """The policy's next choices after given prefixes, as :func:`vcrt.policy.drawing.draw_orders` asks for them."""
    size = at_a_time or len(prompts)

    @torch.no_grad()
    def found(prefixes: Sequence[Sequence[Order]]) -> list[Tensor]:
        trees = [
            prefix_tree(prompt.num_operations, some)
            for prompt, some in zip(prompts, prefixes, strict=True)
        ]
        answers: list[Tensor] = []
        for start in range(0, len(prompts), size):
            part = slice(start, start + size)
            scores = score_prefixes(
                model, prompts[part], trees[part], interface="pointers", backend=backend
            )
            answers += [
                scores.choice_log_probs[number, [tree.row_of[prefix] for prefix in some]]
                for number, (tree, some) in enumerate(zip(trees[part], prefixes[part], strict=True))
            ]
        return answers

    return found


def freeze_sampled(
    drawn: DrawnBatch,
    items: Sequence[PosetItem],
    choices: Tensor,
    used: Tensor,
    frozen_log_mass: Tensor,
    method: Method,
) -> SampledBatch:
    """Judge the samples and fix what the update compares with; ``choices [B, R, n]`` are the behaviour policy's."""
    device = choices.device
    samples = _on(paths_in(drawn.trees, drawn.samples), device)
    rewards = torch.tensor(
        [
            [float(item.order.allows(order)) for order in some]
            for item, some in zip(items, drawn.samples, strict=True)
        ],
        device=device,
    ).to(choices.dtype)
    orbits = [item.order for item in items]
    orbit = orbit_view(drawn.trees, orbits, drawn.orbit_paths, choices, used)
    credit = None
    if method.ratio == "orbit":
        credit = orbit
    elif method.ratio == "shuffled_orbit":
        wanted = [item.credit for item in items if item.credit is not None]
        if len(wanted) != len(items):
            raise ValueError(f"the items were not encoded for the method {method.name!r}")
        credit = orbit_view(drawn.trees, wanted, drawn.credit_paths, choices, used)
    return SampledBatch(
        samples=samples,
        rewards=rewards,
        advantages=leave_one_out_advantage(rewards),
        behaviour=log_choice(choices, samples).sum(-1),
        behaviour_choices=choices,
        frozen_log_mass=frozen_log_mass.to(device),
        orbit=orbit,
        credit=credit,
        behaviour_log_mass=None if credit is None else credit.masses(choices, used).log_inside,
        margin={None: None, "native": orbit, "shuffled": credit}[method.margin],
        histories=_histories(drawn).to(device),
        used=used,
    )


def orbit_view(
    trees: Sequence[PrefixTree],
    orders: Sequence[PartialOrder],
    paths: Sequence[Sequence[Order]] | None,
    choices: Tensor,
    used: Tensor,
) -> OrbitView:
    """How the mass of each prompt's linear extensions is read: from ``paths`` that the policy behind ``choices`` drew.

    Without paths, from all legal prefixes, which the trees must then hold.
    """
    device = choices.device
    legal = legal_moves(trees, orders).to(device)
    if paths is None:
        rows = legal_rows(trees, orders)
        names = ("legal", "last", "chain", "parent", "slot")
        return OrbitView(
            legal=legal, rows=replace(rows, **{n: getattr(rows, n).to(device) for n in names})
        )
    placed = _on(paths_in(trees, paths), device)
    log_q = path_terms(choices, legal, used, placed).log_q
    return OrbitView(legal=legal, paths=placed, behaviour_log_q=log_q)


def _on(paths: Paths, device: torch.device) -> Paths:
    return replace(paths, rows=paths.rows.to(device), slots=paths.slots.to(device))


def _some_swaps(
    order: PartialOrder, paths: Sequence[Order], count: int, generator: torch.Generator
) -> list[Swap]:
    """Up to ``count`` of the different certified swaps along legal orders, all equally likely."""
    found = list(dict.fromkeys(swap for path in paths for swap in swaps_along(order, path)))
    chosen = torch.randperm(len(found), generator=generator)[:count].tolist()
    return [found[number] for number in chosen]


def _histories(drawn: DrawnBatch) -> Tensor:
    rows = [
        [prompt, tree.row_of[swap.one], tree.row_of[swap.other]]
        for prompt, (tree, some) in enumerate(zip(drawn.trees, drawn.swaps, strict=True))
        for swap in some
    ]
    return torch.tensor(rows, dtype=torch.long).reshape(-1, 3)
