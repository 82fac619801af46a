"""Max-heapify nodes while a heap is built: schema ``heapsort`` (Williams, 1964; CLRS 3e, sections 6.2 to 6.4).

An operation either max-heapifies a node (its key sinks until no child is larger), or, once the heap is built, extracts
the largest key (it changes places with the last node, and the heap is one node shorter). The dependent pair is a child
and then its parent; the reversal is accepted, but leaves another array, in which the child may hold a larger key.

A state keeps the set of nodes that were heapified beside the array. dm-clrs heapifies every node, and one whose key is
in its place already leaves the array as it is; that is a step all the same, as the algorithm may go on to the
extractions only when every node has had its turn, and no node has two. The set grows the same way in any order, so it
alone never sets two orders apart: the reversal differs by its array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from vcrt.environments.clrs.choosing import linear_extension, shuffled
from vcrt.environments.clrs.inputs import Keys, keys_of, read_keys
from vcrt.environments.clrs.reading import (
    malformed,
    read_int,
    read_member,
    read_payload_pair,
    read_permutation,
    read_set,
)
from vcrt.environments.clrs.rows import byte_rows, chain_pointers, heap_pointers, mask_one
from vcrt.environments.clrs.schema import AlgorithmSchema, GenuineStep, Lifted, Rows
from vcrt.environments.clrs.trace import Trace
from vcrt.environments.contract import Accepted, Operation, Rejected, Schema, Transition
from vcrt.hashing import Json

#: dm-clrs's phases: the heap is built, its largest key is extracted, the root is heapified again.
_BUILD, _EXTRACT, _REBUILD = 0, 1, 2
_NUM_PHASES = 3


@dataclass(frozen=True, slots=True)
class Heapify:
    """Max-heapify ``node`` of a heap of ``heap_size`` nodes."""

    node: int
    heap_size: int


@dataclass(frozen=True, slots=True)
class Extract:
    """Extract the largest key of a heap whose last node is ``last``."""

    last: int


class HeapsortState(NamedTuple):
    """The order of the elements (bytes), the size of the heap, and the nodes heapified (bit ``i`` for node i)."""

    keys: Keys
    order: bytes
    heap_size: int
    heapified: int

    def read(self, payload: Json) -> Heapify | Extract:
        """The step of a payload ``{"heapify": [node, heap_size]}`` or ``{"extract": last}``."""
        size = len(self.order)
        if isinstance(payload, dict) and list(payload) == ["extract"]:
            return Extract(read_int(payload["extract"], "operation.payload.extract", 1, size - 1))
        node, heap_size = read_payload_pair(payload, "heapify", size + 1)
        if node >= heap_size:
            field = "operation.payload.heapify"
            raise malformed(field, [node, heap_size], "a node below the size of the heap")
        return Heapify(node, heap_size)

    def take(self, step: Heapify | Extract) -> Transition[HeapsortState]:
        """Max-heapify a node, or extract the largest key."""
        if isinstance(step, Heapify):
            return heapify(self, step)
        return extract(self, step)

    def canonical(self) -> bytes:
        """Digest of the keys, order (bytes), size of the heap (16 bits) and heapified nodes (bit set)."""
        size = len(self.order)
        tail = self.heapified << 16 | self.heap_size
        return self.keys.digest + self.order + tail.to_bytes(2 + (size + 7) // 8, "little")


def sink(keys: tuple[float, ...], order: bytearray, node: int, heap_size: int) -> int:
    """One level of MAX-HEAPIFY, in place: the place of the largest of a node and its children; equal if it is done."""
    largest, left = node, 2 * node + 1
    if left < heap_size and keys[order[left]] > keys[order[node]]:
        largest = left
    right = left + 1
    if right < heap_size and keys[order[right]] > keys[order[largest]]:
        largest = right
    order[node], order[largest] = order[largest], order[node]
    return largest


def sift(keys: tuple[float, ...], order: bytearray, node: int, heap_size: int) -> None:
    """MAX-HEAPIFY, in place."""
    while (largest := sink(keys, order, node, heap_size)) != node:
        node = largest


def heapify(state: HeapsortState, step: Heapify) -> Transition[HeapsortState]:
    """Max-heapify a node that has not been heapified."""
    node, heap_size = step.node, step.heap_size
    if heap_size != state.heap_size:
        return Rejected(f"the heap has {state.heap_size} nodes, not {heap_size}")
    if state.heapified >> node & 1:
        return Rejected(f"node {node} has been heapified")
    keys, order = state.keys.values, bytearray(state.order)
    sift(keys, order, node, heap_size)
    heapified = state.heapified | 1 << node
    return Accepted(HeapsortState(state.keys, bytes(order), heap_size, heapified))


def extract(state: HeapsortState, step: Extract) -> Transition[HeapsortState]:
    """Exchange the root with the last node of a heap of which every node has been heapified."""
    last = step.last
    if last != state.heap_size - 1:
        return Rejected(f"the heap has {state.heap_size} nodes, not {last + 1}")
    heap = (1 << state.heap_size) - 1
    if state.heapified & heap != heap:
        return Rejected("a node of the heap has not been heapified")
    order = bytearray(state.order)
    order[0], order[last] = order[last], order[0]
    return Accepted(HeapsortState(state.keys, bytes(order), last, state.heapified & ~1))


class Heapsort(AlgorithmSchema[HeapsortState]):
    """Nodes heapified while the heap is built: a left child, its parent, and nodes between the two."""

    schema = Schema(
        name="heapsort",
        summary="max-heapify a child, then its parent: the reversal leaves another array",
        relation="conflicts",
    )
    lengths = range(12, 28)
    placing = "later"

    def lift(
        self, trace: Trace, num_operations: int, rng: np.random.Generator
    ) -> Lifted[HeapsortState] | None:
        """Operations from the state before the child; the reference order is any linear extension.

        The right child was heapified before the left one, and the nodes between left child and parent have none of
        these nodes among their descendants: so the pair is the only one that can depend on its order.
        """
        size = trace.hints["pred_h"].shape[1]
        before = [genuine.state for genuine in islice(self.steps(trace), size)]
        # The child has a child itself: a leaf has nothing to sink to.
        for parent in shuffled(range(max(1, num_operations - 2), size // 4), rng):
            child = 2 * parent + 1
            state = before[size - 1 - child]
            if _conflict(state, child, parent):
                others = shuffled(range(parent + 1, child), rng)[: num_operations - 2]
                nodes = linear_extension([child, parent, *others], rng)
                return Lifted(
                    state=state,
                    operations=tuple(_operation(Heapify(node, size)) for node in nodes),
                )
        return None

    def read_state(self, initial: Json) -> HeapsortState:
        """Members ``keys``, ``order`` (a permutation), ``heap_size`` and ``heapified`` (a list of nodes)."""
        keys = read_keys(initial)
        size = keys.num_elements
        return HeapsortState(
            keys=keys,
            order=read_permutation(read_member(initial, "order"), "initial.order", size),
            heap_size=read_int(read_member(initial, "heap_size"), "initial.heap_size", 1, size),
            heapified=read_set(read_member(initial, "heapified"), "initial.heapified", size),
        )

    def write_state(self, state: HeapsortState) -> Json:
        """The members that :meth:`read_state` reads."""
        size = state.keys.num_elements
        return {
            "keys": list(state.keys.values),
            "order": list(state.order),
            "heap_size": state.heap_size,
            "heapified": [node for node in range(size) if state.heapified >> node & 1],
        }

    def start(self, trace: Trace) -> HeapsortState:
        """The elements in their order; no node has been heapified."""
        keys = keys_of(trace)
        size = keys.num_elements
        return HeapsortState(keys=keys, order=bytes(range(size)), heap_size=size, heapified=0)

    def steps(self, trace: Trace) -> Iterator[GenuineStep[HeapsortState]]:
        """Every node heapified from the last to the first; then each extraction and the root heapified again."""
        for state, step, _ in _run(self.start(trace)):
            yield GenuineStep(state, _operation(step))

    def hint_rows(self, trace: Trace) -> Rows:
        """A row for each level that a key sinks through and one for each extraction."""
        start = self.start(trace)
        rows = [_HeapRow.first(start.order)]
        for state, step, after in _run(start):
            rows += _rows_of(state, step, after)
        return _stack(rows)

    def finish(self, state: HeapsortState, done: int) -> Rows:
        """The sorted array after the nodes that are left have been heapified, and all rows of the extractions.

        The sorted array alone would prove little: a key that is too deep in the heap may reach the root in time.
        """
        rows: list[_HeapRow] = []
        for before, step, after in _run(state):
            if not _builds(before, step):
                rows += _rows_of(before, step, after)
            state = after
        sorted_order = chain_pointers(byte_rows([state.order]))[0]
        return {"pred": sorted_order, **(_stack(rows) if rows else {})}


@dataclass(frozen=True, slots=True)
class _HeapRow:
    """One hint row: the order, the elements that dm-clrs's counters stand at, the size of the heap and the phase."""

    order: bytes
    i: int
    j: int
    largest: int
    heap_size: int
    phase: int

    @classmethod
    def first(cls, order: bytes) -> _HeapRow:
        """The row before the first step."""
        last = len(order) - 1
        return cls(order, last, last, last, len(order), _BUILD)


