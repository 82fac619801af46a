"""Make many small random choices from one named generator, drawn in blocks: single draws from NumPy are slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
_BLOCK = 256


class Draws:
    """Uniform choices, in the order in which they are asked for."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._block: list[float] = []

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self._uniform() < probability

    def below(self, number: int) -> int:
        """An integer from 0 up to, not including, ``number``."""
        return int(self._uniform() * number)

    def between(self, least: int, most: int) -> int:
        """An integer from ``least`` to ``most``, both included."""
        return least + self.below(most - least + 1)

    def one(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[Item], number: int) -> list[Item]:
        """That many different ones of the items (all, if there are fewer), in random order."""
        pool = list(items)
        number = min(number, len(pool))
        for place in range(number):
            other = place + self.below(len(pool) - place)
            pool[place], pool[other] = pool[other], pool[place]
        return pool[:number]

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """All items in random order."""
        return self.some(items, len(items))

    def _uniform(self) -> float:
        if not self._block:
            self._block = self._rng.random(_BLOCK).tolist()
        return self._block.pop()
