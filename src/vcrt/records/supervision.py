"""Hold a policy record with its certified supervision: what training knows beyond the policy's view.

Everything is in terms of the record's slots. :mod:`vcrt.certificates` certifies orbits.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from math import factorial
from typing import TypeAlias

from vcrt.errors import MalformedInputError
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder
from vcrt.printable import counted
from vcrt.records.policy_view import PolicyRecord

#: Two prefixes that differ only in the order of their last two slots: after ``ab`` and after ``ba``.
SwapHistory: TypeAlias = tuple[Order, Order]


@dataclass(frozen=True, kw_only=True, slots=True)
class SupervisedRecord:
    """A record, the certified orbit of its reference order, and its certified swaps.

    ``legal`` has one flag for each column of :func:`vcrt.orders.all_orders`: membership in the orbit. ``histories`` are
    the swaps after which at least two slots remain; a later swap leaves no choice that could differ. Raises
    :class:`MalformedInputError` if a part does not fit the record.
    """

    record: PolicyRecord
    legal: tuple[bool, ...]
    histories: tuple[SwapHistory, ...]

    def __post_init__(self) -> None:
        where = f"supervision of record {self.record.record_id!r}"
        num_orders = factorial(self.record.num_operations)
        if len(self.legal) != num_orders or not any(self.legal):
            raise MalformedInputError(
                "the certified orbit does not fit the record",
                where=where,
                found=f"{sum(self.legal)} legal among {counted(len(self.legal), 'order')}",
                expected=f"at least one legal among {counted(num_orders, 'order')}",
            )
        for history in self.histories:
            if not _is_swap(history, self.record.num_operations):
                raise MalformedInputError(
                    "not a swap after which the policy still has a choice",
                    where=where,
                    found=str(history),
                    expected="two prefixes of distinct slots that differ in the order of their last two, "
                    "with at least two slots left over",
                )

    @property
    def num_operations(self) -> int:
        """The number of slots in an order of this record."""
        return self.record.num_operations


@dataclass(frozen=True, kw_only=True, slots=True)
class PosetRecord:
    """A record of any number of operations, and the certified partial order of its slots.

    The legal orders are the linear extensions of ``order``. Raises :class:`MalformedInputError` if ``order`` and record
    have different numbers of operations.
    """

    record: PolicyRecord
    order: PartialOrder

    def __post_init__(self) -> None:
        if self.order.num_operations != self.record.num_operations:
            raise MalformedInputError(
                "the certified partial order does not fit the record",
                where=f"supervision of record {self.record.record_id!r}",
                found=f"{counted(self.order.num_operations, 'operation')}",
                expected=str(self.record.num_operations),
            )

    def listed(self) -> SupervisedRecord:
        """Return the same supervision by listed orders; there must be few operations, since the work is ``n!``.

        Steps that the order does not relate commute wherever a legal order reaches both.
        """
        everything = range(self.num_operations)
        prefixes = [
            prefix
            for length in range(2, self.num_operations - 1)
            for prefix in permutations(everything, length)
        ]
        turned = [(p, (*p[:-2], p[-1], p[-2])) for p in prefixes if p[-2] < p[-1]]
        return SupervisedRecord(
            record=self.record,
            legal=tuple(map(self.order.allows, permutations(everything))),
            histories=tuple(pair for pair in sorted(turned) if all(map(self.order.allows, pair))),
        )

    @property
    def num_operations(self) -> int:
        """The number of slots in an order of this record."""
        return self.record.num_operations


def _is_swap(history: SwapHistory, num_operations: int) -> bool:
    first, second = history
    return (
        2 <= len(first) <= num_operations - 2
        and len(set(first)) == len(first)
        and set(first) <= set(range(num_operations))
        and second == (*first[:-2], first[-1], first[-2])
    )