def _stack(rows: Sequence[_HeapRow]) -> Rows:
    """All rows by dm-clrs's names."""
    size = len(rows[0].order)
    orders = byte_rows([row.order for row in rows])
    heap_sizes = np.array([row.heap_size for row in rows])
    last_of_heap = orders[np.arange(len(rows)), heap_sizes - 1]
    return {
        "pred_h": chain_pointers(orders),
        "parent": heap_pointers(orders, heap_sizes),
        "i": mask_one([row.i for row in rows], size),
        "j": mask_one([row.j for row in rows], size),
        "largest": mask_one([row.largest for row in rows], size),
        "heap_size": mask_one(last_of_heap, size),
        "phase": mask_one([row.phase for row in rows], _NUM_PHASES),
    }


def _run(
    state: HeapsortState,
) -> Iterator[tuple[HeapsortState, Heapify | Extract, HeapsortState]]:
    """The steps from a state to the sorted array, each with the states before and after it."""
    # Each node is heapified and extracted, and the root heapified in between: the bound is for a broken transition.
    for _ in range(3 * len(state.order)):
        step = _next(state)
        transition = None if step is None else state.take(step)
        if step is None or not isinstance(transition, Accepted):
            return
        yield state, step, transition.state
        state = transition.state


def _next(state: HeapsortState) -> Heapify | Extract | None:
    """The step that heapsort takes in a state: None if the array is sorted."""
    size = state.heap_size
    left = ~state.heapified & ((1 << size) - 1)
    if left:
        return Heapify(left.bit_length() - 1, size)
    return Extract(size - 1) if size > 1 else None


