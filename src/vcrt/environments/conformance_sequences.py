"""Which sequences of operations the conformance kit replays: every one of a few operations, a sample of many.

Promised: the sample holds every prefix of its sequences, the reference order, its reversal, and pairs of sequences that
run the same operations with one of them in another place, and go on alike: equal futures can only be told from those.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations, permutations

import numpy as np

from vcrt.limits import MAX_EXHAUSTIVE
from vcrt.orders import Order
from vcrt.randomness import generator

#: Random orders in the sample; and up to how many operations each of them is moved behind each later one.
_RANDOM, _MOVE_ALL = 4, 7


@cache
def sequences(num_operations: int, *, quick: bool = False) -> tuple[Order, ...]:
    """Sequences of distinct operations, from none to all of them, by length and then lexicographically.

    ``quick`` are the fewest that every check still has something to look at in: the reference order, its reversal, and
    the swap of its first two operations, with a prefix of each, and one that goes on otherwise after one operation.
    """
    if quick:
        reference = tuple(range(num_operations))
        swapped = (1, 0, *reference[2:])
        found = {(), reference[:2], swapped[:2], reference, reference[::-1], swapped}
        found.add((0, *reference[-1:]) if num_operations > 1 else reference)
        return tuple(sorted(found, key=lambda sequence: (len(sequence), sequence)))
    if num_operations <= MAX_EXHAUSTIVE:
        lengths = range(num_operations + 1)
        return tuple(s for n in lengths for s in permutations(range(num_operations), n))
    orders = _sampled_orders(num_operations)
    prefixes = {order[:length] for order in orders for length in range(num_operations + 1)}
    return tuple(sorted(prefixes, key=lambda sequence: (len(sequence), sequence)))


def _sampled_orders(num_operations: int) -> list[Order]:
    rng = generator(0, "conformance", num_operations)
    reference = tuple(range(num_operations))
    orders: list[Order] = [reference, reference[::-1]]
    orders += [tuple(rng.permutation(num_operations).tolist()) for _ in range(_RANDOM)]
    for one, other in _moves(num_operations, rng):
        rest = rng.permutation(reference[other + 1 :]).tolist()
        moved = (*reference[:one], *reference[one + 1 : other + 1], one)
        orders += [(*reference[: other + 1], *rest), (*moved, *rest)]
    return orders


def _moves(num_operations: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Which operation is moved behind which: the next one for each, and others."""
    near = [(one, one + 1) for one in range(num_operations - 1)]
    far = [pair for pair in combinations(range(num_operations), 2) if pair not in near]
    if num_operations > _MOVE_ALL:
        far = [far[place] for place in rng.permutation(len(far))[: num_operations // 2].tolist()]
    return near + far
