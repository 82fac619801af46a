"""Language models from folders and the hub cache: only what is locked is loaded, and every refusal says what to do."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from language_models import MODELS, byte_level_tokenizer, locked_model, save_model
from vcrt.errors import BackboneError, UnknownNameError
from vcrt_train.config import RunConfig
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.kernels.grouped_attention import GROUPED
from vcrt_train.policy.locking import FORMAT, make_lock, model_files, read_lock, verified
from vcrt_train.policy.reference import EMBEDDED, BackboneReference, backbone_reference


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A locked folder that no test changes."""
    return locked_model(tmp_path_factory.mktemp("saved") / "qwen3")


@pytest.fixture
def folder(tmp_path):
    """A folder that a test may damage, locked."""
    reference = locked_model(tmp_path / "model")
    return tmp_path / "model", reference


@pytest.mark.parametrize("kind", MODELS)
def test_every_class_is_loaded_with_the_saved_weights(tmp_path, kind):
    reference = locked_model(tmp_path / kind, kind)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    backbone = load_backbone(reference)
    assert torch.equal(torch.rand(3), expected)
    assert not backbone.model.training
    assert {p.dtype for p in backbone.model.parameters()} == {torch.float32}
    assert type(backbone.model).__name__.endswith("ForCausalLM")
    assert (backbone.name, backbone.digest) == (
        kind,
        json.loads((tmp_path / kind / "vcrt-lock.json").read_text())["digest"],
    )
    # The text model's weights are the file's, under whatever name the file has them.
    from safetensors.torch import load_file

    in_file = {
        name.replace("language_model.", ""): tensor
        for name, tensor in load_file(tmp_path / kind / "model.safetensors").items()
        if "visual" not in name
    }
    ours = dict(backbone.model.named_parameters())
    assert ours.keys() == in_file.keys()
    assert all(torch.equal(ours[name], in_file[name]) for name in ours)


def test_a_multimodal_model_whose_head_is_its_embedding_keeps_it(tmp_path):
    # The library reads the text configuration alone, and would draw a random head.
    reference = locked_model(tmp_path / "m", "qwen3_5_multimodal")
    _, report = AutoModelForCausalLM.from_pretrained(
        tmp_path / "m", output_loading_info=True, local_files_only=True
    )
    assert report["missing_keys"] == {"lm_head.weight"}
    model = load_backbone(reference).model
    assert model.lm_head.weight.data_ptr() == model.get_input_embeddings().weight.data_ptr()


def test_bfloat16_is_the_models_format_if_asked_for(saved):
    model = load_backbone(replace(saved, dtype="bfloat16")).model
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    attention = "sdpa" if torch.cuda.is_available() else GROUPED
    assert model.config._attn_implementation == attention
    assert load_backbone(saved).model.config._attn_implementation == "sdpa"
    with pytest.raises(BackboneError, match="embedded backbone has one number format"):
        replace(EMBEDDED, dtype="bfloat16")


def test_shards_are_locked_with_their_index(tmp_path):
    save_model(tmp_path / "m", max_shard_size="20KB")
    names = model_files(tmp_path / "m")
    shards = [name for name in names if name.startswith("model-")]
    assert len(shards) > 1
    assert {"config.json", "model.safetensors.index.json", "tokenizer.json"} <= set(names)
    reference = backbone_reference(str(tmp_path / "m"))
    assert set(make_lock(reference).files) == set(names)
    load_backbone(reference)
    (tmp_path / "m" / shards[1]).unlink()
    with pytest.raises(BackboneError, match=shards[1]) as error:
        load_backbone(reference)
    assert error.value.found == "no such file"
    with pytest.raises(BackboneError, match="weights are not whole"):
        model_files(tmp_path / "m")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_changed_byte_is_refused_by_the_name_of_its_file(folder, name):
    path, reference = folder
    data = bytearray((path / name).read_bytes())
    data[-5] ^= 1
    (path / name).write_bytes(data)
    with pytest.raises(BackboneError, match=f"file {name} is not the one that was locked") as error:
        load_backbone(reference)
    assert error.value.expected == f"SHA-256 {read_lock(path / 'vcrt-lock.json').files[name]}"


