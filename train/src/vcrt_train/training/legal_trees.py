"""Choose which prefixes are scored when orders are too many: drawn paths, or every legal prefix that fits.

Pure, but for the draws, which come from a generator that the caller holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from vcrt.errors import TooLargeError
from vcrt.limits import MAX_COUNTED
from vcrt.orders import Order
from vcrt.partial_orders import (
    LinearExtensions,
    PartialOrder,
    legal_prefixes,
    num_legal_prefixes,
)
from vcrt.printable import counted
from vcrt_train.config import Scheme
from vcrt_train.objective.orbit_mass import LegalRows, Paths
from vcrt_train.policy.prefix_tree import PrefixTree, prefix_tree


def fits(orders: Sequence[PartialOrder], max_rows: int) -> bool:
    """Whether the legal prefixes of each of these partial orders are at most ``max_rows``, so that masses are exact."""
    return all(
        num_legal_prefixes(order, max(order.num_operations - 2, 0), max_rows) is not None
        for order in orders
    )


def legal_leaves(order: PartialOrder) -> list[Order]:
    """The legal prefixes that leave one choice."""
    depth = max(order.num_operations - 2, 0)
    return [prefix for prefix in legal_prefixes(order, depth) if len(prefix) == depth]


def uniform_orders(
    order: PartialOrder, count: int, scheme: Scheme, generator: torch.Generator
) -> list[Order]:
    """``count`` linear extensions, each as likely as any other; ``systematic`` ones are spread over all ranks.

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


def tree_of(num_operations: int, prefixes: Iterable[Order], longest: int) -> PrefixTree:
    """A tree of prefixes that leave a choice; ``longest`` is the largest number of operations beside it in a batch.

    A shorter record gets one row at which a single operation is left: where its paths wait, as the choice there is
    forced and adds nothing to any sum.
    """
    known = {(), *prefixes}
    if num_operations < longest:
        deepest = max(known, key=lambda prefix: (len(prefix), prefix))
        rest = [slot for slot in range(num_operations) if slot not in deepest]
        known.add((*deepest, *rest)[: num_operations - 1])
    return prefix_tree(num_operations, known)


def paths_in(trees: Sequence[PrefixTree], orders: Sequence[Sequence[Order]]) -> Paths:
    """Where each prompt's orders, equally many, make their choices in its tree.

    Those of shorter records go on at the row where one operation is left (:func:`tree_of`).
    """
    length = max(tree.num_operations for tree in trees) - 1
    found = [
        [_longer(tree, tree.path(order[: tree.num_operations - 1]), length) for order in some]
        for tree, some in zip(trees, orders, strict=True)
    ]
    return Paths(
        rows=torch.tensor([[rows for rows, _ in some] for some in found]),
        slots=torch.tensor([[slots for _, slots in some] for some in found]),
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
    """``[B, R, n]`` bool: the slots that each row has used, those included that a shorter record does not have."""
    most = max(tree.num_operations for tree in trees)
    return stacked(
        [
            pad(torch.tensor(tree.used), (0, most - tree.num_operations), value=True)
            for tree in trees
        ]
    )


def legal_moves(trees: Sequence[PrefixTree], orders: Sequence[PartialOrder]) -> Tensor:
    """``[B, R, n]`` bool: the moves after each row that keep each prompt's partial order."""
    return stacked(
        [torch.tensor(o.legal_moves(t.used)) for t, o in zip(trees, orders, strict=True)]
    )


def legal_rows(trees: Sequence[PrefixTree], orders: Sequence[PartialOrder]) -> LegalRows:
    """The legal prefixes of each tree, which must hold all of them."""
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
        "last": legal & (torch.tensor(tree.depths) == tree.num_operations - 2),
        "chain": chain,
        "parent": torch.tensor(tree.parent).clamp(min=0),
        "slot": torch.tensor(tree.last_slot).clamp(min=0),
    }


def stacked(parts: Sequence[Tensor]) -> Tensor:
    """``[B, R, ...]``: tensors of different numbers of rows, or of what is in one, filled up with zeros."""
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
    """Two legal prefixes that differ in the order of their last two slots, after which a choice is left.

    The lesser one stands first: a swap and its reverse are one.
    """

    one: Order
    other: Order

    @classmethod
    def of(cls, one: Order, other: Order) -> Swap:
        """The swap of these two, in either order."""
        return cls(min(one, other), max(one, other))


def swaps_along(order: PartialOrder, path: Order) -> list[Swap]:
    """The certified swaps of neighbours along a legal order."""
    found = []
    for end in range(2, order.num_operations - 1):
        a, b = path[end - 2], path[end - 1]
        if not order.predecessors[b] >> a & 1:
            found.append(Swap.of(path[:end], (*path[: end - 2], b, a)))
    return found
