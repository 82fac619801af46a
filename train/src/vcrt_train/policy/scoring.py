"""Score orders of a record exactly under a causal language model, and give its greedy order.

:mod:`vcrt_train.policy.backends` scores prefixes of orders, with gradients, and in evaluation mode, whatever mode the
model is in. A policy's answer is read through one of two interfaces. ``pointers``: each choice is normalised over the
remaining pointers, so every answer is an order and the last choice is forced. ``tokens``: each choice is an ordinary
next-token distribution, so answers that are no orders have probability too (*malformed*: a token that is not a
remaining pointer). Pointers are single tokens; :mod:`vcrt_train.policy.text_scoring` scores texts of several tokens.

Legend: ``B`` prompts, ``R`` rows of the (largest) prefix tree, ``V`` vocabulary, ``n`` operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from vcrt.errors import MalformedInputError
from vcrt.limits import MAX_ENUMERATED
from vcrt.orders import Order
from vcrt_train.config import Backend, Interface
from vcrt_train.policy.backends import KEPT, LOGITS, ExactBackend, choose_backend
from vcrt_train.policy.causal_model import CausalModel, Prompt, at_pointers, evaluation_mode
from vcrt_train.policy.prefix_tree import (
    NodeTree,
    OrderTree,
    PrefixTree,
    order_tree,
    prefix_tree,
)


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
    backend: Backend = "auto",
) -> OrderScores:
    """Score every order of each prompt, exactly and differentiably.

    Prompts may differ in length but not in their number of operations. Raises :class:`vcrt.errors.BackboneError` if
    ``backend`` would be wrong for this model, :class:`MalformedInputError` for an empty or mixed batch.
    """
    tree = _tree_of(prompts, interface)
    logits, ids = _row_logits(model, prompts, [tree] * len(prompts), interface, backend)
    index = _tree_index(tree, logits.device)
    answer = choices(logits, ids, index.used, interface)
    malformed = None
    if answer.malformed_log_probs is not None:
        reached = _prefix_log_probs(answer.log_probs, index)
        malformed = (reached + answer.malformed_log_probs).logsumexp(-1)
    return OrderScores(
        choice_log_probs=answer.log_probs,
        order_log_probs=answer.log_probs[:, index.order_rows, index.order_slots].sum(-1),
        malformed_log_prob=malformed,
    )


@dataclass(frozen=True, kw_only=True)
class PrefixScores:
    """Exact log-probabilities of the next choice at each row of each prompt's own tree.

    Rows beyond those of a smaller tree are finite and have no meaning.
    """

    #: ``[B, R, n]``: each slot's log-probability after each prefix; for pointers, used slots have ``-inf``.
    choice_log_probs: Tensor
    #: ``[B, R, n]`` bool: the slots in each row's prefix.
    used: Tensor
    #: ``[B, R]``: log-probability of every token that is not a remaining pointer; None for the pointer interface.
    malformed_log_probs: Tensor | None


def score_prefixes(
    model: CausalModel,
    prompts: Sequence[Prompt],
    trees: Sequence[PrefixTree],
    *,
    interface: Interface,
    backend: Backend = "auto",
) -> PrefixScores:
    """Score every prefix of each prompt's tree, exactly and differentiably, in one pass if the backend can.

    This serves for numbers of operations with too many orders to score them all. With pointers, prompts may differ in
    their number of operations: slots that a prompt does not have count as used. Raises as :func:`score_orders`.
    """
    if interface != "pointers" or not prompts:
        _num_operations(prompts)
    for prompt, tree in zip(prompts, trees, strict=True):
        if prompt.num_operations != tree.num_operations:
            raise MalformedInputError(
                "a tree of prefixes that is not its prompt's",
                found=f"operation counts {tree.num_operations} and {prompt.num_operations}",
            )
    logits, ids = _row_logits(model, prompts, trees, interface, backend)
    num_rows, num_slots = logits.shape[1], ids.shape[1]
    used = torch.stack(
        [
            pad(
                pad(torch.tensor(tree.used), (0, 0, 0, num_rows - tree.num_rows)),
                (0, num_slots - tree.num_operations),
                value=True,
            )
            for tree in trees
        ]
    ).to(logits.device)
    answer = choices(logits, ids, used, interface)
    return PrefixScores(
        choice_log_probs=answer.log_probs,
        used=used,
        malformed_log_probs=answer.malformed_log_probs,
    )


@torch.no_grad()
def greedy_orders(
    model: CausalModel,
    prompts: Sequence[Prompt],
    *,
    interface: Interface,
    backend: Backend = "auto",
    batch_size: int = 64,
) -> list[Order | None]:
    """Return the order of stepwise greedy decoding for each prompt; None if it is malformed (tokens only).

    Prompts may differ in their number of operations. Raises as :func:`score_orders`.

    >>> import vcrt_train
    >>> from vcrt_train.randomness import generator
    >>> from vcrt.records.policy_view import PointerRelation, PolicyRecord
    >>> pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    >>> relations = tuple(PointerRelation(*pair, "commutes") for pair in pairs)
    >>> record = PolicyRecord(record_id="", pointers=(1, 3, 5, 7), relations=relations)
    >>> backbone = vcrt_train.load_backbone()
    >>> prompt = backbone.encode(record, "sorted", generator(0, "an example"))
    >>> [sorted(order) for order in greedy_orders(backbone.model, [prompt], interface="pointers")]
    [[0, 1, 2, 3]]
    """
    found: dict[int, Order | None] = {}
    of_length: dict[int, list[int]] = {}
    for place, prompt in enumerate(prompts):
        of_length.setdefault(prompt.num_operations, []).append(place)
    for places in of_length.values():
        for start in range(0, len(places), batch_size):
            some = places[start : start + batch_size]
            answers = _greedy(model, [prompts[place] for place in some], interface, backend)
            found |= zip(some, answers, strict=True)
    return [found[place] for place in range(len(prompts))]


def _greedy(
    model: CausalModel, batch: Sequence[Prompt], interface: Interface, backend: Backend
) -> list[Order | None]:
    """Return the greedy orders of prompts with the same number of operations."""
    if _num_operations(batch) > MAX_ENUMERATED:
        return _greedy_by_steps(model, batch, interface, backend)
    tree = _tree_of(batch, interface)
    logits, ids = _row_logits(model, batch, [tree] * len(batch), interface, backend)
    used = _tree_index(tree, logits.device).used
    best = greedy_slots(logits, ids, used, interface).tolist()
    return [_follow(slots, tree) for slots in best]


def _greedy_by_steps(
    model: CausalModel, prompts: Sequence[Prompt], interface: Interface, backend: Backend
) -> list[Order | None]:
    """Decode greedily, in one pass for each choice, over the prefix that each prompt has reached."""
    num_operations = _num_operations(prompts)
    found: list[Order | None] = [()] * len(prompts)
    for _ in range(tree_depth(num_operations, interface) + 1):
        trees = [prefix_tree(num_operations, [prefix or ()]) for prefix in found]
        logits, ids = _row_logits(model, prompts, trees, interface, backend)
        rows = torch.tensor([tree.num_rows - 1 for tree in trees], device=logits.device)
        ends = logits[torch.arange(len(prompts), device=logits.device), rows][:, None]
        used = torch.tensor(np.stack([tree.used[-1:] for tree in trees]), device=logits.device)
        best = greedy_slots(ends, ids, used, interface)[:, 0].tolist()
        found = [
            None if prefix is None or slot < 0 else (*prefix, slot)
            for prefix, slot in zip(found, best, strict=True)
        ]
    everything = range(num_operations)
    return [
        None if prefix is None else (*prefix, *(slot for slot in everything if slot not in prefix))
        for prefix in found
    ]


def _tree_of(prompts: Sequence[Prompt], interface: Interface) -> OrderTree:
    num_operations = _num_operations(prompts)
    return order_tree(num_operations, tree_depth(num_operations, interface))


def _num_operations(prompts: Sequence[Prompt]) -> int:
    counts = sorted({prompt.num_operations for prompt in prompts})
    if len(counts) != 1:
        raise MalformedInputError(
            "a batch must hold prompts with one number of operations",
            found=f"operation counts {counts}" if counts else "no prompts",
            remedy="score prompts of each operation count in a batch of their own",
        )
    return counts[0]


def _row_logits(
    model: CausalModel,
    prompts: Sequence[Prompt],
    trees: Sequence[PrefixTree],
    interface: Interface,
    backend: Backend,
) -> tuple[Tensor, Tensor]:
    """Return ``[B, R, V]``: the logits after each prefix; ``[B, n]``: the place in ``V`` of each slot's pointer."""
    exact = _exact_backend(model, prompts, trees, backend)
    if exact == "captured" and interface == "tokens":
        # They need the logits of all words: at all places, as there, these would cost too much memory.
        exact = "tree"
    most = max(prompt.num_operations for prompt in prompts)
    # A slot that a prompt does not have repeats the prompt's first pointer and is never read.
    ids = torch.tensor(
        [
            (*prompt.pointer_ids, *prompt.pointer_ids[:1] * (most - prompt.num_operations))
            for prompt in prompts
        ]
    )
    # The oracle keeps the model's own output layer.
    narrow = interface == "pointers" and exact != "naive"
    few = at_pointers(model, ids, repeated=exact == "captured") if narrow else nullcontext(ids)
    with evaluation_mode(model), few as places:
        logits = LOGITS[exact](model, prompts, trees)
    return logits, places.to(logits.device)