def test_what_is_not_locked_has_no_effect(folder):
    path, reference = folder
    before = load_backbone(reference)
    (path / "chat_template.jinja").write_text("added later")
    (path / "added_tokens.json").write_text('{" A": 5}')
    (path / "adapter_config.json").write_text('{"base_model_name_or_path": "nobody/nothing"}')
    after = load_backbone(reference)
    assert after.tokenizer.chat_template is None
    assert after.tokenizer.get_vocab() == before.tokenizer.get_vocab()
    assert type(after.model) is type(before.model)


def test_an_unlocked_folder_is_refused(tmp_path):
    save_model(tmp_path / "m")
    with pytest.raises(BackboneError, match="not locked") as error:
        load_backbone(str(tmp_path / "m"))
    assert "vcrt backbone lock" in error.value.remedy


def test_a_lock_is_not_renewed_over_changed_files(folder):
    path, reference = folder
    assert make_lock(reference) == read_lock(path / "vcrt-lock.json")
    config = (path / "config.json").read_text()
    (path / "config.json").write_text(config + " ")
    with pytest.raises(BackboneError, match="another lock already"):
        make_lock(reference)


@pytest.mark.parametrize("change", ["not json", "digest", "path", "format", "folder"])
def test_a_malformed_lock_is_refused(folder, change):
    path, reference = folder
    lock = path / "vcrt-lock.json"
    value = json.loads(lock.read_text())
    if change == "digest":
        value["digest"] = "0" * 64
    elif change == "path":
        value["files"]["../elsewhere"] = "0" * 64
    elif change == "format":
        value["format"] = "vcrt-backbone-lock/0"
    if change == "folder":
        lock.unlink()
        lock.mkdir()
    else:
        lock.write_text("{" if change == "not json" else json.dumps(value))
    with pytest.raises(BackboneError, match="lock of a backbone cannot be read"):
        verified(reference)
    assert FORMAT == "vcrt-backbone-lock/1"


def test_pickled_weights_are_never_read(tmp_path):
    save_model(tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").rename(tmp_path / "m" / "pytorch_model.bin")
    with pytest.raises(BackboneError, match="no safetensors weights") as error:
        make_lock(backbone_reference(str(tmp_path / "m")))
    assert "pytorch_model.bin, which is pickled" in error.value.found
    assert "save_pretrained" in error.value.remedy


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_folder_without_a_model_or_tokenizer_cannot_be_locked(tmp_path, name):
    save_model(tmp_path / "m")
    for path in (tmp_path / "m").glob("tokenizer*" if name.startswith("tok") else name):
        path.unlink()
    with pytest.raises(BackboneError, match=r"no tokenizer|not a folder of a language model"):
        make_lock(backbone_reference(str(tmp_path / "m")))


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"num_hidden_layers": 3}, "missing: model.layers.2"),
        ({"num_hidden_layers": 1}, "left over: model.layers.1"),
        ({"intermediate_size": 48}, "mlp"),
        ({"model_type": "nobody_knows"}, "nobody_knows"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantization_config"),
    ],
)
def test_a_configuration_that_is_not_the_weights_is_refused(tmp_path, change, found):
    path = save_model(tmp_path / "m", "llama")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **change}))
    reference = backbone_reference(str(path))
    make_lock(reference)
    with pytest.raises(BackboneError) as error:
        load_backbone(reference)
    assert found in error.value.found


