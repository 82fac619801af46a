"""Fix what makes simulators answer equal calls differently: their clock, their random draws, the order of sets.

Each class replaces the standard library's own in a module's namespace, and gives the same draws and counts.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from datetime import datetime, tzinfo
from types import SimpleNamespace
from typing import Any, Self, TypeVar

Item = TypeVar("Item")

#: The time of every call.
NOW = datetime(2024, 9, 1, 10, 30)


class FixedClock(datetime):
    """A ``datetime`` whose clock stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        """The time of every call."""
        return cls(*NOW.timetuple()[:6], tzinfo=tz)

    @classmethod
    def today(cls) -> Self:
        """The time of every call."""
        return cls.now()


def fixed_datetime(found: Any) -> Any:
    """Return a replacement for the module ``datetime``, or for its class of that name."""
    if not inspect.ismodule(found):
        return FixedClock
    return SimpleNamespace(**{**vars(found), "datetime": FixedClock})


class CountedRandom(random.Random):
    """A source of the draws of ``random.Random(start)`` whose state is the seed and the number of words drawn."""

    start: int | float | str
    words: int

    def __init__(self, start: Any, words: int = 0) -> None:
        if not isinstance(start, int | float | str):
            raise TypeError(f"a seed of random draws must be a number or text, not {start!r:.40}")
        super().__init__(start)
        self.start, self.words = start, words
        if words:
            super().getrandbits(32 * words)

    def random(self) -> float:
        """Draw a float; takes two words."""
        self.words += 2
        return super().random()

    def getrandbits(self, k: int, /) -> int:
        """Draw a whole number; takes one word for each 32 bits."""
        self.words += -(-k // 32)
        return super().getrandbits(k)

    def again(self) -> CountedRandom:
        """Return a copy in the same state."""
        return CountedRandom(self.start, self.words)


class SortedSet(set[Item]):
    """A set that iterates in sorted order, whatever the hashes of texts in this process."""

    def __iter__(self) -> Iterator[Item]:
        return iter(sorted(super().__iter__()))  # type: ignore[type-var]

    def __sub__(self, other: Any) -> SortedSet[Item]:
        return SortedSet(super().__sub__(other))
