"""Draw from options, and names that tell nothing about what they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of ``options``, all equally likely."""
    return options[int(rng.integers(len(options)))]


def fresh_names(rng: np.random.Generator, count: int) -> list[str]:
    """``count`` different random names, such as ``fi482``."""
    names: list[str] = []
    while len(names) < count:
        name = pick(rng, "bcdfgjklmnprtvw") + pick(rng, "aeiou") + str(rng.integers(10, 1000))
        if name not in names:
            names.append(name)
    return names
