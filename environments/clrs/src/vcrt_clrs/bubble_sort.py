"""Exchange neighbours in an array: schema ``bubble_sort`` (CLRS 3e, problem 2-2).

An operation exchanges the elements at positions j - 1 and j. It is accepted exactly if they are out of order. The
dependent pair is j and then j - 1, which carries one small key two places down; the reversal is rejected, because the
elements at j - 2 and j - 1 are in order before. Every exchange removes one inversion, so it changes the state.

The state is the array alone. It excludes the run's loop counters: operations in another order have no place in the
loops. So a run that continues from a state has to know the number of exchanges before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import NamedTuple

import numpy as np

from vcrt.environments.contract import Accepted, Footprint, Operation, Rejected, Schema, Transition
from vcrt.hashing import Json
from vcrt.randomness import Generator
from vcrt_clrs.reading import (
    Keys,
    keys_of,
    read_int,
    read_keys,
    read_member,
    read_payload,
    read_permutation,
)
from vcrt_clrs.schema import AlgorithmSchema, Lifted, linear_extension, shuffled, state_after
from vcrt_clrs.trace import Rows, Trace, byte_rows, chain_pointers, mask_one


class BubbleSortState(NamedTuple):
    """The order of the elements, as bytes."""

    keys: Keys
    order: bytes

    def read(self, payload: Json) -> int:
        """Read the upper position of a payload ``{"exchange": j}``."""
        position = read_payload(payload, "exchange")
        return read_int(position, "operation.payload.exchange", 1, len(self.order) - 1)

    def take(self, step: int) -> Transition[BubbleSortState]:
        """Exchange the element at ``step`` with the one before it if it has the smaller key."""
        order, keys = self.order, self.keys.values
        upper, lower = order[step], order[step - 1]
        if not keys[upper] < keys[lower]:
            return Rejected(f"positions {step - 1} and {step} are not out of order")
        exchanged = b"%b%c%c%b" % (order[: step - 1], upper, lower, order[step + 1 :])
        return Accepted(BubbleSortState(self.keys, exchanged))

    def canonical(self) -> bytes:
        """Return the digest of the keys, then the order (bytes)."""
        return self.keys.digest + self.order

    def task(self) -> str:
        """Return the keys by rank, in their present order."""
        by_key = sorted(self.order, key=lambda index: self.keys.values[index])
        ranks = {index: rank for rank, index in enumerate(by_key)}
        return f"Bubble sort. The keys by rank: {' '.join(str(ranks[i]) for i in self.order)}."

    def footprint(self, step: int) -> Footprint:
        """Return two neighbouring places."""
        places = (f"place {step - 1}", f"place {step}")
        return Footprint(reads=places, writes=places)


class BubbleSort(AlgorithmSchema[BubbleSortState]):
    """Exchanges that follow each other in a run, two of which carry one key two places down."""

    schema = Schema(
        name="bubble_sort",
        summary="exchange at j, then at j-1: the reversal finds positions j-2 and j-1 in order",
        relation="precedes",
    )
    lengths = range(10, 21)
    placing = "next"

    def lift(
        self, trace: Trace, num_operations: int, rng: Generator
    ) -> Lifted[BubbleSortState] | None:
        """Return a window of exchanges of which two touch; the reference order is any linear extension."""
        steps = self.steps(trace)
        for start in shuffled(range(len(steps) - num_operations + 1), rng):
            state = steps[start].before
            window: list[int] = [each.step for each in steps[start : start + num_operations]]
            pair = _carrying_pair(window)
            if pair is not None and state_after(state, pair[1:]) is None:
                others = (position for position in window if position not in pair)
                return state, linear_extension([*pair, *others], rng)
        return None

    def read_state(self, initial: Json) -> BubbleSortState:
        """Read members ``keys`` and ``order`` (a permutation)."""
        keys = read_keys(initial)
        return BubbleSortState(
            keys, read_member(initial, "order", read_permutation, keys.num_elements)
        )

    def write_state(self, state: BubbleSortState) -> Json:
        """Return the members that :meth:`read_state` reads."""
        return {"keys": list(state.keys.values), "order": list(state.order)}

    def start(self, trace: Trace) -> BubbleSortState:
        """Return the elements in their order."""
        return _unsorted(keys_of(trace))

    def operation(self, step: int) -> Operation:
        """Return the exchange of a position with the one before it."""
        return Operation(signature=f"exchange {step - 1},{step}", payload={"exchange": step})

    def schedule(self, state: BubbleSortState) -> list[int]:
        """Return the position of every comparison of a whole run."""
        return [position for _, position in _counters(state.keys.num_elements)]

    def hint_rows(self, trace: Trace) -> Rows:
        """Return a row for each comparison."""
        start = self.start(trace)
        orders = byte_rows(_compared(start, self.schedule(start)))
        size = orders.shape[1]
        counters = np.array([(0, 0), *_counters(size)])
        rows = np.arange(len(orders))
        return {
            "pred_h": chain_pointers(orders),
            "i": mask_one(orders[rows, counters[:, 0]], size),
            "j": mask_one(orders[rows, counters[:, 1]], size),
        }

    def finish(self, state: BubbleSortState, done: int) -> Rows:
        """Return the array after each comparison that remains after ``done`` exchanges, and at the end.

        Repeating the comparisons before that would sort any array, and so prove nothing. The remaining ones sort an
        array only in part, and only the genuine array passes through the genuine rows.
        """
        schedule = self.schedule(state)
        orders = _compared(_unsorted(state.keys), schedule)
        exchanges = [at for at, (one, other) in enumerate(pairwise(orders), 1) if one != other]
        behind = [0, *exchanges[:done]][-1]
        left = schedule[behind:]
        rows = chain_pointers(byte_rows(_compared(state, left)))
        return {"pred": rows[-1], "pred_h": rows}


def _unsorted(keys: Keys) -> BubbleSortState:
    return BubbleSortState(keys=keys, order=bytes(range(keys.num_elements)))


def _counters(size: int) -> list[tuple[int, int]]:
    """Return the loop counters (i, j) of each comparison: pass i compares j - 1 and j from the last j down to i + 1."""
    return [(i, j) for i in range(size - 1) for j in reversed(range(i + 1, size))]


def _compared(state: BubbleSortState, schedule: Sequence[int]) -> list[bytes]:
    """Return the order before the first comparison and after each."""
    orders = [state.order]
    for position in schedule:
        transition = state.take(position)
        if isinstance(transition, Accepted):
            state = transition.state
        orders.append(state.order)
    return orders


def _carrying_pair(window: Sequence[int]) -> tuple[int, int] | None:
    """Return the positions j and j - 1, in that order, if no others of the window touch."""
    touching = [(a, b) for a, b in combinations(window, 2) if abs(a - b) <= 1]
    if len(touching) == 1 and touching[0][0] == touching[0][1] + 1:
        return touching[0]
    return None
