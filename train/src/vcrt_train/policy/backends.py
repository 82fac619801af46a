"""Choose the backend that scores a model exactly, from its configuration; refuse one that would be silently wrong.

``tree`` needs every layer to be attention that reads an additive mask and sees as far back as the longest sequence;
``fork`` needs every layer's state to be one that can be forked; ``naive`` is right for every causal model. A model's
word on its own layers is not proof: :mod:`vcrt_train.policy.self_check` is.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from transformers.cache_utils import (
    DummyLayer,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

from vcrt.errors import BackboneError
from vcrt_train.config import Backend
from vcrt_train.policy.functional_cache import FORKABLE_LAYERS
from vcrt_train.policy.kernels.grouped_attention import GROUPED
from vcrt_train.policy.prompts import CausalModel, unwrapped

ExactBackend: TypeAlias = Literal["tree", "fork", "naive"]

MASK_READING_ATTENTION = frozenset({"sdpa", "eager", GROUPED})


def choose_backend(model: CausalModel, backend: Backend, *, longest: int) -> ExactBackend:
    """The backend for sequences of up to ``longest`` tokens, prompt and prefix together.

    ``auto`` is the first of tree, fork and naive that the model supports. Raises :class:`BackboneError` if ``backend``
    is one that it does not support.
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
    return "tree"


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
    """What keeps the tree from being exact, or None."""
    kinds, layers = _layers(model)
    found = set()
    config = _text_config(model)
    if "local" in (getattr(config, "attention_layers", None) or ()):
        # GPT-Neo's windows are buffers of its own, which no cache shows, and count places in the tensor.
        found.add(f"local attention (a window of {config.window_size} places)")
    for kind, layer in zip(kinds, layers, strict=True):
        if type(layer) is DynamicSlidingWindowLayer:
            # Window or chunk: a token whose distance to the first is below it sees everything.
            if layer.sliding_window < longest:
                found.add(f"{kind} (a window of {layer.sliding_window} for {longest} tokens)")
        elif type(layer) not in (DynamicLayer, DummyLayer):
            found.add(kind)
    return f"layers of type {', '.join(sorted(found))}" if found else None


def _fork_obstacle(model: CausalModel) -> str | None:
    """What keeps the cache from being forked, or None."""
    kinds, layers = _layers(model)
    pairs = zip(kinds, layers, strict=True)
    found = {kind for kind, layer in pairs if type(layer) not in FORKABLE_LAYERS}
    return f"layers of type {', '.join(sorted(found))}" if found else None


def _layers(model: CausalModel) -> tuple[list[str], list[Any]]:
    """The name of each layer's type, and the library's empty cache for it; unknown types have none."""
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
