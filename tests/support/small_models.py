"""Small models of public architectures with random weights, and records for them."""

from __future__ import annotations

import math

import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig, Qwen3Config, Qwen3ForCausalLM

INTERFACES = ("pointers", "tokens")


def make_model(vocab_size=9, dtype=torch.float64, seed=0, sharpness=3.0, **overrides):
    with torch.random.fork_rng(devices=[]):
        config = Qwen3Config(
            **{
                "vocab_size": vocab_size,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 8,
                "max_position_embeddings": 64,
                "tie_word_embeddings": False,
                "attn_implementation": "sdpa",
                **overrides,
            }
        )
        model = Qwen3ForCausalLM(config)
        for name, module in list(model.named_modules()):
            if name.endswith("norm"):
                # The library's own norm rounds to float32 inside, which would hide errors below 1e-7.
                exact = torch.nn.RMSNorm(module.weight.shape[0], eps=config.rms_norm_eps)
                model.set_submodule(name, exact)
        model = model.to(dtype).eval()
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 2:
                    # Far from uniform, so that a wrong row or slot shows.
                    scale = sharpness / math.sqrt(parameter.shape[1])
                    parameter.normal_(0.0, scale, generator=draw)
    return model


def make_prompts(num_operations, lengths=(4, 9, 6), vocab_size=9, seed=3):
    # Here, because the models are used beside an older transformers as well.
    from vcrt_train.policy.causal_model import Prompt

    draw = torch.Generator().manual_seed(seed)
    return [
        Prompt(
            token_ids=tuple(torch.randint(vocab_size, (length,), generator=draw).tolist()),
            pointer_ids=tuple(torch.randperm(vocab_size, generator=draw)[:num_operations].tolist()),
        )
        for length in lengths
    ]


def hybrid_model():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = Qwen3_5TextConfig(
            vocab_size=9,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=4,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            linear_num_key_heads=2,
            linear_num_value_heads=2,
            max_position_embeddings=64,
        )
        return Qwen3_5ForCausalLM(config).eval()
