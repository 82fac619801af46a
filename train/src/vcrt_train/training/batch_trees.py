"""Choose which prefixes of an update's prompts are scored, score them, and fix what the update compares with.

The tree of all orders where they are listed: then nothing is estimated. Elsewhere, one tree for each prompt of what is
drawn afresh for the update: orders of the behaviour policy for the rewards, orders masked to legal moves for the orbit
mass (unless every legal prefix fits), and certified swaps. Both epochs score the same trees. Not covered: which items
an update gets.

Shapes: ``B`` prompts, ``G`` samples a prompt, ``R`` rows of the largest tree, ``n`` slots, ``E`` events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from vcrt.errors import RunError
from vcrt.limits import MAX_ENUMERATED
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder
from vcrt.printable import counted
from vcrt_train.config import Backend, EstimatorConfig
from vcrt_train.objective.advantage import leave_one_out_advantage
from vcrt_train.objective.batch import (
    FrozenBatch,
    LegalPrefixes,
    ListedOrders,
    MaskedPaths,
    OrderSet,
    event_log_probs,
)
from vcrt_train.objective.masked_paths import Paths, path_terms
from vcrt_train.objective.orbit_mass import orbit_log_mass
from vcrt_train.policy.interface import Interface, tree_depth
from vcrt_train.policy.order_sampling import Draw, NextChoices, sample_orders
from vcrt_train.policy.prefix_tree import OrderTree, PrefixTree, order_tree, prefix_tree
from vcrt_train.policy.scoring import CausalModel, Prompt, score_orders, score_prefixes
from vcrt_train.training.items import EncodedItem, OrderList
from vcrt_train.training.legal_trees import (
    Swap,
    fits,
    legal_leaves,
    legal_moves,
    legal_rows,
    paths_in,
    swaps_along,
    tree_of,
    uniform_orders,
    used_in,
)
from vcrt_train.training.methods import Method


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """What was drawn for each prompt: free orders, legal ones of the orbit and of the credit (None if exact), swaps."""

    samples: list[list[Order]]
    orbit_paths: list[list[Order]] | None
    credit_paths: list[list[Order]] | None
    swaps: list[list[Swap]]
    #: Legal orders of the orbit, all equally likely, for a method that trains on them; None if all are scored.
    uniform_paths: list[list[Order]] | None = None


@dataclass(frozen=True, kw_only=True)
class BatchTrees:
    """The prefix tree of each prompt of an update, and what was drawn in it."""

    trees: tuple[PrefixTree, ...]
    interface: Interface
    #: None where the trees are those of all orders: then samples are drawn from their scores.
    drawn: Drawn | None

    @property
    def used(self) -> Tensor:
        """``[R, n]`` or ``[B, R, n]`` bool: the slots that each row has used."""
        return torch.tensor(self.trees[0].used) if self.drawn is None else used_in(self.trees)


def draw_trees(
    model: CausalModel,
    items: Sequence[EncodedItem],
    *,
    method: Method,
    num_samples: int,
    config: EstimatorConfig,
    backend: Backend,
    generator: torch.Generator,
    prompts_at_a_time: int | None = None,
) -> BatchTrees:
    """The trees of an update, all orders where these are listed; elsewhere drawn from the current policy.

    ``prompts_at_a_time`` bounds how many are scored at once; what is drawn does not depend on it. Raises
    :class:`RunError` for answers in tokens where orders are not listed, and :class:`vcrt.errors.TooLargeError` where
    orders should be drawn uniformly that are too many to be counted.
    """
    lengths = [item.prompt.num_operations for item in items]
    if all(item.listed for item in items):
        depth = tree_depth(lengths[0], method.interface)
        whole = tuple(order_tree(n, depth) for n in lengths)
        return BatchTrees(trees=whole, interface=method.interface, drawn=None)
    if method.interface != "pointers":
        raise RunError(
            "the method cannot be trained on records of so many operations",
            where=method.name,
            found=f"{counted(max(lengths), 'operation')} and answers in tokens",
            expected=f"at most {MAX_ENUMERATED} operations, or a method that answers through pointers",
        )
    prompts = [item.prompt for item in items]
    orbits = _partial_orders([item.orbit for item in items])
    credits = _partial_orders([item.credit for item in items])
    if method.ratio != "shuffled_orbit":
        credits = []
    exact_orbit = fits(orbits, config.max_legal_prefixes)
    exact_credit = fits(credits, config.max_legal_prefixes)
    draws = [Draw(count=num_samples, scheme="independent")]
    # Certified swaps lie along legal orders, so some are drawn even where masses are exact.
    draws.append(Draw(count=config.num_paths, scheme=config.scheme, within=orbits))
    if credits and not exact_credit:
        draws.append(Draw(count=config.num_paths, scheme=config.scheme, within=credits))
    found = sample_orders(
        next_choices_of(model, prompts, backend=backend, at_a_time=prompts_at_a_time),
        draws,
        num_prompts=len(items),
        num_operations=lengths,
        generator=generator,
    )
    drawn = Drawn(
        samples=found[0],
        orbit_paths=None if exact_orbit else found[1],
        credit_paths=found[2] if len(found) > 2 else None,
        swaps=[
            _some_swaps(order, paths, config.num_swaps, generator)
            for order, paths in zip(orbits, found[1], strict=True)
        ],
        uniform_paths=[
            uniform_orders(order, config.num_paths, config.scheme, generator) for order in orbits
        ]
        if "augmentation_loss" in method.terms and not exact_orbit
        else None,
    )
    sets = [(orbits, drawn.orbit_paths)] + ([(credits, drawn.credit_paths)] if credits else [])
    trees = []
    for number, length in enumerate(lengths):
        prefixes = [order[: length - 2] for order in drawn.samples[number]]
        if drawn.uniform_paths is not None:
            prefixes += [order[: length - 2] for order in drawn.uniform_paths[number]]
        for orders, paths in sets:
            some = legal_leaves(orders[number]) if paths is None else paths[number]
            prefixes += [prefix[: length - 2] for prefix in some]
        prefixes += [side for swap in drawn.swaps[number] for side in (swap.one, swap.other)]
        trees.append(tree_of(length, prefixes, max(lengths)))
    return BatchTrees(trees=tuple(trees), interface="pointers", drawn=drawn)


def score_trees(
    model: CausalModel,
    items: Sequence[EncodedItem],
    batch: BatchTrees,
    numbers: Sequence[int],
    *,
    backend: Backend,
) -> tuple[Tensor, ...]:
    """Score the trees of the items of these ``numbers``: ``choices [.., R, n]``.

    In the tokens interface also the log-probability ``[..]`` of all answers that are no orders.
    """
    prompts = [items[number].prompt for number in numbers]
    if batch.drawn is None:
        all_orders = score_orders(model, prompts, interface=batch.interface, backend=backend)
        if all_orders.malformed_log_prob is None:
            return (all_orders.choice_log_probs,)
        return all_orders.choice_log_probs, all_orders.malformed_log_prob
    trees = [batch.trees[number] for number in numbers]
    scores = score_prefixes(model, prompts, trees, interface=batch.interface, backend=backend)
    most_rows = max(tree.num_rows for tree in batch.trees)
    most_slots = max(tree.num_operations for tree in batch.trees)
    rows, slots = most_rows - scores.used.shape[1], most_slots - scores.used.shape[2]
    # Slots that none of these prompts has are never chosen; rows that none has are never read.
    found = pad(scores.choice_log_probs, (0, slots), value=-torch.inf)
    return (pad(found, (0, 0, 0, rows)),)


def next_choices_of(
    model: CausalModel,
    prompts: Sequence[Prompt],
    *,
    backend: Backend,
    at_a_time: int | None = None,
) -> NextChoices:
    """The policy's next choices after given prefixes, as :mod:`vcrt_train.policy.order_sampling` asks for them."""
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


