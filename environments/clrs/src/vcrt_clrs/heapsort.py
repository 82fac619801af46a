"""Max-heapify nodes while a heap is built: schema ``heapsort`` (Williams, 1964; CLRS 3e, sections 6.2 to 6.4).

An operation either max-heapifies a node (its key sinks until no child is larger), or, once the heap is built, extracts
the largest key (it changes places with the last node, and the heap is one node shorter). The dependent pair is a child
and then its parent; the reversal is accepted, but leaves another array, in which the child may hold a larger key.

A state keeps the set of heapified nodes beside the array. dm-clrs heapifies every node, even one whose key is in its
place already, which leaves the array unchanged. That is still a step: the algorithm may extract only after it has
heapified every node once, and no node twice. The set grows in the same way in any order, so it alone never tells two
orders apart: the reversal differs by its array.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from vcrt.environments.contract import Accepted, Footprint, Operation, Rejected, Schema, Transition
from vcrt.hashing import Json
from vcrt.printable import counted
from vcrt.randomness import Generator
from vcrt_clrs.reading import (
    Keys,
    keys_of,
    malformed,
    read_int,
    read_keys,
    read_member,
    read_payload_pair,
    read_permutation,
    read_set,
)
from vcrt_clrs.schema import (
    AlgorithmSchema,
    Lifted,
    Taken,
    conflict,
    linear_extension,
    shuffled,
)
from vcrt_clrs.trace import Rows, Trace, byte_rows, chain_pointers, heap_pointers, mask_one

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
    """The order of the elements (bytes), the size of the heap, and the heapified nodes (bit ``i`` for node i)."""

    keys: Keys
    order: bytes
    heap_size: int
    heapified: int

    def read(self, payload: Json) -> Heapify | Extract:
        """Read the step of a payload ``{"heapify": [node, heap_size]}`` or ``{"extract": last}``."""
        size = len(self.order)
        if isinstance(payload, dict) and list(payload) == ["extract"]:
            return Extract(read_int(payload["extract"], "operation.payload.extract", 1, size - 1))
        node, heap_size = read_payload_pair(payload, "heapify", size + 1)
        if node >= heap_size:
            field = "operation.payload.heapify"
            raise malformed(field, [node, heap_size], "a node below the size of the heap")
        return Heapify(node, heap_size)

    def take(self, step: Heapify | Extract) -> Transition[HeapsortState]:
        """Max-heapify a node once; extract the largest key of a heap after every node was heapified."""
        heap_size = step.heap_size if isinstance(step, Heapify) else step.last + 1
        if heap_size != self.heap_size:
            return Rejected(f"the heap has {self.heap_size} nodes, not {heap_size}")
        return self._heapify(step.node) if isinstance(step, Heapify) else self._extract()

    def _heapify(self, node: int) -> Transition[HeapsortState]:
        keys, order, heap_size, heapified = self
        if heapified >> node & 1:
            return Rejected(f"node {node} has been heapified")
        sunk, place = bytearray(order), node
        while (child := sink(keys.values, sunk, place, heap_size)) != place:
            place = child
        return Accepted(HeapsortState(keys, bytes(sunk), heap_size, heapified | 1 << node))

    def _extract(self) -> Transition[HeapsortState]:
        heap = (1 << self.heap_size) - 1
        if self.heapified & heap != heap:
            return Rejected("a node of the heap has not been heapified")
        order, last = bytearray(self.order), self.heap_size - 1
        order[0], order[last] = order[last], order[0]
        return Accepted(HeapsortState(self.keys, bytes(order), last, self.heapified & ~1))

    def canonical(self) -> bytes:
        """Return digest of the keys, order (bytes), size of the heap (16 bits) and heapified nodes (bit set)."""
        size = len(self.order)
        tail = self.heapified << 16 | self.heap_size
        return self.keys.digest + self.order + tail.to_bytes(2 + (size + 7) // 8, "little")

    def task(self) -> str:
        """Return the size of the heap, in words."""
        return f"Heapsort; the heap has {counted(self.heap_size, 'key')} of {len(self.order)}."

    def footprint(self, step: Heapify | Extract) -> Footprint:
        """Return a node and all nodes below it; for an extraction, the whole heap."""
        if isinstance(step, Extract):
            nodes = list(range(step.last + 1))
        else:
            nodes = [step.node]
            for node in nodes:
                nodes += [child for child in (2 * node + 1, 2 * node + 2) if child < step.heap_size]
        places = tuple(f"place {node}" for node in nodes)
        return Footprint(reads=places, writes=places)


def sink(keys: tuple[float, ...], order: bytearray, node: int, heap_size: int) -> int:
    """Do one level of MAX-HEAPIFY in place; return the place of the largest of node and children (``node``: done)."""
    largest, left = node, 2 * node + 1
    if left < heap_size and keys[order[left]] > keys[order[node]]:
        largest = left
    right = left + 1
    if right < heap_size and keys[order[right]] > keys[order[largest]]:
        largest = right
    order[node], order[largest] = order[largest], order[node]
    return largest


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
        self, trace: Trace, num_operations: int, rng: Generator
    ) -> Lifted[HeapsortState] | None:
        """Return operations from the state before the child; the reference order is any linear extension.

        The right child was heapified before the left one, and the nodes between left child and parent have none of
        these nodes among their descendants. So only the order of the pair can matter.
        """
        size = trace.hints["pred_h"].shape[1]
        before = [taken.before for taken in islice(self.run(self.start(trace)), size)]
        # The child has a child itself: a leaf cannot sink.
        for parent in shuffled(range(max(1, num_operations - 2), size // 4), rng):
            child = 2 * parent + 1
            state = before[size - 1 - child]
            if conflict(state, Heapify(child, size), Heapify(parent, size)):
                others = shuffled(range(parent + 1, child), rng)[: num_operations - 2]
                nodes = linear_extension([child, parent, *others], rng)
                return state, [Heapify(node, size) for node in nodes]
        return None

    def read_state(self, initial: Json) -> HeapsortState:
        """Read members ``keys``, ``order`` (a permutation), ``heap_size`` and ``heapified`` (a list of nodes)."""
        keys = read_keys(initial)
        size = keys.num_elements
        return HeapsortState(
            keys=keys,
            order=read_member(initial, "order", read_permutation, size),
            heap_size=read_member(initial, "heap_size", read_int, 1, size),
            heapified=read_member(initial, "heapified", read_set, size),
        )

    def write_state(self, state: HeapsortState) -> Json:
        """Return the members that :meth:`read_state` reads."""
        size = state.keys.num_elements
        return {
            "keys": list(state.keys.values),
            "order": list(state.order),
            "heap_size": state.heap_size,
            "heapified": [node for node in range(size) if state.heapified >> node & 1],
        }

    def start(self, trace: Trace) -> HeapsortState:
        """Return the elements in their order, with no node heapified."""
        keys = keys_of(trace)
        size = keys.num_elements
        return HeapsortState(keys=keys, order=bytes(range(size)), heap_size=size, heapified=0)

    def operation(self, step: Heapify | Extract) -> Operation:
        """Return the operation of a node that is max-heapified, or of an extraction."""
        if isinstance(step, Extract):
            return Operation(signature=f"extract {step.last}", payload={"extract": step.last})
        node, size = step.node, step.heap_size
        return Operation(
            signature=f"max-heapify {node} of {size}", payload={"heapify": [node, size]}
        )

    def schedule(self, state: HeapsortState) -> Iterator[Heapify | Extract]:
        """Yield every remaining node, from the last to the first; then each extraction and the root heapified again."""
        size = state.heap_size
        for node in reversed(range(size)):
            if not state.heapified >> node & 1:
                yield Heapify(node, size)
        for last in reversed(range(1, size)):
            yield Extract(last)
            yield Heapify(0, last)

    def hint_rows(self, trace: Trace) -> Rows:
        """Return a row for each level that a key sinks through and one for each extraction."""
        start = self.start(trace)
        last = start.heap_size - 1
        rows = [_Row(start.order, last, last, last, start.heap_size, _BUILD)]
        for taken in self.run(start):
            rows += _rows_of(taken)
        return _stack(rows)

    def finish(self, state: HeapsortState, done: int) -> Rows:
        """Return the sorted array after all remaining steps, and all rows of the extractions.

        The sorted array alone would prove little: a key that is too deep in the heap may still reach the root in time.
        """
        rows: list[_Row] = []
        for taken in self.run(state):
            if not _builds(taken):
                rows += _rows_of(taken)
            state = taken.after
        sorted_order = chain_pointers(byte_rows([state.order]))[0]
        return {"pred": sorted_order, **(_stack(rows) if rows else {})}


class _Row(NamedTuple):
    """One hint row: the order, the elements at dm-clrs's counters, the size of the heap and the phase."""

    order: bytes
    i: int
    j: int
    largest: int
    heap_size: int
    phase: int


