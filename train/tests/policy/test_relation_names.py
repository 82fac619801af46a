"""Relations by opaque names and in words: the same record, drawn alike, read back from either text."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from language_models import byte_level_tokenizer
from vcrt.errors import BackboneError
from vcrt.records.policy_view import (
    ANSWER,
    BEGIN,
    POINTER_TOKENS,
    POINTERS,
    RELATION_TOKENS,
    RELATIONS,
    SEPARATOR,
    PointerRelation,
    PolicyRecord,
    pointer_pool,
    render,
)
from vcrt_train.policy.record_text import TextEncoder, TextForm, choose_pointers, record_text
from vcrt_train.policy.reference import BackboneReference, backbone_reference
from vcrt_train.randomness import generator

#: How each relation reads, written down once more.
SENTENCES = {
    "r0": "{} and {} in any order.",
    "r1": "{} must come before {}.",
    "r2": "{} must come after {}.",
    "r3": "{} should come before {}.",
    "r4": "{} should come after {}.",
}
#: Sixteen operations draw from 32 pointers.
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZbcdefghi"
SPACED = tuple(f" {letter}" for letter in LETTERS)
BARE = tuple(LETTERS)
KINDS = st.sampled_from(sorted(RELATION_TOKENS))


@st.composite
def records(draw):
    """Records of 2 to 16 operations in any order, with relations between some pairs, and distractors."""
    size = draw(st.integers(2, 16))
    pool = pointer_pool(size)
    mixed = draw(st.permutations(range(pool)))
    pairs = draw(st.lists(st.sampled_from(list(combinations(range(size), 2))), unique=True))
    others = list(combinations(sorted(mixed[size:]), 2))
    joined = draw(st.lists(st.sampled_from(others), unique=True, max_size=4))

    def drawn(made, pair):
        return made(*draw(st.permutations(pair)), draw(KINDS))

    return PolicyRecord(
        record_id="never rendered",
        pointers=tuple(sorted(mixed[:size])),
        relations=tuple(sorted(drawn(PointerRelation, pair) for pair in pairs)),
        distractors=tuple(sorted(drawn(PointerRelation, pair) for pair in joined)),
    )


def read_back(text, pointers):
    """The tokens of the rendered record that a text in words was made from."""
    names = {shown.strip(): POINTER_TOKENS[i] for i, shown in enumerate(pointers)}

    def tokens(listed):
        return [names[name.strip("[]")] for name in listed.split()]

    _, steps, relations = text.rstrip("\n").split("\n")
    found = [BEGIN, POINTERS, *tokens(steps.removeprefix("Steps:")), RELATIONS]
    pointer = r"(\[?\w\]?)"
    rest = relations.removeprefix("Relations:")
    while rest:
        matches = {
            token: match
            for token, sentence in SENTENCES.items()
            if (match := re.match(" " + sentence.format(pointer, pointer), rest))
        }
        # No sentence can be read as two relations.
        ((token, match),) = matches.items()
        left, right = (tokens(name)[0] for name in match.groups())
        found += [left, token, right, SEPARATOR]
        rest = rest[match.end() :]
    return [*found, ANSWER]


@settings(deadline=None)
@given(
    records(),
    st.sampled_from(["sorted", "shuffled"]),
    st.integers(0, 2**31),
    st.sampled_from([SPACED, BARE]),
)
def test_words_say_what_the_opaque_names_say_and_nothing_else(
    record, serialisation, seed, pointers
):
    words = render(record, serialisation, generator(seed, "any"))
    text = record_text(words, pointers, "words")
    assert read_back(text, pointers) == words
    # Only what stands for the relation differs: put back, it is the opaque text.
    opaque = record_text(words, pointers)
    for token, sentence in SENTENCES.items():
        pattern = sentence.format(r"(\[?\w\]?)", r"(\[?\w\]?)")
        text = re.sub(pattern, rf"\1 {token} \2;", text)
    assert text == opaque


def encoder(tokenizer, style="plain", relation_names="opaque"):
    form = TextForm(tokenizer=tokenizer, style=style, relation_names=relation_names)
    return TextEncoder(
        form=form,
        pointers=choose_pointers(form),
        num_embeddings=len(tokenizer),
        more_pointers=cache(lambda count: choose_pointers(form, count)),
    )


@cache
def encoders(style):
    tokenizer = byte_level_tokenizer(letters=LETTERS, size=500, chat=True)
    return [encoder(tokenizer, style, names) for names in ("opaque", "words")]


@settings(deadline=None, max_examples=30)
@given(records(), st.sampled_from(["sorted", "shuffled"]), st.sampled_from(["plain", "chat"]))
def test_both_forms_take_the_same_draws_and_name_the_same_pointers(record, serialisation, style):
    draws = [generator(3, "any"), generator(3, "any")]
    prompts = [
        encode(record, serialisation, draw)
        for encode, draw in zip(encoders(style), draws, strict=True)
    ]
    assert draws[0].integers(10**9) == draws[1].integers(10**9)
    said, asked = [], []
    for encode, prompt in zip(encoders(style), prompts, strict=True):
        # Which letters are pointers is each form's own: a letter that a word of it begins with may be none.
        known = {one.token_id: place for place, one in enumerate(encode.pointers_for(record.pool))}
        said.append([known[token] for token in prompt.token_ids if token in known])
        asked.append([known[token] for token in prompt.pointer_ids])
    # Each pointer is one token wherever it stands, at the beginning and at the end of sentences too.
    assert said[0] == said[1]
    assert asked == [list(record.pointers)] * 2
    relations = len(record.relations) + len(record.distractors)
    assert len(said[0]) == record.num_operations + 2 * relations


def test_a_text_in_words():
    record = PolicyRecord(
        record_id="never rendered",
        pointers=(1, 4, 7),
        relations=(PointerRelation(0, 1, "commutes"), PointerRelation(2, 0, "precedes")),
        distractors=(PointerRelation(0, 2, "conflicts"),),
    )
    encode = encoder(byte_level_tokenizer(), relation_names="words")
    shown = encode.form.tokenizer.decode(
        list(encode(record, "sorted", generator(0, "x")).token_ids)
    )
    assert shown == (
        "Write every step once, in an order that the relations allow.\nSteps: B E H\nRelations: "
        "A should come before C. E and B in any order. H must come before B.\nOrder:"
    )


@pytest.mark.parametrize(
    ("style", "golden"),
    [
        ("plain", "9c1febb738b7b1beb6860ebf2516c2f7832d2a9e1c9704e45c9b70d1ab9b9085"),
        ("chat", "5d25dd1488244b2101ce54556df5ac77b1e80710be67282f3527daac224a7ea2"),
    ],
)
def test_opaque_prompts_are_what_they_were_before_there_were_words(style, golden):
    encode = encoders(style)[0]
    draw = np.random.Generator(np.random.PCG64(7))
    texts = []
    for size in (2, 4, 8, 16):
        pool = pointer_pool(size)
        record = PolicyRecord(
            record_id="any",
            pointers=tuple(range(pool - size, pool)),
            relations=tuple(
                PointerRelation(a, b, ("commutes", "precedes", "conflicts")[(a + b) % 3])
                for a, b in combinations(range(size), 2)
            ),
        )
        for serialisation in ("sorted", "shuffled"):
            prompt = encode(record, serialisation, draw)
            texts.append(encode.form.tokenizer.decode(list(prompt.token_ids)))
    assert sha256("\n".join(texts).encode()).hexdigest() == golden


@pytest.mark.parametrize(
    ("joined", "lost"), [(" A.", "A"), (". B", "B"), (" C and", "C"), (" before D", "D")]
)
def test_a_pointer_that_joins_a_word_of_a_sentence_is_passed_over(joined, lost):
    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens([joined])
    opaque, words = (encoder(tokenizer, relation_names=names) for names in ("opaque", "words"))
    assert "".join(p.text.strip() for p in opaque.pointers) == "ABCDEFGH"
    kept = [letter for letter in "ABCDEFGHIJ" if letter != lost]
    assert [p.text for p in words.pointers] == [f" {letter}" for letter in kept[:8]]


def test_an_embedded_backbone_refuses_words():
    for name in ("embedded", "embedded-long"):
        with pytest.raises(BackboneError, match="one form of prompt") as error:
            backbone_reference(name, relation_names="words")
        assert error.value.found == "float32, plain, words"
        assert error.value.expected == "float32, plain, opaque"
        assert "choose a language model" in error.value.remedy


def test_which_names_are_shown_is_part_of_what_a_backbone_is():
    opaque, words = (
        BackboneReference(name="m", folder="m", lock="l", relation_names=names)
        for names in ("opaque", "words")
    )
    assert opaque.identity != words.identity
    assert words.without_places.relation_names == "words"
    assert (opaque.shown, words.shown) == (
        ", relations by opaque names",
        ", relations in words",
    )
    assert BackboneReference().shown == ""
