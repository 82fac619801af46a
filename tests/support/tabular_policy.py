"""A random policy as a table: the next choice after every prefix of n slots, for tests of what is estimated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vcrt.orders import linear_extensions
from vcrt.partial_orders import PartialOrder
from vcrt_train.policy.prefix_tree import OrderTree, order_tree


@dataclass(frozen=True)
class Table:
    """Logits ``[R, n]`` at each row of the tree of all orders."""

    tree: OrderTree
    logits: Tensor

    @property
    def choices(self) -> Tensor:
        """``[R, n]``: log-probabilities of the next slot, ``-inf`` for used ones."""
        return self.logits.masked_fill(torch.tensor(self.tree.used), -torch.inf).log_softmax(-1)

    def log_probs(self) -> Tensor:
        """``[n!]``: of every order."""
        return self.choices[
            torch.tensor(self.tree.order_rows.copy()), torch.tensor(self.tree.order_slots.copy())
        ].sum(-1)

    def next_choices(self, prefixes):
        """What :func:`vcrt_train.policy.order_sampling.sample_orders` asks for."""
        choices = self.choices
        return [
            choices[torch.tensor([self.tree.row_of[p] for p in some], dtype=torch.long)]
            for some in prefixes
        ]


def random_table(num_operations: int, seed: int, scale: float = 1.0) -> Table:
    """A policy whose logits are normal numbers times ``scale``, in float64."""
    tree = order_tree(num_operations, num_operations - 2)
    draw = torch.Generator().manual_seed(seed)
    shape = (tree.num_rows, num_operations)
    return Table(tree, scale * torch.randn(shape, generator=draw, dtype=torch.float64))


def random_order(num_operations: int, seed: int, share: float = 0.3) -> PartialOrder:
    """A partial order in which each pair is related with this probability, in a random direction of the whole."""
    draw = np.random.default_rng(seed)
    names = draw.permutation(num_operations)
    pairs = [
        (int(names[a]), int(names[b]))
        for a in range(num_operations)
        for b in range(a + 1, num_operations)
        if draw.random() < share
    ]
    return PartialOrder.of(num_operations, pairs)


def members(order: PartialOrder) -> Tensor:
    """``[n!]`` bool: the linear extensions, by enumeration."""
    from vcrt.orders import all_orders

    legal = set(linear_extensions(order.num_operations, order.pairs))
    return torch.tensor([each in legal for each in all_orders(order.num_operations)])
