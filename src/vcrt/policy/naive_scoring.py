"""Score by the ``naive`` backend: every longest prefix of a tree as a sequence of its own.

It asks nothing of a model but that it is causal: it is the oracle, and it serves models that no other backend can.

Legend: ``B`` prompts, ``R`` rows of the largest tree, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from vcrt.orders import Order
from vcrt.policy.prefix_tree import PrefixTree
from vcrt.policy.prompts import CausalModel, Prompt, unwrapped


def naive_logits(
    model: CausalModel, prompts: Sequence[Prompt], trees: Sequence[PrefixTree]
) -> Tensor:
    """``[B, R, V]``: the logits after each prefix of each prompt's own tree, one forward pass a prompt.

    What stands behind the rows of a smaller tree is of no meaning.
    """
    num_rows = max(tree.num_rows for tree in trees)
    found = [_logits_of_one(model, *each) for each in zip(prompts, trees, strict=True)]
    return torch.cat([pad(logits, (0, 0, 0, num_rows - logits.shape[1])) for logits in found])


@lru_cache(maxsize=64)
def leaves(tree: PrefixTree) -> tuple[Order, ...]:
    """The prefixes of the tree that no other continues, in its order."""
    inner = set(tree.parent.tolist())
    return tuple(prefix for row, prefix in enumerate(tree.prefixes) if row not in inner)


@lru_cache(maxsize=64)
def first_leaves(tree: PrefixTree) -> tuple[int, ...]:
    """For each row, the first leaf that begins with its prefix: leaves that share a prefix agree on it."""
    first: dict[Order, int] = {}
    for number, leaf in enumerate(leaves(tree)):
        for length in range(len(leaf) + 1):
            first.setdefault(leaf[:length], number)
    return tuple(first[prefix] for prefix in tree.prefixes)


def padded_leaf(prompt: Prompt, leaf: Order, length: int) -> list[int]:
    """The tokens of a leaf, with others behind them up to ``length``: a causal model's logits before are the same."""
    return [prompt.pointer_ids[slot] for slot in (*leaf, *[0] * (length - len(leaf)))]


def _logits_of_one(model: CausalModel, prompt: Prompt, tree: PrefixTree) -> Tensor:
    sequences = [
        [*prompt.token_ids, *padded_leaf(prompt, leaf, tree.depth)] for leaf in leaves(tree)
    ]
    logits: Tensor = model(
        input_ids=torch.tensor(sequences, device=unwrapped(model).device),
        use_cache=False,
        logits_to_keep=tree.num_choices,
    ).logits
    return logits[list(first_leaves(tree)), tree.depths.tolist()][None]
