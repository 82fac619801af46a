"""The ``fork`` backend: each prompt once into a cache, and the cache continued by every longest prefix of an order.

For layers that carry a state from token to token (gated DeltaNet, Mamba, convolutions) and therefore cannot read the
tree's mask; right for full and sliding attention too. Prompts of one length run together. Those of other lengths run by
themselves, because padding would enter a recurrent state. Not covered: states of classes that
:mod:`vcrt.policy.functional_cache` does not know.

Legend: ``B`` prompts, ``K`` longest prefixes, ``T`` tokens of one, ``R`` rows of the order tree, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from vcrt.policy.functional_cache import ForkedCache, RecordedCache
from vcrt.policy.naive_scoring import first_leaves, leaves
from vcrt.policy.order_tree import OrderTree
from vcrt.policy.prompts import CausalModel, Prompt, unwrapped

#: A tail of one token would take the library's decoding step, which overwrites states in place and whose kernels have
#: no backward pass. A second token, which nothing reads, avoids that.
SHORTEST_TAIL = 2


def fork_logits(model: CausalModel, prompts: Sequence[Prompt], tree: OrderTree) -> Tensor:
    """``[B, R, V]``: the logits after each prefix of the tree, two forward passes for each length of prompts."""
    by_length: dict[int, list[int]] = {}
    for index, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt.token_ids), []).append(index)
    groups = list(by_length.values())
    parts = [_logits_of_one_length(model, [prompts[i] for i in group], tree) for group in groups]
    if len(parts) == 1:
        return parts[0]
    shuffled = [index for group in groups for index in group]
    return torch.cat(parts)[[shuffled.index(index) for index in range(len(prompts))]]


def _logits_of_one_length(model: CausalModel, prompts: Sequence[Prompt], tree: OrderTree) -> Tensor:
    inner = unwrapped(model)
    recorded = RecordedCache(inner.config)
    root: Tensor = model(
        input_ids=torch.tensor([prompt.token_ids for prompt in prompts], device=inner.device),
        past_key_values=recorded,
        use_cache=True,
        logits_to_keep=1,
    ).logits
    recorded.close()
    if tree.depth == 0:
        return root
    kept, rows = _kept(tree)
    filler = max(SHORTEST_TAIL - tree.depth, 0)
    tails = [
        [prompt.pointer_ids[slot] for slot in leaf] + [prompt.pointer_ids[0]] * filler
        for prompt in prompts
        for leaf in leaves(tree)
    ]
    nodes: Tensor = model(
        input_ids=torch.tensor(tails, device=inner.device),
        past_key_values=ForkedCache(recorded, rows=len(leaves(tree))),
        use_cache=True,
        logits_to_keep=kept.repeat(len(prompts), 1).to(inner.device),
    ).logits
    nodes = nodes.reshape(len(prompts), len(rows), -1)[:, rows.to(inner.device)]
    return torch.cat([root, nodes], dim=1)


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)
def _kept(tree: OrderTree) -> tuple[Tensor, Tensor]:
    """``[K, T]`` bool: the one place of each prefix whose logits are computed; ``[R - 1]``: where each node's is."""
    kept = torch.zeros(len(leaves(tree)), max(tree.depth, SHORTEST_TAIL), dtype=torch.bool)
    places = (torch.tensor(first_leaves(tree)[1:]), torch.tensor(tree.depths[1:] - 1))
    kept[places] = True
    numbers = torch.full(kept.shape, -1)
    numbers[kept] = torch.arange(int(kept.sum()))
    return kept, numbers[places]
