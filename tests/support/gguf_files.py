"""Tiny GGUF files of real classes, as the package gguf writes them, and wheels that hold one."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile

import gguf
import numpy as np
import torch
from transformers import (
    AutoModelForCausalLM,
    BloomConfig,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    Lfm2Config,
    Lfm2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    NemotronConfig,
    Phi3Config,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    StableLmConfig,
    Starcoder2Config,
)

from language_models import END, byte_level_tokenizer
from vcrt_train.policy.reference import CatalogueEntry

CONTROL, NORMAL, UNKNOWN, BYTE = 3, 1, 2, 6
Q8_0, F32 = gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F32
HEADS, KEY_HEADS, LAYERS = 2, 1, 2


def tiny_llama(vocab_size, *, seed=0, tied=True):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocab_size,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=LAYERS,
                num_attention_heads=HEADS,
                num_key_value_heads=KEY_HEADS,
                max_position_embeddings=512,
                tie_word_embeddings=tied,
                initializer_range=0.2,
            )
        )
    return model.eval()


def as_llama_cpp_has_it(name, weight):
    """Queries and keys with the halves of each head interleaved, as llama.cpp's converter writes them."""
    heads = {"q_proj": HEADS, "k_proj": KEY_HEADS}.get(name.split(".")[-2])
    if heads is None:
        return weight
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def write_gguf(
    path,
    *,
    architecture="llama",
    chat=False,
    left_out=(),
    extra=None,
    settings=None,
    licence="mit",
    tied=True,
):
    """Write a tiny Llama with its tokenizer; returns the model with the weights that the file holds, and the tokenizer.

    ``left_out`` are tensors that are not written, ``extra`` those that are added, or their lengths, ``settings`` more
    of its metadata, or other values.
    """
    tokenizer = byte_level_tokenizer(chat=chat)
    model = tiny_llama(len(tokenizer), tied=tied)
    writer = gguf.GGUFWriter(path, architecture)
    add_metadata(writer, model.config, tokenizer, licence)
    add_settings(writer, settings or {})
    add_tensors(writer, gguf.MODEL_ARCH.LLAMA, model, as_llama_cpp_has_it, left_out)
    for tensor, values in (extra or {}).items():
        added = np.ones(values) if isinstance(values, int) else values
        writer.add_tensor(tensor, added.astype(np.float32))
    write_all(writer)
    return model, tokenizer


def add_tensors(writer, architecture, model, as_stored, left_out=()):
    """Add the model's weights, matrices in Q8_0; the model then has what the file holds."""
    names = gguf.get_tensor_name_map(architecture, LAYERS)
    for name, parameter in model.named_parameters():
        weight = parameter.detach().numpy()
        form = Q8_0 if weight.ndim == 2 else F32
        stored = gguf.quantize(as_stored(name, weight), form)
        with torch.no_grad():
            read = gguf.dequantize(gguf.quantize(weight, form), form)
            parameter.copy_(torch.from_numpy(np.array(read)))
        tensor = names.get_name(name, try_suffixes=(".weight",))
        if tensor not in left_out:
            writer.add_tensor(tensor, stored, raw_dtype=form)


