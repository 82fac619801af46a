"""Relax edges of a single-source shortest-path run: schema ``bellman_ford`` (Bellman, 1958; CLRS 3e, section 24.1).

An operation relaxes one edge in place. It is accepted exactly if it writes: its tail is reached, and the way through
it is shorter than what its head has. The dependent pair is (u, v) and then (v, w), where v is not reached before; the
reversal is rejected.

dm-clrs relaxes in synchronous rounds, in which every tail is read as it was before the round. :func:`relax` takes the
state that it reads the tail from as a parameter, so one transition serves the episode (in place) and the comparison
with dm-clrs's hint rows (in rounds). Weights are not negative; negative cycles are not covered.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from vcrt.environments.contract import Accepted, Footprint, Operation, Rejected, Schema, Transition
from vcrt.hashing import Json
from vcrt_clrs.inputs import Edge, WeightedGraph, graph_of, read_graph
from vcrt_clrs.reading import (
    malformed,
    read_ints,
    read_member,
    read_payload_pair,
    read_reals,
)
from vcrt_clrs.rows import byte_rows, masks
from vcrt_clrs.schema import (
    Lifted,
    Rows,
    SynchronousSchema,
    linear_extension,
    shuffled,
    with_independent,
)
from vcrt_clrs.trace import Trace


class BellmanFordState(NamedTuple):
    """Distances and predecessors (as bytes) by node, and the set of reached nodes (bit ``v`` for node v).

    An unreached node has distance 0 and itself as predecessor.
    """

    graph: WeightedGraph
    distances: tuple[float, ...]
    predecessors: bytes
    reached: int

    def read(self, payload: Json) -> Edge:
        """The edge of a payload ``{"edge": [tail, head]}``."""
        return read_payload_pair(payload, "edge", len(self.predecessors))

    def take(self, step: Edge) -> Transition[BellmanFordState]:
        """Relax the edge in place."""
        return relax(self, step, before=self)

    def canonical(self) -> bytes:
        """Graph digest, distances (doubles), predecessors (bytes) and reached nodes (bit set), little-endian."""
        pack, width = _layout(len(self.predecessors))
        reached = self.reached.to_bytes(width, "little")
        return pack(self.graph.digest, *self.distances) + self.predecessors + reached

    def task(self) -> str:
        """Which nodes are reached."""
        reached = [str(node) for node in range(len(self.predecessors)) if self.reached >> node & 1]
        return f"Shortest ways through a graph. Reached so far: {', '.join(reached)}."

    def footprint(self, step: Edge) -> Footprint:
        """The distances of both ends are read, and that of the head is written."""
        tail, head = (f"distance {node}" for node in step)
        return Footprint(reads=(tail, head), writes=(head,))


@lru_cache
def _layout(num_nodes: int) -> tuple[Callable[..., bytes], int]:
    return struct.Struct(f"<32s{num_nodes}d").pack, (num_nodes + 7) // 8


def relax(
    state: BellmanFordState, edge: Edge, *, before: BellmanFordState
) -> Transition[BellmanFordState]:
    """Relax the edge (tail, head) of ``state``, reading the tail as it is in ``before``."""
    tail, head = edge
    if not before.reached >> tail & 1:
        return Rejected(f"node {tail} is not reached yet")
    weight = state.graph.weights[tail][head]
    if weight == 0:
        return Rejected(f"there is no edge {tail}->{head}")
    distance = before.distances[tail] + weight
    distances, predecessors = state.distances, state.predecessors
    if state.reached >> head & 1 and distance >= distances[head]:
        return Rejected(f"edge {tail}->{head} does not shorten the way to node {head}")
    after = head + 1
    distances = (*distances[:head], distance, *distances[after:])
    predecessors = b"%b%c%b" % (predecessors[:head], tail, predecessors[after:])
    return Accepted(
        BellmanFordState(state.graph, distances, predecessors, state.reached | 1 << head)
    )


class BellmanFord(SynchronousSchema[BellmanFordState]):
    """Relaxations out of one round of a run, and one out of the next round that needs one of them."""

    schema = Schema(
        name="bellman_ford",
        summary="relax (u,v), then (v,w): the reversal finds v not reached",
        relation="precedes",
    )
    lengths = range(12, 21)
    edge_probabilities = (0.35, 0.4, 0.45)
    placing = "later"
    final_hints = ("pi_h", "d", "msk")

    def lift(
        self, trace: Trace, num_operations: int, rng: np.random.Generator
    ) -> Lifted[BellmanFordState] | None:
        """Operations from the state at the start of a round; the reference order is any linear extension."""
        written = [_written(trace, row) for row in range(trace.num_rows - 1)]
        pairs = [
            (row, first, second)
            for row in range(trace.num_rows - 2)
            for first in written[row]
            for second in written[row + 1]
            if first[1] == second[0] and not trace.hints["msk"][row][first[1]]
        ]
        for row, first, second in shuffled(pairs, rng):
            edges = with_independent(
                (first, second), written[row], num_operations, _independent, rng
            )
            if edges is not None:
                return _at(trace, row), linear_extension(edges, rng)
        return None

    def read_state(self, initial: Json) -> BellmanFordState:
        """Members ``adjacency``, ``d``, ``pi`` and ``msk`` (by node: 0 or 1)."""
        graph = read_graph(initial)
        size = graph.num_nodes
        distances = read_reals(read_member(initial, "d"), "initial.d", size)
        predecessors = read_ints(read_member(initial, "pi"), "initial.pi", size, size)
        reached = read_ints(read_member(initial, "msk"), "initial.msk", size, 2)
        for node in range(size):
            bare = distances[node] == 0 and predecessors[node] == node
            if not reached[node] and not bare:
                raise malformed(
                    f"initial.msk[{node}]", 0, "1, as node has a distance or a predecessor"
                )
        return BellmanFordState(
            graph=graph,
            distances=distances,
            predecessors=bytes(predecessors),
            reached=sum(bit << node for node, bit in enumerate(reached)),
        )

    def write_state(self, state: BellmanFordState) -> Json:
        """The members that :meth:`read_state` reads."""
        return {
            "adjacency": state.graph.to_json(),
            "d": list(state.distances),
            "pi": list(state.predecessors),
            "msk": [state.reached >> node & 1 for node in range(state.graph.num_nodes)],
        }

    def start(self, trace: Trace) -> BellmanFordState:
        """Only the source is reached."""
        graph = graph_of(trace)
        return BellmanFordState(
            graph=graph,
            distances=(0.0,) * graph.num_nodes,
            predecessors=bytes(range(graph.num_nodes)),
            reached=1 << int(np.argmax(trace.inputs["s"])),
        )

    def operation(self, step: Edge) -> Operation:
        """The relaxation of an edge."""
        tail, head = step
        return Operation(signature=f"relax {tail}->{head}", payload={"edge": [tail, head]})

    def schedule(self, state: BellmanFordState) -> list[Edge]:
        """Every edge."""
        return state.graph.edges()

    def take(
        self, state: BellmanFordState, step: Edge, *, before: BellmanFordState
    ) -> Transition[BellmanFordState]:
        """Relax an edge."""
        return relax(state, step, before=before)

    def max_rounds(self, state: BellmanFordState) -> int:
        """Shortest ways have fewer edges than the graph has nodes."""
        return state.graph.num_nodes

    def rows(self, states: Sequence[BellmanFordState]) -> Rows:
        """Distances, predecessors and reached nodes."""
        return {
            "d": np.array([state.distances for state in states]),
            "pi_h": byte_rows([state.predecessors for state in states]),
            "msk": masks([state.reached for state in states], states[0].graph.num_nodes),
        }


def _at(trace: Trace, row: int) -> BellmanFordState:
    """The state that a hint row shows."""
    reached = trace.hints["msk"][row]
    return BellmanFordState(
        graph=graph_of(trace),
        distances=tuple(trace.hints["d"][row].tolist()),
        predecessors=bytes(trace.hints["pi_h"][row].astype(np.uint8)),
        reached=sum(1 << node for node in np.flatnonzero(reached).tolist()),
    )


def _written(trace: Trace, row: int) -> list[Edge]:
    """The edges whose relaxation left its mark between two hint rows."""
    distances, reached = trace.hints["d"], trace.hints["msk"]
    changed = (distances[row + 1] != distances[row]) | (reached[row + 1] != reached[row])
    predecessors = trace.hints["pi_h"][row + 1]
    return [(int(predecessors[head]), int(head)) for head in np.flatnonzero(changed)]


def _independent(edge: Edge, others: Sequence[Edge]) -> bool:
    """Whether relaxing ``edge`` neither reads nor writes what the others write, nor writes what they read."""
    tail, head = edge
    return all(head not in other and tail != other[1] for other in others)
