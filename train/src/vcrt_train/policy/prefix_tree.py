"""Make a prefix tree of orders: the prefixes to score, which tokens see which, and where an order makes its choices.

One forward pass over the prompt followed by the tree's nodes scores every prefix exactly, because each node sees only
the prompt and its own ancestors. The tree of all orders has ``n! / (n - depth)!`` leaves; if it does not fit, the tree
of some orders serves. This module is pure NumPy.

Legend: ``n`` operations, ``R`` rows (prefixes, the root first), ``N = R - 1`` nodes (the rows without the root).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import permutations
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from vcrt.orders import Order, all_orders

IndexArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, kw_only=True, eq=False)
class NodeTree:
    """Nodes behind a prompt, one token each, which one forward pass scores. Arrays are read-only."""

    #: The length of the longest path from the root.
    depth: int
    #: ``[R]``: the row before each row; -1 for the root, which is the prompt's end.
    parent: IndexArray
    #: ``[R]``: the number of nodes on the path to each row, including its own.
    depths: IndexArray
    #: ``[N, N]``: whether node i sees node j: row j + 1 is an ancestor of row i + 1, or the same row.
    ancestors: BoolArray

    @property
    def num_rows(self) -> int:
        """``R``: the number of rows, including the root."""
        return len(self.parent)

    def tokens(self, pointer_ids: Sequence[int]) -> list[int]:
        """Return ``[N]``: the token of each node, if slots have these pointers."""
        raise NotImplementedError

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """The rows that no other row continues."""
        inner = set(self.parent.tolist())
        return tuple(row for row in range(self.num_rows) if row not in inner)

    def way(self, row: int) -> list[int]:
        """Return the rows from the first behind the root to ``row``."""
        found: list[int] = []
        while row > 0:
            found.append(row)
            row = int(self.parent[row])
        return found[::-1]

    @cached_property
    def first_leaves(self) -> tuple[int, ...]:
        """``[R]``: the number of the first leaf behind each row; all leaves behind a row share its prefix."""
        first = {0: 0}
        for number, leaf in enumerate(self.leaves):
            for row in self.way(leaf):
                first.setdefault(row, number)
        return tuple(first[row] for row in range(self.num_rows))


@dataclass(frozen=True, kw_only=True, eq=False)
class PrefixTree(NodeTree):
    """Prefixes of orders of ``num_operations`` slots, each with all of its own prefixes.

    Rows are in breadth-first order: row 0 is the empty prefix (the prompt's end), then prefixes by length and
    lexicographically. At each row one slot is chosen. Arrays are read-only.
    """

    num_operations: int
    #: The prefix of each row.
    prefixes: tuple[Order, ...]
    #: The row of each prefix.
    row_of: Mapping[Order, int]
    #: ``[R]``: the last slot of each row's prefix; -1 for the root.
    last_slot: IndexArray
    #: ``[R, n]``: whether each row's prefix has a slot.
    used: BoolArray

    def tokens(self, pointer_ids: Sequence[int]) -> list[int]:
        """Return ``[N]``: the last pointer of each prefix."""
        return [pointer_ids[slot] for slot in self.last_slot[1:].tolist()]

    @property
    def num_choices(self) -> int:
        """The number of choices in an order."""
        return self.depth + 1

    def path(self, order: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the rows at which an order makes its choices within the tree, and the slots that it chooses there.

        Raises ``KeyError`` if a prefix of the order is not in the tree.
        """
        steps = range(min(self.num_choices, len(order)))
        return [self.row_of[tuple(order[:step])] for step in steps], [order[step] for step in steps]


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenTree(NodeTree):
    """The prefixes of some texts, each given by its tokens; texts share the path of a common prefix.

    A row is a prefix that some text continues, so the last token of a text has no row of its own.
    """

    #: ``[N]``: the last token of each row except the root.
    token_ids: IndexArray
    #: For each text, the rows from which its tokens follow, one for each token.
    rows: tuple[IndexArray, ...]

    def tokens(self, pointer_ids: Sequence[int]) -> list[int]:
        """Return ``[N]``: the token of each node."""
        found: list[int] = self.token_ids.tolist()
        return found


def token_tree(texts: Sequence[Sequence[int]]) -> TokenTree:
    """Return the smallest tree of texts, none of them empty; equal texts have equal rows."""
    following: list[dict[int, int]] = [{}]
    parent, depths, tokens, rows = [-1], [0], list[int](), list[IndexArray]()
    for text in texts:
        row, way = 0, [0]
        for token in text[:-1]:
            if token not in following[row]:
                following[row][token] = len(parent)
                parent.append(row)
                depths.append(depths[row] + 1)
                tokens.append(token)
                following.append({})
            row = following[row][token]
            way.append(row)
        rows.append(_frozen(np.array(way, np.int64)))
    above = np.array(parent, np.int64)
    return TokenTree(
        depth=max(depths),
        parent=_frozen(above),
        depths=_frozen(np.array(depths, np.int64)),
        ancestors=_frozen(_ancestors(above)),
        token_ids=_frozen(np.array(tokens, np.int64)),
        rows=tuple(rows),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class OrderTree(PrefixTree):
    """All prefixes of the orders of ``num_operations`` slots, up to ``depth`` slots long.

    An order is ``depth + 1`` choices; the tree is deep enough if these leave at most one slot, which is then forced.
    """

    #: ``[n!, depth + 1]``: the row at which an order (a column of ``orders.all_orders``) makes its t-th choice.
    order_rows: IndexArray
    #: ``[n!, depth + 1]``: the slot that the order chooses there.
    order_slots: IndexArray


def prefix_tree(num_operations: int, prefixes: Iterable[Order]) -> PrefixTree:
    """Return the smallest tree that holds these prefixes."""
    return PrefixTree(**_tree_arrays(num_operations, prefixes))


@cache
def order_tree(num_operations: int, depth: int) -> OrderTree:
    """Return the tree of the orders of ``num_operations`` slots with prefixes of up to ``depth`` slots; build it once.

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
    arrays: dict[str, Any] = _tree_arrays(
        num_operations, permutations(range(num_operations), depth)
    )
    orders = all_orders(num_operations)
    row_of = arrays["row_of"]
    rows = [[row_of[order[:step]] for step in range(depth + 1)] for order in orders]
    slots = [list(order[: depth + 1]) for order in orders]
    return OrderTree(
        **arrays,
        order_rows=_frozen(np.array(rows, np.int64)),
        order_slots=_frozen(np.array(slots, np.int64)),
    )


def _tree_arrays(num_operations: int, prefixes: Iterable[Order]) -> dict[str, Any]:
    """Return the fields of a :class:`PrefixTree`."""
    closed = {prefix[:length] for prefix in prefixes for length in range(len(prefix) + 1)} | {()}
    rows = tuple(sorted(closed, key=lambda prefix: (len(prefix), prefix)))
    row_of = {prefix: row for row, prefix in enumerate(rows)}
    parent = np.array([row_of[prefix[:-1]] if prefix else -1 for prefix in rows], np.int64)
    used = np.zeros((len(rows), num_operations), np.bool_)
    for row, prefix in enumerate(rows):
        used[row, list(prefix)] = True
    return {
        "num_operations": num_operations,
        "depth": len(rows[-1]),
        "prefixes": rows,
        "row_of": MappingProxyType(row_of),
        "last_slot": _frozen(np.array([p[-1] if p else -1 for p in rows], np.int64)),
        "parent": _frozen(parent),
        "depths": _frozen(np.array([len(prefix) for prefix in rows], np.int64)),
        "ancestors": _frozen(_ancestors(parent)),
        "used": _frozen(used),
    }


def _frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Make the array read-only, and return it."""
    array.setflags(write=False)
    return array


def _ancestors(parent: IndexArray) -> BoolArray:
    # Rows are sorted so that a parent's line is finished before its children's.
    sees = np.eye(len(parent), dtype=np.bool_)
    for row in range(1, len(parent)):
        sees[row] |= sees[parent[row]]
    return sees[1:, 1:].copy()
