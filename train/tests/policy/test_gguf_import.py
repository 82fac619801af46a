"""A GGUF file becomes a locked folder that computes the same, or is refused with one message and nothing is left."""

from __future__ import annotations

import errno
import random
import resource
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BertConfig, Gemma2Config, Gemma3TextConfig
from transformers.integrations import hub_kernels
from transformers.integrations.gguf import kernels as gguf_kernels

import gguf_files
import vcrt_train
from command_line import refused, run
from gguf_files import KINDS, write_gguf, write_huge, write_kind, write_lfm2
from vcrt.errors import BackboneError, OutOfMemory
from vcrt_train.policy import gguf_hyperparameters, gguf_import, language_model
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.gguf_hyperparameters import PLACES, reflect
from vcrt_train.policy.gguf_import import read_header
from vcrt_train.policy.record_text import INSTRUCTION
from vcrt_train.policy.reference import backbone_reference


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A GGUF file with a chat template, the model with its weights, and its tokenizer."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return path, *write_gguf(path, chat=True)


def left_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("tied", [True, False])
def test_what_is_imported_computes_what_the_file_says(tmp_path, tied):
    model, tokenizer = write_gguf(tmp_path / "tiny.gguf", chat=True, tied=tied)
    torch.manual_seed(5)
    expected_draw = torch.rand(3)
    torch.manual_seed(5)
    found = vcrt_train.import_backbone(tmp_path / "tiny.gguf", tmp_path / "tiny")
    assert torch.equal(torch.rand(3), expected_draw)
    backbone = load_backbone(str(tmp_path / "tiny"))
    tokens = torch.tensor([tokenizer(INSTRUCTION)["input_ids"]])
    assert backbone.tokenizer(INSTRUCTION)["input_ids"] == tokens[0].tolist()
    assert backbone.tokenizer.chat_template == tokenizer.chat_template
    with torch.no_grad():
        expected, logits = model(tokens).logits, backbone.model(tokens).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    # Interleaved wrongly, they would be far apart.
    assert expected.std() > 0.1
    weights = dict(model.named_parameters())
    ours = dict(backbone.model.named_parameters())
    assert ours.keys() == weights.keys()
    assert all(torch.equal(ours[name], weights[name]) for name in weights)
    assert (backbone.name, backbone.digest) == ("tiny", found.digest)
    assert not found.provenance.is_known


def test_the_lock_says_source_quantization_and_licence(written, tmp_path, capsys):
    path, *_ = written
    code, out, err = run(capsys, "backbone", "import", path, "--output", tmp_path / "tiny")
    assert code == 0, err
    revision = backbone_revision(tmp_path / "tiny")
    assert revision.startswith("tiny.gguf (SHA-256 ")
    assert revision.endswith("), Q8_0, F32 dequantized to float32, licence mit")
    assert revision in out
    assert f"--backbone {tmp_path / 'tiny'} --lora-rank 64 --learning-rate 5e-5\n" in out
    assert left_in(tmp_path) == ["tiny"]
    # The same file gives the same bytes.
    again = vcrt_train.import_backbone(path, tmp_path / "again")
    assert again.digest == vcrt_train.check_backbone(str(tmp_path / "tiny")).digest


def backbone_revision(folder):
    return vcrt_train.check_backbone(str(folder)).revision


