"""Heapsort's hint rows as dm-clrs writes them; plain data for comparison only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vcrt.environments.clrs.rows import byte_rows, chain_pointers, heap_pointers, mask_one
from vcrt.environments.clrs.schema import Rows

#: dm-clrs's phases: the heap is built, its largest key is extracted, the root is heapified again.
BUILD, EXTRACT, REBUILD = 0, 1, 2
NUM_PHASES = 3


@dataclass(frozen=True, slots=True)
class HeapRow:
    """One hint row: the order, the elements that dm-clrs's counters stand at, the size of the heap and the phase."""

    order: bytes
    i: int
    j: int
    largest: int
    heap_size: int
    phase: int

    @classmethod
    def first(cls, order: bytes) -> HeapRow:
        """The row before the first step."""
        last = len(order) - 1
        return cls(order, last, last, last, len(order), BUILD)


def stack(rows: Sequence[HeapRow]) -> Rows:
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
        "phase": mask_one([row.phase for row in rows], NUM_PHASES),
    }
