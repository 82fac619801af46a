"""Kruskal's hint rows as dm-clrs writes them; plain data for comparison only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vcrt.environments.clrs.rows import byte_rows, edge_matrices, mask_one, masks
from vcrt.environments.clrs.schema import Rows

#: dm-clrs's phases of one considered edge; a row of phase ``DONE`` shows the state after it.
DONE, FIND_U, FIND_V = 0, 1, 2
NUM_PHASES = 3


@dataclass(frozen=True, slots=True)
class KruskalRow:
    """One hint row: pointers, tree (bit set), phase, and the nodes passed on the way from u and from v to their roots.

    ``marked`` says whether the row shows these nodes in its masks.
    """

    pointers: bytes
    tree: int
    phase: int
    path_u: tuple[int, ...]
    path_v: tuple[int, ...]
    marked: bool = True

    @classmethod
    def first(cls, pointers: bytes) -> KruskalRow:
        """The row before the first edge."""
        return cls(pointers, 0, DONE, (0,), (0,), marked=False)


def stack(rows: Sequence[KruskalRow]) -> Rows:
    """All rows by dm-clrs's names."""
    size = len(rows[0].pointers)
    return {
        "in_mst_h": edge_matrices([row.tree for row in rows], size),
        "pi": byte_rows([row.pointers for row in rows]),
        "u": mask_one([row.path_u[0] for row in rows], size),
        "v": mask_one([row.path_v[0] for row in rows], size),
        "root_u": mask_one([row.path_u[-1] for row in rows], size),
        "root_v": mask_one([row.path_v[-1] for row in rows], size),
        "mask_u": masks([_bits(row.path_u) if row.marked else 0 for row in rows], size),
        "mask_v": masks([_bits(row.path_v) if row.marked else 0 for row in rows], size),
        "phase": mask_one([row.phase for row in rows], NUM_PHASES),
    }


def _bits(path: Sequence[int]) -> int:
    return sum(1 << node for node in path)