def test_remote_code_is_not_run(tmp_path):
    path = save_model(tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    config |= {"model_type": "own", "auto_map": {"AutoModelForCausalLM": "code.Model"}}
    (path / "config.json").write_text(json.dumps(config))
    (path / "code.py").write_text("raise SystemExit('remote code was run')")
    reference = backbone_reference(str(path))
    make_lock(reference)
    with pytest.raises(BackboneError, match="library cannot load"):
        load_backbone(reference)


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused_where_it_matters(tmp_path):
    path = save_model(tmp_path / "m", tokenizer=byte_level_tokenizer(letters="ABC", size=300))
    byte_level_tokenizer(size=400).save_pretrained(path)
    reference = backbone_reference(str(path))
    make_lock(reference)
    backbone = load_backbone(reference)
    from training_fixtures import supervised_record
    from vcrt_train.randomness import generator

    with pytest.raises(BackboneError, match="tokenizer is not the model's"):
        backbone.encode(supervised_record(0).record, "sorted", generator(0, "x"))


def test_names_are_folders_hub_names_or_embedded(tmp_path, monkeypatch):
    assert backbone_reference("embedded") == EMBEDDED == BackboneReference()
    with pytest.raises(UnknownNameError, match="did you mean 'embedded'"):
        backbone_reference("embeded")
    with pytest.raises(BackboneError, match="no such folder"):
        backbone_reference("./nowhere/at/all")
    with pytest.raises(BackboneError, match="needs a lock file"):
        backbone_reference("Qwen/Qwen3.5-2B")
    (tmp_path / "embedded").mkdir()
    monkeypatch.chdir(tmp_path)
    assert backbone_reference("./embedded").name == "./embedded"
    assert not backbone_reference("./embedded").is_embedded


def test_places_are_no_part_of_what_a_backbone_is(tmp_path):
    (tmp_path / "models" / "m").mkdir(parents=True)
    one = backbone_reference(str(tmp_path / "models" / "m"))
    other = backbone_reference(str(tmp_path / "models" / "m"), lock=tmp_path / "elsewhere.json")
    assert one.identity == other.identity
    assert one.without_places == other.without_places
    settings = [
        RunConfig().override({"model.backbone": x.folder, "model.lock": x.lock})
        for x in (one, other)
    ]
    assert one.resolved(settings[0]) == other.resolved(settings[1])
    home = tmp_path / "new"
    for folder in (home / "m", home / "experiment"):
        folder.mkdir(parents=True)
    gone = replace(other, folder=str(tmp_path / "gone" / "m"))
    found = gone.moved_with(home / "experiment")
    assert (found.folder, found.lock) == (str(home / "m"), other.lock)
    inside = replace(gone, lock=str(tmp_path / "gone" / "m" / "vcrt-lock.json"))
    assert inside.moved_with(home / "experiment").lock == str(home / "m" / "vcrt-lock.json")
    # What is where it was is not looked for elsewhere.
    (tmp_path / "gone" / "m").mkdir(parents=True)
    assert gone.moved_with(home / "experiment") == gone


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """An empty hub cache and no network, as HF_HUB_OFFLINE=1 and HF_HOME make them when a process starts."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def cached(hub, commit="c0ffee" + "0" * 34, **options):
    """Put a model into the hub cache as the hub's library lays it out."""
    repository = hub / "models--somebody--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    save_model(repository / "snapshots" / commit, **options)
    return repository / "snapshots" / commit


def test_a_hub_name_is_read_from_the_cache_by_its_locked_revision(offline, tmp_path):
    snapshot = cached(offline)
    reference = backbone_reference("somebody/tiny", lock=tmp_path / "tiny.lock.json")
    lock = make_lock(reference, revision="main")
    assert lock.revision == snapshot.name
    assert not (snapshot / "vcrt-lock.json").exists()
    backbone = load_backbone(reference)
    assert (backbone.name, backbone.revision) == ("somebody/tiny", snapshot.name)
    # The branch has moved on: what was locked is still what is loaded.
    (offline / "models--somebody--tiny" / "refs" / "main").write_text("1" * 40)
    assert load_backbone(reference).digest == backbone.digest
    with pytest.raises(BackboneError, match="lock is another backbone's"):
        load_backbone(replace(reference, name="somebody/else"))


def test_a_hub_name_that_is_not_in_the_cache_offline_names_the_remedy(offline, tmp_path):
    reference = backbone_reference("somebody/tiny", lock=tmp_path / "tiny.lock.json")
    with pytest.raises(BackboneError, match="cannot be read") as error:
        make_lock(reference)
    assert "offline" in error.value.found
    assert "hf download somebody/tiny" in error.value.remedy
    cached(offline)
    make_lock(reference)
    (offline / "models--somebody--tiny").rename(offline / "gone")
    with pytest.raises(BackboneError, match="cannot be read") as error:
        load_backbone(reference)
    assert "--revision c0ffee" in error.value.remedy
