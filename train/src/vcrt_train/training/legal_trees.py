"""Choose which prefixes are scored if orders are too many: drawn paths, or every legal prefix if they fit.

All functions are pure, except for draws from the caller's generator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from vcrt.errors import TooLargeError
from vcrt.limits import MAX_COUNTED
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder, legal_prefixes, members, num_legal_prefixes
from vcrt.printable import counted
from vcrt_train.config import Scheme
from vcrt_train.objective.orbit_mass import LegalRows, Paths
from vcrt_train.policy.prefix_tree import PrefixTree, prefix_tree


def fits(orders: Sequence[PartialOrder], max_rows: int) -> bool:
    """Return whether each of these partial orders has at most ``max_rows`` legal prefixes, so that masses are exact."""
    return all(
        num_legal_prefixes(order, max(order.num_operations - 2, 0), max_rows) is not None
        for order in orders
    )


def legal_leaves(order: PartialOrder) -> list[Order]:
    """Return the legal prefixes that leave one choice."""
    depth = max(order.num_operations - 2, 0)
    return [prefix for prefix in legal_prefixes(order, depth) if len(prefix) == depth]


def uniform_orders(
    order: PartialOrder, count: int, scheme: Scheme, generator: torch.Generator
) -> list[Order]:
    """Draw ``count`` linear extensions, all equally likely; ``systematic`` ones are spread evenly over all ranks.

    Raises :class:`vcrt.errors.TooLargeError` beyond ``vcrt.limits.MAX_COUNTED`` operations.
    """
    if order.num_operations > MAX_COUNTED:
        raise TooLargeError(
            "too many operations to draw their orders uniformly",
            found=counted(order.num_operations, "operation"),
            expected=f"at most {MAX_COUNTED}, or no more legal prefixes than estimator.max_legal_prefixes",
            remedy="leave the method augmentation out",
        )
    extensions = LinearExtensions(order)
    num = len(extensions)
    ranks = torch.randint(num, (count,), generator=generator).tolist()
    if scheme == "systematic":
        ranks = [(ranks[0] + place * num // count) % num for place in range(count)]
    return [extensions[rank] for rank in ranks]


class LinearExtensions:
    """All orders that keep every pair, by rank and without a list of them; for at most ``MAX_COUNTED`` operations.

    >>> [LinearExtensions(PartialOrder.of(3, [(0, 1)]))[rank] for rank in range(3)]
    [(2, 0, 1), (0, 2, 1), (0, 1, 2)]
    """

    def __init__(self, order: PartialOrder) -> None:
        start = np.zeros(1, np.uint64), np.ones(1, np.int64)
        self._everything = order.everything
        self._levels = [start, *_levels(order)]

    def __len__(self) -> int:
        return int(self._levels[-1][1][0])

    def __getitem__(self, rank: int) -> Order:
        """Return the order of a rank from 0 on; orders are sorted by last operation, then by the one before, etc."""
        if not 0 <= rank < len(self):
            raise IndexError(rank)
        left, backwards = self._everything, list[int]()
        for sets, counts in reversed(self._levels[:-1]):
            for operation in members(left):
                before = left & ~(1 << operation)
                place = int(np.searchsorted(sets, np.uint64(before)))
                ways = int(counts[place]) if place < len(sets) and sets[place] == before else 0
                if rank < ways:
                    break
                rank -= ways
            backwards.append(operation)
            left = before
        return tuple(reversed(backwards))


def _levels(order: PartialOrder) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
    """Yield, for each size from 1 to n, the down-sets of that size and the number of legal prefixes with each set."""
    sets, counts = np.zeros(1, np.uint64), np.ones(1, np.int64)
    for _ in range(order.num_operations):
        grown, ways = [], []
        for operation, before in enumerate(order.predecessors):
            bit, needed = np.uint64(1 << operation), np.uint64(before)
            may = ((sets & bit) == 0) & ((sets & needed) == needed)
            grown.append(sets[may] | bit)
            ways.append(counts[may])
        sets, places = np.unique(np.concatenate(grown), return_inverse=True)
        counts = np.zeros(len(sets), np.int64)
        np.add.at(counts, places, np.concatenate(ways))
        yield sets, counts


def tree_of(num_operations: int, prefixes: Iterable[Order], longest: int) -> PrefixTree:
    """Return a tree of prefixes that leave a choice; ``longest`` is the largest number of operations in the batch.

    A shorter record gets one row with a single operation left, at which its paths wait: the choice there is forced and
    adds nothing to any sum.
    """
    known = {(), *prefixes}
    if num_operations < longest:
        deepest = max(known, key=lambda prefix: (len(prefix), prefix))
        rest = [slot for slot in range(num_operations) if slot not in deepest]
        known.add((*deepest, *rest)[: num_operations - 1])
    return prefix_tree(num_operations, known)


def paths_in(trees: Sequence[PrefixTree], orders: Sequence[Sequence[Order]]) -> Paths:
    """Return the rows and slots of the choices of each prompt's orders in its tree; all prompts have equally many.

    Paths of shorter records continue at the row with one operation left (:func:`tree_of`), and so do those of a record
    of one operation: a mean over no choices has no value.
    """
    length = max(*(tree.num_operations - 1 for tree in trees), 1)
    found = [
        [_longer(tree, tree.path(order[: tree.num_operations - 1]), length) for order in some]
        for tree, some in zip(trees, orders, strict=True)
    ]
    return Paths(
        rows=torch.tensor([[rows for rows, _ in some] for some in found], dtype=torch.long),
        slots=torch.tensor([[slots for _, slots in some] for some in found], dtype=torch.long),
    )


def _longer(
    tree: PrefixTree, path: tuple[list[int], list[int]], length: int
) -> tuple[list[int], list[int]]:
    rows, slots = path
    missing = length - len(rows)
    if not missing:
        return path
    waits = int(tree.depths.argmax())
    (slot,) = (~tree.used[waits]).nonzero()[0].tolist()
    return rows + [waits] * missing, slots + [slot] * missing


def used_in(trees: Sequence[PrefixTree]) -> Tensor:
    """Return ``[B, R, n]`` bool: the slots that each row has used, and those that a shorter record does not have."""
    most = max(tree.num_operations for tree in trees)
    return stacked(
        [
            pad(torch.tensor(tree.used), (0, most - tree.num_operations), value=True)
            for tree in trees
        ]
    )


def legal_moves(trees: Sequence[PrefixTree], orders: Sequence[PartialOrder]) -> Tensor:
    """Return ``[B, R, n]`` bool: the moves after each row that keep each prompt's partial order."""
    return stacked(
        [moves_after(o, torch.tensor(t.used)) for t, o in zip(trees, orders, strict=True)]
    )


