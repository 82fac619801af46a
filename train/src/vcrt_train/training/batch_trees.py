"""Choose and score prefixes of an update's prompts, and fix the values that the update compares with.

If orders are listed, the tree holds all orders and nothing is estimated. Otherwise each prompt has a tree of orders
drawn for this update: orders of the behaviour policy for the rewards, orders masked to legal moves for the orbit mass
(unless every legal prefix fits), and certified swaps. All epochs score the same trees. This module does not choose the
items of an update.

Shapes: ``B`` prompts, ``G`` samples a prompt, ``R`` rows of the largest tree, ``n`` slots, ``E`` events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad

from vcrt.errors import RunError
from vcrt.limits import MAX_ENUMERATED
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder
from vcrt.printable import counted
from vcrt_train.config import Backend, EstimatorConfig, Interface
from vcrt_train.objective.batch import (
    FrozenBatch,
    LegalPrefixes,
    ListedOrders,
    MaskedPaths,
    OrderSet,
    event_log_probs,
)
from vcrt_train.objective.losses import (
    leave_one_out_advantage,
    scaled_by_deviation,
    step_advantages,
)
from vcrt_train.objective.orbit_mass import Paths, failing_log_mass, orbit_log_mass, path_terms
from vcrt_train.policy.causal_model import CausalModel, Prompt
from vcrt_train.policy.order_sampling import Draw, NextChoices, sample_orders
from vcrt_train.policy.prefix_tree import OrderTree, PrefixTree, order_tree, prefix_tree
from vcrt_train.policy.scoring import score_orders, score_prefixes, tree_depth
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
class ListedTrees:
    """The tree of all orders of each prompt; nothing is estimated, and samples are drawn from the scores."""

    trees: tuple[OrderTree, ...]
    interface: Interface

    @property
    def used(self) -> Tensor:
        """``[R, n]`` bool: the slots that each row has used."""
        return torch.tensor(self.trees[0].used)

    @property
    def num_choices(self) -> list[int]:
        """The number of choices in an order of each prompt, at least 1."""
        return [max(tree.num_choices, 1) for tree in self.trees]

    @property
    def orders(self) -> Paths:
        """``[M, T]``: the rows and slots of all orders' choices."""
        tree = self.trees[0]
        return Paths(rows=torch.tensor(tree.order_rows), slots=torch.tensor(tree.order_slots))

    @property
    def uniform(self) -> None:
        """None: no orders are drawn uniformly, because all are scored."""
        return None

    def score(
        self,
        model: CausalModel,
        items: Sequence[EncodedItem],
        numbers: Sequence[int],
        *,
        backend: Backend,
    ) -> tuple[Tensor, ...]:
        """Score the trees of the items with these ``numbers``: ``choices [.., R, n]``.

        The tokens interface also gives the log-probability ``[..]`` of all answers that are no orders.
        """
        prompts = [items[number].prompt for number in numbers]
        scores = score_orders(model, prompts, interface=self.interface, backend=backend)
        if scores.malformed_log_prob is None:
            return (scores.choice_log_probs,)
        return scores.choice_log_probs, scores.malformed_log_prob

    def draw_samples(
        self,
        items: Sequence[EncodedItem],
        behaviour: Tensor,
        num_samples: int,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Return the sampled events and their rewards, ``[B, G]`` each."""
        samples = sample_events(behaviour, num_samples, generator)
        legal = _members([item.orbit for item in items])
        malformed = legal.new_zeros(len(items), behaviour.shape[1] - legal.shape[1])
        rewards = torch.cat([legal, malformed], dim=1).gather(1, samples)
        return samples, rewards.to(behaviour.dtype)

    def orbit_set(self, items: Sequence[EncodedItem], choices: Tensor, used: Tensor) -> OrderSet:
        """Return the certified orbits."""
        return ListedOrders(members=_members([item.orbit for item in items]).to(choices.device))

    def credit_set(self, items: Sequence[EncodedItem], choices: Tensor, used: Tensor) -> OrderSet:
        """Return the sets whose mass gives a success its ratio."""
        return ListedOrders(members=_members([item.credit for item in items]).to(choices.device))

    def swaps_of(self, items: Sequence[EncodedItem]) -> list[Sequence[tuple[Order, Order]]]:
        """Return the prefixes on both sides of each prompt's certified swaps."""
        return [item.orbit.swaps for item in items if isinstance(item.orbit, OrderList)]


@dataclass(frozen=True, kw_only=True)
class DrawnTrees:
    """A tree of drawn orders for each prompt, for the pointer interface."""

    trees: tuple[PrefixTree, ...]
    #: Orders drawn from the behaviour policy, without a mask.
    samples: list[list[Order]]
    #: Drawn legal orders of the orbit and of the shuffled set; None if all legal prefixes fit, or there is no such set.
    orbit_paths: list[list[Order]] | None
    credit_paths: list[list[Order]] | None
    swaps: list[list[Swap]]
    #: Uniformly drawn legal orders of the orbit, for a method that trains on them; None if all are scored.
    uniform_paths: list[list[Order]] | None = None

    @property
    def used(self) -> Tensor:
        """``[B, R, n]`` bool: the slots that each row has used."""
        return used_in(self.trees)

    @property
    def num_choices(self) -> list[int]:
        """The number of choices in an order of each prompt; the forced last one counts only if it is alone."""
        return [max(tree.num_operations - 1, 1) for tree in self.trees]

    @property
    def orders(self) -> Paths:
        """``[B, G, T]``: the rows and slots of the sampled orders' choices."""
        return paths_in(self.trees, self.samples)

    @property
    def uniform(self) -> Paths | None:
        """``[B, K, T]``: the rows and slots of the uniformly drawn orders' choices."""
        return None if self.uniform_paths is None else paths_in(self.trees, self.uniform_paths)

    def score(
        self,
        model: CausalModel,
        items: Sequence[EncodedItem],
        numbers: Sequence[int],
        *,
        backend: Backend,
    ) -> tuple[Tensor, ...]:
        """Score the trees of the items with these ``numbers``: ``choices [.., R, n]``."""
        prompts = [items[number].prompt for number in numbers]
        trees = [self.trees[number] for number in numbers]
        scores = score_prefixes(model, prompts, trees, interface="pointers", backend=backend)
        most_rows = max(tree.num_rows for tree in self.trees)
        most_slots = max(tree.num_operations for tree in self.trees)
        rows, slots = most_rows - scores.used.shape[1], most_slots - scores.used.shape[2]
        # Padded slots have probability 0; padded rows are never read.
        found = pad(scores.choice_log_probs, (0, slots), value=-torch.inf)
        return (pad(found, (0, 0, 0, rows)),)

    def draw_samples(
        self,
        items: Sequence[EncodedItem],
        behaviour: Tensor,
        num_samples: int,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor]:
        """Return the events, which were sampled with the trees, and their rewards, ``[B, G]`` each."""
        events = torch.arange(num_samples).expand(len(items), num_samples)
        rewards = torch.tensor(
            [
                [float(item.is_legal(order)) for order in some]
                for item, some in zip(items, self.samples, strict=True)
            ]
        )
        return events, rewards.to(behaviour.dtype)

    def orbit_set(self, items: Sequence[EncodedItem], choices: Tensor, used: Tensor) -> OrderSet:
        """Return the certified orbits."""
        orders = _partial_orders([item.orbit for item in items])
        return partial_order_set(self.trees, orders, self.orbit_paths, choices, used)

    def credit_set(self, items: Sequence[EncodedItem], choices: Tensor, used: Tensor) -> OrderSet:
        """Return the sets whose mass gives a success its ratio."""
        orders = _partial_orders([item.credit for item in items])
        return partial_order_set(self.trees, orders, self.credit_paths, choices, used)

    def swaps_of(self, items: Sequence[EncodedItem]) -> list[Sequence[tuple[Order, Order]]]:
        """Return the prefixes on both sides of each prompt's drawn swaps."""
        return [[(swap.one, swap.other) for swap in some] for some in self.swaps]


#: The prefix tree of each prompt of an update, and the orders drawn for it.
BatchTrees: TypeAlias = ListedTrees | DrawnTrees


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
    """Return the trees of an update: of all orders if they are listed, else of orders drawn from the current policy.

    At most ``prompts_at_a_time`` prompts are scored at once; the draws do not depend on this number. Raises
    :class:`RunError` for answers in tokens if orders are not listed, and :class:`vcrt.errors.TooLargeError` if orders
    must be drawn uniformly but are too many to count.
    """
    lengths = [item.prompt.num_operations for item in items]
    if all(item.listed for item in items):
        depth = tree_depth(lengths[0], method.interface)
        whole = tuple(order_tree(n, depth) for n in lengths)
        return ListedTrees(trees=whole, interface=method.interface)
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
    # Certified swaps lie along legal orders, so some orders are drawn even if masses are exact.
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
    orbit_paths = None if exact_orbit else found[1]
    credit_paths = found[2] if len(found) > 2 else None
    swaps = [
        _some_swaps(order, paths, config.num_swaps, generator)
        for order, paths in zip(orbits, found[1], strict=True)
    ]
    uniform_paths: list[list[Order]] | None = None
    if "augmentation_loss" in method.terms and not exact_orbit:
        uniform_paths = [
            uniform_orders(order, config.num_paths, config.scheme, generator) for order in orbits
        ]
    sets = [(orbits, orbit_paths)] + ([(credits, credit_paths)] if credits else [])
    trees = []
    for number, length in enumerate(lengths):
        prefixes = [order[: length - 2] for order in found[0][number]]
        if uniform_paths is not None:
            prefixes += [order[: length - 2] for order in uniform_paths[number]]
        for orders, paths in sets:
            some = legal_leaves(orders[number]) if paths is None else paths[number]
            prefixes += [prefix[: length - 2] for prefix in some]
        prefixes += [side for swap in swaps[number] for side in (swap.one, swap.other)]
        trees.append(tree_of(length, prefixes, max(lengths)))
    return DrawnTrees(
        trees=tuple(trees),
        samples=found[0],
        orbit_paths=orbit_paths,
        credit_paths=credit_paths,
        swaps=swaps,
        uniform_paths=uniform_paths,
    )


def next_choices_of(
    model: CausalModel,
    prompts: Sequence[Prompt],
    *,
    backend: Backend,
    at_a_time: int | None = None,
) -> NextChoices:
    """Return the function for :mod:`vcrt_train.policy.order_sampling` that scores the policy's next choices."""
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
    """Sample from the behaviour policy, which gave these scores, reward the samples, and fix each term's orders.

    Samples of listed orders are drawn here; other samples were drawn with the trees. A sample's reward is 1 if it is in
    the certified orbit, else 0. Raises ``ValueError`` if the items were encoded for another method.
    """
    device, used = choices.device, batch.used.to(choices.device)
    orders = _on(batch.orders, device)
    behaviour = event_log_probs(choices, malformed, orders)
    samples, rewards = batch.draw_samples(items, behaviour, num_samples, generator)
    num_credits = sum(item.credit is not None for item in items)
    if num_credits != (len(items) if method.has_credit else 0):
        raise ValueError(f"the items were not encoded for the method {method.name!r}")
    orbit = batch.orbit_set(items, choices, used)
    credit: OrderSet | None = None
    if method.ratio == "shuffled_orbit":
        credit = batch.credit_set(items, choices, used)
    elif num_credits:
        credit = orbit
    mass: Tensor | None = None
    if isinstance(credit, ListedOrders):
        mass = orbit_log_mass(behaviour[:, : credit.members.shape[1]], credit.members)
    elif credit is not None:
        mass = credit.masses(choices, used).log_inside
    failing: Tensor | None = None
    if method.ratio == "both_classes":
        if isinstance(orbit, ListedOrders):
            masses = orbit.masses(behaviour[:, : orbit.members.shape[1]])
        else:
            masses = orbit.masses(choices, used)
        failing = failing_log_mass(masses, malformed)
    uniform = batch.uniform
    return FrozenBatch(
        orders=orders,
        samples=samples.to(device),
        rewards=rewards.to(device),
        advantages=_advantages(batch, items, samples, rewards, method).to(device),
        behaviour_choices=choices,
        behaviour=behaviour,
        frozen_log_mass=frozen_log_mass.to(device),
        orbit=orbit,
        credit=credit,
        behaviour_log_mass=mass,
        behaviour_log_failing=failing,
        margin=credit if method.margin == "shuffled" and credit is not None else orbit,
        uniform_paths=None if uniform is None else _on(uniform, device),
        histories=_histories(batch, items).to(device),
        used=used,
        num_choices=torch.tensor(batch.num_choices, device=device)[:, None],
    )


def _advantages(
    batch: BatchTrees,
    items: Sequence[EncodedItem],
    samples: Tensor,
    rewards: Tensor,
    method: Method,
) -> Tensor:
    """Return the advantages of the samples ``[B, G]``, or of their choices ``[B, G, T]`` for a ratio of steps."""
    if method.ratio == "steps":
        num_choices = torch.tensor(batch.num_choices)[:, None, None]
        found = step_advantages(rewards, _states(batch, items, samples))
        # A shorter record has fewer choices than places; this factor makes the mean one over its own choices.
        return found * found.shape[-1] / num_choices
    advantages = leave_one_out_advantage(rewards)
    if method.scale_rewards == "group":
        return scaled_by_deviation(advantages, rewards)
    return advantages


def _states(batch: BatchTrees, items: Sequence[EncodedItem], samples: Tensor) -> Tensor:
    """Return ``[B, G, T]``: a number for the state before each choice of each sample, equal for equal states."""
    rows = batch.orders.rows
    rows = rows[samples] if rows.ndim == 2 else rows
    found = torch.zeros_like(rows)
    for number, (item, tree) in enumerate(zip(items, batch.trees, strict=True)):
        names = item.states(tree.prefixes)
        numbers = {name: place for place, name in enumerate(dict.fromkeys(names.values()))}
        of_row = torch.tensor([numbers[names[prefix]] for prefix in tree.prefixes])
        found[number] = of_row[rows[number]]
    return found


def partial_order_set(
    trees: Sequence[PrefixTree],
    orders: Sequence[PartialOrder],
    paths: Sequence[Sequence[Order]] | None,
    choices: Tensor,
    used: Tensor,
) -> LegalPrefixes | MaskedPaths:
    """Return the sets of each prompt's linear extensions, on ``paths`` that the policy behind ``choices`` drew.

    Without paths, the sets use all legal prefixes, which the trees must then hold.
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
    """Draw independent events ``[B, G]`` from the distributions ``log_probs [B, E]``, on the CPU in float64.

    Each draw inverts the cumulative distribution at one uniform number, so events of probability 0 are never drawn.
    """
    cumulative = log_probs.detach().cpu().double().exp().cumsum(-1)
    uniform = torch.rand(len(cumulative), num_samples, generator=generator, dtype=torch.float64)
    return torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)


def _on(paths: Paths, device: torch.device) -> Paths:
    return replace(paths, rows=paths.rows.to(device), slots=paths.slots.to(device))


def _partial_orders(orders: Sequence[OrderList | PartialOrder | None]) -> list[PartialOrder]:
    return [order for order in orders if isinstance(order, PartialOrder)]


def _members(orders: Sequence[OrderList | PartialOrder | None]) -> Tensor:
    """Return ``[B, M]`` bool: whether each order is in each listed set."""
    return torch.stack([order.members for order in orders if isinstance(order, OrderList)])


def _some_swaps(
    order: PartialOrder, paths: Sequence[Order], count: int, generator: torch.Generator
) -> list[Swap]:
    """Return up to ``count`` different certified swaps along legal orders, all equally likely."""
    found = list(dict.fromkeys(swap for path in paths for swap in swaps_along(order, path)))
    chosen = torch.randperm(len(found), generator=generator)[:count].tolist()
    return [found[number] for number in chosen]


def _histories(batch: BatchTrees, items: Sequence[EncodedItem]) -> Tensor:
    """Return ``[H, 3]``: (prompt, row after ab, row after ba) of each swap."""
    rows = [
        [number, tree.row_of[one], tree.row_of[other]]
        for number, (tree, some) in enumerate(zip(batch.trees, batch.swaps_of(items), strict=True))
        for one, other in some
    ]
    return torch.tensor(rows, dtype=torch.long).reshape(-1, 3)
