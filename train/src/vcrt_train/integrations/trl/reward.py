"""Reward a certified completion, for TRL's ``reward_funcs``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vcrt_train.integrations.text import is_certified


def certified_reward(
    completions: Sequence[Any],
    orbit: Sequence[Sequence[str] | None],
    partial_order: Sequence[Sequence[Sequence[int]] | None] | None = None,
    pointers: Sequence[Sequence[int]] | None = None,
    **_: Any,
) -> list[float]:
    """A reward function: 1 for a completion whose text is one of its prompt's ``orbit`` (texts), else 0.

    Where a prompt's orders are too many to list, as :func:`vcrt_train.integrations.datasets.to_dataset` exports them,
    its ``orbit`` is None: then 1 for one that gives its ``pointers`` in an order that keeps the pairs of
    ``partial_order``. White space counts only as a separator. Completions may be texts or lists of messages.
    """
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    none: Sequence[None] = [None] * len(texts)
    pairs = none if partial_order is None else partial_order
    own = none if pointers is None else pointers
    return [float(is_certified(*row)) for row in zip(texts, orbit, pairs, own, strict=True)]
