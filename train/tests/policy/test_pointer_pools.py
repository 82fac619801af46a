"""Pools of pointers: what each backbone knows of them, the text of language models, and records that users state."""

from __future__ import annotations

import numpy as np
import pytest

from language_models import byte_level_tokenizer
from vcrt.certificates.certificates import OperationRelation
from vcrt.errors import BackboneError, MalformedInputError
from vcrt.randomness import generator
from vcrt.records.policy_view import (
    LARGEST_POOL,
    PointerRelation,
    PolicyRecord,
)
from vcrt_train.policy.record_text import TextEncoder, TextForm, choose_pointers
from vcrt_train.policy.tokenizer import embedded_tokenizer, encode_record, num_pointers
from vcrt_train.protocol.relation_records import RelationRecord, with_pointers

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghij"
SIXTEEN = PolicyRecord(
    record_id="never rendered",
    pointers=(0, 2, 3, 5, 8, 9, 11, 12, 14, 17, 20, 21, 25, 28, 30, 31),
    relations=(
        PointerRelation(0, 15, "precedes"),
        PointerRelation(7, 3, "conflicts"),
        PointerRelation(9, 12, "precedes"),
    ),
)


def record(num_operations, pointers=None, **more):
    return PolicyRecord(
        record_id="r",
        pointers=tuple(range(num_operations)) if pointers is None else pointers,
        relations=(),
        **more,
    )


def test_the_tokens_of_the_first_embedded_backbone_are_what_they_were():
    words = "<pad> <s> <pointers> <relations> ; <order> r0 r1 r2 r3 r4 p0 p1 p2 p3 p4 p5 p6 p7"
    golden = {word: i for i, word in enumerate([*words.split(), "<question>"])}
    assert embedded_tokenizer().get_vocab() == golden
    assert num_pointers(embedded_tokenizer()) == 8
    assert num_pointers(embedded_tokenizer(LARGEST_POOL)) == 64


def test_a_backbone_of_eight_pointers_says_which_one_has_more():
    with pytest.raises(BackboneError, match="embedded-long") as error:
        encode_record(embedded_tokenizer(), SIXTEEN, "sorted", generator(0, "any"))
    assert error.value.found == "a record of 16 operations with pointer 31"
    prompt = encode_record(embedded_tokenizer(64), SIXTEEN, "sorted", generator(0, "any"))
    tokens = embedded_tokenizer(64).convert_ids_to_tokens(list(prompt.pointer_ids))
    assert tokens == [f"p{pointer}" for pointer in SIXTEEN.pointers]


def encoder(tokenizer, relation_names="opaque"):
    form = TextForm(tokenizer=tokenizer, style="plain", relation_names=relation_names)
    return TextEncoder(
        form=form,
        pointers=choose_pointers(form),
        num_embeddings=len(tokenizer),
        more_pointers=lambda count: choose_pointers(form, count),
    )


@pytest.fixture(scope="module")
def many_letters():
    return byte_level_tokenizer(letters=LETTERS, size=500)


def test_a_language_model_gets_as_many_pointers_as_the_record_asks_for(many_letters):
    tokenizer = many_letters
    encode = encoder(tokenizer)
    assert [len(encode.pointers_for(pool)) for pool in (8, 32)] == [8, 32]
    assert encode.pointers_for(32)[:8] == encode.pointers_for(8)
    prompt = encode(SIXTEEN, "sorted", generator(0, "any"))
    text = tokenizer.decode(list(prompt.token_ids))
    names = [LETTERS[pointer] for pointer in SIXTEEN.pointers]
    assert f"Steps: {' '.join(names)}\nRelations: A r1 f; M r3 F; R r1 Z;" in text
    assert [tokenizer.decode([i]) for i in prompt.pointer_ids] == [f" {name}" for name in names]


def test_a_long_record_in_words(many_letters):
    tokenizer = many_letters
    encode = encoder(tokenizer, "words")
    text = tokenizer.decode(list(encode(SIXTEEN, "sorted", generator(0, "any")).token_ids))
    names = [pointer.text.strip() for pointer in encode.pointers_for(32)]
    assert "Relations: A must come before " in text
    assert f" M should come before {names[5]}. R must come before {names[25]}.\nOrder:" in text


def test_a_tokenizer_with_fewer_pointers_serves_shorter_records_only():
    encode = encoder(byte_level_tokenizer())
    assert encode(record(32), "sorted", generator(0, "any")).num_operations == 32
    with pytest.raises(BackboneError, match="too few pointers") as error:
        encode(record(33), "sorted", generator(0, "any"))
    assert error.value.expected == "64"
    assert error.value.remedy.endswith("or records of up to 32 operations")
    fixed = TextEncoder(form=encode.form, pointers=encode.pointers, num_embeddings=10**6)
    with pytest.raises(BackboneError, match="too few pointers") as error:
        fixed(record(5), "sorted", generator(0, "any"))
    assert error.value.found == "8 pointers"


def test_a_stated_record_draws_from_its_pool_or_from_what_the_policy_knows():
    stated = RelationRecord(
        operations=tuple("abcdef"), relations=(OperationRelation(0, 1, "precedes"),)
    )
    drawn = np.array([with_pointers(stated, seed).record.pointers for seed in range(40)])
    assert drawn.max() > 28
    known = np.array([with_pointers(stated, seed, 8).record.pointers for seed in range(40)])
    assert known.max() == 7
    with pytest.raises(MalformedInputError, match="embedded-long"):
        with_pointers(stated, 0, 5)


def test_four_stated_operations_are_shown_as_ever():
    stated = RelationRecord(
        operations=tuple("abcd"), relations=(OperationRelation(0, 1, "precedes"),)
    )
    golden = generator(3, "decide", "pointers").permutation(8)[:4]
    for known in (None, 8, 64):
        shown = with_pointers(stated, 3, known)
        assert [shown.record.pointers[slot] for slot in shown.slot_of_operation] == golden