HEAD = 16
_ALL = {"num_hidden_layers": LAYERS, "initializer_range": 0.2, "eos_token_id": 0, "bos_token_id": 0}
_SHARED = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-3,
    "rope_parameters": {"rope_type": "default", "rope_theta": 777.0},
}
_OWN_EPSILON = {name: value for name, value in _SHARED.items() if name != "rms_norm_eps"}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_SHAPE_KEYS = {
    "context_length": 512,
    "embedding_length": 32,
    "block_count": LAYERS,
    "feed_forward_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}
_KEYS = _SHAPE_KEYS | {"rope.freq_base": 777.0, "attention.layer_norm_rms_epsilon": 1e-3}
_NORM_KEYS = _SHAPE_KEYS | {"rope.freq_base": 777.0, "attention.layer_norm_epsilon": 1e-3}
_LENGTHS = {"attention.key_length": HEAD, "attention.value_length": HEAD}
_EXPERT_KEYS = {"expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 16}


def _rotated(part, base=777.0):
    return {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": part}


def _plus_one(name, weight):
    return weight + 1 if name.endswith("norm.weight") else weight


def _of_four_heads(name, weight):
    heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
    if heads is None:
        return weight
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def _of_gpt2(name, weight):
    return weight.T if ".c_" in name and weight.ndim == 2 else weight


def _of_bloom(name, weight):
    """Queries of all heads, then keys, then values."""
    if "query_key_value" not in name:
        return weight
    return weight.reshape(4, 3, 8, *weight.shape[1:]).swapaxes(0, 1).reshape(weight.shape)


def _of_experts(_, weight):
    return weight[0] if weight.shape == (1, 32) else weight


#: By architecture: a configuration with few of its class's defaults, the keys that llama.cpp's converter writes of it,
#: and what it does to weights.
KINDS = {
    "llama": (
        LlamaConfig,
        dict(**_SHARED, head_dim=HEAD, attention_bias=True, mlp_bias=True),
        _KEYS | _LENGTHS | {"rope.dimension_count": HEAD},
        _of_four_heads,
    ),
    "qwen2": (Qwen2Config, dict(**_SHARED), _KEYS, None),
    "qwen2moe": (
        Qwen2MoeConfig,
        dict(**_SHARED, **_EXPERTS, shared_expert_intermediate_size=24),
        _KEYS | _EXPERT_KEYS | {"expert_shared_feed_forward_length": 24},
        _of_experts,
    ),
    "qwen3": (Qwen3Config, dict(**_SHARED, head_dim=HEAD), _KEYS | _LENGTHS, None),
    "qwen3moe": (
        Qwen3MoeConfig,
        dict(**_SHARED, **_EXPERTS, head_dim=HEAD, norm_topk_prob=True),
        _KEYS | _LENGTHS | _EXPERT_KEYS,
        _of_experts,
    ),
    "phi3": (
        Phi3Config,
        dict(**{**_SHARED, "rope_parameters": _rotated(0.5)}, sliding_window=5, pad_token_id=0),
        _KEYS
        | {
            "rope.dimension_count": 4,
            "attention.sliding_window": 5,
            "rope.scaling.original_context_length": 512,
        },
        None,
    ),
    "gemma2": (
        Gemma2Config,
        dict(
            **_SHARED,
            head_dim=HEAD,
            sliding_window=5,
            attn_logit_softcapping=2.0,
            final_logit_softcapping=3.0,
            query_pre_attn_scalar=144,
        ),
        _KEYS
        | _LENGTHS
        | {
            "attention.sliding_window": 5,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
        _plus_one,
    ),
    "gemma3": (
        Gemma3TextConfig,
        dict(
            **{
                **_SHARED,
                "rope_parameters": {
                    "full_attention": {"rope_type": "default", "rope_theta": 777.0},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 99.0},
                },
            },
            num_hidden_layers=6,
            head_dim=HEAD,
            sliding_window=5,
            final_logit_softcapping=3.0,
            query_pre_attn_scalar=144,
        ),
        _KEYS
        | _LENGTHS
        | {
            "attention.sliding_window": 5,
            "final_logit_softcapping": 3.0,
            "rope.freq_base_swa": 99.0,
            "block_count": 6,
        },
        _plus_one,
    ),
    "starcoder2": (
        Starcoder2Config,
        dict(**_OWN_EPSILON, norm_epsilon=1e-3, sliding_window=5),
        _NORM_KEYS | {"attention.sliding_window": 5},
        None,
    ),
    "stablelm": (
        StableLmConfig,
        dict(
            **{**_OWN_EPSILON, "rope_parameters": _rotated(0.5)},
            layer_norm_eps=1e-3,
            use_qkv_bias=True,
        ),
        _NORM_KEYS | {"rope.dimension_count": 4, "use_parallel_residual": False},
        None,
    ),
    "nemotron": (
        NemotronConfig,
        dict(**{**_OWN_EPSILON, "rope_parameters": _rotated(0.25)}, norm_eps=1e-3, head_dim=HEAD),
        _NORM_KEYS | _LENGTHS | {"rope.dimension_count": 4, "rope.scaling.type": "none"},
        _plus_one,
    ),
    "gpt2": (
        GPT2Config,
        {"n_embd": 32, "n_head": 4, "n_positions": 512, "n_inner": 64, "layer_norm_epsilon": 1e-3},
        {key: value for key, value in _NORM_KEYS.items() if key[-3:] not in ("_kv", "ase")},
        _of_gpt2,
    ),
    "bloom": (
        BloomConfig,
        {"hidden_size": 32, "n_head": 4, "layer_norm_epsilon": 1e-3},
        {key: value for key, value in _NORM_KEYS.items() if key != "rope.freq_base"}
        | {"attention.head_count_kv": 4, "feed_forward_length": 128},
        _of_bloom,
    ),
}


def write_kind(path, architecture, *, settings=None, without=()):
    """Write a tiny model of one of :data:`KINDS`, in float32, and return it.

    ``settings`` are more of its keys, or other values; those of ``without`` are left out.
    """
    kind, fields, keys, as_stored = KINDS[architecture]
    tokenizer = byte_level_tokenizer()
    pieces = _PIECES if architecture.startswith("gemma") else None
    vocab_size = len(pieces or tokenizer)
    config = kind(**_ALL | fields, vocab_size=vocab_size)
    config.tie_word_embeddings = pieces is not None
    model = seeded(lambda: AutoModelForCausalLM.from_config(config).eval())
    writer = gguf.GGUFWriter(path, architecture)
    add_general(writer, tokenizer, "mit", pieces)
    keys = keys | {"vocab_size": vocab_size} | (settings or {})
    add_settings(writer, {f"{architecture}.{key}": keys[key] for key in keys if key not in without})
    number = next(n for n, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, config.num_hidden_layers)
    tied = config.tie_word_embeddings
    for name, parameter in model.state_dict().items():
        if name == "lm_head.weight" and tied:
            continue
        weight = parameter.numpy()
        stored = np.ascontiguousarray(as_stored(name, weight) if as_stored else weight)
        if name.endswith("gate_up_proj"):
            layer = f"blk.{name.split('.')[2]}"
            for tensor, half in zip(("gate", "up"), np.split(stored, 2, axis=1), strict=True):
                writer.add_tensor(f"{layer}.ffn_{tensor}_exps.weight", np.ascontiguousarray(half))
            continue
        suffixes = (".weight", ".bias")
        tensor = names.get_name(name, suffixes) or names.get_name(
            name.removeprefix("transformer."), suffixes
        )
        writer.add_tensor(tensor if "." in tensor[-7:] else f"{tensor}.weight", stored)
    write_all(writer)
    return model


def seeded(make):
    """A model that is always the same, with norms that are not 1 and biases that are not 0."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        model = make()
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def add_settings(writer, settings):
    adds = {
        str: writer.add_string,
        bool: writer.add_bool,
        float: writer.add_float32,
        int: writer.add_uint32,
        list: writer.add_array,
    }
    for key, value in settings.items():
        # Written once already, maybe.
        writer.kv_data[0].pop(key, None)
        adds[type(value)](key, value)


def write_all(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_lfm2(path):
    """Write a tiny LFM2, of a class that transformers reads by its newer loader; returns it as :func:`write_gguf`."""
    tokenizer = byte_level_tokenizer(chat=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = Lfm2Config(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            block_auto_adjust_ff_dim=False,
            num_hidden_layers=LAYERS,
            layer_types=["conv", "full_attention"],
            num_attention_heads=HEADS,
            num_key_value_heads=KEY_HEADS,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            initializer_range=0.2,
        )
        model = Lfm2ForCausalLM(config).eval()
    writer = gguf.GGUFWriter(path, "lfm2")
    add_metadata(writer, config, tokenizer, "mit")
    writer.add_shortconv_l_cache(config.conv_L_cache)
    writer.kv_data[0].pop("lfm2.attention.head_count_kv")
    writer.add_head_count_kv([0, KEY_HEADS])
    # llama.cpp has the kernel of a convolution as a matrix.
    add_tensors(writer, gguf.MODEL_ARCH.LFM2, model, lambda _, weight: weight.squeeze())
    write_all(writer)
    return model, tokenizer


def add_metadata(writer, config, tokenizer, licence):
    add_general(writer, tokenizer, licence)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(getattr(config, "rms_norm_eps", None) or config.norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)


#: A sentencepiece vocabulary, as that of Gemma begins: four that are special, the bytes, and letters.
_PIECES = [
    *("<pad>", "<eos>", "<bos>", "<unk>"),
    *(f"<0x{byte:02X}>" for byte in range(256)),
    *("\u2581", *map(chr, range(33, 127))),
]
_PIECE_TYPES = [CONTROL] * 3 + [UNKNOWN] + [BYTE] * 256 + [NORMAL] * 95


def add_general(writer, tokenizer, licence, pieces=None):
    writer.add_name("Tiny")
    if licence is not None:
        writer.add_license(licence)
    if pieces is not None:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(pieces)
        writer.add_token_scores([0.0] * len(pieces))
        writer.add_token_types(_PIECE_TYPES)
        writer.add_eos_token_id(1)
        writer.add_bos_token_id(2)
        writer.add_unk_token_id(3)
        writer.add_pad_token_id(0)
        return
    inside = json.loads(tokenizer.backend_tokenizer.to_str())
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    special = {token["content"] for token in inside["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if token in special else NORMAL for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in inside["model"]["merges"]])
    writer.add_eos_token_id(tokenizer.convert_tokens_to_ids(END))
    writer.add_pad_token_id(tokenizer.convert_tokens_to_ids(END))
    if tokenizer.chat_template is not None:
        writer.add_chat_template(tokenizer.chat_template)


def write_huge(path, *, values=10**11):
    """A whole GGUF file, most of it a hole, whose one tensor has this many values."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_tensor_info(
        "token_embd.weight", (values // 32, 32), np.dtype(np.float32), 4 * values
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    os.truncate(path, path.stat().st_size + 64 + 4 * values)


MEMBER = "tiny_model/tiny.gguf"


def write_wheel(folder, gguf_file, *, member=MEMBER, name="tiny-model", version="1.0"):
    """A wheel that pip takes, with the file in it; its code ends a process that runs it, and it needs what is nowhere.

    Returns its row of the catalogue.
    """
    folder.mkdir(exist_ok=True)
    package = name.replace("-", "_")
    info, data = f"{package}-{version}.dist-info", gguf_file.read_bytes()
    with zipfile.ZipFile(folder / f"{package}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{package}/__init__.py", "import os; os._exit(77)\n")
        wheel.writestr(member, data)
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: nowhere-at-all\n"
        wheel.writestr(f"{info}/METADATA", about)
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return CatalogueEntry(
        distribution=f"{name}=={version}",
        member=MEMBER,
        num_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        licence="MIT",
        hub="somebody/tiny",
    )
