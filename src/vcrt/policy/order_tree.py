"""The prefix tree of all orders, which one forward pass over a prompt and the tree's nodes scores exactly.

Pure NumPy. Not covered: operation counts whose tree no longer fits; it has ``n! / (n - depth)!`` leaves. For those,
:mod:`vcrt.policy.prefix_tree` makes the tree of some orders.

Legend: ``n`` operations, ``R`` rows (prefixes, the root first).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np

from vcrt.orders import all_orders
from vcrt.policy.prefix_tree import IndexArray, PrefixTree, frozen, tree_arrays


@dataclass(frozen=True, kw_only=True, eq=False)
class OrderTree(PrefixTree):
    """All prefixes of the orders of ``num_operations`` slots, up to ``depth`` slots long.

    An order is ``depth + 1`` choices; the tree is deep enough if that leaves at most one slot, which is then forced.
    """

    #: ``[n!, depth + 1]``: the row at which an order (a column of ``orders.all_orders``) makes its t-th choice.
    order_rows: IndexArray
    #: ``[n!, depth + 1]``: the slot that the order chooses there.
    order_slots: IndexArray


@cache
def order_tree(num_operations: int, depth: int) -> OrderTree:
    """The tree of the orders of ``num_operations`` slots with prefixes of up to ``depth`` slots; built once.

    Raises ``ValueError`` if there is no operation, or if ``depth`` is not ``n - 1`` or, for more than one operation,
    ``n - 2``: a shallower tree would leave choices of an order unscored.
    """
    if num_operations < 1:
        raise ValueError(f"an order needs at least one operation, found {num_operations}")
    if not max(num_operations - 2, 0) <= depth <= num_operations - 1:
        raise ValueError(
            f"depth {depth} does not fit {num_operations} operations: "
            f"expected {max(num_operations - 2, 0)} or {num_operations - 1}"
        )
    arrays: dict[str, Any] = tree_arrays(num_operations, permutations(range(num_operations), depth))
    orders = all_orders(num_operations)
    row_of = arrays["row_of"]
    rows = [[row_of[order[:step]] for step in range(depth + 1)] for order in orders]
    slots = [list(order[: depth + 1]) for order in orders]
    return OrderTree(
        **arrays,
        order_rows=frozen(np.array(rows, np.int64)),
        order_slots=frozen(np.array(slots, np.int64)),
    )
