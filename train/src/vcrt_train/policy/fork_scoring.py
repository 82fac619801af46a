"""Score by the ``fork`` backend: each prompt once into a cache, continued by every longest prefix of an order.

For layers that carry a state from token to token (gated DeltaNet, Mamba, convolutions) and therefore cannot read the
tree's mask; right for full and sliding attention too. Prompts of one length run together. Those of other lengths run by
themselves, because padding would enter a recurrent state. Not covered: states of classes that
:mod:`vcrt_train.policy.functional_cache` does not know.

Legend: ``B`` prompts, ``K`` leaves of the largest tree, ``T`` tokens of one, ``R`` its rows, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from vcrt_train.policy.functional_cache import ForkedCache, RecordedCache
from vcrt_train.policy.naive_scoring import leaf_tokens
from vcrt_train.policy.prefix_tree import NodeTree
from vcrt_train.policy.prompts import CausalModel, Prompt, unwrapped

#: A tail of one token would take the library's decoding step, which overwrites states in place and whose kernels have
#: no backward pass. A second token, which nothing reads, avoids that.
SHORTEST_TAIL = 2


def fork_logits(model: CausalModel, prompts: Sequence[Prompt], trees: Sequence[NodeTree]) -> Tensor:
    """``[B, R, V]``: the logits after each row of each prompt's own tree, two passes for each length of prompts.

    What stands behind the rows of a smaller tree is of no meaning.
    """
    num_rows = max(tree.num_rows for tree in trees)
    by_length: dict[int, list[int]] = {}
    for index, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt.token_ids), []).append(index)
    groups = list(by_length.values())
    parts = [
        _logits_of_one_length(
            model, [prompts[i] for i in group], [trees[i] for i in group], num_rows
        )
        for group in groups
    ]
    if len(parts) == 1:
        return parts[0]
    shuffled = [index for group in groups for index in group]
    return torch.cat(parts)[[shuffled.index(index) for index in range(len(prompts))]]


def _logits_of_one_length(
    model: CausalModel, prompts: Sequence[Prompt], trees: Sequence[NodeTree], num_rows: int
) -> Tensor:
    inner = unwrapped(model)
    recorded = RecordedCache(inner.config)
    root: Tensor = model(
        input_ids=torch.tensor([prompt.token_ids for prompt in prompts], device=inner.device),
        past_key_values=recorded,
        use_cache=True,
        logits_to_keep=1,
    ).logits
    recorded.close()
    if num_rows == 1:
        return root
    length = max(SHORTEST_TAIL, *(tree.depth for tree in trees))
    num_leaves = max(len(tree.leaves) for tree in trees)
    tails = [
        leaf
        for prompt, tree in zip(prompts, trees, strict=True)
        for leaf in (
            *leaf_tokens(prompt, tree, length),
            *[[prompt.pointer_ids[0]] * length] * (num_leaves - len(tree.leaves)),
        )
    ]
    parts = [_kept(tree, num_leaves, length) for tree in trees]
    rows, first = [], 0
    for _, numbers in parts:
        rows.append(pad(numbers + first, (0, num_rows - 1 - len(numbers)), value=first))
        first += len(numbers)
    nodes: Tensor = model(
        input_ids=torch.tensor(tails, device=inner.device),
        past_key_values=ForkedCache(recorded, rows=num_leaves),
        use_cache=True,
        logits_to_keep=torch.cat([kept for kept, _ in parts]).to(inner.device),
    ).logits
    nodes = nodes.reshape(first, -1)[torch.stack(rows).to(inner.device)]
    return torch.cat([root, nodes], dim=1)


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)
def _kept(tree: NodeTree, num_leaves: int, length: int) -> tuple[Tensor, Tensor]:
    """``[K, T]`` bool: the one place of each prefix whose logits are computed; ``[nodes]``: where each node's is."""
    kept = torch.zeros(num_leaves, length, dtype=torch.bool)
    leaf = torch.tensor(tree.first_leaves[1:], dtype=torch.long)
    places = (leaf, torch.tensor(tree.depths[1:] - 1))
    kept[places] = True
    numbers = torch.full(kept.shape, -1)
    numbers[kept] = torch.arange(int(kept.sum()))
    return kept, numbers[places]
