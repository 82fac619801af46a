"""Tiny random models of the five classes that vcrt scores, as a user would load them."""

import math

import torch
from transformers import (
    AutoModelForCausalLM,
    GraniteConfig,
    GraniteMoeHybridConfig,
    LlamaConfig,
    Qwen3_5TextConfig,
    Qwen3Config,
)

from vcrt_train.policy.causal_model import Prompt

VOCABULARY = 23

_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
_GRANITE = {
    "embedding_multiplier": 2.0,
    "attention_multiplier": 0.3,
    "residual_multiplier": 0.7,
    "logits_scaling": 1.5,
}
_LINEAR, _FULL = "linear_attention", "full_attention"

CONFIGS = {
    "qwen3": lambda: Qwen3Config(**_COMMON, num_hidden_layers=2, head_dim=8),
    "llama": lambda: LlamaConfig(**_COMMON, num_hidden_layers=2),
    "granite": lambda: GraniteConfig(**_COMMON, **_GRANITE, num_hidden_layers=2),
    "qwen3_5": lambda: Qwen3_5TextConfig(
        **_COMMON,
        num_hidden_layers=3,
        head_dim=16,
        layer_types=[_LINEAR, _FULL, _LINEAR],
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
    ),
    "granitemoehybrid": lambda: GraniteMoeHybridConfig(
        **_COMMON,
        **_GRANITE,
        num_hidden_layers=3,
        layer_types=[_LINEAR, _FULL, _LINEAR],
        shared_intermediate_size=48,
        num_local_experts=0,
        num_experts_per_tok=0,
        position_embedding_type="rope",
        mamba_n_heads=8,
        mamba_d_state=8,
        mamba_d_conv=4,
        mamba_chunk_size=16,
    ),
}
DENSE = ("qwen3", "llama", "granite")
HYBRID = ("qwen3_5", "granitemoehybrid")
#: The backend that each class gets.
BACKENDS = dict.fromkeys(DENSE, "tree") | dict.fromkeys(HYBRID, "fork")


def tiny_model(name, *, seed=0, sharpness=1.5, dtype=torch.float32, **changes):
    """A model of a class in CONFIGS with random weights, far from uniform so that a wrong row or slot shows."""
    config = CONFIGS[name]()
    for key, value in changes.items():
        assert hasattr(config, key), key
        setattr(config, key, value)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if key.endswith("dt_bias"):
                    # States that last, so that a lost one shows.
                    parameter.fill_(-3.0)
                elif parameter.dim() == 2:
                    parameter.normal_(0.0, sharpness / math.sqrt(parameter.shape[1]))
    return model.to(dtype).eval()


def tiny_prompts(num_operations, lengths=(7, 12, 7), seed=3, vocabulary=VOCABULARY):
    """Random prompts of these lengths."""
    draw = torch.Generator().manual_seed(seed)
    return [
        Prompt(
            token_ids=tuple(torch.randint(vocabulary, (length,), generator=draw).tolist()),
            pointer_ids=tuple(torch.randperm(vocabulary, generator=draw)[:num_operations].tolist()),
        )
        for length in lengths
    ]


def loss_of(scores):
    """A function of many columns, so that gradients of all choices matter."""
    weights = torch.linspace(-1.0, 1.0, scores.order_log_probs.shape[-1]).to(scores.order_log_probs)
    loss = (scores.order_log_probs * weights).mean()
    loss = loss + scores.order_log_probs[:, ::2].logsumexp(-1).mean()
    if scores.malformed_log_prob is not None:
        loss = loss + 0.1 * scores.malformed_log_prob.mean()
    return loss


def gradient_of(model, loss):
    """All trainable parameters' gradients as one vector; an unused parameter's is 0."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
    return torch.cat([g.flatten().float() for g in gradients])


def relative_error(found, expected):
    """The distance of two vectors over the length of the second."""
    return float((found - expected).norm() / expected.norm())
