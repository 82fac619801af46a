"""Score the prefixes of a tree by one of several backends that give the same logits, and choose one that is exact.

``tree``: one forward pass reads the prompt once and the tree behind it as extra tokens, with a mask in which a node
sees the prompt and its own ancestors. Every layer must be attention that reads an additive mask and sees as far back as
the longest sequence.

``fork``: each prompt runs once into a cache, and every longest prefix continues it. This is for layers that carry a
state from token to token (gated DeltaNet, Mamba, convolutions), and right for full and sliding attention too. Prompts
of one length run together, and other lengths run separately, because padding would enter a recurrent state.
:mod:`vcrt_train.policy.functional_cache` must know the state of every layer.

``naive``: every longest prefix is a sequence of its own. This is right for every causal model: it is the oracle, and
the backend of models that no other backend supports.

``captured``: as ``tree``, for the same models, but in a few shapes, so that an update on CUDA replays what was captured
(:mod:`vcrt_train.policy.captured`). Each prompt is followed by its own nodes and padded behind them, so that all keep
their places. Padding changes no bit of a probability up to 128 tokens on a processor, and beyond that rounding alone:
there a product's long sums are divided by their length.

The model's configuration decides which backends are refused, because they would be silently wrong. A configuration is
no proof: :mod:`vcrt_train.policy.self_check` tests the model itself.

Legend: ``B`` prompts, ``R`` rows of the largest tree, ``V`` vocabulary, ``L`` longest prompt and nodes, ``K`` leaves of
the largest tree, ``T`` tokens of one leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import pad
from transformers.cache_utils import (
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

from vcrt.errors import BackboneError
from vcrt_train.config import Backend
from vcrt_train.policy.captured import through_graphs
from vcrt_train.policy.causal_model import (
    WIDE_VOCABULARY,
    CausalModel,
    Prompt,
    at_columns,
    few_logits,
    unwrapped,
)
from vcrt_train.policy.functional_cache import FORKABLE_LAYERS, ForkedCache, RecordedCache
from vcrt_train.policy.kernels.grouped_attention import GROUPED
from vcrt_train.policy.prefix_tree import NodeTree, OrderTree, TokenTree

ExactBackend: TypeAlias = Literal["tree", "fork", "naive", "captured"]

MASK_READING_ATTENTION = frozenset({"sdpa", "eager", GROUPED})


def choose_backend(model: CausalModel, backend: Backend, *, longest: int) -> ExactBackend:
    """Return the backend for sequences of up to ``longest`` tokens, prompt and prefix together.

    ``auto`` is the first of tree, fork and naive that the model supports. Raises :class:`BackboneError` if the model
    does not support ``backend``.
    """
    if backend == "naive":
        return "naive"
    if backend == "auto":
        if not (_tree_obstacle(model, longest) or _attention_obstacle(model)):
            return "tree"
        return "naive" if _fork_obstacle(model) else "fork"
    if backend == "fork":
        _require_fork(model)
        return "fork"
    _require_tree(model, longest)
    return backend


def _require_tree(model: CausalModel, longest: int) -> None:
    where = type(unwrapped(model)).__name__
    if obstacle := _tree_obstacle(model, longest):
        raise BackboneError(
            "the tree backend is exact only if every layer is full attention",
            where=where,
            found=obstacle,
            expected=f"layers that all see {longest} tokens back and read the mask",
            remedy='plan with --scoring auto (in Python: backend="auto"), which is '
            f"{'naive' if _fork_obstacle(model) else 'fork'} for this model",
        )
    if obstacle := _attention_obstacle(model):
        raise BackboneError(
            "this attention implementation does not take an additive mask",
            where=where,
            found=obstacle,
            expected=f"one of {', '.join(sorted(MASK_READING_ATTENTION))}",
            remedy='load the model with attn_implementation="sdpa"',
        )


def _require_fork(model: CausalModel) -> None:
    if obstacle := _fork_obstacle(model):
        raise BackboneError(
            "the fork backend does not know how to fork the states of this model",
            where=type(unwrapped(model)).__name__,
            found=obstacle,
            expected="layers with keys and values, recurrent states or convolutions",
            remedy='plan with --scoring naive (in Python: backend="naive") for this model',
        )


def _attention_obstacle(model: CausalModel) -> str | None:
    implementation = _text_config(model)._attn_implementation
    return None if implementation in MASK_READING_ATTENTION else str(implementation)


def _tree_obstacle(model: CausalModel, longest: int) -> str | None:
    """Return why the tree is not exact, or None."""
    kinds, layers = _layers(model)
    found = set()
    config = _text_config(model)
    if "local" in (getattr(config, "attention_layers", None) or ()):
        # GPT-Neo's windows are its own buffers, which no cache shows, and count places in the tensor.
        found.add(f"local attention (a window of {config.window_size} places)")
    for kind, layer in zip(kinds, layers, strict=True):
        if type(layer) is DynamicSlidingWindowLayer:
            # Window or chunk: a token sees everything if its distance to the first token is less than this.
            if layer.sliding_window < longest:
                found.add(f"{kind} (a window of {layer.sliding_window} for {longest} tokens)")
        elif type(layer) not in (DynamicLayer, DummyLayer):
            found.add(kind)
    return f"layers of type {', '.join(sorted(found))}" if found else None


def _fork_obstacle(model: CausalModel) -> str | None:
    """Return why the cache cannot be forked, or None."""
    kinds, layers = _layers(model)
    pairs = zip(kinds, layers, strict=True)
    found = {kind for kind, layer in pairs if type(layer) not in FORKABLE_LAYERS}
    return f"layers of type {', '.join(sorted(found))}" if found else None


def _layers(model: CausalModel) -> tuple[list[str], list[Any]]:
    """Return the name of each layer's type, and the library's empty cache for it, or None for an unknown type."""
    config = _text_config(model)
    try:
        layers = DynamicCache(config=config).layers
    except (KeyError, AttributeError, TypeError) as error:
        return [f"unknown ({type(error).__name__}: {error})"], [None]
    kinds = list(getattr(config, "layer_types", None) or ())
    if len(kinds) != len(layers):
        kinds = [
            f"sliding_attention ({type(layer).__name__})"
            if isinstance(layer, DynamicSlidingWindowLayer)
            else type(layer).__name__
            for layer in layers
        ]
    return kinds, layers


def _text_config(model: CausalModel) -> Any:
    return unwrapped(model).config.get_text_config(decoder=True)


#: The most masks, positions and indices of trees that are kept between calls. These tensors are made outside inference
#: mode, because autograd could not use them otherwise.
KEPT = 64


def tree_logits(model: CausalModel, prompts: Sequence[Prompt], trees: Sequence[NodeTree]) -> Tensor:
    """Return ``[B, R, V]``: the logits after each row of each prompt's own tree, in one forward pass.

    Rows beyond those of a smaller tree have no meaning.
    """
    lengths = tuple(len(prompt.token_ids) for prompt in prompts)
    longest, device = max(lengths), unwrapped(model).device
    num_rows = max(tree.num_rows for tree in trees)
    sizes: dict[str, int] = {}
    if device.type != "cpu" and isinstance(trees[0], TokenTree):
        # Every batch of texts has a size of its own: of few sizes, a device's memory is used again.
        longest, num_rows = _padded(longest), _padded(num_rows)
        sizes = {"longest": longest, "num_rows": num_rows}
    # Prompts are padded on the left, so that the last prompt token and the nodes are the last R positions of every row;
    # smaller trees are padded on the right.
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
        attention_mask=tree_mask(lengths, trees, unwrapped(model).dtype, device, **sizes),
        use_cache=False,
        # This is a tensor of places, not a number: a slice of several prompts is not contiguous, and its product with a
        # large output layer takes several times as long.
        logits_to_keep=torch.arange(length - num_rows, length, device=device),
    ).logits
    return logits


def tree_mask(
    lengths: Sequence[int],
    trees: Sequence[NodeTree],
    dtype: torch.dtype,
    device: torch.device,
    *,
    longest: int = 0,
    num_rows: int = 0,
) -> Tensor:
    """Return the additive attention mask ``[B, 1, L, L]`` of left-padded prompts of these ``lengths`` and their trees.

    Prompts are padded to ``longest`` tokens and trees to ``num_rows``, or to the largest of them if that is more.
    It is additive and in the model's dtype, because ``eager`` attention would add a Boolean mask as zeros and ones and
    be silently wrong. Padded positions see themselves: a softmax over nothing is NaN. It is shared: do not write to it.
    """
    longest, num_rows = max(longest, *lengths), max(num_rows, *(t.num_rows for t in trees))
    return _stacked(
        [
            _of(_kept_mask, _mask_of_one, tree)(length, longest, tree, num_rows, dtype, device)
            for length, tree in zip(lengths, trees, strict=True)
        ]
    )


def _of(
    kept: Callable[..., Tensor], made: Callable[..., Tensor], tree: NodeTree
) -> Callable[..., Tensor]:
    """Return ``kept`` for a tree of all orders, which is used again, and ``made`` for a tree of some orders."""
    return kept if isinstance(tree, OrderTree) else made


def _stacked(rows: Sequence[Tensor]) -> Tensor:
    # Usually all rows are the same tensor: then nothing is copied.
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
    """Return ``[1, L, L]``: the mask of a prompt padded to ``longest`` tokens and its tree padded to ``num_rows``."""
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
    """Return ``[L]``: the positions of a prompt that is padded to ``longest`` tokens, and of the nodes behind it."""
    nodes = [length - 1 + depth for depth in tree.depths[1:].tolist()]
    filler = [0] * (num_rows - tree.num_rows)
    return torch.tensor(
        [0] * (longest - length) + list(range(length)) + nodes + filler, device=device
    )


_kept_mask = lru_cache(maxsize=KEPT)(_mask_of_one)
_kept_positions = lru_cache(maxsize=KEPT)(_positions)


#: Captured shapes have a multiple of so many tokens, and trees of some orders a multiple of so many rows.
STEP = 16


def captured_logits(
    model: CausalModel, prompts: Sequence[Prompt], trees: Sequence[NodeTree]
) -> Tensor:
    """Return ``[B, R, V]``: the logits after each row of each prompt's own tree, in one forward pass of few shapes.

    Rows beyond those of a tree have no meaning; trees that are not of all orders have up to 15 of them more.
    """
    device, dtype = unwrapped(model).device, unwrapped(model).dtype
    lengths = [len(prompt.token_ids) for prompt in prompts]
    pairs = list(zip(lengths, trees, strict=True))
    few = few_logits(model)
    if few is None and _text_config(model).vocab_size >= WIDE_VOCABULARY:
        # Logits of all words at all places would cost too much memory.
        return tree_logits(model, prompts, trees)
    needed = max(length + tree.num_rows - 1 for length, tree in pairs)
    # Some models have masks of their own for so many places.
    limit = getattr(_text_config(model), "max_position_embeddings", None) or _padded(needed)
    size = max(needed, min(_padded(needed), limit))
    num_rows = max(tree.num_rows for tree in trees)
    if not all(isinstance(tree, OrderTree) for tree in trees):
        num_rows = _padded(num_rows)
    # With as many rows as fit behind a prompt, padding is behind its nodes.
    room = [size - length + 1 for length in lengths]
    token_ids = [
        [*prompt.token_ids, *tree.tokens(prompt.pointer_ids), *[0] * (rows - tree.num_rows)]
        for prompt, tree, rows in zip(prompts, trees, room, strict=True)
    ]
    ends = [
        [length - 1 + row for row in range(tree.num_rows)]
        + [length - 1] * (num_rows - tree.num_rows)
        for length, tree in pairs
    ]
    masks, positions = [], []
    for (length, tree), rows in zip(pairs, room, strict=True):
        shape = (length, length, tree, rows)
        # What is not kept is sent to the device together.
        at = device if isinstance(tree, OrderTree) else torch.device("cpu")
        masks.append(_of(_kept_mask, _mask_of_one, tree)(*shape, dtype, at))
        positions.append(_of(_kept_positions, _positions, tree)(*shape, at))
    inputs = [
        torch.tensor(token_ids, device=device),
        _stacked(positions).to(device),
        _stacked(masks).to(device),
        torch.tensor(ends, device=device),
    ]
    if few is not None:
        inputs.append(few[1])
    return through_graphs(model, partial(_logits_at, model, few and few[0]), inputs)


def _padded(size: int) -> int:
    """Return the next number of tokens of which there are shapes: at most an eighth more of them, or 15."""
    step = max(STEP, 1 << max((size - 1).bit_length() - 4, 0))
    return -(-size // step) * step


def _logits_at(
    model: CausalModel,
    head: Linear | None,
    token_ids: Tensor,
    positions: Tensor,
    mask: Tensor,
    places: Tensor,
    columns: Tensor | None = None,
) -> Tensor:
    """Return the logits ``[B, R, V]`` of ``token_ids [B, L]`` at ``places [B, R]``, of all tokens or ``columns``."""
    narrow = nullcontext() if head is None or columns is None else at_columns(head, columns)
    with narrow:
        logits: Tensor = model(
            input_ids=token_ids,
            position_ids=positions,
            attention_mask=mask,
            use_cache=False,
            logits_to_keep=0,
        ).logits
    return logits.gather(1, places[..., None].expand(-1, -1, logits.shape[-1]))


#: A tail of one token would run the library's decoding step, which overwrites states in place and whose kernels have no
#: backward pass. A second token, whose logits are not read, prevents that.
SHORTEST_TAIL = 2


def fork_logits(model: CausalModel, prompts: Sequence[Prompt], trees: Sequence[NodeTree]) -> Tensor:
    """Return ``[B, R, V]``: the logits after each row of each prompt's own tree, in two passes per prompt length.

    Rows beyond those of a smaller tree have no meaning.
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
    # Of few tokens, logits at all places cost less than the wait for the size of what a mask selects.
    everywhere = few_logits(model) is not None
    parts = [_kept(tree, num_leaves, length, everywhere) for tree in trees]
    rows, first = [], 0
    for mask, numbers in parts:
        rows.append(pad(numbers + first, (0, num_rows - 1 - len(numbers)), value=first))
        first += mask.numel() if everywhere else len(numbers)
    nodes: Tensor = model(
        input_ids=torch.tensor(tails, device=inner.device),
        past_key_values=ForkedCache(recorded, rows=num_leaves),
        use_cache=True,
        logits_to_keep=0 if everywhere else torch.cat([mask for mask, _ in parts]).to(inner.device),
    ).logits
    nodes = nodes.reshape(first, -1)[torch.stack(rows).to(inner.device)]
    return torch.cat([root, nodes], dim=1)


