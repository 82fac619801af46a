"""Fill cells by matrix-chain multiplication: schema ``matrix_chain_order`` (CLRS 3e, section 15.2).

An operation fills one cell (i, j), the product of the matrices i to j, from the splits whose two sides are filled
already. It is accepted exactly if it writes: the cell was empty, or a split is cheaper than its cost. The dependent
pair is a subcell and then the cell, which the subcell makes cheaper; the reversal is accepted, with the best cost that
is possible without the subcell. The cells show which were filled, so a state needs no other record of steps.

dm-clrs fills all cells in synchronous rounds, in which every subcell is read as it was before the round. The state from
which subcells are read is a parameter, so one transition serves the episode (in place) and the comparison with
dm-clrs's hint rows (in rounds).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np

from vcrt.environments.contract import Accepted, Footprint, Operation, Rejected, Schema, Transition
from vcrt.hashing import Json
from vcrt.randomness import Generator
from vcrt_clrs.reading import (
    Keys,
    keys_of,
    malformed,
    read_ints,
    read_keys,
    read_member,
    read_payload_pair,
    read_reals,
)
from vcrt_clrs.schema import (
    Lifted,
    SynchronousSchema,
    conflict,
    linear_extension,
    shuffled,
    with_independent,
)
from vcrt_clrs.trace import Rows, Trace, byte_rows

#: (i, j), i < j: the product of the matrices i to j, which are counted from 1.
Cell: TypeAlias = tuple[int, int]
_COST = struct.Struct("<d")


@dataclass(frozen=True, slots=True)
class Fill:
    """A cell to fill: its place in the table, and for each split its two places, its k and the cost of its product."""

    cell: Cell
    place: int
    splits: tuple[tuple[int, int, int, float], ...]


class MatrixChainState(NamedTuple):
    """The table by place: costs (packed doubles) and best splits (bytes; 0 for an empty cell, which costs 0).

    Place 0 stands for every single matrix: it costs nothing and counts as filled. The cells follow row by row.
    """

    dimensions: Keys
    costs: bytes
    splits: bytes

    def read(self, payload: Json) -> Fill:
        """Read the cell of a payload ``{"cell": [i, j]}``."""
        length = self.dimensions.num_elements
        i, j = read_payload_pair(payload, "cell", length)
        if not 1 <= i < j:
            raise malformed("operation.payload.cell", [i, j], f"1 <= i < j < {length}")
        return fill_of(self.dimensions, (i, j))

    def take(
        self, step: Fill, before: MatrixChainState | None = None
    ) -> Transition[MatrixChainState]:
        """Fill the cell with its cheapest split; read its subcells from ``before``, by default from this state."""
        place, read = step.place, _COST.unpack_from
        _, costs, filled = before or self
        best = self.splits[place]
        cheapest = read(self.costs, 8 * place)[0] if best else math.inf
        possible = written = False
        for left, right, k, product in step.splits:
            if filled[left] and filled[right]:
                possible = True
                cost = read(costs, 8 * left)[0] + read(costs, 8 * right)[0] + product
                if cost < cheapest:
                    cheapest, best, written = cost, k, True
        if not written:
            i, j = step.cell
            if not possible:
                return Rejected(f"no split of cell ({i},{j}) has both sides filled")
            return Rejected(f"no split makes cell ({i},{j}) cheaper")
        after = place + 1
        costs = self.costs[: 8 * place] + _COST.pack(cheapest) + self.costs[8 * after :]
        splits = b"%b%c%b" % (self.splits[:place], best, self.splits[after:])
        return Accepted(MatrixChainState(self.dimensions, costs, splits))

    def canonical(self) -> bytes:
        """Return the digest of the dimensions, costs (doubles) and splits (bytes) by place, little-endian."""
        return self.dimensions.digest + self.costs + self.splits

    def task(self) -> str:
        """Return the number of matrices, in words."""
        return f"The cheapest way to multiply {self.dimensions.num_elements - 1} matrices."

    def footprint(self, step: Fill) -> Footprint:
        """Return the cells of both sides of each split and the cell itself as read, and the cell as written."""
        i, j = step.cell
        sides = [side for k in range(i, j) for side in ((i, k), (k + 1, j)) if side[0] < side[1]]
        own = f"cell {step.cell}"
        return Footprint(reads=(*(f"cell {side}" for side in sides), own), writes=(own,))


@lru_cache
def cells_of(length: int) -> tuple[Cell, ...]:
    """Return the cells of a chain with ``length`` dimensions, row by row; the first has place 1."""
    return tuple(combinations(range(1, length), 2))


@lru_cache
def _places(length: int) -> dict[Cell, int]:
    singles = {(i, i): 0 for i in range(1, length)}
    return singles | {cell: place for place, cell in enumerate(cells_of(length), start=1)}


def fill_of(dimensions: Keys, cell: Cell) -> Fill:
    """Return the fixed data of a cell to fill."""
    places, p = _places(dimensions.num_elements), dimensions.values
    i, j = cell
    splits = tuple((places[i, k], places[k + 1, j], k, p[i - 1] * p[k] * p[j]) for k in range(i, j))
    return Fill(cell, places[cell], splits)


class MatrixChainOrder(SynchronousSchema[MatrixChainState]):
    """Cells from one round of a run, one of which is a subcell of another and makes it cheaper."""

    schema = Schema(
        name="matrix_chain_order",
        summary="fill a subcell, then the cell: the reversal leaves the cell at a higher cost",
        relation="conflicts",
    )
    lengths = range(7, 13)
    placing = "later"
    final_hints = ("s_h", "m", "msk")

    def lift(
        self, trace: Trace, num_operations: int, rng: Generator
    ) -> Lifted[MatrixChainState] | None:
        """Return operations from the state at the start of a round; the reference order is any linear extension."""
        for taken in shuffled(list(self.rounds(self.start(trace))), rng):
            state, fills = taken[0].before, [step for _, step, _ in taken]
            pairs = [(a, b) for a in fills for b in fills if _is_subcell(a.cell, b.cell)]
            for pair in shuffled(pairs, rng):
                chosen = with_independent(pair, fills, num_operations, _independent, rng)
                if chosen is not None and conflict(state, *pair):
                    return state, linear_extension(chosen, rng)
        return None

    def read_state(self, initial: Json) -> MatrixChainState:
        """Read members ``p`` (the dimensions) and, by cell in row order, ``m`` (costs) and ``s`` (splits; 0: empty)."""
        dimensions = read_keys(initial, "p")
        length = dimensions.num_elements
        cells = cells_of(length)
        costs = read_member(initial, "m", read_reals, len(cells))
        splits = read_member(initial, "s", read_ints, len(cells), length)
        for place, ((i, j), cost, split) in enumerate(zip(cells, costs, splits, strict=True)):
            if split and not i <= split < j:
                raise malformed(f"initial.s[{place}]", split, f"0 or a split of cell ({i},{j})")
            if cost and not split:
                raise malformed(f"initial.s[{place}]", split, "a split, as the cell has a cost")
        return MatrixChainState(
            dimensions=dimensions,
            costs=struct.pack(f"<d{len(cells)}d", 0, *costs),
            splits=b"\x01" + bytes(splits),
        )

    def write_state(self, state: MatrixChainState) -> Json:
        """Return the members that :meth:`read_state` reads."""
        _, *costs = struct.unpack(f"<{len(state.splits)}d", state.costs)
        return {"p": list(state.dimensions.values), "m": costs, "s": list(state.splits[1:])}

    def start(self, trace: Trace) -> MatrixChainState:
        """Return the state in which no cell is filled."""
        dimensions = keys_of(trace, "p")
        num_cells = len(cells_of(dimensions.num_elements))
        return MatrixChainState(
            dimensions=dimensions,
            costs=bytes(8 * (1 + num_cells)),
            splits=b"\x01" + bytes(num_cells),
        )

    def operation(self, step: Fill) -> Operation:
        """Return the filling of a cell."""
        i, j = step.cell
        return Operation(signature=f"fill ({i},{j})", payload={"cell": [i, j]})

    def schedule(self, state: MatrixChainState) -> list[Fill]:
        """Return every cell, row by row."""
        dimensions = state.dimensions
        return [fill_of(dimensions, cell) for cell in cells_of(dimensions.num_elements)]

    def rows(self, states: Sequence[MatrixChainState]) -> Rows:
        """Return the chain, and the costs, best splits and filled cells of the table."""
        length = states[0].dimensions.num_elements
        shape = (len(states), length, length)
        firsts, lasts = np.array(cells_of(length), dtype=np.int64).reshape(-1, 2).T
        costs, splits = np.zeros(shape), np.zeros(shape, dtype=np.int64)
        flat = np.frombuffer(b"".join(state.costs for state in states), dtype="<f8")
        costs[:, firsts, lasts] = flat.reshape(len(states), -1)[:, 1:]
        splits[:, firsts, lasts] = byte_rows([state.splits for state in states])[:, 1:]
        single = np.diag(np.arange(length) > 0)
        chain = np.maximum(np.arange(length) - 1, 0)
        return {
            "pred_h": np.tile(chain, (len(states), 1)),
            "m": costs,
            "s_h": splits,
            "msk": (splits > 0) | single,
        }


def _is_subcell(inner: Cell, outer: Cell) -> bool:
    """Return whether some split of ``outer`` has ``inner`` as one of its sides."""
    (i, j), (first, last) = inner, outer
    return (i == first and j < last) or (j == last and i > first)


def _independent(step: Fill, others: Sequence[Fill]) -> bool:
    """Return whether ``step`` neither is nor reads a cell of the others, and none of them reads its cell."""
    return not any(
        step.cell == other.cell
        or _is_subcell(step.cell, other.cell)
        or _is_subcell(other.cell, step.cell)
        for other in others
    )
