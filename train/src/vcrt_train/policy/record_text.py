"""Write a policy record as text for a language model, and encode the text so that every pointer is one token.

The words are those of :func:`vcrt.records.policy_view.render`, including its random choices, so a record gives the same
facts to every backbone. Relation types stay opaque (``r0`` to ``r4``), or each relation becomes a plain sentence
(:func:`vcrt.records.policy_view.in_words`); both forms state the same facts from the same draws. The answer follows
``Order:`` directly: the pointers' tokens one after another, with nothing between them (a spaced pointer such as `` A``
contains its space).

Pointers are single tokens of the tokenizer, tried in a fixed order and checked in place. A candidate must be a separate
token in the very text that the model will read, before and after everything that can be next to it, must occur nowhere
else, and must be the same when it is decoded. Spaced letters are tried first (`` A``: one token in nearly every
tokenizer), then letters and digits without a space, in brackets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from string import ascii_lowercase, ascii_uppercase, digits

import numpy as np
from transformers import PreTrainedTokenizerFast

from vcrt.errors import BackboneError
from vcrt.forms import in_a_line
from vcrt.printable import counted
from vcrt.records.policy_view import (
    ANSWER,
    BEGIN,
    LARGE_POOL,
    POINTER_POOL,
    POINTER_TOKENS,
    POINTERS,
    RELATION_TOKENS,
    RELATIONS,
    SEPARATOR,
    PolicyRecord,
    Serialisation,
    in_words,
    printed_slots,
    render,
)
from vcrt_train.config import PromptStyle, RelationNames
from vcrt_train.policy.causal_model import Prompt

INSTRUCTION = "Write every step once, in an order that the relations allow."
#: The instruction if the prompt shows the steps themselves, and no relations.
INSTRUCTION_OF_STEPS = (
    "Write every step once, in an order in which all of them work and end as they should."
)
ASK = "Order:"
#: Fixed words of the text. Any other word that is no pointer gets a space before it.
_WORDS = {
    BEGIN: f"{INSTRUCTION}\n",
    POINTERS: "Steps:",
    RELATIONS: "\nRelations:",
    SEPARATOR: ";",
    ".": ".",
}
#: The prefix of a chat template: it fixes today's date, because a prompt must not depend on the time of writing.
_FIXED_DAY = "{%- macro strftime_now(format) -%}01 January 2026{%- endmacro -%}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pointer:
    """A pointer as text, and its one token."""

    text: str
    token_id: int


def record_text(
    words: Iterable[str], pointers: Sequence[str], relation_names: RelationNames = "opaque"
) -> str:
    """Return the rendered ``words`` of a record as text up to ``Order:``; ``pointers[p]`` is the text of pointer ``p``.

    A pointer without a space of its own is in brackets here, and bare in the answer.
    """
    shown = [text if text.startswith(" ") else f" [{text}]" for text in pointers]
    names = dict(zip(POINTER_TOKENS, shown, strict=False))
    if relation_names == "words":
        words = in_words(words)
    pieces = [names.get(word, _WORDS.get(word, f" {word}")) for word in words if word != ANSWER]
    return "".join(pieces) + "\n"


def steps_text(
    record: PolicyRecord, slots: Sequence[int], pointers: Sequence[str]
) -> tuple[str, list[int]]:
    """Return a record of steps as text up to ``Order:``, and the position in the text at which each pointer ends.

    Each step is one line behind its pointer, in the order of ``slots``. Further lines of a step are indented.
    """
    task = f"Task: {record.task}\n" if record.task else ""
    text, ends = f"{INSTRUCTION_OF_STEPS}\n{task}Steps:\n", []
    for slot in slots:
        pointer = pointers[record.pointers[slot]]
        text += pointer if pointer.startswith(" ") else f" [{pointer}"
        ends.append(len(text))
        text += ": " if pointer.startswith(" ") else "]: "
        text += "\n    ".join(record.steps[slot].splitlines()) + "\n"
    return text, ends


@dataclass(frozen=True, kw_only=True, slots=True)
class TextForm:
    """A tokenizer, and the form of the prompts for its model."""

    tokenizer: PreTrainedTokenizerFast
    style: PromptStyle
    relation_names: RelationNames = "opaque"

    def prompt_text(self, words: Iterable[str], pointers: Sequence[str]) -> str:
        """Return the whole prompt for a record's :func:`record_text`, ending with ``Order:``.

        In a chat the text is the user's message, and ``Order:`` begins the answer; a template with that option is told
        not to think first. Raises :class:`BackboneError` if the template is missing or cannot be applied.
        """
        return self.asked(record_text(words, pointers, self.relation_names))

    def asked(self, text: str, ask: str | None = None) -> str:
        """Return the whole prompt for a text, ending with ``ask`` (``Order:``); raises as :meth:`prompt_text` does."""
        ask = ASK if ask is None else ask
        if self.style == "plain":
            return text + ask
        if not self.tokenizer.chat_template:
            raise BackboneError(
                "the tokenizer has no chat template",
                where=type(self.tokenizer).__name__,
                expected="chat_template.jinja, or chat_template in tokenizer_config.json",
                remedy="use --prompt-style plain, or an instruction-tuned model",
            )
        message = text.rstrip("\n")
        try:
            chat = self.tokenizer.apply_chat_template(
                [{"role": "user", "content": message}],
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,
                chat_template=_FIXED_DAY + self.tokenizer.get_chat_template(),
            )
        # A template is a program of the model's makers and may raise any error.
        except Exception as error:
            raise BackboneError(
                "the tokenizer's chat template cannot be applied",
                found=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
                expected="a template that takes one message of a user",
                remedy="use --prompt-style plain",
            ) from error
        if (times := str(chat).count(message)) != 1:
            raise BackboneError(
                "the tokenizer's chat template does not show the message once, as it is",
                found=f"the message {times} times",
                expected="once",
                remedy="use --prompt-style plain",
            )
        return f"{chat}{ask}"

    def require_plain(self, texts: Iterable[str]) -> None:
        """Raise :class:`BackboneError` for a text with a special token, which could pass for a chat template's text."""
        added = self.tokenizer.added_tokens_decoder.values()
        reserved = {*self.tokenizer.all_special_tokens, *(str(a) for a in added if a.special)}
        for text in texts:
            special = sorted(token for token in reserved if token in text)
            if special:
                raise BackboneError(
                    "a step whose text holds a special token of the tokenizer",
                    found=f"{special[0]!r} in {text[:80]!r}",
                    expected="text that is nothing but text to the model",
                    remedy="let the environment's describe write it another way",
                )

    def token_ids(self, text: str) -> list[int]:
        """Return the tokens of a whole prompt; a plain text begins with the tokenizer's first token, if it has one.

        Raises :class:`BackboneError` if the tokenizer cannot encode the text.
        """
        encode = self.tokenizer.encode
        try:
            ids: list[int] = encode(text, add_special_tokens=False)
        # The tokenizers library raises no narrower class.
        except Exception as error:
            raise BackboneError(
                "the tokenizer cannot spell the text of a record",
                where=type(self.tokenizer).__name__,
                found=f"{type(error).__name__}: {in_a_line(error)[:300]}",
                expected="a tokenizer that takes any text",
                remedy="use a language model; an embedded backbone reads pointers alone, "
                "and a model exported from one cannot be a backbone",
            ) from error
        bos = self.tokenizer.bos_token_id
        if self.style == "chat" or bos is None or ids[:1] == [bos]:
            return ids
        return [bos, *ids] if encode(text, add_special_tokens=True)[:1] == [bos] else ids


