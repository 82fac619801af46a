"""Make a configuration agree with the header of a GGUF file, and name the keys that it cannot express.

transformers maps some keys of each architecture and silently ignores the others, so that defaults replace them. Here
each key of an architecture either has a place in the configuration, or changes nothing, or is refused; a missing key
gets llama.cpp's default. This module does not treat tokenizers or the scaling of positions
(:mod:`vcrt_train.policy.gguf_import`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from vcrt.printable import printable

_HEADS, _KEY_HEADS = "attention.head_count", "attention.head_count_kv"
_KEY_LENGTH, _VALUE_LENGTH = "attention.key_length", "attention.value_length"
_ROTATED, _BASE, _LOCAL_BASE = "rope.dimension_count", "rope.freq_base", "rope.freq_base_swa"
_WINDOW = "attention.sliding_window"
_SCORE_CAP, _FINAL_CAP = "attn_logit_softcapping", "final_logit_softcapping"
_RMS_EPSILON, _EPSILON = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"
_WIDTH, _FEED_FORWARD = "embedding_length", "feed_forward_length"
_SHAPE = {
    _WIDTH: "hidden_size",
    "block_count": "num_hidden_layers",
    _HEADS: "num_attention_heads",
    "vocab_size": "vocab_size",
}
_ROTARY = _SHAPE | {
    _FEED_FORWARD: "intermediate_size",
    _KEY_HEADS: "num_key_value_heads",
    _BASE: "rope_parameters.rope_theta",
}
_OWN_LENGTH = {_KEY_LENGTH: "head_dim"}
_EXPERTS = {
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
}
_GEMMA = {
    **_ROTARY,
    **_OWN_LENGTH,
    _RMS_EPSILON: "rms_norm_eps",
    _WINDOW: "sliding_window",
    _FINAL_CAP: "final_logit_softcapping",
}
#: The place of each key in the configuration of an architecture; other architectures are not read.
PLACES: Mapping[str, Mapping[str, str]] = {
    "bloom": {**_SHAPE, _EPSILON: "layer_norm_epsilon"},
    "gemma2": {**_GEMMA, _SCORE_CAP: "attn_logit_softcapping"},
    "gemma3": {
        **_GEMMA,
        _BASE: "rope_parameters.full_attention.rope_theta",
        _LOCAL_BASE: "rope_parameters.sliding_attention.rope_theta",
    },
    "gpt2": {
        **_SHAPE,
        _FEED_FORWARD: "n_inner",
        _EPSILON: "layer_norm_epsilon",
        "context_length": "n_positions",
    },
    "lfm2": {
        **_SHAPE,
        _FEED_FORWARD: "intermediate_size",
        _BASE: "rope_parameters.rope_theta",
        _RMS_EPSILON: "norm_eps",
        "shortconv.l_cache": "conv_L_cache",
    },
    "llama": {**_ROTARY, **_OWN_LENGTH, _RMS_EPSILON: "rms_norm_eps"},
    "nemotron": {**_ROTARY, **_OWN_LENGTH, _EPSILON: "norm_eps"},
    "phi3": {**_ROTARY, _RMS_EPSILON: "rms_norm_eps", _WINDOW: "sliding_window"},
    "qwen2": {**_ROTARY, _RMS_EPSILON: "rms_norm_eps"},
    "qwen2moe": {
        **_ROTARY,
        **_EXPERTS,
        _RMS_EPSILON: "rms_norm_eps",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    },
    "qwen3": {**_ROTARY, **_OWN_LENGTH, _RMS_EPSILON: "rms_norm_eps"},
    "qwen3moe": {**_ROTARY, **_OWN_LENGTH, **_EXPERTS, _RMS_EPSILON: "rms_norm_eps"},
    "stablelm": {**_ROTARY, _EPSILON: "layer_norm_eps"},
    "starcoder2": {**_ROTARY, _EPSILON: "norm_epsilon", _WINDOW: "sliding_window"},
}
#: The architectures in which only a part of each head may be rotated.
_PARTLY_ROTATED = ("nemotron", "phi3", "stablelm")
#: Keys that change no logit, or whose values are judged before (scaled positions, attention in both directions).
_WITHOUT_EFFECT = (
    "context_length",
    "attention.causal",
    "rope.scale_linear",
    *(f"rope.scaling.{end}" for end in ("type", "factor", "original_context_length", "finetuned")),
)
#: The values with which keys without a place change nothing.
_NEUTRAL = {_WINDOW: 0, "expert_count": 0, "expert_used_count": 0, "rope.scaling.attn_factor": 1}
#: Keys whose numbers need not be whole.
_REAL = (_BASE, _LOCAL_BASE, _SCORE_CAP, _FINAL_CAP, _EPSILON, _RMS_EPSILON)
#: The square of the divisor of scores, by layers and width of the published models of Gemma; no file states it.
QUERY_SCALARS: dict[str, dict[tuple[int, int], int]] = {
    "gemma2": {(26, 2304): 256, (42, 3584): 256, (46, 4608): 144},
    "gemma3": {(18, 640): 256, (26, 1152): 256},
}
_BIASES = {
    "attention_bias": "blk.0.attn_output.bias",
    "mlp_bias": "blk.0.ffn_down.bias",
    "use_bias": "blk.0.attn_output.bias",
}


def reflect(
    architecture: str, stated: Mapping[str, Any], tensors: Collection[str], config: Any
) -> list[str]:
    """Make ``config`` agree with a file of an architecture in :data:`PLACES`; return what it cannot express, by keys.

    ``stated`` has the file's values by keys without the architecture; ``tensors`` has the names of all tensors.
    """
    places = PLACES[architecture]
    odd = [
        key
        for key in (*places, _ROTATED, _KEY_HEADS)
        if key in stated
        and (architecture, key) != ("lfm2", _KEY_HEADS)
        and not isinstance(stated[key], float if key in _REAL else int)
    ]
    values = {} if odd else _completed(architecture, stated)
    # The tokens determine the size of the vocabulary.
    odd = odd or [key for key in places if key not in values and key != "vocab_size"]
    if odd:
        return [
            f"{architecture}.{key}={_shown(stated[key])}"
            if key in stated
            else f"{architecture}.{key} is not stated"
            for key in odd
        ]
    for field, tensor in _BIASES.items():
        if hasattr(config, field):
            setattr(config, field, tensor in tensors)
    for key, place in places.items():
        if key in values and not _same(_at(config, place), values[key]):
            # A window or cap of 0 means none.
            _put(config, place, values[key] or None)
    if architecture in _PARTLY_ROTATED and (length := _head_length(config)):
        config.rope_parameters["partial_rotary_factor"] = stated.get(_ROTATED, length) / length
    found = _derived(architecture, config)
    found |= {key: _at(config, place) for key, place in places.items()}
    wrong = [
        f"{architecture}.{key}={_shown(value)}"
        for key, value in values.items()
        if (key in places or key not in _WITHOUT_EFFECT)
        and not (key in found and _same(found[key], value))
    ]
    if architecture in QUERY_SCALARS:
        size = config.num_hidden_layers, config.hidden_size
        if scalar := QUERY_SCALARS[architecture].get(size):
            config.query_pre_attn_scalar = scalar
        else:
            wrong.append("query_pre_attn_scalar, which no file states, of a size never published")
        if not config.sliding_window:
            wrong.append(f"{architecture}.{_WINDOW}=0")
    return wrong


def _completed(architecture: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Return all stated values, and llama.cpp's defaults for missing ones if these are certain."""
    taken: dict[str, Any] = {_BASE: 10_000.0, _WINDOW: 0, _FINAL_CAP: 0}
    if architecture == "gemma2":
        taken |= {_WINDOW: 4096, _SCORE_CAP: 50.0, _FINAL_CAP: 30.0}
    elif architecture == "gemma3":
        taken |= {_LOCAL_BASE: 10_000.0}
        # Without a window, llama.cpp makes no layer local.
        del taken[_WINDOW]
    elif architecture == "phi3" and stated.get("context_length") == 4096:
        # Older files of Phi 3 do not state the window.
        taken |= {_WINDOW: 2047} if stated.get("block_count") in (32, 40) else {}
    # Without these, the library would leave the heads of Llama in llama.cpp's order.
    if architecture != "llama":
        taken[_KEY_HEADS] = stated.get(_HEADS)
    if stated.get(_HEADS):
        taken[_KEY_LENGTH] = stated.get(_WIDTH, 0) // stated[_HEADS]
    if architecture == "llama" and _ROTATED in stated:
        taken[_KEY_LENGTH] = stated[_ROTATED]
    return {key: value for key, value in taken.items() if key in PLACES[architecture]} | dict(
        stated
    )


