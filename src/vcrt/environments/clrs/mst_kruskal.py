"""Schema ``mst_kruskal``: edges considered by Kruskal's algorithm (Kruskal, 1956; CLRS 3e, section 23.2).

An operation considers one edge: it joins the tree if its ends lie in two components, and is left out of it otherwise.
Either way the step counts, so the state keeps the set of edges considered. The dependent pair competes for one pair of
components; the genuine order considers the lighter edge first, and the reversal is accepted with another tree.

The union-find forest is kept with dm-clrs's path compression and linking (the larger root stays), so that every hint
row can be compared. The canonical state has roots instead of pointers: two forests with equal roots have one future.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from struct import Struct
from typing import TypeAlias

import numpy as np

from vcrt.environments.clrs.graph import WeightedGraph, graph_of, read_graph
from vcrt.environments.clrs.kruskal_rows import DONE, FIND_U, FIND_V, edge_matrix, hint_row
from vcrt.environments.clrs.reading import (
    malformed,
    read_edges,
    read_ints,
    read_member,
    read_payload_edge,
)
from vcrt.environments.clrs.schema import AlgorithmSchema, Lifted, Row
from vcrt.environments.clrs.trace import Trace
from vcrt.environments.contract import Accepted, Operation, Rejected, Schema, Transition
from vcrt.hashing import Json

Edge: TypeAlias = tuple[int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class KruskalState:
    """Union-find pointers by node, and two sets of edges (u, v), u < v, as bit sets: bit ``u * num_nodes + v``."""

    graph: WeightedGraph
    pointers: tuple[int, ...]
    tree: int
    considered: int

    def run(self, payload: Json) -> Transition[KruskalState]:
        """Consider the edge of ``payload``."""
        u, v = read_payload_edge(payload, len(self.pointers))
        if u >= v:
            raise malformed("operation.payload.edge", payload, "the smaller node first")
        return consider(self, u, v)

    def canonical(self) -> bytes:
        """Graph digest, roots (16 bits), tree and considered edges (bit sets), little-endian."""
        pointers = self.pointers
        roots = []
        for node in pointers:
            while pointers[node] != node:
                node = pointers[node]
            roots.append(node)
        size = len(pointers)
        width = (size * size + 7) // 8
        return (
            _layout(size).pack(self.graph.digest, *roots)
            + self.tree.to_bytes(width, "little")
            + self.considered.to_bytes(width, "little")
        )


@lru_cache
def _layout(num_nodes: int) -> Struct:
    return Struct(f"<32s{num_nodes}H")


def follow(pointers: list[int], path: list[int]) -> bool:
    """One step of FIND-SET with full path compression; False if ``path`` ends at a root.

    Appends the next node to ``path`` and points all nodes before it there, in place.
    """
    parent = pointers[path[-1]]
    if parent == path[-1]:
        return False
    for node in path:
        pointers[node] = parent
    path.append(parent)
    return True


def consider(state: KruskalState, u: int, v: int) -> Transition[KruskalState]:
    """Consider the edge {u, v}, u < v: put it into the tree exactly if it joins two components."""
    size = len(state.pointers)
    edge = 1 << (u * size + v)
    if state.graph.weights[u][v] == 0:
        return Rejected(f"there is no edge {{{u},{v}}}")
    if state.considered & edge:
        return Rejected(f"edge {{{u},{v}}} has been considered")
    pointers, path_u, path_v = list(state.pointers), [u], [v]
    while follow(pointers, path_u):
        pass
    while follow(pointers, path_v):
        pass
    root_u, root_v = path_u[-1], path_v[-1]
    pointers[min(root_u, root_v)] = max(root_u, root_v)
    return Accepted(
        KruskalState(
            graph=state.graph,
            pointers=tuple(pointers),
            tree=state.tree | edge if root_u != root_v else state.tree,
            considered=state.considered | edge,
        )
    )


class MstKruskal(AlgorithmSchema[KruskalState]):
    """Consecutive edges of a run, two of which compete for the same pair of components."""

    schema = Schema(
        name="mst_kruskal",
        summary="consider two edges that join the same components: only the first joins the tree",
        relation="conflicts",
    )
    length = 12
    edge_probability = 0.65

    def lift(self, trace: Trace, num_operations: int, rng: np.random.Generator) -> Lifted | None:
        """A window of the run in its own order; where the competing pair stands in it varies."""
        ends = _end_rows(trace)
        edges = [_edge(trace, row) for row in ends[1:]]
        windows: dict[Edge, list[int]] = {}
        for start in range(len(edges) - num_operations + 1):
            pointers = _pointers(trace, ends[start])
            pair = _competing_pair(pointers, edges[start : start + num_operations])
            if pair is not None:
                windows.setdefault(pair, []).append(start)
        if not windows:
            return None
        places = sorted(windows)
        starts = windows[places[rng.integers(len(places))]]
        start = starts[rng.integers(len(starts))]
        chosen = edges[start : start + num_operations]
        return Lifted(
            initial=_initial(trace, ends[start], edges[:start]),
            operations=tuple(map(_consider, chosen)),
        )

    def read_state(self, initial: Json) -> KruskalState:
        """Members ``adjacency`` (symmetric), ``pi``, ``in_mst`` and ``considered`` (lists of edges)."""
        graph = read_graph(initial)
        size = graph.num_nodes
        for u, v in combinations(range(size), 2):
            if graph.weights[u][v] != graph.weights[v][u]:
                raise malformed(
                    f"initial.adjacency[{u}][{v}]", graph.weights[u][v], "a symmetric matrix"
                )
        pointers = read_ints(read_member(initial, "pi"), "initial.pi", size, size)
        for node, parent in enumerate(pointers):
            # The larger root stays, so pointers only ever rise: that also rules out cycles.
            if parent < node:
                raise malformed(f"initial.pi[{node}]", parent, f"a node from {node} up")
        considered = read_edges(read_member(initial, "considered"), "initial.considered", size)
        tree = read_edges(read_member(initial, "in_mst"), "initial.in_mst", size)
        for u, v in considered:
            if graph.weights[u][v] == 0:
                raise malformed("initial.considered", [u, v], "edges of the graph")
        if not set(tree) <= set(considered):
            raise malformed("initial.in_mst", tree, "considered edges only")
        return KruskalState(
            graph=graph,
            pointers=pointers,
            tree=_bits(tree, size),
            considered=_bits(considered, size),
        )

    def hint_rows(self, trace: Trace) -> Iterator[Row]:
        """The row before the first edge, then of each edge: one row a pointer followed, and one when it is done."""
        state = _start(graph_of(trace))
        yield hint_row(state.pointers, state.tree, DONE, [0], [0], marked=False)
        for u, v in _by_weight(state.graph):
            pointers, path_u, path_v = list(state.pointers), [u], [v]
            yield hint_row(pointers, state.tree, FIND_U, path_u, path_v)
            while follow(pointers, path_u):
                yield hint_row(pointers, state.tree, FIND_U, path_u, path_v)
            while follow(pointers, path_v):
                yield hint_row(pointers, state.tree, FIND_V, path_u, path_v)
            state = _considered(state, u, v)
            yield hint_row(state.pointers, state.tree, DONE, path_u, path_v)

    def finish(self, state: KruskalState) -> Row:
        """The tree after the edges that are left have been considered by weight."""
        for u, v in _by_weight(state.graph):
            state = _considered(state, u, v)
        return {"in_mst": edge_matrix(state.tree, state.graph.num_nodes)}

    def located(
        self, trace: Trace, state: KruskalState, operations: Sequence[Operation]
    ) -> list[bool]:
        """The graph; the state after some edge; each operation as the edge that stands in its place after that."""
        ends = _end_rows(trace)
        edges = [_edge(trace, row) for row in ends[1:]]
        start = state.considered.bit_count()
        found = start < len(ends) and (
            self.read_state(_initial(trace, ends[start], edges[:start])).canonical()
            == state.canonical()
        )
        given = [read_payload_edge(o.payload, state.graph.num_nodes) for o in operations]
        genuine = edges[start : start + len(given)]
        return [
            state.graph == graph_of(trace),
            found,
            *(edge == next_edge for edge, next_edge in zip(given, genuine, strict=False)),
            *(False for _ in given[len(genuine) :]),
        ]


def _considered(state: KruskalState, u: int, v: int) -> KruskalState:
    transition = consider(state, u, v)
    return transition.state if isinstance(transition, Accepted) else state


def _start(graph: WeightedGraph) -> KruskalState:
    return KruskalState(graph=graph, pointers=tuple(range(graph.num_nodes)), tree=0, considered=0)


def _by_weight(graph: WeightedGraph) -> list[Edge]:
    weighed = [
        (weight, u, v)
        for u, row in enumerate(graph.weights)
        for v, weight in enumerate(row)
        if u < v and weight > 0
    ]
    return [(u, v) for _, u, v in sorted(weighed)]


def _competing_pair(pointers: Sequence[int], window: Sequence[Edge]) -> Edge | None:
    """Positions in ``window`` of its two edges between the same two components, if that is its only cycle.

    Edges within one component close no cycle that depends on the order: they are left out of every tree.
    """
    roots = [root_of(pointers, node) for node in range(len(pointers))]
    joins = {
        position: (min(roots[u], roots[v]), max(roots[u], roots[v]))
        for position, (u, v) in enumerate(window)
        if roots[u] != roots[v]
    }
    counts = Counter(joins.values())
    if len(counts) != len(joins) - 1:
        return None
    merged = list(roots)
    for a, b in counts:
        a, b = root_of(merged, a), root_of(merged, b)
        if a == b:
            return None
        merged[a] = b
    first, second = (position for position, join in joins.items() if counts[join] == 2)
    return first, second


def root_of(pointers: Sequence[int], node: int) -> int:
    """The root of the component of ``node``."""
    while pointers[node] != node:
        node = pointers[node]
    return node


def _bits(edges: Iterable[Edge], num_nodes: int) -> int:
    return sum(1 << (u * num_nodes + v) for u, v in edges)


def _end_rows(trace: Trace) -> list[int]:
    """The first row, and the last row of each considered edge."""
    return np.flatnonzero(trace.hints["phase"][:, DONE] == 1).tolist()


def _edge(trace: Trace, row: int) -> Edge:
    return int(np.argmax(trace.hints["u"][row])), int(np.argmax(trace.hints["v"][row]))


def _pointers(trace: Trace, row: int) -> list[int]:
    pointers: list[int] = trace.hints["pi"][row].astype(int).tolist()
    return pointers


def _initial(trace: Trace, row: int, considered: Sequence[Edge]) -> Json:
    in_tree = trace.hints["in_mst_h"][row]
    return {
        "adjacency": trace.inputs["A"].tolist(),
        "pi": _pointers(trace, row),
        "in_mst": [[u, v] for u, v in considered if in_tree[u, v]],
        "considered": [[u, v] for u, v in considered],
    }


def _consider(edge: Edge) -> Operation:
    u, v = edge
    return Operation(signature=f"consider {{{u},{v}}}", payload={"edge": [u, v]})
