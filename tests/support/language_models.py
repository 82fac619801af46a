"""Tiny language models of real classes with a real tokenizer, saved as transformers saves them."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3_5Config,
    Qwen3_5ForCausalLM,
    Qwen3_5ForConditionalGeneration,
    Qwen3_5TextConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from vcrt_train.policy.locking import make_lock
from vcrt_train.policy.record_text import INSTRUCTION
from vcrt_train.policy.reference import backbone_reference

# Models this small gain nothing from threads, and threads that wait for a busy core cost a factor of 30.
torch.set_num_threads(1)

END, USER, ASSISTANT = "<|end|>", "<|user|>", "<|assistant|>"
CHAT_TEMPLATE = (
    "{{ '<|end|>' }}{{ strftime_now('%d %B %Y') }}\n"
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if enable_thinking %}<think>{% endif %}{% endif %}"
)


def byte_level_tokenizer(*, letters="ABCDEFGHIJ", chat=False, size=400):
    """Byte-level BPE trained on a few lines; its spaced single letters are ``letters``."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END, USER, ASSISTANT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    lines = [INSTRUCTION, "Steps: Relations: Order: r0; r1; r2; r3; r4;"]
    lines += [f" {letter}" for letter in letters] * 50
    tokenizer.train_from_iterator(lines, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)
    if chat:
        fast.chat_template = CHAT_TEMPLATE
    return fast


def shapes(vocab_size, **changes):
    return {
        "vocab_size": vocab_size,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 512,
        **changes,
    }


def qwen3_5_text(vocab_size, **changes):
    return shapes(
        vocab_size,
        num_hidden_layers=4,
        head_dim=16,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
        layer_types=["linear_attention"] * 3 + ["full_attention"],
        **changes,
    )


def _qwen3(vocab_size):
    return Qwen3ForCausalLM(
        Qwen3Config(**shapes(vocab_size, head_dim=16, tie_word_embeddings=True))
    )


def _llama(vocab_size):
    return LlamaForCausalLM(LlamaConfig(**shapes(vocab_size)))


def _granite(vocab_size):
    return GraniteForCausalLM(GraniteConfig(**shapes(vocab_size)))


def _qwen3_5(vocab_size):
    return Qwen3_5ForCausalLM(Qwen3_5TextConfig(**qwen3_5_text(vocab_size)))


def _qwen3_5_multimodal(vocab_size):
    vision = {
        "depth": 1,
        "hidden_size": 16,
        "num_heads": 2,
        "intermediate_size": 16,
        "out_hidden_size": 32,
        "num_position_embeddings": 16,
        "patch_size": 4,
    }
    return Qwen3_5ForConditionalGeneration(
        Qwen3_5Config(
            text_config=qwen3_5_text(vocab_size), vision_config=vision, tie_word_embeddings=True
        )
    )


def _granite_hybrid(vocab_size):
    return GraniteMoeHybridForCausalLM(
        GraniteMoeHybridConfig(
            **shapes(vocab_size),
            layer_types=["mamba", "attention"],
            shared_intermediate_size=64,
            num_local_experts=0,
            num_experts_per_tok=0,
            mamba_n_heads=4,
            mamba_d_head=16,
            mamba_d_state=8,
            mamba_expand=2,
            mamba_n_groups=1,
        )
    )


MODELS = {
    "qwen3": _qwen3,
    "llama": _llama,
    "granite": _granite,
    "qwen3_5": _qwen3_5,
    "qwen3_5_multimodal": _qwen3_5_multimodal,
    "granite_hybrid": _granite_hybrid,
}


def save_model(folder, kind="qwen3", *, tokenizer=None, seed=0, **saving):
    """A folder with a random model of this kind and its tokenizer, not locked."""
    tokenizer = tokenizer or byte_level_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = MODELS[kind](len(tokenizer))
    model.save_pretrained(folder, **saving)
    tokenizer.save_pretrained(folder)
    return folder


def locked_model(folder, kind="qwen3", *, dtype="float32", prompt_style="plain", **options):
    """A reference to a new locked folder with a random model of this kind."""
    save_model(folder, kind, **options)
    reference = backbone_reference(str(folder), dtype=dtype, prompt_style=prompt_style)
    make_lock(reference)
    return reference