def freeze(
    batch: BatchTrees,
    items: Sequence[EncodedItem],
    choices: Tensor,
    malformed: Tensor | None,
    frozen_log_mass: Tensor,
    *,
    method: Method,
    num_samples: int,
    generator: torch.Generator,
) -> FrozenBatch:
    """Sample from the behaviour policy, whose scores these are, judge the samples, and fix each term's orders.

    Samples of listed orders are drawn here, of others with the trees. A sample's reward is whether it is in the
    certified orbit. Raises ``ValueError`` if the items were encoded for another method.
    """
    device, used = choices.device, batch.used.to(choices.device)
    # Trees of drawn prefixes leave the last choice, which is forced, out.
    num_choices = [
        tree.num_choices if batch.drawn is None else tree.num_operations - 1 for tree in batch.trees
    ]
    orders = _listed_paths(batch, device)
    behaviour = event_log_probs(choices, malformed, orders)
    samples, rewards = _samples(batch, items, behaviour, num_samples, generator)
    drawn = batch.drawn

    def order_set(
        of: Sequence[OrderList | PartialOrder], paths: Sequence[Sequence[Order]] | None
    ) -> OrderSet:
        listed = [one.members for one in of if isinstance(one, OrderList)]
        if listed:
            return ListedOrders(members=torch.stack(listed).to(device))
        return partial_order_set(batch.trees, _partial_orders(of), paths, choices, used)

    orbit = order_set([item.orbit for item in items], drawn.orbit_paths if drawn else None)
    credits = [item.credit for item in items if item.credit is not None]
    if len(credits) != (0 if method.ratio == "trajectory" else len(items)):
        raise ValueError(f"the items were not encoded for the method {method.name!r}")
    credit: OrderSet | None = None
    if method.ratio == "orbit":
        credit = orbit
    elif credits:
        credit = order_set(credits, drawn.credit_paths if drawn else None)
    mass: Tensor | None = None
    if isinstance(credit, ListedOrders):
        mass = orbit_log_mass(behaviour[:, : credit.members.shape[1]], credit.members)
    elif credit is not None:
        mass = credit.masses(choices, used).log_inside
    return FrozenBatch(
        orders=orders,
        samples=samples.to(device),
        rewards=rewards.to(device),
        advantages=leave_one_out_advantage(rewards).to(device),
        behaviour_choices=choices,
        behaviour=behaviour,
        frozen_log_mass=frozen_log_mass.to(device),
        orbit=orbit,
        credit=credit,
        behaviour_log_mass=mass,
        margin=credit if method.margin == "shuffled" and credit is not None else orbit,
        uniform_paths=_on(paths_in(batch.trees, drawn.uniform_paths), device)
        if drawn is not None and drawn.uniform_paths is not None
        else None,
        histories=_histories(batch, items).to(device),
        used=used,
        num_choices=torch.tensor(num_choices, device=device)[:, None],
    )