def _exact_backend(
    model: CausalModel, prompts: Sequence[Prompt], trees: Sequence[NodeTree], backend: Backend
) -> ExactBackend:
    longest = max(len(prompt.token_ids) for prompt in prompts) + max(tree.depth for tree in trees)
    return choose_backend(model, backend, longest=longest)


@dataclass(frozen=True, kw_only=True)
class _TreeIndex:
    """The arrays of a tree as tensors on one device."""

    used: Tensor
    order_rows: Tensor
    order_slots: Tensor
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
        levels=tuple(levels),
    )


def _prefix_log_probs(choice_log_probs: Tensor, index: _TreeIndex) -> Tensor:
    """Return ``[B, R]``: the log-probability that an answer begins with each row's prefix."""
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


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The distribution of the next choice at each row of the order tree."""

    #: ``[B, R, n]``: log-probability of each slot; for ``pointers``, used slots have ``-inf``.
    log_probs: Tensor
    #: ``[B, R]``: log-probability of every token that is not a remaining pointer; None for ``pointers``.
    malformed_log_probs: Tensor | None


def tree_depth(num_operations: int, interface: Interface) -> int:
    """Return the depth of the order tree that ``interface`` needs: pointers omit the last choice, which is forced."""
    return max(num_operations - 2, 0) if interface == "pointers" else num_operations - 1


def choices(logits: Tensor, pointer_ids: Tensor, used: Tensor, interface: Interface) -> Choices:
    """Return the choices for ``logits [B, R, V]``, with ``pointer_ids [B, n]`` and ``used [R, n]`` or ``[B, R, n]``.

    The result is in float32, or in float64 if the logits are. Gradients are finite as long as the caller selects
    entries instead of multiplying ``-inf`` by zero.
    """
    logits = _wide(logits)
    at_pointers = _gather(logits, pointer_ids)
    if interface == "pointers":
        remaining = at_pointers.masked_fill(used, -torch.inf)
        return Choices(log_probs=remaining.log_softmax(-1), malformed_log_probs=None)
    # A sum over the outside, instead of 1 minus a sum over the inside, keeps masses far below epsilon exact.
    normaliser = logits.logsumexp(-1, keepdim=True)
    outside = logits.scatter(
        -1, _index(pointer_ids, logits), at_pointers.masked_fill(~used, -torch.inf)
    )
    return Choices(
        log_probs=at_pointers - normaliser,
        malformed_log_probs=outside.logsumexp(-1) - normaliser.squeeze(-1),
    )


def greedy_slots(logits: Tensor, pointer_ids: Tensor, used: Tensor, interface: Interface) -> Tensor:
    """Return ``[B, R]``: the slot that greedy decoding picks at each row, or -1.

    -1 means that the best token of the vocabulary is not a remaining pointer. Arguments as for :func:`choices`. Among
    equal logits, the lowest slot wins, or for ``tokens`` the lowest token id.
    """
    logits = _wide(logits)
    if interface == "pointers":
        return _gather(logits, pointer_ids).masked_fill(used, -torch.inf).argmax(-1)
    hits = (logits.argmax(-1, keepdim=True) == pointer_ids[:, None, :]) & ~used
    return torch.where(hits.any(-1), hits.long().argmax(-1), -1)


def _wide(logits: Tensor) -> Tensor:
    return logits if logits.dtype == torch.float64 else logits.float()


def _index(pointer_ids: Tensor, logits: Tensor) -> Tensor:
    return pointer_ids[:, None, :].expand(-1, logits.shape[1], -1)


def _gather(logits: Tensor, pointer_ids: Tensor) -> Tensor:
    return logits.gather(-1, _index(pointer_ids, logits))
