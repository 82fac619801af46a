"""Choose a language model's pointers: single tokens of its tokenizer, in a fixed order and verified in place.

A candidate is taken if, in the very text that the model will read, it is one token of its own after and before
everything that it can stand beside, occurs nowhere else, and comes back when it is decoded. Spaced letters are tried
first (`` A``: one token in nearly every tokenizer), then letters and digits without a space, in brackets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, permutations
from string import ascii_lowercase, ascii_uppercase, digits

from vcrt.errors import BackboneError
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
)
from vcrt_train.policy.record_text import Pointer, TextForm, require_pointers

_CHARACTERS = ascii_uppercase + ascii_lowercase + digits
#: The forms of a pointer, in the order in which they are tried.
FORMS = (" {}", "{}")
CANDIDATES = tuple(tuple(form.format(c) for c in _CHARACTERS) for form in FORMS)
#: Answers whose tokens are compared with those of their text.
_NUM_ANSWERS = 24


def choose_pointers(form: TextForm, count: int = POINTER_POOL) -> tuple[Pointer, ...]:
    """The first ``count`` candidates that are pointers for this tokenizer and form of prompt.

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
    """Raise :class:`BackboneError` if the tokenizer makes two relation types the same tokens."""
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
    """The pointer that this text is at the beginning of an answer; None if it is not one token there."""
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
    """Whether these pointers are single tokens beside each other, in a record's text and in answers."""
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
    # What is before `Order:` cannot matter to what is behind it, so a short prompt will do.
    short = form.prompt_text(_probe_words(1), texts)
    before = form.token_ids(short)
    return all(
        form.token_ids(short + "".join(texts[i] for i in answer))
        == [*before, *(pointers[i].token_id for i in answer)]
        for answer in _answers(len(pointers))
    )


def _probe_words(count: int) -> list[str]:
    """The words of a record in which the last of ``count`` pointers stands beside every other and every relation."""
    names = POINTER_TOKENS[:count]
    last = names[-1]
    relations = sorted({token for pair in RELATION_TOKENS.values() for token in pair})
    words = [BEGIN, POINTERS, *names, *reversed(names), RELATIONS]
    for name in names:
        for token in relations:
            words += [last, token, name, SEPARATOR, name, token, last, SEPARATOR]
    return [*words, ANSWER]


def _answers(count: int) -> Iterator[tuple[int, ...]]:
    """Some answers of ``count`` pointers, among them the last pointer before and after each other one."""
    yield tuple(range(count))
    yield tuple(reversed(range(count)))
    for other in range(count - 1):
        yield (count - 1, other)
        yield (other, count - 1)
    yield from islice(permutations(range(count)), _NUM_ANSWERS)