def _derived(architecture: str, config: Any) -> dict[str, Any]:
    """Return the values that a configuration implies for keys without a place of their own."""
    places, length = PLACES[architecture], _head_length(config)
    found: dict[str, Any] = {
        **_NEUTRAL,
        _KEY_HEADS: config.num_attention_heads,
        _KEY_LENGTH: length,
        _VALUE_LENGTH: length,
    }
    epsilon = _at(config, places.get(_EPSILON) or places[_RMS_EPSILON])
    found |= {_EPSILON: epsilon, _RMS_EPSILON: epsilon}
    if architecture == "bloom":
        found[_FEED_FORWARD] = 4 * config.hidden_size
    elif architecture == "stablelm":
        found["use_parallel_residual"] = config.use_parallel_residual
    elif architecture == "lfm2":
        # There is one number per layer, 0 for a convolution.
        heads = {"full_attention": config.num_key_value_heads}
        found[_KEY_HEADS] = [heads.get(kind, 0) for kind in config.layer_types]
    if _BASE in places:
        found[_ROTATED] = int(length * config.rope_parameters.get("partial_rotary_factor", 1.0))
    return found


def _head_length(config: Any) -> int:
    length: int = getattr(config, "head_dim", None) or (
        config.hidden_size // config.num_attention_heads
    )
    return length


def _shown(value: Any) -> str:
    return printable(str(value))[:80]


def _same(found: Any, value: Any) -> bool:
    """Return whether a configuration's value equals that of a file, which has numbers of 32 bits."""
    if isinstance(value, float) and not isinstance(found, list):
        return bool(np.float32(found or 0) == np.float32(value))
    return bool((found or 0) == value)


def _at(config: Any, place: str) -> Any:
    for name in place.split("."):
        config = config[name] if isinstance(config, dict) else getattr(config, name, None)
    return config


def _put(config: Any, place: str, value: Any) -> None:
    within, _, name = place.rpartition(".")
    if within:
        _at(config, within)[name] = value
    else:
        setattr(config, name, value)
