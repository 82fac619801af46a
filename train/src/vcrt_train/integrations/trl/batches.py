"""Take TRL's batches apart: samples without their padding, what their rows list, the factor of a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from torch import Tensor

from vcrt.errors import MalformedInputError
from vcrt.printable import counted
from vcrt_train.integrations.orbit_credit import Candidates, TokenIds, encode_completions, unpadded
from vcrt_train.integrations.trl.orbit_grpo_config import (
    ILLEGAL,
    ORBIT,
    OrbitGRPOConfig,
    require_listed,
)


def batch_of(input_ids: Tensor, attention_mask: Tensor, length: int) -> dict[str, Tensor]:
    """The parts of a batch of prompts and completions of ``length`` places."""
    return {
        "prompt_ids": input_ids[:, :-length],
        "prompt_mask": attention_mask[:, :-length],
        "completion_ids": input_ids[:, -length:],
        "completion_mask": attention_mask[:, -length:],
    }


def require_tokens(where: str, what: str, texts: Sequence[Sequence[int]]) -> None:
    """Raise :class:`MalformedInputError` if one of the ``texts``, which ``where`` gave as ``what``, has no tokens."""
    empty = [place for place, ids in enumerate(texts) if len(ids) == 0]
    if empty:
        raise MalformedInputError(
            f"a {what} without a token",
            where=where,
            found=f"{len(empty)} of {counted(len(texts), what)}, such as number {empty[0] + 1}",
            expected="one token at least, if only that which ends a text",
            remedy=f"leave the row of an empty {what} out, or give its end token",
        )


def samples_of(inputs: Mapping[str, Any]) -> list[tuple[TokenIds, TokenIds]]:
    """The prompt and the completion of each sample."""
    prompts = unpadded(inputs["prompt_ids"], inputs["prompt_mask"])
    return list(
        zip(prompts, unpadded(inputs["completion_ids"], inputs["completion_mask"]), strict=True)
    )


def listed_candidates(
    inputs: Sequence[Mapping[str, Any]],
    prompts: Sequence[TokenIds],
    args: OrbitGRPOConfig,
    tokenizer: Any,
    max_length: int,
) -> list[Candidates]:
    """The candidates of each sample, of the dataset's columns; samples of one prompt share theirs."""

    def encoded(row: Mapping[str, Any], column: str) -> tuple[TokenIds, ...]:
        return encode_completions(
            row.get(column),
            column=column,
            encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
            end=tokenizer.eos_token_id,
            max_length=max_length,
        )

    columns = (ORBIT, ILLEGAL) if args.orbit_alpha else (ORBIT,)
    known: dict[tuple[object, ...], Candidates] = {}
    result = []
    for prompt, row in zip(prompts, inputs, strict=True):
        require_listed([row], "a row")
        key = (prompt, *(repr(row.get(column)) for column in columns))
        if key not in known:
            sets = {column: encoded(row, column) for column in columns}
            known[key] = Candidates(prompt=prompt, **sets)
        result.append(known[key])
    return result


def tokens_of_trees(pairs: Iterable[tuple[TokenIds, TokenIds]]) -> int:
    """How many tokens a pass over trees reads: prompts once, and what a prompt's completions begin with alike once."""
    total = 0
    prompt: TokenIds = ()
    before: TokenIds = ()
    # Sorted, a text shares most with the one before it. Nothing follows its last token, which is not read.
    for own, completion in sorted(pairs):
        if own != prompt:
            total, prompt, before = total + len(own), own, ()
        text = completion[:-1]
        same = takewhile(lambda both: both[0] == both[1], zip(text, before, strict=False))
        total, before = total + len(text) - sum(1 for _ in same), text
    return total


def leave_one_out(rewards: Tensor, group_size: int) -> Tensor:
    """``[B]``: what turns a reward minus its group's mean into the reward minus the mean of the others."""
    known = (~rewards.isnan()).view(-1, group_size).sum(1)
    factors = known / (known - 1).clamp(min=1)
    return factors.repeat_interleave(group_size)
