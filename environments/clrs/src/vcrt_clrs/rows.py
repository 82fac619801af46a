"""Encode hint rows as dm-clrs does, for whole traces at once; plain data for comparison only.

Legend: ``R`` rows of one trace, ``N`` places (nodes or positions), ``C`` classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def byte_rows(rows: Sequence[bytes]) -> Array:
    """``[R, N]`` integers from ``R`` byte strings of equal length."""
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), -1).astype(np.int64)


def mask_one(places: Sequence[int] | Array, size: int) -> Array:
    """``[R, size]``: one 1 a row, at the given place."""
    return np.equal.outer(np.asarray(places, dtype=np.int64), np.arange(size)).astype(np.int64)


def masks(bits: Sequence[int], size: int) -> Array:
    """``[R, size]`` zeros and ones from bit sets."""
    width = (size + 7) // 8
    packed = byte_rows([b.to_bytes(width, "little") for b in bits]).astype(np.uint8)
    return np.unpackbits(packed, axis=1, count=size, bitorder="little").astype(np.int64)


def edge_matrices(bits: Sequence[int], num_nodes: int) -> Array:
    """``[R, N, N]`` symmetric matrices of sets of edges u < v, bit ``u * N + v``."""
    upper = masks(bits, num_nodes * num_nodes).reshape(-1, num_nodes, num_nodes)
    return upper | upper.transpose(0, 2, 1)


def chain_pointers(orders: Array) -> Array:
    """``[R, N]``: each element points to the one before it; the first to itself (dm-clrs's ``array`` probe)."""
    return _pointers(orders, np.concatenate([orders[:, :1], orders[:, :-1]], axis=1))


def heap_pointers(orders: Array, heap_sizes: Array) -> Array:
    """``[R, N]``: each element of the heap points to its parent, all others to themselves (``heap`` probe).

    ``heap_sizes`` has shape ``[R]``.
    """
    places = np.arange(orders.shape[1])
    parents = orders[:, np.maximum(places - 1, 0) // 2]
    in_heap = places < heap_sizes[:, None]
    return _pointers(orders, np.where(in_heap, parents, orders))


def _pointers(orders: Array, targets: Array) -> Array:
    pointers = np.empty_like(orders)
    np.put_along_axis(pointers, orders, targets, axis=1)
    return pointers