def _builds(state: HeapsortState, step: Heapify | Extract) -> bool:
    """Whether a step belongs to the building of the heap."""
    return isinstance(step, Heapify) and step.heap_size == state.keys.num_elements


def _rows_of(
    state: HeapsortState, step: Heapify | Extract, after: HeapsortState
) -> Iterator[_HeapRow]:
    """The rows of one step; the last of them shows the state that the transition left."""
    if isinstance(step, Extract):
        order = after.order
        yield _HeapRow(order, order[0], order[step.last], 0, step.last, _EXTRACT)
        return
    # dm-clrs's counter `i` stands at the node while the heap is built, and at the extracted place afterwards.
    building = _builds(state, step)
    counter = step.node if building else step.heap_size
    levels, node = bytearray(state.order), step.node
    while True:
        largest = sink(state.keys.values, levels, node, step.heap_size)
        shown = after.order if largest == node else bytes(levels)
        phase = _BUILD if building else _REBUILD
        yield _HeapRow(shown, shown[counter], shown[node], shown[largest], step.heap_size, phase)
        if largest == node:
            return
        node = largest


def _conflict(state: HeapsortState, child: int, parent: int) -> bool:
    """Whether the array depends on which of the two is heapified first."""
    orders = []
    for nodes in ((child, parent), (parent, child)):
        order = bytearray(state.order)
        for node in nodes:
            sift(state.keys.values, order, node, state.heap_size)
        orders.append(order)
    return orders[0] != orders[1]


def _operation(step: Heapify | Extract) -> Operation:
    if isinstance(step, Extract):
        return Operation(signature=f"extract {step.last}", payload={"extract": step.last})
    node, heap_size = step.node, step.heap_size
    return Operation(
        signature=f"max-heapify {node} of {heap_size}", payload={"heapify": [node, heap_size]}
    )