def test_bfloat16_is_half_as_large_and_rounds_once(written, tmp_path):
    path, model, _ = written
    vcrt_train.import_backbone(path, tmp_path / "half", dtype="bfloat16")
    vcrt_train.import_backbone(path, tmp_path / "whole")
    assert "dequantized to bfloat16" in backbone_revision(tmp_path / "half")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("half", "whole")]
    assert 0.45 < sizes[0] / sizes[1] < 0.6
    half = dict(load_backbone(str(tmp_path / "half")).model.named_parameters())
    rounded = load_backbone(backbone_reference(str(tmp_path / "whole"), dtype="bfloat16"))
    for name, weight in model.named_parameters():
        assert torch.equal(half[name], weight.to(torch.bfloat16).float())
    for name, weight in rounded.model.named_parameters():
        assert torch.equal(half[name], weight.float())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_class_of_the_newer_loader_is_rounded_once(tmp_path, dtype):
    model, tokenizer = write_lfm2(tmp_path / "x.gguf")
    vcrt_train.import_backbone(tmp_path / "x.gguf", tmp_path / "x", dtype=dtype)
    backbone = load_backbone(str(tmp_path / "x"))
    ours = dict(backbone.model.named_parameters())
    for name, weight in model.named_parameters():
        assert torch.equal(ours[name], weight.to(getattr(torch, dtype)).float())
    assert backbone.tokenizer(INSTRUCTION)["input_ids"] == tokenizer(INSTRUCTION)["input_ids"]
    values = sum(read_header(tmp_path / "x.gguf").values.values())
    assert read_header(tmp_path / "x.gguf").num_bytes("bfloat16") > 6 * values


#: What no file says of Gemma, for the sizes of the tests.
SCALARS = {"gemma2": {(2, 32): 144}, "gemma3": {(6, 32): 144}}


