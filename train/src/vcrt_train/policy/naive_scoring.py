"""Score by the ``naive`` backend: every longest prefix of a tree as a sequence of its own.

It asks nothing of a model but that it is causal: it is the oracle, and it serves models that no other backend can.

Legend: ``B`` prompts, ``R`` rows of the largest tree, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from vcrt_train.policy.prefix_tree import NodeTree
from vcrt_train.policy.prompts import CausalModel, Prompt, unwrapped


def naive_logits(
    model: CausalModel, prompts: Sequence[Prompt], trees: Sequence[NodeTree]
) -> Tensor:
    """``[B, R, V]``: the logits after each row of each prompt's own tree, one forward pass a prompt.

    What stands behind the rows of a smaller tree is of no meaning.
    """
    num_rows = max(tree.num_rows for tree in trees)
    found = [_logits_of_one(model, *each) for each in zip(prompts, trees, strict=True)]
    return torch.cat([pad(logits, (0, 0, 0, num_rows - logits.shape[1])) for logits in found])


def leaf_tokens(prompt: Prompt, tree: NodeTree, length: int) -> list[list[int]]:
    """The tokens of each leaf, with others behind them up to ``length``, which change no logit before."""
    tokens, filler = tree.tokens(prompt.pointer_ids), prompt.pointer_ids[0]
    ways = [[tokens[row - 1] for row in tree.way(leaf)] for leaf in tree.leaves]
    return [[*way, *[filler] * (length - len(way))] for way in ways]


def _logits_of_one(model: CausalModel, prompt: Prompt, tree: NodeTree) -> Tensor:
    sequences = [[*prompt.token_ids, *leaf] for leaf in leaf_tokens(prompt, tree, tree.depth)]
    logits: Tensor = model(
        input_ids=torch.tensor(sequences, device=unwrapped(model).device),
        use_cache=False,
        logits_to_keep=tree.depth + 1,
    ).logits
    return logits[list(tree.first_leaves), tree.depths.tolist()][None]
