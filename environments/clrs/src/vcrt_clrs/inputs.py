"""Hold the inputs that an episode runs on: read once, checked, and shared by all states of the episode.

A graph is a matrix of weights, where zero means that there is no edge, as in dm-clrs. Keys are sorted by the order of
their elements: ``order[i]`` is the number of the element at position ``i``, whose key is ``values[order[i]]``, as in
dm-clrs's ``A_pos``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import TypeAlias

from vcrt.hashing import Json
from vcrt_clrs.reading import read_input, read_member, read_reals
from vcrt_clrs.trace import Trace

Edge: TypeAlias = tuple[int, int]


def _digest(size: int, *numbers: float) -> bytes:
    """The SHA-256 of a size and of little-endian doubles."""
    return sha256(struct.pack(f"<H{len(numbers)}d", size, *numbers)).digest()


@dataclass(frozen=True, kw_only=True, slots=True)
class WeightedGraph:
    """A dense weight matrix; ``digest`` is the SHA-256 of its size and its little-endian doubles."""

    weights: tuple[tuple[float, ...], ...]
    digest: bytes

    @property
    def num_nodes(self) -> int:
        """How many nodes the graph has."""
        return len(self.weights)

    @classmethod
    def of(cls, weights: tuple[tuple[float, ...], ...]) -> WeightedGraph:
        """The graph of a square matrix of plain floats."""
        return cls(weights=weights, digest=_digest(len(weights), *chain.from_iterable(weights)))

    def edges(self) -> list[Edge]:
        """The directed edges, row by row."""
        return [
            (u, v) for u, row in enumerate(self.weights) for v, weight in enumerate(row) if weight
        ]

    def to_json(self) -> Json:
        """The member ``adjacency`` of an initial state."""
        return [list(row) for row in self.weights]


def read_graph(initial: Json) -> WeightedGraph:
    """The graph in member ``adjacency`` of an initial state: a square list of rows of numbers, none negative."""
    rows = read_input(read_member(initial, "adjacency"), "initial.adjacency")
    size = len(rows)
    return WeightedGraph.of(
        tuple([read_reals(row, f"initial.adjacency[{i}]", size) for i, row in enumerate(rows)])
    )


def graph_of(trace: Trace) -> WeightedGraph:
    """The graph that a genuine trace ran on: its input ``A``."""
    return WeightedGraph.of(tuple(map(tuple, trace.inputs["A"].tolist())))


@dataclass(frozen=True, kw_only=True, slots=True)
class Keys:
    """The key of each element; ``digest`` is the SHA-256 of their number and their little-endian doubles."""

    values: tuple[float, ...]
    digest: bytes

    @classmethod
    def of(cls, values: tuple[float, ...]) -> Keys:
        """The keys of plain floats."""
        return cls(values=values, digest=_digest(len(values), *values))

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
