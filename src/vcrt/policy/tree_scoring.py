"""The ``tree`` backend: the prompt once, and the prefix tree of all orders behind it as extra tokens.

One forward pass with a mask in which a node sees the prompt and its own ancestors. Right only for layers that read the
mask; :mod:`vcrt.policy.backends` refuses others. Not covered: what logits mean.

Legend: ``B`` prompts, ``R`` rows of the order tree, ``L`` longest prompt and nodes, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from vcrt.policy.order_tree import OrderTree
from vcrt.policy.prompts import CausalModel, Prompt, unwrapped

#: How many trees, and how many lengths of prompts, keep their tensors between calls. These tensors are made outside
#: inference mode, whoever asks first, because autograd could not use them otherwise.
KEPT = 64


def tree_logits(model: CausalModel, prompts: Sequence[Prompt], tree: OrderTree) -> Tensor:
    """``[B, R, V]``: the logits after each prefix of the tree, in one forward pass."""
    lengths = tuple(len(prompt.token_ids) for prompt in prompts)
    longest, device = max(lengths), unwrapped(model).device
    last_slots = _last_slots(tree)
    # Padding stands on the left, so that the last prompt token and the nodes are the last R positions of every row.
    token_ids = [
        [0] * (longest - length)
        + list(prompt.token_ids)
        + [prompt.pointer_ids[slot] for slot in last_slots]
        for prompt, length in zip(prompts, lengths, strict=True)
    ]
    logits: Tensor = model(
        input_ids=torch.tensor(token_ids, device=device),
        position_ids=_stacked([_positions(n, longest, tree, device) for n in lengths]),
        attention_mask=tree_mask(lengths, tree, unwrapped(model).dtype, device),
        use_cache=False,
        logits_to_keep=tree.num_rows,
    ).logits
    return logits


def tree_mask(
    lengths: Sequence[int], tree: OrderTree, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """The additive attention mask ``[B, 1, L, L]`` for left-padded prompts of these ``lengths`` and the tree's nodes.

    Additive and in the model's dtype, because ``eager`` attention would add a Boolean mask as zeros and ones and be
    silently wrong. Padded positions see themselves: a softmax over nothing would be NaN. Read-only: it is shared.
    """
    longest = max(lengths)
    return _stacked([_mask_of_one(n, longest, tree, dtype, device) for n in lengths])


def _stacked(rows: Sequence[Tensor]) -> Tensor:
    # Mostly all rows are one and the same: then nothing is copied.
    first = rows[0]
    if all(row is first for row in rows):
        return first.expand(len(rows), *first.shape)
    return torch.stack(list(rows))


@lru_cache(maxsize=KEPT)
@torch.inference_mode(mode=False)
def _mask_of_one(
    length: int, longest: int, tree: OrderTree, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """``[1, L, L]``: the mask of a prompt that is padded to ``longest`` tokens."""
    size = longest + tree.num_rows - 1
    is_prompt = torch.arange(longest) >= longest - length
    allowed = torch.zeros(size, size, dtype=torch.bool)
    allowed[:longest, :longest] = torch.ones(longest, longest, dtype=torch.bool).tril() & is_prompt
    allowed[longest:, :longest] = is_prompt
    allowed[longest:, longest:] = torch.tensor(tree.ancestors)
    allowed |= torch.eye(size, dtype=torch.bool)
    mask = torch.zeros(allowed.shape, dtype=dtype)
    return mask.masked_fill(~allowed, torch.finfo(dtype).min)[None].to(device)


@lru_cache(maxsize=KEPT)
@torch.inference_mode(mode=False)
def _positions(length: int, longest: int, tree: OrderTree, device: torch.device) -> Tensor:
    """``[L]``: the positions of a prompt that is padded to ``longest`` tokens, and of the nodes behind it."""
    nodes = [length - 1 + int(depth) for depth in tree.depths[1:]]
    return torch.tensor([0] * (longest - length) + list(range(length)) + nodes, device=device)


@lru_cache(maxsize=KEPT)
def _last_slots(tree: OrderTree) -> tuple[int, ...]:
    """The slot that each node's prefix ends with."""
    return tuple(tree.last_slot[1:].tolist())
