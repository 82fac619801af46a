"""What teaches the form of an answer: reference traces whose steps are in orders drawn at random: none is learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

#: Traces of a step of the optimiser.
BATCH = 8


def form_batches(
    rows: Sequence[Mapping[str, Any]], epochs: int, draw: np.random.Generator
) -> list[list[tuple[str, str]]]:
    """Batches of prompts with shuffled completions, a step a line: each row once an epoch, in an order drawn for it."""
    places = np.concatenate([draw.permutation(len(rows)) for _ in range(epochs)])
    pairs = [
        (rows[place]["prompt"], "\n".join(draw.permutation(rows[place]["completion"].split("\n"))))
        for place in places
    ]
    return [pairs[begin : begin + BATCH] for begin in range(0, len(pairs), BATCH)]
