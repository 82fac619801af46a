"""Draw at random from named generators: every draw comes from a seed and a name, never from global state."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np


T = TypeVar("T")


def derive_seed(seed: int, *names: str | int) -> int:
    """A 64-bit seed derived from ``seed`` and a path of names by SHA-256; stable across machines and versions."""
    path = "\x1f".join([str(seed), *(str(name) for name in names)])
    return int.from_bytes(hashlib.sha256(path.encode("utf-8")).digest()[:8], "big")


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """A NumPy generator (PCG64) for one named purpose, independent of every other name."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive_seed(seed, *names)))


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of ``options``, all equally likely."""
    return options[int(rng.integers(len(options)))]


def fresh_names(rng: np.random.Generator, count: int) -> list[str]:
    """``count`` different random names that tell nothing about what they stand for, such as ``fi482``."""
    names: list[str] = []
    while len(names) < count:
        name = pick(rng, "bcdfgjklmnprtvw") + pick(rng, "aeiou") + str(rng.integers(10, 1000))
        if name not in names:
            names.append(name)
    return names
