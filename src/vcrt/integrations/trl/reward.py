"""The reward of a certified completion, for TRL's ``reward_funcs``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def certified_reward(
    completions: Sequence[Any], orbit: Sequence[Sequence[str] | None], **_: Any
) -> list[float]:
    """A reward function: 1 for a completion whose text is one of its prompt's ``orbit`` (texts), else 0.

    White space counts only as a separator. Completions may be texts or lists of messages.
    """
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    return [
        float(text.split() in [member.split() for member in members or ()])
        for text, members in zip(texts, orbit, strict=True)
    ]
