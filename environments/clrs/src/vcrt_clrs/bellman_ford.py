"""Relax edges of a single-source shortest-path run: schema ``bellman_ford`` (Bellman, 1958; CLRS 3e, section 24.1).

An operation relaxes one edge in place. It is accepted exactly if it writes: its tail is reached, and the way through
the edge is shorter than the head's distance. The dependent pair is (u, v) and then (v, w), where v is not reached
before; the reversal is rejected.

dm-clrs relaxes in synchronous rounds, in which every tail is read as it was before the round. The state from which the
tail is read is a parameter, so one transition serves the episode (in place) and the comparison with dm-clrs's hint rows
(in rounds). Weights are not negative.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from vcrt.environments.contract import Accepted, Footprint, Operation, Rejected, Schema, Transition
from vcrt.hashing import Json
from vcrt.randomness import Generator
from vcrt_clrs.reading import (
    Edge,
    WeightedGraph,
    graph_of,
    malformed,
    read_graph,
    read_ints,
    read_member,
    read_payload_pair,
    read_reals,
)
from vcrt_clrs.schema import (
    Lifted,
    SynchronousSchema,
    Taken,
    linear_extension,
    shuffled,
    with_independent,
)
from vcrt_clrs.trace import Rows, Trace, byte_rows, masks


class BellmanFordState(NamedTuple):
    """Distances and predecessors (as bytes) by node, and the set of reached nodes (bit ``v`` for node v).

    An unreached node has distance 0 and itself as predecessor.
    """

    graph: WeightedGraph
    distances: tuple[float, ...]
    predecessors: bytes
    reached: int

    def read(self, payload: Json) -> Edge:
        """Read the edge of a payload ``{"edge": [tail, head]}``."""
        return read_payload_pair(payload, "edge", len(self.predecessors))

    def take(
        self, step: Edge, before: BellmanFordState | None = None
    ) -> Transition[BellmanFordState]:
        """Relax the edge (tail, head); read the tail from ``before``, by default from this state."""
        tail, head = step
        if before is None:
            before = self
        if not before.reached >> tail & 1:
            return Rejected(f"node {tail} is not reached yet")
        weight = self.graph.weights[tail][head]
        if weight == 0:
            return Rejected(f"there is no edge {tail}->{head}")
        distance = before.distances[tail] + weight
        if self.reached >> head & 1 and distance >= self.distances[head]:
            return Rejected(f"edge {tail}->{head} does not shorten the way to node {head}")
        after = head + 1
        distances = (*self.distances[:head], distance, *self.distances[after:])
        predecessors = b"%b%c%b" % (self.predecessors[:head], tail, self.predecessors[after:])
        return Accepted(
            BellmanFordState(self.graph, distances, predecessors, self.reached | 1 << head)
        )

    def canonical(self) -> bytes:
        """Return graph digest, distances (doubles), predecessors (bytes) and reached nodes (bit set), little-endian."""
        pack, width = _layout(len(self.predecessors))
        reached = self.reached.to_bytes(width, "little")
        return pack(self.graph.digest, *self.distances) + self.predecessors + reached

    def task(self) -> str:
        """Return which nodes are reached, in words."""
        reached = [str(node) for node in range(len(self.predecessors)) if self.reached >> node & 1]
        return f"Shortest ways through a graph. Reached so far: {', '.join(reached)}."

    def footprint(self, step: Edge) -> Footprint:
        """Return the distances of both ends as read, and that of the head as written."""
        tail, head = (f"distance {node}" for node in step)
        return Footprint(reads=(tail, head), writes=(head,))


@lru_cache
def _layout(num_nodes: int) -> tuple[Callable[..., bytes], int]:
    return struct.Struct(f"<32s{num_nodes}d").pack, (num_nodes + 7) // 8


class BellmanFord(SynchronousSchema[BellmanFordState]):
    """Relaxations from one round of a run, and one from the next round that needs one of them."""

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
        self, trace: Trace, num_operations: int, rng: Generator
    ) -> Lifted[BellmanFordState] | None:
        """Return operations from the state at the start of a round; the reference order is any linear extension."""
        rounds = list(self.rounds(self.start(trace)))
        written = [_written(taken) for taken in rounds]
        pairs = [
            (number, first, second)
            for number in range(len(rounds) - 1)
            for first in written[number]
            for second in written[number + 1]
            if first[1] == second[0] and not rounds[number][0].before.reached >> first[1] & 1
        ]
        for number, first, second in shuffled(pairs, rng):
            edges = with_independent(
                (first, second), written[number], num_operations, _independent, rng
            )
            if edges is not None:
                return rounds[number][0].before, linear_extension(edges, rng)
        return None

    def read_state(self, initial: Json) -> BellmanFordState:
        """Read members ``adjacency``, ``d``, ``pi`` and ``msk`` (by node: 0 or 1)."""
        graph = read_graph(initial)
        size = graph.num_nodes
        distances = read_member(initial, "d", read_reals, size)
        predecessors = read_member(initial, "pi", read_ints, size, size)
        reached = read_member(initial, "msk", read_ints, size, 2)
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
        """Return the members that :meth:`read_state` reads."""
        return {
            "adjacency": state.graph.to_json(),
            "d": list(state.distances),
            "pi": list(state.predecessors),
            "msk": [state.reached >> node & 1 for node in range(state.graph.num_nodes)],
        }

    def start(self, trace: Trace) -> BellmanFordState:
        """Return the state in which only the source is reached."""
        graph = graph_of(trace)
        return BellmanFordState(
            graph=graph,
            distances=(0.0,) * graph.num_nodes,
            predecessors=bytes(range(graph.num_nodes)),
            reached=1 << int(np.argmax(trace.inputs["s"])),
        )

    def operation(self, step: Edge) -> Operation:
        """Return the relaxation of an edge."""
        tail, head = step
        return Operation(signature=f"relax {tail}->{head}", payload={"edge": [tail, head]})

    def schedule(self, state: BellmanFordState) -> list[Edge]:
        """Return every edge."""
        return state.graph.edges()

    def rows(self, states: Sequence[BellmanFordState]) -> Rows:
        """Return distances, predecessors and reached nodes."""
        return {
            "d": np.array([state.distances for state in states]),
            "pi_h": byte_rows([state.predecessors for state in states]),
            "msk": masks([state.reached for state in states], states[0].graph.num_nodes),
        }


def _written(taken: Sequence[Taken[BellmanFordState]]) -> list[Edge]:
    """Return the edges whose relaxation remains at the end of a round, by their heads."""
    last = {step[1]: step for _, step, _ in taken}
    return [last[head] for head in sorted(last)]


def _independent(edge: Edge, others: Sequence[Edge]) -> bool:
    """Return whether relaxing ``edge`` neither reads nor writes what the others write, and writes nothing they read."""
    tail, head = edge
    return all(head not in other and tail != other[1] for other in others)
