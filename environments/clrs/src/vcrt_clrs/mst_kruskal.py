"""Consider edges by Kruskal's algorithm: schema ``mst_kruskal`` (Kruskal, 1956; CLRS 3e, section 23.2).

An operation considers one edge: the edge joins the tree if its ends lie in two components, and is left out otherwise.
Either way the step counts, so the state keeps the set of edges considered. The dependent pair competes for one pair of
components; the genuine order considers the lighter edge first, and the reversal is accepted with another tree.

The union-find forest follows dm-clrs's path compression and linking (the larger root stays), so every hint row can be
compared. The canonical state has roots instead of pointers: two forests with equal roots have one future.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from vcrt.environments.contract import Accepted, Footprint, Operation, Rejected, Schema, Transition
from vcrt.hashing import Json
from vcrt.randomness import Generator
from vcrt_clrs.reading import (
    Edge,
    WeightedGraph,
    graph_of,
    malformed,
    read_edges,
    read_graph,
    read_ints,
    read_member,
    read_payload_pair,
)
from vcrt_clrs.schema import AlgorithmSchema, Lifted, Taken, shuffled
from vcrt_clrs.trace import Array, Rows, Trace, byte_rows, edge_matrices, mask_one, masks

#: dm-clrs's phases of one considered edge; a row of phase ``_DONE`` shows the state after it.
_DONE, _FIND_U, _FIND_V = 0, 1, 2
_NUM_PHASES = 3


class KruskalState(NamedTuple):
    """Union-find pointers and their roots by node (bytes), and two sets of edges (u, v), u < v.

    A set of edges has bit ``u * num_nodes + v`` for each edge.
    """

    graph: WeightedGraph
    pointers: bytes
    roots: bytes
    tree: int
    considered: int

    def read(self, payload: Json) -> Edge:
        """Read the edge of a payload ``{"edge": [u, v]}``, u < v."""
        u, v = read_payload_pair(payload, "edge", len(self.pointers))
        if u >= v:
            raise malformed("operation.payload.edge", [u, v], "the smaller node first")
        return u, v

    def take(self, step: Edge) -> Transition[KruskalState]:
        """Consider the edge (u, v), u < v: add it to the tree exactly if it joins two components."""
        u, v = step
        if self.graph.weights[u][v] == 0:
            return Rejected(f"there is no edge {{{u},{v}}}")
        bit = 1 << (u * len(self.pointers) + v)
        if self.considered & bit:
            return Rejected(f"edge {{{u},{v}}} has been considered")
        pointers, roots, tree = bytearray(self.pointers), self.roots, self.tree
        root_u, root_v = roots[u], roots[v]
        for node, root in ((u, root_u), (v, root_v)):
            while node != root:
                pointers[node], node = root, pointers[node]
        if root_u != root_v:
            low, high = (root_u, root_v) if root_u < root_v else (root_v, root_u)
            pointers[low] = high
            roots = roots.replace(b"%c" % low, b"%c" % high)
            tree |= bit
        considered = self.considered | bit
        return Accepted(KruskalState(self.graph, bytes(pointers), roots, tree, considered))

    def canonical(self) -> bytes:
        """Return graph digest, roots (bytes), tree and considered edges (bit sets), little-endian."""
        size = len(self.roots)
        width = (size * size + 7) // 8
        edges = self.considered << 8 * width | self.tree
        return self.graph.digest + self.roots + edges.to_bytes(2 * width, "little")

    def task(self) -> str:
        """Return which nodes are joined, in words."""
        joined: dict[int, list[str]] = {}
        for node, root in enumerate(self.roots):
            joined.setdefault(root, []).append(str(node))
        several = [f"{{{', '.join(nodes)}}}" for nodes in joined.values() if len(nodes) > 1]
        return f"A minimum spanning tree. Joined so far: {' '.join(several) or 'nothing'}."

    def footprint(self, step: Edge) -> Footprint:
        """Return the components of both ends before all steps; the step reads and joins them."""
        ends = tuple(sorted({f"component {self.roots[node]}" for node in step}))
        return Footprint(reads=ends, writes=ends)


def follow(pointers: bytearray, path: list[int]) -> bool:
    """Do one step of FIND-SET with full path compression; return False if ``path`` ends at a root.

    It appends the next node to ``path`` and points all nodes before it there, in place.
    """
    parent = pointers[path[-1]]
    if parent == path[-1]:
        return False
    for node in path:
        pointers[node] = parent
    path.append(parent)
    return True


def root_of(pointers: Sequence[int], node: int) -> int:
    """Return the root of the component of ``node``."""
    while pointers[node] != node:
        node = pointers[node]
    return node


class MstKruskal(AlgorithmSchema[KruskalState]):
    """Consecutive edges of a run, two of which compete for the same pair of components."""

    schema = Schema(
        name="mst_kruskal",
        summary="consider two edges that join the same components: only the first joins the tree",
        relation="conflicts",
    )
    lengths = range(9, 15)
    edge_probabilities = (0.6, 0.65, 0.7)
    placing = "next in order"

    def lift(
        self, trace: Trace, num_operations: int, rng: Generator
    ) -> Lifted[KruskalState] | None:
        """Return a window of the run in its own order; the place of the competing pair in it varies."""
        steps = self.steps(trace)
        windows: dict[Edge, list[int]] = {}
        for start in range(len(steps) - num_operations + 1):
            edges = [edge for _, edge, _ in steps[start : start + num_operations]]
            pair = _competing_pair(steps[start].before.roots, edges)
            if pair is not None:
                windows.setdefault(pair, []).append(start)
        if not windows:
            return None
        start = shuffled(shuffled(list(windows.values()), rng)[0], rng)[0]
        window = steps[start : start + num_operations]
        return window[0].before, [taken.step for taken in window]

    def read_state(self, initial: Json) -> KruskalState:
        """Read members ``adjacency`` (symmetric), ``pi``, ``in_mst`` and ``considered`` (lists of edges)."""
        graph = read_graph(initial)
        size = graph.num_nodes
        if graph.weights != tuple(zip(*graph.weights, strict=True)):
            _refuse_asymmetry(graph)
        pointers = read_member(initial, "pi", read_ints, size, size)
        for node, parent in enumerate(pointers):
            # The larger root stays, so pointers only rise: that also excludes cycles.
            if parent < node:
                raise malformed(f"initial.pi[{node}]", parent, f"a node from {node} up")
        considered = read_member(initial, "considered", read_edges, size)
        tree = read_member(initial, "in_mst", read_edges, size)
        for u, v in considered:
            if graph.weights[u][v] == 0:
                raise malformed("initial.considered", [u, v], "edges of the graph")
        if not set(tree) <= set(considered):
            raise malformed("initial.in_mst", tree, "considered edges only")
        return KruskalState(
            graph=graph,
            pointers=bytes(pointers),
            roots=bytes([root_of(pointers, node) for node in range(size)]),
            tree=_bits(tree, size),
            considered=_bits(considered, size),
        )

    def write_state(self, state: KruskalState) -> Json:
        """Return the members that :meth:`read_state` reads."""
        return {
            "adjacency": state.graph.to_json(),
            "pi": list(state.pointers),
            "in_mst": _edges(state.tree, state.graph.num_nodes),
            "considered": _edges(state.considered, state.graph.num_nodes),
        }

    def start(self, trace: Trace) -> KruskalState:
        """Return the state in which every node is a component of its own and no edge has been considered."""
        graph = graph_of(trace)
        nodes = bytes(range(graph.num_nodes))
        return KruskalState(graph=graph, pointers=nodes, roots=nodes, tree=0, considered=0)

    def operation(self, step: Edge) -> Operation:
        """Return the operation that considers an edge."""
        u, v = step
        return Operation(signature=f"consider {{{u},{v}}}", payload={"edge": [u, v]})

    def schedule(self, state: KruskalState) -> Iterator[Edge]:
        """Yield all edges by weight."""
        graph = state.graph
        for _, u, v in sorted((graph.weights[u][v], u, v) for u, v in graph.edges() if u < v):
            yield u, v

    def hint_rows(self, trace: Trace) -> Rows:
        """Return the row before the first edge, then for each edge a row per followed pointer and one at its end."""
        start = self.start(trace)
        rows = [_Row(start.pointers, 0, _DONE, (0,), (0,), marked=False)]
        for taken in self.run(start):
            rows += _rows_of(taken)
        size = start.graph.num_nodes
        pointers, tree, phase, path_u, path_v, marked = zip(*rows, strict=True)
        found: dict[str, Array] = {
            "in_mst_h": edge_matrices(tree, size),
            "pi": byte_rows(pointers),
            "phase": mask_one(phase, _NUM_PHASES),
        }
        for end, paths in (("u", path_u), ("v", path_v)):
            found[end] = mask_one([path[0] for path in paths], size)
            found[f"root_{end}"] = mask_one([path[-1] for path in paths], size)
            passed = [path if shown else () for path, shown in zip(paths, marked, strict=True)]
            found[f"mask_{end}"] = masks([sum(1 << node for node in path) for path in passed], size)
        return found

    def finish(self, state: KruskalState, done: int) -> Rows:
        """Return the tree after the remaining edges have been considered by weight."""
        for taken in self.run(state):
            state = taken.after
        return {"in_mst": edge_matrices([state.tree], state.graph.num_nodes)[0]}


class _Row(NamedTuple):
    """One hint row: pointers, tree (bit set), phase, and the nodes on the paths from u and from v to their roots.

    ``marked`` says whether the row shows these nodes in its masks.
    """

    pointers: bytes
    tree: int
    phase: int
    path_u: tuple[int, ...]
    path_v: tuple[int, ...]
    marked: bool = True


def _rows_of(taken: Taken[KruskalState]) -> Iterator[_Row]:
    """Yield the rows of one edge; the last shows the state after the transition."""
    state, (u, v), after = taken
    pointers, path_u, path_v = bytearray(state.pointers), [u], [v]

    def row(shown: bytes, tree: int, phase: int) -> _Row:
        return _Row(shown, tree, phase, tuple(path_u), tuple(path_v))

    yield row(bytes(pointers), state.tree, _FIND_U)
    while follow(pointers, path_u):
        yield row(bytes(pointers), state.tree, _FIND_U)
    while follow(pointers, path_v):
        yield row(bytes(pointers), state.tree, _FIND_V)
    yield row(after.pointers, after.tree, _DONE)


def _competing_pair(roots: Sequence[int], window: Sequence[Edge]) -> tuple[int, int] | None:
    """Return the positions in ``window`` of its two edges between the same two components, if that is its only cycle.

    Edges within one component close no cycle that depends on the order: no tree contains them.
    """
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


def _refuse_asymmetry(graph: WeightedGraph) -> None:
    for u, v in combinations(range(graph.num_nodes), 2):
        if graph.weights[u][v] != graph.weights[v][u]:
            raise malformed(
                f"initial.adjacency[{u}][{v}]", graph.weights[u][v], "a symmetric matrix"
            )


def _bits(edges: Sequence[Edge], num_nodes: int) -> int:
    return sum([1 << (u * num_nodes + v) for u, v in edges])


def _edges(bits: int, num_nodes: int) -> list[Json]:
    places = [place for place in range(bits.bit_length()) if bits >> place & 1]
    return [list(divmod(place, num_nodes)) for place in places]