def moves_after(order: PartialOrder, used: Tensor) -> Tensor:
    """Return the operations that may come next after each set of ``used`` ones, ``[..., n] -> [..., n]`` bool."""
    waits = torch.zeros(order.num_operations, order.num_operations, dtype=torch.bool)
    for first, second in order.pairs:
        waits[second, first] = True
    return ~used & ~(waits & ~used[..., None, :]).any(-1)


def legal_rows(trees: Sequence[PrefixTree], orders: Sequence[PartialOrder]) -> LegalRows:
    """Return the legal prefixes of each tree, which must hold all of them."""
    parts = [_legal_rows(tree, order) for tree, order in zip(trees, orders, strict=True)]
    names = ("legal", "last", "chain", "parent", "slot")
    return LegalRows(**{name: stacked([part[name] for part in parts]) for name in names})


def _legal_rows(tree: PrefixTree, order: PartialOrder) -> dict[str, Tensor]:
    chain = torch.zeros(tree.num_rows, max(tree.depth, 1), dtype=torch.long)
    for row, prefix in enumerate(tree.prefixes):
        for length in range(1, len(prefix) + 1):
            chain[row, length - 1] = tree.row_of[prefix[:length]]
    legal = torch.tensor([order.allows(prefix) for prefix in tree.prefixes])
    return {
        "legal": legal,
        "last": legal & (torch.tensor(tree.depths) == max(tree.num_operations - 2, 0)),
        "chain": chain,
        "parent": torch.tensor(tree.parent).clamp(min=0),
        "slot": torch.tensor(tree.last_slot).clamp(min=0),
    }


def stacked(parts: Sequence[Tensor]) -> Tensor:
    """Return ``[B, R, ...]``: tensors of different sizes, padded with zeros to the largest size and stacked."""
    sizes = [max(part.shape[dim] for part in parts) for dim in range(parts[0].ndim)]
    return torch.stack(
        [
            pad(
                part,
                [
                    fill
                    for dim in reversed(range(part.ndim))
                    for fill in (0, sizes[dim] - part.shape[dim])
                ],
            )
            for part in parts
        ]
    )


@dataclass(frozen=True, slots=True)
class Swap:
    """Two legal prefixes that differ in the order of their last two slots and leave a choice.

    The lesser prefix comes first, so a swap and its reverse are equal.
    """

    one: Order
    other: Order

    @classmethod
    def of(cls, one: Order, other: Order) -> Swap:
        """Return the swap of two prefixes, given in either order."""
        return cls(min(one, other), max(one, other))


def swaps_along(order: PartialOrder, path: Order) -> list[Swap]:
    """Return the certified swaps of neighbours along a legal order."""
    found = []
    for end in range(2, order.num_operations - 1):
        a, b = path[end - 2], path[end - 1]
        if not order.predecessors[b] >> a & 1:
            found.append(Swap.of(path[:end], (*path[: end - 2], b, a)))
    return found
