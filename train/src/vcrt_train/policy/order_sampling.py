"""Draw orders from a policy step by step, free or masked to legal moves, if all orders are too many to score.

Paths that share a prefix share its scores. ``independent`` paths serve for rewards. ``systematic`` paths share one
uniform number at each prefix, as in systematic resampling (Carpenter, Clifford and Fearnhead 1999): of ``k`` paths at a
prefix, ``k p`` rounded up or down take a move of probability ``p``. Every mean over them has the same expectation as
over independent paths, and less variance. Draws use float64 on the CPU, and the caller's generator: equal generators
and scores give equal orders. With a generator for each prompt, a prompt's orders do not depend on the other prompts.

Legend: ``n`` operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder
from vcrt_train.config import Scheme

Floats: TypeAlias = NDArray[np.float64]
#: For each prompt's prefixes, the next choice's log-probabilities: ``[number of prefixes, n]`` each.
NextChoices: TypeAlias = Callable[[Sequence[Sequence[Order]]], Sequence[Tensor]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Draw:
    """The number of orders to draw for each prompt, the scheme, and each prompt's partial order, or None if free."""

    count: int
    scheme: Scheme
    within: Sequence[PartialOrder] | None = None


def sample_orders(
    next_choices: NextChoices,
    draws: Sequence[Draw],
    *,
    num_prompts: int,
    num_operations: int | Sequence[int],
    generator: torch.Generator | Sequence[torch.Generator],
) -> list[list[list[Order]]]:
    """Return each prompt's orders for each of ``draws``; all are drawn together, so each length is scored once.

    ``num_operations`` is one number for all prompts, or one for each.

    The last two operations need one choice: after it a single operation is left. The orders of one draw are not sorted,
    but are the same for equal arguments.
    """
    paths: list[list[list[Order]]] = [
        [[()] * draw.count for _ in range(num_prompts)] for draw in draws
    ]
    lengths = [num_operations] * num_prompts if isinstance(num_operations, int) else num_operations
    for step in range(max(lengths) - 1):
        unfinished = [prompt for prompt in range(num_prompts) if step < lengths[prompt] - 1]
        prefixes: list[list[Order]] = [[()] for _ in range(num_prompts)]
        for prompt in unfinished:
            prefixes[prompt] = sorted({p for of_draw in paths for p in of_draw[prompt]})
        found = next_choices(prefixes)
        probs = [
            dict(zip(some, each.detach().double().cpu().exp().numpy(), strict=True))
            for some, each in zip(prefixes, found, strict=True)
        ]
        for draw, of_draw in zip(draws, paths, strict=True):
            uniform = _uniform(num_prompts, draw.count, generator)
            for prompt in unfinished:
                order = None if draw.within is None else draw.within[prompt]
                of_draw[prompt] = _longer(
                    of_draw[prompt], probs[prompt], order, draw.scheme, uniform[prompt]
                )
    return [
        [[_whole(path, n) for path in some] for some, n in zip(of, lengths, strict=True)]
        for of in paths
    ]


def _uniform(
    num_prompts: int, count: int, generator: torch.Generator | Sequence[torch.Generator]
) -> Floats:
    """Return ``[num_prompts, count]`` uniform numbers; their count does not depend on the draws."""
    if isinstance(generator, torch.Generator):
        shape = (num_prompts, count)
        return torch.rand(shape, generator=generator, dtype=torch.float64).numpy()
    return np.stack(
        [torch.rand(count, generator=own, dtype=torch.float64).numpy() for own in generator]
    )


def _longer(
    paths: Sequence[Order],
    probs: dict[Order, Floats],
    order: PartialOrder | None,
    scheme: Scheme,
    uniform: Floats,
) -> list[Order]:
    """Add one choice to each path, prefix by prefix. ``uniform`` has a number for each path."""
    longer = list(paths)
    places: dict[Order, list[int]] = {}
    for place, path in enumerate(paths):
        places.setdefault(path, []).append(place)
    for prefix, some in sorted(places.items()):
        masked = _masked(probs[prefix], prefix, order)
        cumulative = np.cumsum(masked)
        points = uniform[some]
        if scheme == "systematic":
            points = (points[0] + np.arange(len(some))) / len(some)
        slots = np.searchsorted(cumulative, points * cumulative[-1], side="right")
        # A product that was rounded up to the whole sum counts for the last move with a probability.
        last = int(masked.nonzero()[0][-1])
        for place, slot in zip(some, np.minimum(slots, last).tolist(), strict=True):
            longer[place] = (*prefix, slot)
    return longer


def _masked(probs: Floats, prefix: Order, order: PartialOrder | None) -> Floats:
    if order is None:
        return probs
    moves = order.moves(sum(1 << slot for slot in prefix))
    masked = np.zeros_like(probs)
    masked[moves] = probs[moves]
    if not masked.any():
        # If the policy gives all legal moves probability 0 in float64, the draw is uniform over them.
        masked[moves] = 1.0
    return masked


def _whole(path: Order, num_operations: int) -> Order:
    return (*path, *(slot for slot in range(num_operations) if slot not in path))
