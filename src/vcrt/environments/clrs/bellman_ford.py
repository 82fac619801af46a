"""Schema ``bellman_ford``: relaxations of a single-source shortest-path run (Bellman, 1958; CLRS 3e, section 24.1).

An operation relaxes one edge in place. It is accepted exactly if it writes: its tail is reached, and the way through
it is shorter than what its head has. The dependent pair is (u, v) and then (v, w), where v is not reached before; the
reversal is rejected.

dm-clrs relaxes in synchronous rounds, in which every tail is read as it was before the round. :func:`relax` takes the
state that it reads the tail from as a parameter, so one transition serves the episode (in place) and the comparison
with dm-clrs's hint rows (in rounds). Weights are not negative; negative cycles are not covered.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from vcrt.environments.clrs.graph import WeightedGraph, graph_of, read_graph
from vcrt.environments.clrs.reading import (
    malformed,
    read_ints,
    read_member,
    read_payload_edge,
    read_reals,
)
from vcrt.environments.clrs.schema import AlgorithmSchema, Lifted, Row
from vcrt.environments.clrs.trace import Trace
from vcrt.environments.contract import Accepted, Operation, Rejected, Schema, Transition
from vcrt.hashing import Json

Edge: TypeAlias = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class BellmanFordState:
    """Distances, predecessors and the reached mask (0 or 1) by node; an unreached node has distance 0 and itself."""

    graph: WeightedGraph
    distances: tuple[float, ...]
    predecessors: tuple[int, ...]
    reached: tuple[int, ...]

    def run(self, payload: Json) -> Transition[BellmanFordState]:
        """Relax the edge of ``payload`` in place."""
        tail, head = read_payload_edge(payload, len(self.reached))
        return relax(self, tail, head, before=self)

    def canonical(self) -> bytes:
        """Graph digest, then distances (doubles), predecessors (16 bits) and mask (bytes), little-endian."""
        layout = _layout(len(self.reached))
        return layout.pack(self.graph.digest, *self.distances, *self.predecessors, *self.reached)


@lru_cache
def _layout(num_nodes: int) -> struct.Struct:
    return struct.Struct(f"<32s{num_nodes}d{num_nodes}H{num_nodes}B")


def relax(
    state: BellmanFordState, tail: int, head: int, *, before: BellmanFordState
) -> Transition[BellmanFordState]:
    """Relax the edge ``tail -> head`` of ``state``, reading the tail as it is in ``before``."""
    if not before.reached[tail]:
        return Rejected(f"node {tail} is not reached yet")
    weight = state.graph.weights[tail][head]
    if weight == 0:
        return Rejected(f"there is no edge {tail}->{head}")
    distance = before.distances[tail] + weight
    if state.reached[head] and distance >= state.distances[head]:
        return Rejected(f"edge {tail}->{head} does not shorten the way to node {head}")
    distances, predecessors = list(state.distances), list(state.predecessors)
    reached = list(state.reached)
    distances[head], predecessors[head], reached[head] = distance, tail, 1
    return Accepted(
        BellmanFordState(
            graph=state.graph,
            distances=tuple(distances),
            predecessors=tuple(predecessors),
            reached=tuple(reached),
        )
    )


def synchronous_round(before: BellmanFordState) -> BellmanFordState:
    """Relax every edge once, each reading its tail as it is in ``before``."""
    state = before
    nodes = range(before.graph.num_nodes)
    for tail in nodes:
        for head in nodes:
            transition = relax(state, tail, head, before=before)
            if isinstance(transition, Accepted):
                state = transition.state
    return state


class BellmanFord(AlgorithmSchema[BellmanFordState]):
    """Relaxations out of one round of a run, and one out of the next round that needs one of them."""

    schema = Schema(
        name="bellman_ford",
        summary="relax (u,v), then (v,w): the reversal finds v not reached",
        relation="precedes",
    )
    length = 16
    edge_probability = 0.4

    def lift(self, trace: Trace, num_operations: int, rng: np.random.Generator) -> Lifted | None:
        """Operations from the state at the start of a round; the reference order is any linear extension."""
        pairs = [
            (row, first, second)
            for row in range(trace.num_rows - 2)
            for first in _writes(trace, row)
            for second in _writes(trace, row + 1)
            if first[1] == second[0] and not trace.hints["msk"][row][first[1]]
        ]
        for index in rng.permutation(len(pairs)):
            row, first, second = pairs[index]
            edges = [first, second]
            for edge in rng.permutation(_writes(trace, row)).tolist():
                if len(edges) < num_operations and _independent(tuple(edge), edges):
                    edges.append(tuple(edge))
            if len(edges) == num_operations:
                ordered = _linear_extension(edges, rng)
                return Lifted(initial=_initial(trace, row), operations=tuple(map(_relax, ordered)))
        return None

    def read_state(self, initial: Json) -> BellmanFordState:
        """Members ``adjacency``, ``d``, ``pi`` and ``msk``."""
        graph = read_graph(initial)
        size = graph.num_nodes
        state = BellmanFordState(
            graph=graph,
            distances=read_reals(read_member(initial, "d"), "initial.d", size),
            predecessors=read_ints(read_member(initial, "pi"), "initial.pi", size, size),
            reached=read_ints(read_member(initial, "msk"), "initial.msk", size, 2),
        )
        for node in range(size):
            bare = state.distances[node] == 0 and state.predecessors[node] == node
            if not state.reached[node] and not bare:
                raise malformed(
                    f"initial.msk[{node}]", 0, "1, as node has a distance or a predecessor"
                )
        return state

    def hint_rows(self, trace: Trace) -> Iterator[Row]:
        """Synchronous rounds from the source until no distance changes."""
        graph = graph_of(trace)
        source = int(np.argmax(trace.inputs["s"]))
        state = BellmanFordState(
            graph=graph,
            distances=(0.0,) * graph.num_nodes,
            predecessors=tuple(range(graph.num_nodes)),
            reached=tuple(int(node == source) for node in range(graph.num_nodes)),
        )
        while True:
            yield {"d": state.distances, "pi_h": state.predecessors, "msk": state.reached}
            before, state = state, synchronous_round(state)
            if state.distances == before.distances:
                return

    def finish(self, state: BellmanFordState) -> Row:
        """The predecessors after synchronous rounds until none changes a distance."""
        # Shortest ways have fewer edges than the graph has nodes: the bound is for a broken transition.
        for _ in range(state.graph.num_nodes):
            before, state = state, synchronous_round(state)
            if state == before:
                break
        return {"pi": state.predecessors}

    def located(
        self, trace: Trace, state: BellmanFordState, operations: Sequence[Operation]
    ) -> list[bool]:
        """The graph; the state at the start of a round; each edge as one that the run wrote through."""
        written = {edge for row in range(trace.num_rows - 1) for edge in _writes(trace, row)}
        edges = [read_payload_edge(o.payload, state.graph.num_nodes) for o in operations]
        return [
            state.graph == graph_of(trace),
            any(_is_at(state, trace, row) for row in range(trace.num_rows)),
            *(edge in written for edge in edges),
        ]


def _is_at(state: BellmanFordState, trace: Trace, row: int) -> bool:
    own = {"d": state.distances, "pi_h": state.predecessors, "msk": state.reached}
    return all(np.array_equal(values, trace.hints[name][row]) for name, values in own.items())


def _initial(trace: Trace, row: int) -> Json:
    return {
        "adjacency": trace.inputs["A"].tolist(),
        "d": trace.hints["d"][row].tolist(),
        "pi": trace.hints["pi_h"][row].astype(int).tolist(),
        "msk": trace.hints["msk"][row].astype(int).tolist(),
    }


def _writes(trace: Trace, row: int) -> list[Edge]:
    """The edges whose relaxation left its mark between two hint rows."""
    distances, reached = trace.hints["d"], trace.hints["msk"]
    changed = (distances[row + 1] != distances[row]) | (reached[row + 1] != reached[row])
    predecessors = trace.hints["pi_h"][row + 1]
    return [(int(predecessors[head]), int(head)) for head in np.flatnonzero(changed)]


def _independent(edge: Edge, others: Sequence[Edge]) -> bool:
    """Whether relaxing ``edge`` neither reads nor writes what the others write, nor writes what they read."""
    tail, head = edge
    return all(head not in other and tail != other[1] for other in others)


def _linear_extension(edges: Sequence[Edge], rng: np.random.Generator) -> list[Edge]:
    """A random order of ``edges`` in which the first one stands before the second."""
    order = rng.permutation(len(edges)).tolist()
    first, second = order.index(0), order.index(1)
    if second < first:
        order[first], order[second] = 1, 0
    return [edges[index] for index in order]


def _relax(edge: Edge) -> Operation:
    tail, head = edge
    return Operation(signature=f"relax {tail}->{head}", payload={"edge": [tail, head]})
