"""What teaches the form of an answer: reference traces whose steps are in orders drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

#: Traces of a step of the optimiser.
BATCH = 8


def form_batches(
    rows: Sequence[Mapping[str, Any]],
    epochs: int,
    draw: np.random.Generator,
    *,
    any_order: bool = True,
) -> list[list[tuple[str, str]]]:
    """Batches of prompts with completions, a step a line: each row once an epoch, in an order drawn for it.

    The order is any, so that none is learned, or one that works: of those in the row's ``works``.
    """
    places = np.concatenate([draw.permutation(len(rows)) for _ in range(epochs)])
    pairs = list[tuple[str, str]]()
    for row in (rows[place] for place in places):
        lines = np.array(row["completion"].split("\n"))
        order = draw.permutation(len(lines)) if any_order else draw.choice(row["works"])
        pairs.append((row["prompt"], "\n".join(lines[order])))
    return [pairs[begin : begin + BATCH] for begin in range(0, len(pairs), BATCH)]
