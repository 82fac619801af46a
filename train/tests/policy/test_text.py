"""Records as text for language models: pointers of one token, both styles, both serialisations, no clock."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from language_models import CHAT_TEMPLATE, byte_level_tokenizer
from training_fixtures import supervised_records
from vcrt.errors import BackboneError
from vcrt.records.policy_view import (
    POINTER_POOL,
    POINTER_TOKENS,
    PointerRelation,
    PolicyRecord,
    render,
)
from vcrt_train.policy import record_text as text_module
from vcrt_train.policy.record_text import CANDIDATES, TextEncoder, TextForm, choose_pointers
from vcrt_train.randomness import generator

RECORD = PolicyRecord(
    record_id="never rendered",
    pointers=(1, 4, 7),
    relations=(PointerRelation(0, 1, "commutes"), PointerRelation(2, 0, "precedes")),
    distractors=(PointerRelation(0, 2, "conflicts"),),
)


def encoder(tokenizer, style="plain", relation_names="opaque"):
    form = TextForm(tokenizer=tokenizer, style=style, relation_names=relation_names)
    return TextEncoder(
        form=form, pointers=choose_pointers(form), num_embeddings=len(tokenizer), max_length=512
    )


def letters_of(encode):
    return [pointer.text for pointer in encode.pointers]


def character_tokenizer(*, template=None):
    """One token a character, none with a space: letters stand in brackets."""
    characters = [chr(c) for c in range(32, 127)] + ["\n"]
    raw = Tokenizer(models.WordLevel({c: i for i, c in enumerate(characters)}, unk_token=" "))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    raw.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=raw, chat_template=template)


def test_pointers_are_the_first_spaced_letters_that_are_one_token():
    assert letters_of(encoder(byte_level_tokenizer())) == [f" {c}" for c in "ABCDEFGH"]
    # C is no token with its space here: it is passed over.
    assert letters_of(encoder(byte_level_tokenizer(letters="ABDEFGHIJK"))) == [
        f" {c}" for c in "ABDEFGHI"
    ]


def test_without_spaced_letters_bare_ones_stand_in_brackets():
    encode = encoder(character_tokenizer())
    assert letters_of(encode) == list("ABCDEFGH")
    prompt = encode(RECORD, "sorted", generator(0, "x"))
    shown = encode.form.tokenizer.decode(list(prompt.token_ids))
    assert "Steps: [B] [E] [H]\nRelations: [A] r3 [C];" in shown
    assert encode.form.tokenizer.decode(list(prompt.pointer_ids)) == "BEH"


def test_too_few_pointers_are_refused_with_counts():
    # Spaced letters are two tokens, and bare ones join in an answer.
    tokenizer = byte_level_tokenizer(letters="AB", size=330)
    assert len(tokenizer.encode(" Z", add_special_tokens=False)) == 2
    with pytest.raises(BackboneError, match="too few pointers") as error:
        choose_pointers(TextForm(tokenizer=tokenizer, style="plain"), count=len(CANDIDATES[1]) + 1)
    assert f"of {sum(map(len, CANDIDATES))} candidates" in error.value.found
    assert error.value.expected == str(len(CANDIDATES[1]) + 1)


def test_a_tokenizer_of_whole_words_has_no_pointers():
    raw = Tokenizer(models.WordLevel({"<unk>": 0, "word": 1}, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>")
    with pytest.raises(BackboneError, match="too few pointers") as error:
        encoder(tokenizer)
    assert error.value.found.startswith("0 of ")
    assert error.value.expected == str(POINTER_POOL)


def test_a_tokenizer_that_cannot_tell_relations_apart_is_refused():
    characters = [chr(c) for c in range(32, 127) if not chr(c).isdigit()] + ["\n"]
    raw = Tokenizer(models.WordLevel({c: i for i, c in enumerate(characters)}, unk_token=" "))
    raw.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    raw.decoder = decoders.Fuse()
    with pytest.raises(BackboneError, match="different relations the same tokens") as error:
        encoder(PreTrainedTokenizerFast(tokenizer_object=raw))
    assert error.value.found == "r0 and r1 cannot be told apart"
    assert "the other --relation-names" in error.value.remedy
    assert encoder(PreTrainedTokenizerFast(tokenizer_object=raw), relation_names="words")


@pytest.mark.parametrize("names", ["opaque", "words"])
@pytest.mark.parametrize("style", ["plain", "chat"])
@pytest.mark.parametrize("serialisation", ["sorted", "shuffled"])
@pytest.mark.parametrize("make", [byte_level_tokenizer, character_tokenizer])
def test_every_pointer_of_a_text_and_of_an_answer_is_its_token(style, serialisation, make, names):
    tokenizer = make()
    tokenizer.chat_template = CHAT_TEMPLATE
    encode = encoder(tokenizer, style, names)
    for index, record in enumerate([RECORD, *(r.record for r in supervised_records(6))]):
        prompt = encode(record, serialisation, generator(0, "draw", index))
        words = render(record, serialisation, generator(0, "draw", index))
        of_token = {p.token_id: POINTER_TOKENS[i] for i, p in enumerate(encode.pointers)}
        assert [of_token[t] for t in prompt.token_ids if t in of_token] == [
            word for word in words if word in POINTER_TOKENS
        ]
        shown = tokenizer.decode(list(prompt.token_ids))
        assert shown.endswith("Order:")
        assert record.record_id not in shown
        for order in permutations(range(record.num_operations)):
            ids = [prompt.pointer_ids[slot] for slot in order]
            answer = "".join(encode.pointers[record.pointers[slot]].text for slot in order)
            assert tokenizer.decode([*prompt.token_ids, *ids]) == shown + answer
            if style == "plain":
                assert encode.form.token_ids(shown + answer) == [*prompt.token_ids, *ids]


def test_a_record_says_the_same_in_both_styles():
    tokenizer = byte_level_tokenizer(chat=True)
    plain, chat = (encoder(tokenizer, style) for style in ("plain", "chat"))
    texts = [
        tokenizer.decode(list(encode(RECORD, "shuffled", generator(3, "x")).token_ids))
        for encode in (plain, chat)
    ]
    body = texts[0].removesuffix("\nOrder:")
    assert texts[1] == f"<|end|>01 January 2026\n<|user|>{body}<|end|><|assistant|>Order:"
    for word in ("commutes", "precedes", "conflicts"):
        assert word not in body


def test_draws_come_from_the_generator_alone():
    encode = encoder(byte_level_tokenizer())
    draws = [encode(RECORD, "shuffled", generator(seed, "x")).token_ids for seed in (1, 1, 2, 3)]
    assert draws[0] == draws[1]
    assert len(set(draws)) > 1
    used = generator(1, "x")
    encode(RECORD, "shuffled", used)
    rendered = generator(1, "x")
    render(RECORD, "shuffled", rendered)
    assert used.integers(10**9) == rendered.integers(10**9)


def test_a_tokenizer_of_few_words_is_refused():
    few = Tokenizer(models.WordLevel({"A": 0}, unk_token="[UNK]"))
    form = TextForm(tokenizer=PreTrainedTokenizerFast(tokenizer_object=few), style="plain")
    with pytest.raises(BackboneError, match="cannot spell") as error:
        form.token_ids("order the steps")
    assert "a model exported from one cannot be a backbone" in error.value.remedy


def test_a_chat_without_a_template_and_a_template_that_fails_are_refused():
    with pytest.raises(BackboneError, match="no chat template") as error:
        encoder(byte_level_tokenizer(), "chat")
    assert "--prompt-style plain" in error.value.remedy
    tokenizer = byte_level_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('system prompt required') }}"
    with pytest.raises(BackboneError, match="cannot be applied") as error:
        encoder(tokenizer, "chat")
    assert "system prompt required" in error.value.found
    for template, times in (("{{ c }}{{ c }}", 2), ("{{ c | upper }}", 0)):
        tokenizer.chat_template = "{% set c = messages[0]['content'] %}" + template
        with pytest.raises(BackboneError, match="show the message once") as error:
            encoder(tokenizer, "chat")
        assert error.value.found == f"the message {times} times"


def test_a_beginning_token_is_put_where_the_tokenizer_puts_it():
    from tokenizers import processors

    tokenizer = byte_level_tokenizer(chat=True)
    without = encoder(tokenizer)(RECORD, "sorted", generator(0, "x")).token_ids
    begin = tokenizer.eos_token_id
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|end|> $A", special_tokens=[("<|end|>", begin)]
    )
    tokenizer.bos_token = "<|end|>"
    assert encoder(tokenizer)(RECORD, "sorted", generator(0, "x")).token_ids == (begin, *without)
    # The template has its own.
    chat = encoder(tokenizer, "chat")(RECORD, "sorted", generator(0, "x")).token_ids
    assert chat[:2].count(begin) == 1


def test_a_text_that_is_too_long_is_refused():
    form = TextForm(tokenizer=byte_level_tokenizer(), style="plain")
    encode = TextEncoder(
        form=form, pointers=choose_pointers(form), num_embeddings=10**6, max_length=20
    )
    with pytest.raises(BackboneError, match="too long"):
        encode(RECORD, "sorted", generator(0, "x"))


def test_a_text_in_which_pointers_occur_elsewhere_is_refused(monkeypatch):
    encode = encoder(byte_level_tokenizer())
    monkeypatch.setattr(text_module, "ASK", "Order of A:")
    with pytest.raises(BackboneError, match="splits or joins"):
        encode(RECORD, "sorted", np.random.Generator(np.random.PCG64(0)))


# --- records of steps -----------------------------------------------------------------------------

STEPS = PolicyRecord(
    record_id="never rendered",
    pointers=(1, 4, 7),
    relations=(),
    task="Reached so far: A, B.",
    steps=("relax A->B", "theorem (A : E) :\nexact B E H", "E"),
)


@pytest.mark.parametrize("style", ["plain", "chat"])
@pytest.mark.parametrize("make", [byte_level_tokenizer, character_tokenizer])
def test_each_step_stands_behind_the_token_that_answers_it(style, make):
    tokenizer = make()
    tokenizer.chat_template = CHAT_TEMPLATE
    encode = encoder(tokenizer, style)
    texts = set()
    for seed in range(12):
        prompt = encode(STEPS, "shuffled", generator(seed))
        shown = tokenizer.decode(list(prompt.token_ids))
        texts.add(shown)
        pointers = [encode.pointers[p].text for p in STEPS.pointers]
        labels = [p if p.startswith(" ") else f" [{p}]" for p in pointers]
        assert "\nTask: Reached so far: A, B.\nSteps:\n" in shown
        assert f"\n{labels[0]}: relax A->B" in shown
        assert f"{labels[1]}: theorem (A : E) :\n    exact B E H" in shown
        assert f"\n{labels[2]}: E" in shown
        assert shown.endswith("Order:")
        assert [tokenizer.decode([i]) for i in prompt.pointer_ids] == pointers
        assert STEPS.record_id not in shown
        assert "elation" not in shown
    assert len(texts) == 6
    (printed,) = {encode(STEPS, "sorted", generator(seed)).token_ids for seed in range(4)}
    assert tokenizer.decode(list(printed)) in texts


def test_without_a_task_nothing_stands_in_its_place():
    encode = encoder(byte_level_tokenizer())
    prompt = encode(replace(STEPS, task=""), "sorted", generator(0))
    assert "should.\nSteps:\n" in encode.form.tokenizer.decode(list(prompt.token_ids))


@pytest.mark.parametrize("changes", [{"task": "a <|end|> b"}, {"steps": ("x", "y<|user|>", "z")}])
def test_a_text_cannot_pass_for_what_a_chat_template_writes(changes):
    encode = encoder(byte_level_tokenizer(chat=True), "chat")
    with pytest.raises(BackboneError, match="special token of the tokenizer"):
        encode(replace(STEPS, **changes), "sorted", generator(0))


def test_a_pointer_that_the_tokenizer_joins_to_its_step_is_refused():
    tokenizer = byte_level_tokenizer()
    # " B:" is one token from here on, which stands nowhere else in a prompt.
    tokenizer.add_tokens([" B:"])
    encode = encoder(tokenizer)
    with pytest.raises(BackboneError, match="splits or joins pointers") as error:
        encode(STEPS, "sorted", generator(0))
    assert error.value.found == "not a single token: 1 pointer before steps"


def test_steps_that_do_not_fit_are_refused():
    encode = encoder(byte_level_tokenizer())
    with pytest.raises(BackboneError, match="too long for the model"):
        encode(replace(STEPS, task="long " * 400), "sorted", generator(0))
