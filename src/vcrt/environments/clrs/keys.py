"""The keys that a sorting episode runs on: read once, checked, and shared by all states of the episode.

An array is written as the order of its elements: ``order[i]`` is the number of the element at position ``i``, whose key
is ``values[order[i]]``, as in dm-clrs's ``A_pos``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import sha256

from vcrt.environments.clrs.reading import read_input, read_member, read_reals
from vcrt.environments.clrs.trace import Trace
from vcrt.hashing import Json


@dataclass(frozen=True, kw_only=True, slots=True)
class Keys:
    """The key of each element; ``digest`` is the SHA-256 of their number and their little-endian doubles."""

    values: tuple[float, ...]
    digest: bytes

    @classmethod
    def of(cls, values: tuple[float, ...]) -> Keys:
        """The keys of plain floats."""
        packed = struct.pack(f"<H{len(values)}d", len(values), *values)
        return cls(values=values, digest=sha256(packed).digest())

    @property
    def num_elements(self) -> int:
        """How many elements there are."""
        return len(self.values)


def read_keys(initial: Json, name: str = "keys") -> Keys:
    """The keys in a member of an initial state: a list of numbers, none negative."""
    field = f"initial.{name}"
    numbers = read_input(read_member(initial, name), field)
    return Keys.of(read_reals(numbers, field, len(numbers)))


def keys_of(trace: Trace, name: str = "key") -> Keys:
    """The keys that a genuine trace ran on: one of its inputs."""
    return Keys.of(tuple(trace.inputs[name].tolist()))
