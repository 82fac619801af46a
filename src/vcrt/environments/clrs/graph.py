"""The weighted graph that an episode runs on: read once, checked, and shared by all states of the episode.

A weight of zero means that there is no edge, as in dm-clrs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import TypeAlias

from vcrt.environments.clrs.reading import read_input, read_member, read_reals
from vcrt.environments.clrs.trace import Trace
from vcrt.hashing import Json

Edge: TypeAlias = tuple[int, int]


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
        size = len(weights)
        packed = struct.pack(f"<H{size * size}d", size, *chain.from_iterable(weights))
        return cls(weights=weights, digest=sha256(packed).digest())

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
