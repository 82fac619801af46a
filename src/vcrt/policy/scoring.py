"""Exact probabilities of all orders of a record under a causal language model, and its greedy order.

The ``tree`` backend puts the prompt once and the prefix tree of all orders behind it as extra tokens; one forward pass
with a mask in which a node sees the prompt and its own ancestors gives every order's probability, with gradients. The
``naive`` backend runs every sequence by itself: it is the oracle, and it serves models whose layers do not read a mask.
Not covered: dropout (score in evaluation mode) and pointers of several tokens.

Legend: ``B`` prompts, ``R`` rows of the order tree, ``P`` longest prompt, ``L`` prompt and nodes, ``V`` vocabulary,
``n`` operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

from vcrt.errors import BackboneError, MalformedInputError
from vcrt.orders import Order
from vcrt.policy.interface import Interface, choices, greedy_slots, tree_depth
from vcrt.policy.order_tree import OrderTree, order_tree

Backend: TypeAlias = Literal["tree", "naive"]
#: A causal language model of transformers, or a PEFT wrapper of one: neither library gives them one static type.
CausalModel: TypeAlias = Any

FULL_ATTENTION_NAMES = frozenset({"full_attention", "attention"})
MASK_READING_ATTENTION = frozenset({"sdpa", "eager"})
#: How many trees, and how many lengths of prompts, keep their tensors between calls. These tensors are made outside
#: inference mode, whoever asks first, because autograd could not use them otherwise.
KEPT = 64


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A rendered record: the tokens up to the answer, and the token of each slot's pointer."""

    token_ids: tuple[int, ...]
    #: ``pointer_ids[slot]`` is the vocabulary id of that slot's pointer.
    pointer_ids: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.token_ids or not self.pointer_ids:
            raise MalformedInputError(
                "a prompt needs tokens and pointers",
                found=f"{len(self.token_ids)} tokens and {len(self.pointer_ids)} pointers",
            )
        if len(set(self.pointer_ids)) != len(self.pointer_ids):
            raise MalformedInputError(
                "two slots of a prompt have the same pointer token",
                found=str(self.pointer_ids),
                remedy="give each slot a pointer of its own",
            )

    @property
    def num_operations(self) -> int:
        """How many slots an order of this prompt has."""
        return len(self.pointer_ids)


@dataclass(frozen=True, kw_only=True)
class OrderScores:
    """Exact log-probabilities of a batch of prompts; orders are the columns of ``orders.all_orders(n)``."""

    #: ``[B, R, n]``: each slot's log-probability after each prefix; for pointers, used slots have ``-inf``.
    choice_log_probs: Tensor
    #: ``[B, n!]``: log-probability of each order.
    order_log_probs: Tensor
    #: ``[B]``: log-probability of all answers that are no orders; None for the pointer interface.
    malformed_log_prob: Tensor | None


def score_orders(
    model: CausalModel,
    prompts: Sequence[Prompt],
    *,
    interface: Interface,
    backend: Backend = "tree",
) -> OrderScores:
    """Score every order of each prompt, exactly and differentiably.

    Prompts may differ in length but not in their number of operations. Raises :class:`BackboneError` if the ``tree``
    backend would be wrong for this model, :class:`MalformedInputError` for an empty or mixed batch.
    """
    tree = _tree_of(prompts, interface)
    logits = _row_logits(model, prompts, tree, backend)
    index = _tree_index(tree, logits.device)
    answer = choices(logits, _pointer_ids(prompts, logits), index.used, interface)
    malformed = None
    if answer.malformed_log_probs is not None:
        reached = _prefix_log_probs(answer.log_probs, index)
        malformed = (reached + answer.malformed_log_probs).logsumexp(-1)
    return OrderScores(
        choice_log_probs=answer.log_probs,
        order_log_probs=answer.log_probs[:, index.order_rows, index.order_slots].sum(-1),
        malformed_log_prob=malformed,
    )


@torch.no_grad()
def greedy_orders(
    model: CausalModel,
    prompts: Sequence[Prompt],
    *,
    interface: Interface,
    backend: Backend = "tree",
    batch_size: int = 64,
) -> list[Order | None]:
    """The order that stepwise greedy decoding gives for each prompt; None if it is malformed (tokens only).

    Raises as :func:`score_orders`.
    """
    orders: list[Order | None] = []
    for start in range(0, len(prompts), batch_size):
        batch = prompts[start : start + batch_size]
        tree = _tree_of(batch, interface)
        logits = _row_logits(model, batch, tree, backend)
        ids, used = _pointer_ids(batch, logits), _tree_index(tree, logits.device).used
        best = greedy_slots(logits, ids, used, interface).tolist()
        orders += [_follow(slots, tree) for slots in best]
    return orders


@torch.no_grad()
def self_check(
    model: CausalModel,
    prompts: Sequence[Prompt],
    *,
    interface: Interface,
    tolerance: float = 1e-4,
) -> float:
    """The largest difference between tree and naive log-probabilities on ``prompts``, in nats.

    Raises :class:`BackboneError` if it exceeds ``tolerance`` or is not a number. Run it on every model that is loaded:
    a model that ignores the mask gives wrong scores without an exception.
    """
    tree, naive = (
        score_orders(model, prompts, interface=interface, backend=backend)
        for backend in ("tree", "naive")
    )
    pairs = [(tree.order_log_probs, naive.order_log_probs)]
    if tree.malformed_log_prob is not None and naive.malformed_log_prob is not None:
        pairs.append((tree.malformed_log_prob, naive.malformed_log_prob))
    # The maximum over tensors keeps a NaN, which the builtin max may drop.
    difference = float(torch.stack([(a - b).abs().max() for a, b in pairs]).max())
    if not difference <= tolerance:
        raise BackboneError(
            "the tree backend does not agree with scoring each order by itself",
            where=type(model).__name__,
            found=f"log-probabilities differ by {difference:.3g} nats",
            expected=f"at most {tolerance:.3g}",
            remedy='put the model in evaluation mode; if it still differs, use backend="naive"',
        )
    return difference


