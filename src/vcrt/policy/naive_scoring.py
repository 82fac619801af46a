"""The ``naive`` backend: every longest prefix of an order as a sequence of its own.

It asks nothing of a model but that it is causal: it is the oracle, and it serves models that no other backend can.

Legend: ``R`` rows of the order tree, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from vcrt.orders import Order
from vcrt.policy.order_tree import OrderTree
from vcrt.policy.prompts import CausalModel, Prompt, unwrapped


def naive_logits(model: CausalModel, prompts: Sequence[Prompt], tree: OrderTree) -> Tensor:
    """``[B, R, V]``: the logits after each prefix of the tree, one forward pass a prompt."""
    return torch.cat([_logits_of_one(model, prompt, tree) for prompt in prompts])


@lru_cache(maxsize=64)
def leaves(tree: OrderTree) -> tuple[Order, ...]:
    """The longest prefixes of the tree, in its order."""
    return tuple(prefix for prefix in tree.prefixes if len(prefix) == tree.depth)


@lru_cache(maxsize=64)
def first_leaves(tree: OrderTree) -> tuple[int, ...]:
    """For each row, the first leaf that begins with its prefix: leaves that share a prefix agree on it."""
    return tuple(
        next(i for i, leaf in enumerate(leaves(tree)) if leaf[: len(prefix)] == prefix)
        for prefix in tree.prefixes
    )


def _logits_of_one(model: CausalModel, prompt: Prompt, tree: OrderTree) -> Tensor:
    sequences = [
        [*prompt.token_ids, *(prompt.pointer_ids[slot] for slot in leaf)] for leaf in leaves(tree)
    ]
    logits: Tensor = model(
        input_ids=torch.tensor(sequences, device=unwrapped(model).device),
        use_cache=False,
        logits_to_keep=tree.num_choices,
    ).logits
    return logits[list(first_leaves(tree)), tree.depths.tolist()][None]