@pytest.mark.parametrize("architecture", KINDS)
def test_every_architecture_computes_what_the_file_says(tmp_path, monkeypatch, architecture):
    """With hyperparameters that are not the defaults of its class."""
    monkeypatch.setattr(gguf_hyperparameters, "QUERY_SCALARS", SCALARS)
    model = write_kind(tmp_path / "x.gguf", architecture)
    vcrt_train.import_backbone(tmp_path / "x.gguf", tmp_path / "x")
    ours = load_backbone(str(tmp_path / "x")).model
    tokens = torch.randint(4, 300, (1, 26), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected, logits = model(tokens).logits, ours(tokens).logits
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    assert expected.std() > 0.5


def test_architectures_that_are_read_are_tested():
    assert KINDS.keys() | {"lfm2"} == PLACES.keys()


#: Keys of any architecture, as the package gguf lists them.
KEYS = {
    template.removeprefix("{arch}.")
    for group in vars(gguf_files.gguf.Keys).values()
    if isinstance(group, type)
    for template in vars(group).values()
    if isinstance(template, str) and template.startswith("{arch}.")
}
LENGTH = "attention.key_length"
#: Those of which a value changes no logit, or is judged before.
IRRELEVANT = {
    "context_length",
    "attention.causal",
    "rope.scale_linear",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
}


def reflected(architecture, keys):
    """What the configuration becomes, and what it cannot say."""
    kind, fields, _, _ = KINDS[architecture]
    config = kind(**{"num_hidden_layers": fields.get("num_hidden_layers", 2)})
    wrong = reflect(architecture, keys, {"blk.0.attn_output.bias"}, config)
    return config.to_dict(), wrong


@pytest.mark.parametrize("architecture", KINDS)
def test_no_key_is_passed_over(monkeypatch, architecture):
    """Whatever a file says of whatever key, the configuration says it, too, or the key is named."""
    monkeypatch.setattr(gguf_hyperparameters, "QUERY_SCALARS", SCALARS)
    keys = KINDS[architecture][2]
    expected, wrong = reflected(architecture, keys)
    assert wrong == []
    for key in sorted(KEYS | keys.keys()):
        for value in (3, 0.7, [1, 2]) if key in keys else (3,):
            changed, wrong = reflected(architecture, keys | {key: value})
            named = any(key in each for each in wrong)
            if key not in IRRELEVANT:
                assert named or changed != expected, (key, value)
    for key in keys.keys() & PLACES[architecture].keys():
        changed, wrong = reflected(
            architecture, {name: value for name, value in keys.items() if name != key}
        )
        # How much of a head of Llama is rotated says how long it is.
        assert wrong or changed != expected or (architecture, key) == ("llama", LENGTH), key


def test_what_no_file_says_of_gemma_is_known_of_published_models_or_refused(tmp_path, capsys):
    write_kind(tmp_path / "x.gguf", "gemma2")
    message = refused(capsys, "backbone", "import", tmp_path / "x.gguf", "--output", tmp_path / "x")
    assert "query_pre_attn_scalar" in message
    for kind, architecture, layers, width, heads, length, scalar in (
        (Gemma2Config, "gemma2", 46, 4608, 32, 128, 144),
        (Gemma2Config, "gemma2", 42, 3584, 16, 256, 256),
        (Gemma3TextConfig, "gemma3", 26, 1152, 4, 256, 256),
    ):
        keys = KINDS[architecture][2] | {
            "block_count": layers,
            "embedding_length": width,
            "attention.head_count": heads,
            "attention.key_length": length,
            "attention.value_length": length,
        }
        config = kind()
        assert reflect(architecture, keys, (), config) == []
        assert config.query_pre_attn_scalar == scalar


def test_what_llama_cpp_takes_for_keys_that_are_left_out_stands():
    def without(architecture, *left_out):
        keys = {k: v for k, v in KINDS[architecture][2].items() if k not in left_out}
        return reflected(architecture, keys)

    bare, wrong = without("qwen3", "attention.key_length", "attention.value_length")
    assert (bare["head_dim"], wrong) == (8, [])
    bare, wrong = without("starcoder2", "rope.freq_base", "attention.sliding_window")
    assert wrong == []
    assert (bare["rope_parameters"]["rope_theta"], bare["sliding_window"]) == (10_000, None)
    bare, wrong = without("stablelm", "rope.dimension_count")
    assert (bare["rope_parameters"]["partial_rotary_factor"], wrong) == (1.0, [])
    # The library would leave its heads as llama.cpp orders them.
    assert without("llama", "attention.head_count_kv")[1] == [
        "llama.attention.head_count_kv is not stated"
    ]
    # An older file of Phi 3.
    keys = KINDS["phi3"][2] | {"block_count": 32, "context_length": 4096}
    del keys["attention.sliding_window"]
    assert reflected("phi3", keys)[0]["sliding_window"] == 2047


def test_no_kernel_of_the_hub_is_asked_for(tmp_path, monkeypatch):
    """With the package kernels installed, of which this is a stand-in, native code would be fetched."""
    asked = []

    class Kernels:
        def __getattr__(self, name):
            asked.append(name)
            return self

        def __call__(self, *arguments, **options):
            raise RuntimeError("no kernel")

    monkeypatch.setitem(sys.modules, "kernels", Kernels())
    monkeypatch.setattr(gguf_kernels, "_gguf_kernel", None)
    monkeypatch.setattr(gguf_kernels, "is_kernels_available", lambda: True)
    monkeypatch.setattr(hub_kernels, "get_kernel", lambda name, **_: asked.append(name))
    write_lfm2(tmp_path / "x.gguf")
    vcrt_train.import_backbone(tmp_path / "x.gguf", tmp_path / "x")
    assert asked == []
    assert gguf_kernels.is_kernels_available()


def test_the_header_says_what_is_in_the_file(written):
    header = read_header(written[0])
    assert (header.architecture, header.licence, header.forms) == ("llama", "mit", ("Q8_0", "F32"))
    assert sum(header.values.values()) == sum(p.numel() for p in written[1].parameters())
    assert header.num_bytes("float32") > 2 * 4 * sum(header.values.values())


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"architecture": "bert"}, "architecture bert"),
        ({"architecture": "t5encoder"}, "architecture t5encoder"),
        ({"architecture": "nobody-knows"}, "architecture nobody-knows"),
        ({"left_out": ("blk.1.ffn_up.weight",)}, "weights in the file"),
        (
            {"left_out": ("output_norm.weight",), "extra": {"rope_freqs.weight": 32}},
            "missing: model.norm.weight",
        ),
        ({"extra": {"rope_freqs.weight": 8}}, "weights in the file"),
        ({"settings": {"llama.block_count": 2**31}}, "more layers than tensors"),
        ({"settings": {"llama.feed_forward_length": 2**31}}, "weights in the file"),
        ({"settings": {"llama.rope.scaling.type": "yarn"}}, "positions scaled by yarn"),
        # What gives a factor alone is scaled linearly, today and as files were written once.
        ({"settings": {"llama.rope.scaling.factor": 4.0}}, "positions scaled by linear"),
        ({"settings": {"llama.rope.scale_linear": 4.0}}, "positions scaled by linear"),
        (
            {"settings": {"llama.rope.scaling.attn_factor": 1.2}},
            "llama.rope.scaling.attn_factor=1.2",
        ),
        ({"settings": {"llama.attention.sliding_window": 8}}, "llama.attention.sliding_window=8"),
        ({"settings": {"llama.logit_scale": 8.0}}, "llama.logit_scale=8.0"),
        ({"settings": {"llama.attention.value_length": 8}}, "llama.attention.value_length=8"),
        ({"settings": {"llama.expert_count": 4}}, "llama.expert_count=4"),
        ({"settings": {"llama.attention.causal": False}}, "attention in both directions"),
        ({"settings": {"split.count": 2}}, "llama-gguf-split --merge"),
        (
            {
                "left_out": ("output_norm.weight",),
                "extra": {"output_norm.weight": np.full(32, np.nan)},
            },
            "1 tensor with nan or infinity, such as model.norm.weight",
        ),
    ],
)
def test_what_the_library_would_misread_is_refused(tmp_path, capsys, change, found):
    write_gguf(tmp_path / "x.gguf", **change)
    message = refused(capsys, "backbone", "import", tmp_path / "x.gguf", "--output", tmp_path / "x")
    assert found in message
    assert "to mend: " in message
    assert left_in(tmp_path) == ["x.gguf"]


