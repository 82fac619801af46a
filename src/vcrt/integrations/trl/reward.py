"""The reward of a certified completion, for TRL's ``reward_funcs``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vcrt.integrations.text import read_answer
from vcrt.partial_orders import PartialOrder


def certified_reward(
    completions: Sequence[Any],
    orbit: Sequence[Sequence[str] | None],
    partial_order: Sequence[Sequence[Sequence[int]] | None] | None = None,
    pointers: Sequence[Sequence[int]] | None = None,
    **_: Any,
) -> list[float]:
    """A reward function: 1 for a completion whose text is one of its prompt's ``orbit`` (texts), else 0.

    Where a prompt's orders are too many to list, as :func:`vcrt.integrations.datasets.to_dataset` exports them, its
    ``orbit`` is None: then 1 for one that gives its ``pointers`` in an order that keeps the pairs of ``partial_order``.
    White space counts only as a separator. Completions may be texts or lists of messages.
    """
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    none: Sequence[None] = [None] * len(texts)
    pairs = none if partial_order is None else partial_order
    own = none if pointers is None else pointers
    return [float(_is_certified(*row)) for row in zip(texts, orbit, pairs, own, strict=True)]


def _is_certified(
    text: str,
    members: Sequence[str] | None,
    pairs: Sequence[Sequence[int]] | None,
    pointers: Sequence[int] | None,
) -> bool:
    if members is None and pairs is not None and pointers is not None:
        answer = read_answer(pointers, text)
        partial = PartialOrder.of(len(pointers), [(first, second) for first, second in pairs])
        return answer is not None and partial.allows(answer)
    return text.split() in [member.split() for member in members or ()]
