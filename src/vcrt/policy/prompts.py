"""Hold what is scored: the prompt of a record, and the language model that reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from torch.nn.parallel import DistributedDataParallel

from vcrt.errors import MalformedInputError
from vcrt.printable import counted

#: A causal language model of transformers, or a PEFT wrapper of one: neither library gives them one static type.
CausalModel: TypeAlias = Any


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """A rendered record: the tokens up to the answer, and what each slot is written as."""

    token_ids: tuple[int, ...]
    #: ``pointer_ids[slot]`` is the vocabulary id of that slot's pointer, or of the first token of its text.
    pointer_ids: tuple[int, ...]
    #: ``texts[slot]`` are the tokens that choosing the slot writes (:func:`vcrt.policy.prompts.with_texts`); empty if
    #: that is the pointer.
    texts: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.token_ids or not self.pointer_ids:
            raise MalformedInputError(
                "a prompt needs tokens and pointers",
                found=f"{counted(len(self.token_ids), 'token')} and {counted(len(self.pointer_ids), 'pointer')}",
            )
        if not self.texts and len(set(self.pointer_ids)) != len(self.pointer_ids):
            raise MalformedInputError(
                "two slots of a prompt have the same pointer token",
                found=str(self.pointer_ids),
                remedy="give each slot a pointer of its own",
            )

    @property
    def num_operations(self) -> int:
        """How many slots an order of this prompt has."""
        return len(self.pointer_ids)


def with_texts(token_ids: Sequence[int], texts: Sequence[Sequence[int]]) -> Prompt:
    """A prompt whose slots are texts of one or more tokens, each with what ends it (a line's end, say).

    Raises :class:`MalformedInputError` for an empty text, and where one begins another: what is written would not say
    which of them was chosen.
    """
    found = sorted(tuple(text) for text in texts)
    for one, next_one in pairwise(found):
        if next_one[: len(one)] == one:
            raise MalformedInputError(
                "the text of one slot begins that of another",
                found=f"tokens {list(one)[:20]} and {list(next_one)[:20]}",
                remedy="end each text with a token that stands nowhere else in it, such as a line's end",
            )
    if not found or not found[0]:
        raise MalformedInputError("a slot needs a text", found=f"{counted(len(found), 'text')}")
    return Prompt(
        token_ids=tuple(token_ids),
        pointer_ids=tuple(text[0] for text in texts),
        texts=tuple(tuple(text) for text in texts),
    )


def unwrapped(model: CausalModel) -> CausalModel:
    """The model that knows its configuration, device and dtype, inside a data-parallel wrapper if there is one."""
    return model.module if isinstance(model, DistributedDataParallel) else model