@pytest.mark.parametrize(
    "settings",
    [
        {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0},
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 1.0},
        {"llama.rope.scaling.factor": 0.0, "llama.attention.causal": True},
    ],
)
def test_what_scales_nothing_is_imported(tmp_path, settings):
    write_gguf(tmp_path / "x.gguf", settings=settings)
    vcrt_train.import_backbone(tmp_path / "x.gguf", tmp_path / "x")


def test_too_little_space_is_said_before_the_file_is_read(written, tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_import, "disk_usage", lambda _: SimpleNamespace(free=10**5))
    monkeypatch.setattr(gguf_import, "_loaded", None)
    with pytest.raises(BackboneError, match="cannot be written") as error:
        vcrt_train.import_backbone(written[0], tmp_path / "x")
    assert "No space left for the weights: 0.1 MB of 0." in error.value.found
    assert left_in(tmp_path) == []


def test_a_licence_that_is_not_stated_is_said_to_be_so(tmp_path):
    write_gguf(tmp_path / "x.gguf", licence=None)
    vcrt_train.import_backbone(tmp_path / "x.gguf", tmp_path / "x")
    assert backbone_revision(tmp_path / "x").endswith("licence not stated")


def test_nothing_beside_the_file_is_read(tmp_path):
    write_gguf(tmp_path / "x.gguf")
    BertConfig(auto_map={"AutoModelForCausalLM": "code.Model"}).save_pretrained(tmp_path)
    (tmp_path / "code.py").write_text("raise SystemExit('remote code was run')")
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": "code.T"}}')
    vcrt_train.import_backbone(tmp_path / "x.gguf", tmp_path / "x")
    assert type(load_backbone(str(tmp_path / "x")).model).__name__ == "LlamaForCausalLM"


