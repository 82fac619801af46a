"""Draw at random from named generators: every draw depends on a seed and a name, never on global state."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, overload

T = TypeVar("T")
_M32, _M64, _M128 = (1 << 32) - 1, (1 << 64) - 1, (1 << 128) - 1


class Draws(Protocol):
    """A source of random draws: a :class:`Generator` or one of NumPy's, which give the same numbers."""

    def integers(self, low: int, high: int | None = None, /) -> Any:
        """Return an integer from ``low`` to ``high - 1``, or from 0 to ``low - 1``."""

    def random(self) -> Any:
        """Return a number in [0, 1)."""

    def permutation(self, items: Any, /) -> Any:
        """Return the items, or the integers from 0 up to but excluding the given one, in random order."""

    def shuffle(self, items: Any, /) -> None:
        """Bring a list into random order."""


class Generator:
    """PCG64 (O'Neill, *PCG*, 2014), with the same numbers as NumPy's ``Generator(PCG64(seed))``.

    The engine draws a few hundred numbers, and needs NumPy for nothing else.
    """

    def __init__(self, seed: int) -> None:
        words = _seed_words(seed)
        first, second, third, fourth = (
            words[place] | words[place + 1] << 32 for place in range(0, 8, 2)
        )
        self._increment = ((third << 64 | fourth) << 1 | 1) & _M128
        self._state = self._increment + (first << 64 | second)
        self._half: int | None = None
        self._next64()

    def integers(self, low: int, high: int | None = None, /) -> int:
        """Return an integer from ``low`` to ``high - 1``, or from 0 to ``low - 1``.

        >>> Generator(0).integers(10, 20)
        18
        """
        if high is None:
            low, high = 0, low
        if high <= low:
            raise ValueError(f"no whole number from {low} up to and without {high}")
        return low + self._below(high - low)

    def random(self) -> float:
        """Return a number in [0, 1)."""
        return (self._next64() >> 11) * 2.0**-53

    def choice(self, options: Sequence[T]) -> T:
        """Return one of ``options``, all equally likely."""
        return options[self.integers(len(options))]

    @overload
    def permutation(self, items: int, /) -> list[int]: ...
    @overload
    def permutation(self, items: Sequence[T], /) -> list[T]: ...
    def permutation(self, items: Any, /) -> Any:
        """Return the items, or the integers from 0 up to but excluding the given one, in random order.

        >>> Generator(0).permutation(5)
        [2, 4, 3, 0, 1]
        """
        found = list(range(items) if isinstance(items, int) else items)
        self.shuffle(found)
        return found

    def shuffle(self, items: list[T], /) -> None:
        """Bring a list into random order."""
        for last in range(len(items) - 1, 0, -1):
            other = self._up_to(last)
            items[last], items[other] = items[other], items[last]

    def _next64(self) -> int:
        # The output function XSL-RR: XOR both halves, and rotate right by the highest six bits.
        self._state = state = (
            self._state * 0x2360ED051FC65DA44385DF649FCCF645 + self._increment
        ) & _M128
        turned, both = state >> 122, (state >> 64 ^ state) & _M64
        return (both >> turned | both << (64 - turned)) & _M64

    def _next32(self) -> int:
        # A number of 64 bits gives two of 32; keep the second for the next call.
        half, self._half = self._half, None
        if half is None:
            both = self._next64()
            half, self._half = both & _M32, both >> 32
        return half

    def _below(self, number: int) -> int:
        """Draw an integer below ``number``: Lemire, *Fast random integer generation in an interval*, 2019."""
        if number == 1:
            return 0
        draw, bits = (self._next32, 32) if number <= 1 << 32 else (self._next64, 64)
        too_few = (1 << bits) % number
        while True:
            product = draw() * number
            if product & ((1 << bits) - 1) >= too_few:
                return product >> bits

    def _up_to(self, most: int) -> int:
        """Return an integer from 0 to ``most``: draw its number of bits until they are small enough."""
        draw, mask = self._next32 if most <= _M32 else self._next64, (1 << most.bit_length()) - 1
        while (value := draw() & mask) > most:
            pass
        return value


def _seed_words(seed: int) -> list[int]:
    """Return eight words of 32 bits from a seed, as NumPy's ``SeedSequence(seed).generate_state(8)``."""
    entropy = [seed >> shift & _M32 for shift in range(0, max(seed.bit_length(), 1), 32)]
    factor = 0x43B0D7E5

    def hashed(value: int, times: int) -> int:
        nonlocal factor
        value ^= factor
        factor = factor * times & _M32
        value = value * factor & _M32
        return value ^ value >> 16

    def mixed(one: int, other: int) -> int:
        both = (0xCA01F9DD * one - 0x4973F715 * hashed(other, 0x931E8875)) & _M32
        return both ^ both >> 16

    pool = [hashed(word, 0x931E8875) for word in (*entropy[:4], 0, 0, 0, 0)[:4]]
    for source in range(4):
        for place in range(4):
            if place != source:
                pool[place] = mixed(pool[place], pool[source])
    for word in entropy[4:]:
        pool = [mixed(each, word) for each in pool]
    factor = 0x8B51F9DD
    return [hashed(pool[place % 4], 0x58F38DED) for place in range(8)]


def derive_seed(seed: int, *names: str | int) -> int:
    """Derive a 64-bit seed from ``seed`` and a path of names by SHA-256; stable across machines and versions."""
    path = "\x1f".join([str(seed), *(str(name) for name in names)])
    return int.from_bytes(hashlib.sha256(path.encode("utf-8")).digest()[:8], "big")


def generator(seed: int, *names: str | int) -> Generator:
    """Return a generator for one named purpose, independent of every other name."""
    return Generator(derive_seed(seed, *names))


def pick(rng: Draws, options: Sequence[T]) -> T:
    """Return one of ``options``, all equally likely."""
    return options[int(rng.integers(len(options)))]


def permuted(rng: Draws, numbers: int | Sequence[int]) -> list[int]:
    """Return integers in random order: the given ones, or those from 0 up to but excluding the given one."""
    return [int(number) for number in rng.permutation(numbers)]


def fresh_names(rng: Draws, count: int) -> list[str]:
    """Return ``count`` different random names that reveal nothing about what they name, such as ``fi482``."""
    names: list[str] = []
    while len(names) < count:
        name = pick(rng, "bcdfgjklmnprtvw") + pick(rng, "aeiou") + str(rng.integers(10, 1000))
        if name not in names:
            names.append(name)
    return names
