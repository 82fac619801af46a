"""The shapes of the paper's two language models and of SmolLM2-135M, written down because no hub can be asked here.

Sizes alone decide time and memory; weights are random. ``published`` numbers are from the makers' descriptions or are
defaults of the library's configuration class for that family; ``assumed`` ones are not known to us, with what was
assumed and why. Change a shape here and everything follows. ``tiny`` is for machines without a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GraniteConfig, LlamaConfig, Qwen3_5TextConfig

from vcrt_train.policy.causal_model import CausalModel

_CONFIGS = {
    "qwen3_5_text": Qwen3_5TextConfig,
    "granite": GraniteConfig,
    "llama": LlamaConfig,
}


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One model's configuration, and where its numbers are from."""

    #: The model type of transformers.
    kind: str
    #: From the makers' description or the library's defaults for this family.
    published: Mapping[str, Any]
    #: What we could not look up here.
    assumed: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    #: Settings that change no time and no memory: those of an older model of the family.
    without_effect: Mapping[str, Any] = field(default_factory=dict)

    def config(self) -> Any:
        """The configuration of transformers."""
        return _CONFIGS[self.kind](**self.published, **self.assumed, **self.without_effect)

    def to_json(self) -> dict[str, Any]:
        """The shape with the sources of its numbers."""
        return asdict(self)


SHAPES: Mapping[str, Shape] = {
    "qwen3.5-2b": Shape(
        kind="qwen3_5_text",
        published={
            "vocab_size": 248320,
            "head_dim": 256,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_num_key_heads": 16,
            "linear_conv_kernel_dim": 4,
            "hidden_size": 2048,
        },
        assumed={
            "num_hidden_layers": 24,
            "intermediate_size": 6144,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "linear_num_value_heads": 16,
            "tie_word_embeddings": True,
        },
        notes=(
            "vocabulary, head widths, key heads, convolution and one full attention layer in four: the library's "
            "defaults for the family; width 2048: users of the model report it",
            "the assumed numbers are remembered from the model's card, which could not be read here; together they "
            "give 1.88 billion parameters of text model, which suits the name; the 0.8B model of the family has the "
            "same layers and heads in public training scripts",
            "the text model alone: the vision tower takes no part in training",
        ),
    ),
    "granite-4.1-3b": Shape(
        kind="granite",
        published={
            "hidden_size": 2560,
            "num_hidden_layers": 40,
            "num_attention_heads": 40,
            "num_key_value_heads": 8,
            "intermediate_size": 8192,
            "tie_word_embeddings": True,
        },
        assumed={"vocab_size": 100352},
        notes=(
            "published: IBM's description of Granite 4.1 (dense, 40 layers, 40 heads of 64, 8 of keys, SwiGLU of "
            "8192, shared embeddings)",
            "the vocabulary is that of Granite 4.0, whose 3B model IBM says has this architecture; the total of 3.4 "
            "billion parameters agrees",
            "the class GraniteForCausalLM is assumed; GraniteMoeHybridForCausalLM without experts has the same sizes",
        ),
        without_effect={
            "embedding_multiplier": 12.0,
            "attention_multiplier": 0.015625,
            "residual_multiplier": 0.22,
            "logits_scaling": 8.0,
        },
    ),
    "smollm2-135m": Shape(
        kind="llama",
        published={
            "vocab_size": 49152,
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_hidden_layers": 30,
            "num_attention_heads": 9,
            "num_key_value_heads": 3,
            "tie_word_embeddings": True,
        },
        assumed={},
        notes=("all of it is the configuration that `vcrt backbone fetch smollm2-135m` writes",),
    ),
    "tiny": Shape(
        kind="qwen3_5_text",
        published={},
        assumed={
            "vocab_size": 4608,
            "hidden_size": 64,
            "intermediate_size": 160,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "linear_key_head_dim": 16,
            "linear_value_head_dim": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "tie_word_embeddings": True,
        },
        notes=("no model of anybody's: for machines without a GPU",),
    ),
    "tiny-dense": Shape(
        kind="granite",
        published={},
        assumed={
            "vocab_size": 4608,
            "hidden_size": 64,
            "intermediate_size": 160,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
        },
        notes=("no model of anybody's: for machines without a GPU",),
    ),
}


def random_model(shape: Shape, dtype: torch.dtype, device: torch.device) -> CausalModel:
    """A model of this shape in evaluation mode, its random weights made on the device itself."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), device:
        torch.manual_seed(0)
        model: CausalModel = AutoModelForCausalLM.from_config(
            shape.config(), dtype=dtype, attn_implementation="sdpa"
        )
    return model.eval()


def parameter_counts(model: CausalModel) -> dict[str, int]:
    """All parameters, those of adapters, and those of the embedding, which a tied output layer shares."""
    total = sum(p.numel() for p in model.parameters())
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return {
        "total": total,
        "backbone": total - trainable,
        "trainable": trainable,
        "embedding": model.get_input_embeddings().weight.numel(),
    }