@dataclass(frozen=True, kw_only=True, slots=True)
class TextEncoder:
    """Encode records for one language model; training calls this as it calls every encoder."""

    form: TextForm
    #: ``pointers[p]`` stands for the pointer ``p`` of a record, whose pool is not larger.
    pointers: tuple[Pointer, ...]
    #: The number of tokens for which the model has embeddings.
    num_embeddings: int
    #: The most tokens of a prompt with its answer that the model takes.
    max_length: int | None = None
    #: Returns the pointers of a larger pool; without this, records of larger pools are refused.
    more_pointers: Callable[[int], tuple[Pointer, ...]] | None = None

    def __call__(
        self, record: PolicyRecord, serialisation: Serialisation, generator: np.random.Generator
    ) -> Prompt:
        """Return the prompt of a record; ``generator`` draws the random choices of the serialisation.

        Raises :class:`BackboneError` if the tokenizer has too few pointers for the record's pool, if a pointer is not
        one token in this text, if the model has no embedding for a token, or if the text is too long.
        """
        pointers = self.pointers_for(record.pool)
        if record.steps:
            slots = printed_slots(record, serialisation, generator)
            ids = self._ids_of_steps(record, slots, pointers)
        else:
            words = render(record, serialisation, generator)
            ids = self.form.token_ids(self.form.prompt_text(words, [p.text for p in pointers]))
            token_of = {
                name: pointer.token_id
                for name, pointer in zip(POINTER_TOKENS, pointers, strict=False)
            }
            expected = [token_of[word] for word in words if word in token_of]
            require_pointers(ids, expected, pointers)
        if max(ids) >= self.num_embeddings:
            raise BackboneError(
                "the tokenizer is not the model's",
                found=f"token {max(ids)}, and {counted(self.num_embeddings, 'embedding')}",
                expected="an embedding for each token of a record",
                remedy="use the tokenizer that the model was trained with",
            )
        if self.max_length is not None and len(ids) + record.num_operations > self.max_length:
            raise BackboneError(
                "a record is too long for the model",
                found=f"{counted(len(ids), 'token')} and an answer of {record.num_operations}",
                expected=f"at most {self.max_length}",
                remedy="use a model with a longer context",
            )
        return Prompt(
            token_ids=tuple(ids),
            pointer_ids=tuple(pointers[p].token_id for p in record.pointers),
        )

    def _ids_of_steps(
        self, record: PolicyRecord, slots: Sequence[int], pointers: Sequence[Pointer]
    ) -> list[int]:
        """Return the tokens of a prompt of steps, after a check that the token before each step is its pointer's."""
        tokenizer = self.form.tokenizer
        self.form.require_plain((record.task, *record.steps))
        shown, ends = steps_text(record, slots, [p.text for p in pointers])
        prompt = self.form.asked(shown)
        ids = self.form.token_ids(prompt)
        # A chat template shows the message once, as it is.
        start = prompt.index(shown.rstrip("\n"))
        encoding = tokenizer(prompt, add_special_tokens=False, return_offsets_mapping=True)
        token_at = {
            end: token
            for token, (_, end) in zip(
                encoding["input_ids"], encoding["offset_mapping"], strict=True
            )
        }
        expected = [pointers[record.pointers[slot]].token_id for slot in slots]
        found = [token_at.get(start + end) for end in ends]
        if found != expected:
            raise BackboneError(
                "the tokenizer splits or joins pointers in a record's text",
                where=f"policy record {record.record_id!r}",
                found="not a single token: "
                f"{counted(sum(map(int.__ne__, expected, [f or -1 for f in found])), 'pointer')} before steps",
                expected=f"{counted(len(expected), 'pointer token')}, one before each step",
                remedy="use the other --prompt-style, or another tokenizer",
            )
        return ids

    def pointers_for(self, pool: int) -> tuple[Pointer, ...]:
        """Return the pointers for a record's pool; raises :class:`BackboneError` if there are too few."""
        if pool <= len(self.pointers):
            return self.pointers
        if self.more_pointers is None:
            raise BackboneError(
                "the encoder has too few pointers for the record's pool",
                found=f"{counted(len(self.pointers), 'pointer')}",
                expected=f"{pool}",
                remedy="use the encoder of a loaded backbone",
            )
        return self.more_pointers(pool)


