"""Take TRL's batches apart: samples without their padding, their tokens, the factor of a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

from torch import Tensor

from vcrt.integrations.orbit_credit import TokenIds, unpadded


def batch_of(input_ids: Tensor, attention_mask: Tensor, length: int) -> dict[str, Tensor]:
    """The parts of a batch of prompts and completions of ``length`` places."""
    return {
        "prompt_ids": input_ids[:, :-length],
        "prompt_mask": attention_mask[:, :-length],
        "completion_ids": input_ids[:, -length:],
        "completion_mask": attention_mask[:, -length:],
    }


def samples_of(inputs: Mapping[str, Any]) -> list[tuple[TokenIds, TokenIds]]:
    """The prompt and the completion of each sample."""
    prompts = unpadded(inputs["prompt_ids"], inputs["prompt_mask"])
    return list(
        zip(prompts, unpadded(inputs["completion_ids"], inputs["completion_mask"]), strict=True)
    )


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
