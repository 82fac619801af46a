"""Choose at random, as the schemas do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def linear_extension(items: Sequence[T], rng: np.random.Generator) -> list[T]:
    """A random order of ``items`` in which the first one stands before the second."""
    order = rng.permutation(len(items)).tolist()
    first, second = order.index(0), order.index(1)
    if second < first:
        order[first], order[second] = 1, 0
    return [items[index] for index in order]


def shuffled(items: Sequence[T], rng: np.random.Generator) -> list[T]:
    """The items in a random order."""
    return [items[index] for index in rng.permutation(len(items)).tolist()]