def partial_order_set(
    trees: Sequence[PrefixTree],
    orders: Sequence[PartialOrder],
    paths: Sequence[Sequence[Order]] | None,
    choices: Tensor,
    used: Tensor,
) -> LegalPrefixes | MaskedPaths:
    """How the mass of each prompt's linear extensions is read: from ``paths`` that the policy behind ``choices`` drew.

    Without paths, from all legal prefixes, which the trees must then hold.
    """
    device = choices.device
    legal = legal_moves(trees, orders).to(device)
    if paths is None:
        rows = legal_rows(trees, orders)
        names = ("legal", "last", "chain", "parent", "slot")
        on_device = replace(rows, **{name: getattr(rows, name).to(device) for name in names})
        return LegalPrefixes(legal=legal, rows=on_device)
    placed = _on(paths_in(trees, paths), device)
    log_q = path_terms(choices, legal, used, placed).log_q
    return MaskedPaths(legal=legal, paths=placed, behaviour_log_q=log_q)


def sample_events(log_probs: Tensor, num_samples: int, generator: torch.Generator) -> Tensor:
    """Independent draws ``[B, G]`` from the distributions ``log_probs [B, E]``, on the CPU in float64.

    Each draw inverts the cumulative distribution at one uniform number, so events of probability 0 are never drawn.
    """
    cumulative = log_probs.detach().cpu().double().exp().cumsum(-1)
    uniform = torch.rand(len(cumulative), num_samples, generator=generator, dtype=torch.float64)
    return torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)


def _listed_paths(batch: BatchTrees, device: torch.device) -> Paths:
    """Where all orders make their choices, or the sampled ones."""
    tree = batch.trees[0]
    if batch.drawn is not None:
        return _on(paths_in(batch.trees, batch.drawn.samples), device)
    assert isinstance(tree, OrderTree)
    return _on(
        Paths(rows=torch.tensor(tree.order_rows), slots=torch.tensor(tree.order_slots)), device
    )


def _samples(
    batch: BatchTrees,
    items: Sequence[EncodedItem],
    behaviour: Tensor,
    num_samples: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """``[B, G]`` twice: the sampled events, and their rewards."""
    if batch.drawn is None:
        samples = sample_events(behaviour, num_samples, generator)
        legal = torch.stack([item.listed.members for item in items if item.listed is not None])
        malformed = legal.new_zeros(len(items), behaviour.shape[1] - legal.shape[1])
        rewards = torch.cat([legal, malformed], dim=1).gather(1, samples)
        return samples, rewards.to(behaviour.dtype)
    samples = torch.arange(num_samples).expand(len(items), num_samples)
    rewards = torch.tensor(
        [
            [float(item.is_legal(order)) for order in some]
            for item, some in zip(items, batch.drawn.samples, strict=True)
        ]
    )
    return samples, rewards.to(behaviour.dtype)


def _on(paths: Paths, device: torch.device) -> Paths:
    return replace(paths, rows=paths.rows.to(device), slots=paths.slots.to(device))


def _partial_orders(orders: Sequence[OrderList | PartialOrder | None]) -> list[PartialOrder]:
    return [order for order in orders if isinstance(order, PartialOrder)]


def _some_swaps(
    order: PartialOrder, paths: Sequence[Order], count: int, generator: torch.Generator
) -> list[Swap]:
    """Up to ``count`` of the different certified swaps along legal orders, all equally likely."""
    found = list(dict.fromkeys(swap for path in paths for swap in swaps_along(order, path)))
    chosen = torch.randperm(len(found), generator=generator)[:count].tolist()
    return [found[number] for number in chosen]


def _histories(batch: BatchTrees, items: Sequence[EncodedItem]) -> Tensor:
    """``[H, 3]``: (prompt, row after ab, row after ba) of each swap."""
    if batch.drawn is None:
        pairs = [item.listed.swaps if item.listed is not None else () for item in items]
    else:
        pairs = [tuple((swap.one, swap.other) for swap in some) for some in batch.drawn.swaps]
    rows = [
        [number, tree.row_of[one], tree.row_of[other]]
        for number, (tree, some) in enumerate(zip(batch.trees, pairs, strict=True))
        for one, other in some
    ]
    return torch.tensor(rows, dtype=torch.long).reshape(-1, 3)