def require_pointers(
    ids: Sequence[int], expected: Sequence[int], pointers: Sequence[Pointer]
) -> None:
    """Raise :class:`BackboneError` unless the pointers' tokens occur in ``ids`` exactly as ``expected``, in order."""
    known = {pointer.token_id for pointer in pointers}
    found = [token for token in ids if token in known]
    if found != list(expected):
        raise BackboneError(
            "the tokenizer splits or joins pointers in a record's text",
            found=f"{counted(len(found), 'pointer token')}",
            expected=f"{counted(len(expected), 'pointer token')}, in the order of the text",
            remedy="use the other --prompt-style, or another tokenizer",
        )


_CHARACTERS = ascii_uppercase + ascii_lowercase + digits
#: The forms of a pointer, in the order of the trials.
FORMS = (" {}", "{}")
CANDIDATES = tuple(tuple(form.format(c) for c in _CHARACTERS) for form in FORMS)
#: The number of permutations of all pointers whose tokens are compared with those of their text.
_NUM_ANSWERS = 24


def choose_pointers(form: TextForm, count: int = POINTER_POOL) -> tuple[Pointer, ...]:
    """Return the first ``count`` candidates that are pointers for this tokenizer and form of prompt.

    Raises :class:`BackboneError`, with counts, if no form of candidate gives enough, or if relations cannot be told
    apart.
    """
    best: list[Pointer] = []
    for candidates in CANDIDATES:
        chosen: list[Pointer] = []
        for text in candidates:
            pointer = _as_pointer(form, text)
            if pointer is not None and _stand([*chosen, pointer], form):
                chosen.append(pointer)
            if len(chosen) == count:
                _require_relations(form, chosen)
                return tuple(chosen)
        best = max(best, chosen, key=len)
    raise BackboneError(
        "the tokenizer has too few pointers of a single token",
        where=type(form.tokenizer).__name__,
        found=f"{len(best)} of {sum(map(len, CANDIDATES))} candidates"
        + (f": {', '.join(repr(p.text) for p in best)}" if best else ""),
        expected=f"{count}",
        remedy="use a model whose tokenizer has letters with a space before them as single tokens, or the other "
        "--prompt-style"
        + ("" if count <= LARGE_POOL else f", or records of up to {LARGE_POOL} operations"),
    )


