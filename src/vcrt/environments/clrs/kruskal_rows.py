"""Kruskal's hint rows as dm-clrs writes them, from the parts of a state; plain data for comparison only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vcrt.environments.clrs.schema import Row

#: dm-clrs's phases of one considered edge; a row of phase ``DONE`` shows the state after it.
DONE, FIND_U, FIND_V = 0, 1, 2
NUM_PHASES = 3


def edge_matrix(bits: int, num_nodes: int) -> npt.NDArray[np.int64]:
    """The symmetric 0-1 matrix of a bit set of edges."""
    matrix = np.zeros((num_nodes, num_nodes), dtype=np.int64)
    for place in range(bits.bit_length()):
        if bits >> place & 1:
            u, v = divmod(place, num_nodes)
            matrix[u, v] = matrix[v, u] = 1
    return matrix


def hint_row(
    pointers: Sequence[int],
    tree: int,
    phase: int,
    path_u: Sequence[int],
    path_v: Sequence[int],
    *,
    marked: bool = True,
) -> Row:
    """One hint row by dm-clrs's names; the masks show the nodes passed on the way to each root."""
    size = len(pointers)
    return {
        "in_mst_h": edge_matrix(tree, size),
        "pi": tuple(pointers),
        "u": _marks(path_u[:1], size),
        "v": _marks(path_v[:1], size),
        "root_u": _marks(path_u[-1:], size),
        "root_v": _marks(path_v[-1:], size),
        "mask_u": _marks(path_u if marked else (), size),
        "mask_v": _marks(path_v if marked else (), size),
        "phase": _marks((phase,), NUM_PHASES),
    }


def _marks(places: Sequence[int], size: int) -> npt.NDArray[np.int64]:
    marks = np.zeros(size, dtype=np.int64)
    marks[list(places)] = 1
    return marks