@lru_cache(maxsize=64)
@torch.inference_mode(mode=False)
def _kept(tree: NodeTree, num_leaves: int, length: int, everywhere: bool) -> tuple[Tensor, Tensor]:
    """Return ``[K, T]`` bool: one place of each prefix, for its logits; and ``[nodes]``: each node's number there.

    The number is among these places, or among all if the logits are of places ``everywhere``.
    """
    kept = torch.zeros(num_leaves, length, dtype=torch.bool)
    leaf = torch.tensor(tree.first_leaves[1:], dtype=torch.long)
    places = (leaf, torch.tensor(tree.depths[1:] - 1))
    if everywhere:
        return kept, leaf * length + places[1]
    kept[places] = True
    numbers = torch.full(kept.shape, -1)
    numbers[kept] = torch.arange(int(kept.sum()))
    return kept, numbers[places]


def naive_logits(
    model: CausalModel, prompts: Sequence[Prompt], trees: Sequence[NodeTree]
) -> Tensor:
    """Return ``[B, R, V]``: the logits after each row of each prompt's own tree, in one forward pass per prompt.

    Rows beyond those of a smaller tree have no meaning.
    """
    num_rows = max(tree.num_rows for tree in trees)
    found = [_logits_of_one(model, *each) for each in zip(prompts, trees, strict=True)]
    return torch.cat([pad(logits, (0, 0, 0, num_rows - logits.shape[1])) for logits in found])


def leaf_tokens(prompt: Prompt, tree: NodeTree, length: int) -> list[list[int]]:
    """Return the tokens of each leaf, padded to ``length`` with other tokens, which change no logit before them."""
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


#: The function of each backend that scores the prefixes of trees, one tree behind each prompt.
LOGITS = {
    "tree": tree_logits,
    "fork": fork_logits,
    "naive": naive_logits,
    "captured": captured_logits,
}