def _require_relations(form: TextForm, pointers: Sequence[Pointer]) -> None:
    """Raise :class:`BackboneError` if the tokenizer encodes two relation types as the same tokens."""
    texts = [pointer.text for pointer in pointers]
    first, second = POINTER_TOKENS[:2]
    seen: dict[tuple[int, ...], str] = {}
    for token in sorted({token for pair in RELATION_TOKENS.values() for token in pair}):
        words = [BEGIN, POINTERS, first, second, RELATIONS, first, token, second, SEPARATOR, ANSWER]
        ids = tuple(form.token_ids(form.prompt_text(words, texts)))
        if ids in seen:
            raise BackboneError(
                "the tokenizer makes different relations the same tokens",
                where=type(form.tokenizer).__name__,
                found=f"{seen[ids]} and {token} cannot be told apart",
                expected="different tokens for each",
                remedy="use the other --relation-names, or a model whose tokenizer knows letters and digits",
            )
        seen[ids] = token


def _as_pointer(form: TextForm, text: str) -> Pointer | None:
    """Return the pointer with this text at the beginning of an answer; None if it is not one token there."""
    prompt = form.prompt_text(_probe_words(1), [text])
    before, after = form.token_ids(prompt), form.token_ids(prompt + text)
    if len(after) != len(before) + 1 or after[:-1] != before:
        return None
    shown, longer = (
        str(form.tokenizer.decode(ids, clean_up_tokenization_spaces=False))
        for ids in (before, after)
    )
    return Pointer(text=text, token_id=after[-1]) if longer == shown + text else None


def _stand(pointers: Sequence[Pointer], form: TextForm) -> bool:
    """Return whether these pointers are single tokens beside each other, in a record's text and in answers."""
    texts = [pointer.text for pointer in pointers]
    if len({pointer.token_id for pointer in pointers}) != len(pointers):
        return False
    words = _probe_words(len(pointers))
    ids = form.token_ids(form.prompt_text(words, texts))
    token_of = {n: p.token_id for n, p in zip(POINTER_TOKENS, pointers, strict=False)}
    try:
        require_pointers(ids, [token_of[word] for word in words if word in token_of], pointers)
    except BackboneError:
        return False
    # The text before `Order:` does not affect the tokens behind it, so a short prompt is enough.
    short = form.prompt_text(_probe_words(1), texts)
    before = form.token_ids(short)
    return all(
        form.token_ids(short + "".join(texts[i] for i in answer))
        == [*before, *(pointers[i].token_id for i in answer)]
        for answer in _answers(len(pointers))
    )


def _probe_words(count: int) -> list[str]:
    """Return words of a record in which the last of ``count`` pointers is next to all others and all relations."""
    names = POINTER_TOKENS[:count]
    last = names[-1]
    relations = sorted({token for pair in RELATION_TOKENS.values() for token in pair})
    words = [BEGIN, POINTERS, *names, *reversed(names), RELATIONS]
    for name in names:
        for token in relations:
            words += [last, token, name, SEPARATOR, name, token, last, SEPARATOR]
    return [*words, ANSWER]


def _answers(count: int) -> Iterator[tuple[int, ...]]:
    """Yield some answers of ``count`` pointers, including the last pointer before and after each other one."""
    yield tuple(range(count))
    yield tuple(reversed(range(count)))
    for other in range(count - 1):
        yield (count - 1, other)
        yield (other, count - 1)
    yield from islice(permutations(range(count)), _NUM_ANSWERS)