def test_a_truncated_file_is_refused_wherever_it_ends(written, tmp_path):
    data = written[0].read_bytes()
    path = tmp_path / "x.gguf"
    ends = {0, 3, 4, 20, 24, 25, len(data) // 2, len(data) - 1}
    ends |= {random.Random(0).randrange(len(data)) for _ in range(30)}
    for end in sorted(ends):
        path.write_bytes(data[:end])
        with pytest.raises(BackboneError, match="GGUF file cannot be read"):
            read_header(path)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(BackboneError, match="GGUF file cannot be read"):
        vcrt_train.import_backbone(path, tmp_path / "x")
    assert left_in(tmp_path) == ["x.gguf"]


def test_a_damaged_header_is_refused_or_read_and_nothing_else(written, tmp_path):
    data = written[0].read_bytes()
    draws, path, refusals = random.Random(1), tmp_path / "x.gguf", 0
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(draws.choice((1, 8))):
            # Counts and lengths, which a reader might believe, are mostly at the beginning.
            damaged[int(draws.random() ** 3 * len(data))] = draws.choice((0, 0xFF, 0x7F))
        path.write_bytes(damaged)
        try:
            read_header(path)
        except BackboneError:
            refusals += 1
    assert refusals > 50


def test_what_is_no_file_is_refused(tmp_path, capsys):
    for name in (tmp_path, tmp_path / "nowhere.gguf"):
        message = refused(capsys, "backbone", "import", name, "--output", tmp_path / "x")
        assert "no such GGUF file" in message
    assert "FILE.gguf --output" in refused(capsys, "backbone", "import", tmp_path)


def test_an_output_that_exists_is_not_overwritten(written, tmp_path, capsys):
    (tmp_path / "x").mkdir()
    message = refused(capsys, "backbone", "import", written[0], "--output", tmp_path / "x")
    assert "exists already" in message


def test_a_model_that_does_not_fit_into_memory_is_refused_at_once(tmp_path, capsys):
    write_huge(tmp_path / "huge.gguf")
    with pytest.raises(OutOfMemory, match="too little memory") as error:
        vcrt_train.import_backbone(tmp_path / "huge.gguf", tmp_path / "x")
    assert "100,000,000,000 parameters in float32" in error.value.expected
    arguments = ("backbone", "import", tmp_path / "huge.gguf", "--output", tmp_path / "x")
    assert "--dtype bfloat16" in refused(capsys, *arguments, code=5)
    assert left_in(tmp_path) == ["huge.gguf"]


def test_a_file_that_memory_does_not_hold_is_not_called_broken(written, tmp_path, monkeypatch):
    def spent(*_):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(gguf_files.gguf.GGUFReader, "__init__", spent)
    with pytest.raises(OutOfMemory, match="memory ran out"):
        vcrt_train.import_backbone(written[0], tmp_path / "x")
    monkeypatch.undo()
    monkeypatch.setattr(
        language_model, "_load_model", lambda *_: (_ for _ in ()).throw(MemoryError)
    )
    with pytest.raises(OutOfMemory, match="memory ran out"):
        vcrt_train.import_backbone(written[0], tmp_path / "x")
    assert left_in(tmp_path) == []


def test_the_memory_of_a_container_counts(written, tmp_path, monkeypatch):
    monkeypatch.setattr(gguf_import, "available_memory", lambda: 2**10)
    with pytest.raises(OutOfMemory, match="too little memory"):
        vcrt_train.import_backbone(written[0], tmp_path / "x")


def test_a_file_that_may_not_grow_leaves_nothing(written, tmp_path, monkeypatch, capsys):
    """As on a full disk, but for one file: the weights take more than 100 kB."""
    monkeypatch.chdir(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100 * 1024, before[1]))
    try:
        message = refused(capsys, "backbone", "import", written[0], "--output", "x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "the backbone cannot be written" in message
    assert "File too large" in message
    assert "another --output" in message
    assert left_in(tmp_path) == []


def test_the_tests_own_files_are_quantized(written):
    forms = {tensor.tensor_type.name for tensor in gguf_files.gguf.GGUFReader(written[0]).tensors}
    assert forms == {"Q8_0", "F32"}
