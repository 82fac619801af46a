"""Make the embedded backbone's tokenizer, and encode a policy record as its prompt.

Each word is one token: the words of the rendered record, a padding token and the question mark of pretraining. This
module does not write text for language models with their own tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from vcrt.errors import BackboneError
from vcrt.printable import counted
from vcrt.records.policy_view import (
    POINTER_POOL,
    POINTER_TOKENS,
    PolicyRecord,
    Serialisation,
    render,
    vocabulary,
)
from vcrt.storage import write_file
from vcrt_train.policy.causal_model import Prompt

PADDING, QUESTION = "<pad>", "<question>"


def embedded_tokenizer(num_pointers: int = POINTER_POOL) -> PreTrainedTokenizerFast:
    """Return the tokenizer for the vocabulary of the policy view; it raises for a word outside the vocabulary."""
    words = (PADDING, *vocabulary(num_pointers), QUESTION)
    # The unknown word is not in the vocabulary, so that the library refuses foreign text instead of dropping it.
    tokenizer = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unknown>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return wrap_tokenizer(tokenizer)


def read_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """Return the tokenizer that :func:`write_tokenizer` wrote."""
    return wrap_tokenizer(Tokenizer.from_file(str(path)))


def write_tokenizer(tokenizer: PreTrainedTokenizerFast, path: Path) -> None:
    """Write ``tokenizer.json``."""
    write_file(path, tokenizer.backend_tokenizer.to_str(pretty=True).encode())


def wrap_tokenizer(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    """Return the transformers form of a raw tokenizer."""
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=PADDING)  # type: ignore[no-untyped-call]


def encode_record(
    tokenizer: PreTrainedTokenizerFast,
    record: PolicyRecord,
    serialisation: Serialisation,
    generator: np.random.Generator,
) -> Prompt:
    """Return the prompt of a record; ``generator`` draws the random choices of the serialisation.

    Raises :class:`BackboneError` if the tokenizer does not know a word of the record, such as a pointer of a larger
    pool than the backbone was made for.
    """
    known = num_pointers(tokenizer)
    if record.pointers and record.pointers[-1] >= known:
        raise BackboneError(
            "the backbone does not know the pointers of so many operations",
            found=f"a record of {counted(record.num_operations, 'operation')} with pointer {record.pointers[-1]}",
            expected=f"pointers 0 to {known - 1}",
            remedy="use the backbone embedded-long, or a language model",
        )
    return Prompt(
        token_ids=token_ids(tokenizer, render(record, serialisation, generator)),
        pointer_ids=token_ids(tokenizer, [POINTER_TOKENS[p] for p in record.pointers]),
    )


def num_pointers(tokenizer: PreTrainedTokenizerFast) -> int:
    """Return the number of pointers, from ``p0`` on, that an embedded tokenizer knows."""
    known = tokenizer.get_vocab()
    return sum(token in known for token in POINTER_TOKENS)


def token_ids(tokenizer: PreTrainedTokenizerFast, words: Sequence[str]) -> tuple[int, ...]:
    """Return the id of each word; raises :class:`BackboneError` for a word that is not one token."""
    known = tokenizer.get_vocab()
    missing = sorted(set(words) - known.keys())
    if missing:
        raise BackboneError(
            "the tokenizer does not know words of the policy view",
            found=", ".join(missing),
            expected="a tokenizer with one token for each of vcrt.records.policy_view.vocabulary()",
            remedy="use the tokenizer that load_backbone returns",
        )
    return tuple(known[word] for word in words)
