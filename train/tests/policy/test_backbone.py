import json
import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM

from vcrt.errors import BackboneError, UnknownNameError
from vcrt.records.policy_view import (
    POINTER_TOKENS,
    PointerRelation,
    PolicyRecord,
    render,
    vocabulary,
)
from vcrt_research.backbone_card import measure_backbone
from vcrt_train.config import Interface
from vcrt_train.policy.backbone import (
    EMBEDDED_DIRECTORY,
    LOCKED_FILES,
    load_backbone,
    load_backbone_directory,
    verify_lock,
)
from vcrt_train.policy.tokenizer import (
    QUESTION,
    embedded_tokenizer,
    encode_record,
    read_tokenizer,
    token_ids,
)
from vcrt_train.randomness import generator

RECORD = PolicyRecord(
    record_id="never rendered",
    pointers=(1, 4, 7),
    relations=(PointerRelation(0, 1, "commutes"), PointerRelation(2, 0, "precedes")),
)


@pytest.fixture
def directory(tmp_path):
    """A copy of the embedded backbone that a test may damage."""
    return shutil.copytree(EMBEDDED_DIRECTORY, tmp_path / "backbone")


def test_the_embedded_backbone_is_small_float32_and_in_evaluation_mode():
    backbone = load_backbone("embedded")
    assert backbone.name == "embedded"
    assert not backbone.model.training
    assert {p.dtype for p in backbone.model.parameters()} == {torch.float32}
    assert 100_000 < sum(p.numel() for p in backbone.model.parameters()) < 200_000
    assert backbone.model.config._attn_implementation == "sdpa"
    embedding = backbone.model.get_input_embeddings().weight
    assert backbone.model.lm_head.weight.data_ptr() == embedding.data_ptr()
    assert sum(path.stat().st_size for path in EMBEDDED_DIRECTORY.iterdir()) < 1_000_000


def test_each_load_is_the_same_backbone_and_a_model_of_its_own():
    first, second = load_backbone("embedded"), load_backbone("embedded")
    assert first.digest == second.digest
    for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(a, b)
        assert a.data_ptr() != b.data_ptr()


def test_loading_leaves_the_global_generator_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load_backbone("embedded")
    assert torch.equal(torch.rand(3), expected)


def test_the_library_reads_the_same_weights_from_the_directory():
    ours = load_backbone("embedded").model
    theirs = AutoModelForCausalLM.from_pretrained(EMBEDDED_DIRECTORY, local_files_only=True)
    for (name, a), (other, b) in zip(
        ours.named_parameters(), theirs.named_parameters(), strict=True
    ):
        assert name == other
        assert torch.equal(a, b)


def test_another_name_is_unknown():
    with pytest.raises(UnknownNameError, match="embedded"):
        load_backbone("embeded")


@pytest.mark.parametrize("name", LOCKED_FILES)
def test_an_altered_file_is_named_with_both_digests(directory, name):
    path = directory / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(BackboneError, match=name) as error:
        load_backbone_directory(directory, name="copy")
    locked = json.loads((directory / "lock.json").read_text())["files"][name]
    assert locked in (error.value.expected or "")
    assert "SHA-256" in (error.value.found or "")
    assert locked not in (error.value.found or "")
    assert error.value.remedy


@pytest.mark.parametrize("name", LOCKED_FILES)
def test_a_missing_file_is_named(directory, name):
    (directory / name).unlink()
    with pytest.raises(BackboneError, match=name) as error:
        load_backbone_directory(directory, name="copy")
    assert error.value.found == "no such file"


def test_a_missing_lock_is_refused(directory):
    (directory / "lock.json").unlink()
    with pytest.raises(BackboneError, match=r"lock\.json"):
        load_backbone_directory(directory, name="copy")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": 3, "digest": ""}'])
def test_an_unreadable_lock_is_refused(directory, text):
    (directory / "lock.json").write_text(text)
    with pytest.raises(BackboneError, match="cannot be read"):
        load_backbone_directory(directory, name="copy")


@pytest.mark.parametrize("alter", ["digest", "dropped file"])
def test_a_lock_that_contradicts_itself_is_refused(directory, alter):
    lock = json.loads((directory / "lock.json").read_text())
    if alter == "digest":
        lock["digest"] = "0" * 64
    else:
        del lock["files"]["card.json"]
    (directory / "lock.json").write_text(json.dumps(lock))
    with pytest.raises(BackboneError, match="does not agree with itself"):
        verify_lock(directory)


def test_every_word_is_one_token_and_comes_back():
    tokenizer = load_backbone("embedded").tokenizer
    words = [*vocabulary(), QUESTION]
    ids = tokenizer.encode(" ".join(words))
    assert len(set(ids)) == len(words)
    assert tokenizer.convert_ids_to_tokens(ids) == words
    assert tokenizer.decode(ids).split() == words
    assert len(tokenizer) == load_backbone("embedded").model.config.vocab_size


def test_the_shipped_tokenizer_is_the_one_of_the_policy_view():
    shipped = read_tokenizer(EMBEDDED_DIRECTORY / "tokenizer.json")
    assert shipped.get_vocab() == embedded_tokenizer().get_vocab()
    assert shipped.pad_token == embedded_tokenizer().pad_token


def test_a_foreign_word_is_refused_instead_of_dropped():
    with pytest.raises(Exception, match="UNK"):
        embedded_tokenizer().encode("<s> induction <order>")


@pytest.mark.parametrize("serialisation", ["sorted", "shuffled"])
def test_a_record_is_encoded_as_it_is_rendered(serialisation):
    tokenizer = embedded_tokenizer()
    prompt = encode_record(tokenizer, RECORD, serialisation, generator(1, "draw"))
    words = render(RECORD, serialisation, generator(1, "draw"))
    assert tokenizer.convert_ids_to_tokens(list(prompt.token_ids)) == words
    assert tokenizer.convert_ids_to_tokens(list(prompt.pointer_ids)) == ["p1", "p4", "p7"]


def test_a_tokenizer_that_lacks_words_of_the_policy_view_is_refused():
    with pytest.raises(BackboneError, match="p9"):
        token_ids(embedded_tokenizer(), [POINTER_TOKENS[0], "p9"])


def test_the_embedded_backbone_reads_but_does_not_know_which_orders_are_legal():
    backbone = load_backbone("embedded")
    measured = measure_backbone(backbone.model, backbone.tokenizer, seed=1, num_records=60)
    for accuracy in measured["look_up_accuracy"].values():
        assert accuracy["relation_of_pair"] > 0.9
        assert accuracy["pair_of_relation"] > 0.9
    for kind in measured["one_anti_diamond"].values():
        for behaviour in kind.values():
            assert behaviour["malformed_probability"] < 0.1
            # Four standard deviations of a fair coin, and the leaning that a backbone may have by chance.
            for interface in Interface.__args__:
                assert 0.3 < behaviour[f"pass_rate_{interface}"] < 0.7
