"""Score by the ``tree`` backend: the prompt once, and a prefix tree of orders behind it as extra tokens.

One forward pass with a mask in which a node sees the prompt and its own ancestors. Right only for layers that read the
mask; :mod:`vcrt_train.policy.backends` refuses others. Not covered: what logits mean.

Legend: ``B`` prompts, ``R`` rows of the largest tree, ``L`` longest prompt and nodes, ``V`` vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from vcrt_train.policy.prefix_tree import NodeTree, OrderTree
from vcrt_train.policy.prompts import CausalModel, Prompt, unwrapped

#: How many trees, and how many lengths of prompts, keep their tensors between calls. These tensors are made outside
#: inference mode, whoever asks first, because autograd could not use them otherwise.
KEPT = 64


def tree_logits(model: CausalModel, prompts: Sequence[Prompt], trees: Sequence[NodeTree]) -> Tensor:
    """``[B, R, V]``: the logits after each row of each prompt's own tree, in one forward pass.

    What stands behind the rows of a smaller tree is of no meaning.
    """
    lengths = tuple(len(prompt.token_ids) for prompt in prompts)
    longest, device = max(lengths), unwrapped(model).device
    num_rows = max(tree.num_rows for tree in trees)
    # Padding of prompts stands on the left, so that the last prompt token and the nodes are the last R positions of
    # every row; nodes that a smaller tree lacks stand behind its own.
    token_ids = [
        [0] * (longest - len(prompt.token_ids))
        + list(prompt.token_ids)
        + tree.tokens(prompt.pointer_ids)
        + [0] * (num_rows - tree.num_rows)
        for prompt, tree in zip(prompts, trees, strict=True)
    ]
    positions = [
        _of(_kept_positions, _positions, tree)(length, longest, tree, num_rows, device)
        for length, tree in zip(lengths, trees, strict=True)
    ]
    length = longest + num_rows - 1
    logits: Tensor = model(
        input_ids=torch.tensor(token_ids, device=device),
        position_ids=_stacked(positions),
        attention_mask=tree_mask(lengths, trees, unwrapped(model).dtype, device),
        use_cache=False,
        # Places, not a number: a slice of several prompts is not contiguous, and its product with a large output layer
        # takes several times as long.
        logits_to_keep=torch.arange(length - num_rows, length, device=device),
    ).logits
    return logits


def tree_mask(
    lengths: Sequence[int],
    trees: Sequence[NodeTree],
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """The additive attention mask ``[B, 1, L, L]`` for left-padded prompts of these ``lengths`` and their trees' nodes.

    Additive and in the model's dtype, because ``eager`` attention would add a Boolean mask as zeros and ones and be
    silently wrong. Padded positions see themselves: a softmax over nothing would be NaN. Read-only: it is shared.
    """
    longest, num_rows = max(lengths), max(tree.num_rows for tree in trees)
    return _stacked(
        [
            _of(_kept_mask, _mask_of_one, tree)(length, longest, tree, num_rows, dtype, device)
            for length, tree in zip(lengths, trees, strict=True)
        ]
    )


def _of(
    kept: Callable[..., Tensor], made: Callable[..., Tensor], tree: NodeTree
) -> Callable[..., Tensor]:
    """The trees of all orders come again, and what was made for them is kept; a tree of some orders is used once."""
    return kept if isinstance(tree, OrderTree) else made


def _stacked(rows: Sequence[Tensor]) -> Tensor:
    # Mostly all rows are one and the same: then nothing is copied.
    first = rows[0]
    if all(row is first for row in rows):
        return first.expand(len(rows), *first.shape)
    return torch.stack(list(rows))


@torch.inference_mode(mode=False)
def _mask_of_one(
    length: int,
    longest: int,
    tree: NodeTree,
    num_rows: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Tensor:
    """``[1, L, L]``: the mask of a prompt padded to ``longest`` tokens and of its tree, padded to ``num_rows`` rows."""
    size, end = longest + num_rows - 1, longest + tree.num_rows - 1
    is_prompt = torch.arange(longest) >= longest - length
    allowed = torch.zeros(size, size, dtype=torch.bool)
    allowed[:longest, :longest] = torch.ones(longest, longest, dtype=torch.bool).tril() & is_prompt
    allowed[longest:end, :longest] = is_prompt
    allowed[longest:end, longest:end] = torch.tensor(tree.ancestors)
    allowed |= torch.eye(size, dtype=torch.bool)
    mask = torch.zeros(allowed.shape, dtype=dtype)
    return mask.masked_fill(~allowed, torch.finfo(dtype).min)[None].to(device)


@torch.inference_mode(mode=False)
def _positions(
    length: int, longest: int, tree: NodeTree, num_rows: int, device: torch.device
) -> Tensor:
    """``[L]``: the positions of a prompt that is padded to ``longest`` tokens, and of the nodes behind it."""
    nodes = [length - 1 + depth for depth in tree.depths[1:].tolist()]
    filler = [0] * (num_rows - tree.num_rows)
    return torch.tensor(
        [0] * (longest - length) + list(range(length)) + nodes + filler, device=device
    )


_kept_mask = lru_cache(maxsize=KEPT)(_mask_of_one)
_kept_positions = lru_cache(maxsize=KEPT)(_positions)