def require_tree_support(model: CausalModel) -> None:
    """Raise :class:`BackboneError` if the model's configuration says that its layers do not read the tree's mask."""
    config = model.config.get_text_config()
    other = sorted(set(getattr(config, "layer_types", None) or ()) - FULL_ATTENTION_NAMES)
    if other:
        raise BackboneError(
            "the tree backend is exact only if every layer is full attention",
            where=type(model).__name__,
            found=f"layers of type {', '.join(other)}",
            expected="layer_types that are all full_attention",
            remedy='use backend="naive" for this model',
        )
    implementation = config._attn_implementation
    if implementation not in MASK_READING_ATTENTION:
        raise BackboneError(
            "this attention implementation does not take an additive mask",
            where=type(model).__name__,
            found=str(implementation),
            expected=f"one of {', '.join(sorted(MASK_READING_ATTENTION))}",
            remedy='load the model with attn_implementation="sdpa"',
        )


def _tree_of(prompts: Sequence[Prompt], interface: Interface) -> OrderTree:
    counts = sorted({prompt.num_operations for prompt in prompts})
    if len(counts) != 1:
        raise MalformedInputError(
            "a batch must hold prompts with one number of operations",
            found=f"operation counts {counts}" if counts else "no prompts",
            remedy="score prompts of each operation count in a batch of their own",
        )
    return order_tree(counts[0], tree_depth(counts[0], interface))


def _row_logits(
    model: CausalModel, prompts: Sequence[Prompt], tree: OrderTree, backend: Backend
) -> Tensor:
    """``[B, R, V]``: the logits after each prefix of the tree."""
    if backend == "tree":
        require_tree_support(model)
        return _tree_logits(model, prompts, tree)
    return torch.cat([_naive_logits(model, prompt, tree) for prompt in prompts])


def _tree_logits(model: CausalModel, prompts: Sequence[Prompt], tree: OrderTree) -> Tensor:
    lengths = tuple(len(prompt.token_ids) for prompt in prompts)
    longest, device = max(lengths), model.device
    last_slots = _tree_index(tree, device).last_slots
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
        attention_mask=tree_mask(lengths, tree, model.dtype, device),
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


@dataclass(frozen=True, kw_only=True)
class _TreeIndex:
    """The arrays of a tree as tensors of one device."""

    used: Tensor
    order_rows: Tensor
    order_slots: Tensor
    #: The slot that each node's prefix ends with.
    last_slots: tuple[int, ...]
    #: For each depth from 1 on, the parents (counted within their depth and as rows) and last slots of its rows.
    levels: tuple[tuple[Tensor, Tensor, Tensor], ...]


@lru_cache(maxsize=KEPT)
@torch.inference_mode(mode=False)
def _tree_index(tree: OrderTree, device: torch.device) -> _TreeIndex:
    def on(array: NDArray[Any]) -> Tensor:
        return torch.tensor(array, device=device)

    levels, first_of_parents = [], 0
    for depth in range(1, tree.depth + 1):
        rows = (tree.depths == depth).nonzero()[0]
        parents = tree.parent[rows]
        levels.append((on(parents - first_of_parents), on(parents), on(tree.last_slot[rows])))
        first_of_parents = int(rows[0])
    return _TreeIndex(
        used=on(tree.used),
        order_rows=on(tree.order_rows),
        order_slots=on(tree.order_slots),
        last_slots=tuple(tree.last_slot[1:].tolist()),
        levels=tuple(levels),
    )


def _naive_logits(model: CausalModel, prompt: Prompt, tree: OrderTree) -> Tensor:
    leaves = [prefix for prefix in tree.prefixes if len(prefix) == tree.depth]
    sequences = [
        [*prompt.token_ids, *(prompt.pointer_ids[slot] for slot in leaf)] for leaf in leaves
    ]
    logits: Tensor = model(
        input_ids=torch.tensor(sequences, device=model.device),
        use_cache=False,
        logits_to_keep=tree.num_choices,
    ).logits
    # Leaves that share a prefix agree on it, so the first of them speaks for all.
    first_leaf = [
        next(i for i, leaf in enumerate(leaves) if leaf[: len(prefix)] == prefix)
        for prefix in tree.prefixes
    ]
    return logits[first_leaf, tree.depths.tolist()][None]


def _prefix_log_probs(choice_log_probs: Tensor, index: _TreeIndex) -> Tensor:
    """``[B, R]``: log-probability that an answer begins with each row's prefix."""
    levels = [choice_log_probs.new_zeros(len(choice_log_probs), 1)]
    for within, parents, slots in index.levels:
        levels.append(levels[-1][:, within] + choice_log_probs[:, parents, slots])
    return torch.cat(levels, dim=-1)


def _follow(best: list[int], tree: OrderTree) -> Order | None:
    prefix: Order = ()
    while len(prefix) < tree.num_choices:
        slot = best[tree.row_of[prefix]]
        if slot < 0:
            return None
        prefix = (*prefix, slot)
    forced = [slot for slot in range(tree.num_operations) if slot not in prefix]
    return (*prefix, *forced)


def _pointer_ids(prompts: Sequence[Prompt], logits: Tensor) -> Tensor:
    return torch.tensor([prompt.pointer_ids for prompt in prompts], device=logits.device)