def _stack(rows: Iterable[_Row]) -> Rows:
    """Return all rows by dm-clrs's names."""
    order, i, j, largest, heap_size, phase = zip(*rows, strict=True)
    size, orders, heap_sizes = len(order[0]), byte_rows(order), np.array(heap_size)
    last_of_heap = orders[np.arange(len(orders)), heap_sizes - 1]
    return {
        "pred_h": chain_pointers(orders),
        "parent": heap_pointers(orders, heap_sizes),
        "i": mask_one(i, size),
        "j": mask_one(j, size),
        "largest": mask_one(largest, size),
        "heap_size": mask_one(last_of_heap, size),
        "phase": mask_one(phase, _NUM_PHASES),
    }


def _builds(taken: Taken[HeapsortState]) -> bool:
    """Return whether a step belongs to the building of the heap."""
    step = taken.step
    return isinstance(step, Heapify) and step.heap_size == taken.before.keys.num_elements


def _rows_of(taken: Taken[HeapsortState]) -> Iterator[_Row]:
    """Yield the rows of one step; the last shows the state after the transition."""
    state, step, after = taken
    if isinstance(step, Extract):
        order = after.order
        yield _Row(order, order[0], order[step.last], 0, step.last, _EXTRACT)
        return
    # dm-clrs's counter `i` stands at the node while the heap is built, and at the extracted place afterwards.
    building = _builds(taken)
    counter = step.node if building else step.heap_size
    phase = _BUILD if building else _REBUILD
    levels, node = bytearray(state.order), step.node
    while True:
        largest = sink(state.keys.values, levels, node, step.heap_size)
        shown = after.order if largest == node else bytes(levels)
        yield _Row(shown, shown[counter], shown[node], shown[largest], step.heap_size, phase)
        if largest == node:
            return
        node = largest
