"""Encode records for training: prompts with the orders that are legal, of any number of operations.

Up to ``vcrt.orders.MAX_ENUMERATED`` operations an item lists its legal orders; beyond, it holds the certified partial
order, and what is legal follows from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from vcrt.errors import RunError
from vcrt.orders import Order, order_columns
from vcrt.partial_orders import PartialOrder
from vcrt.records.supervision import PosetRecord, SupervisedRecord, SwapHistory
from vcrt_train.policy.backbone import PromptEncoder
from vcrt_train.policy.causal_model import Prompt
from vcrt_train.randomness import generator
from vcrt_train.training.methods import Method

#: Records of one dataset, all of one kind.
Records: TypeAlias = Sequence[SupervisedRecord | PosetRecord]


@dataclass(frozen=True, kw_only=True, eq=False)
class OrderList:
    """A set of orders of a few operations, and the certified swaps along them."""

    #: ``[M]`` bool: which columns of :func:`vcrt.orders.all_orders` are in it.
    members: Tensor
    swaps: tuple[SwapHistory, ...] = ()

    def allows(self, order: Order) -> bool:
        """Whether a whole order of slots is in the set."""
        return bool(self.members[order_columns(len(order))[order]])


@dataclass(frozen=True, kw_only=True)
class EncodedItem:
    """One record as training sees it, on the CPU."""

    record_id: str
    prompt: Prompt
    #: The certified orbit; gives the reward, the margin and the retained mass.
    orbit: OrderList | PartialOrder
    #: The set whose mass is the ratio of a success, of the orbit's kind; None for the sampled order alone.
    credit: OrderList | PartialOrder | None

    @property
    def listed(self) -> OrderList | None:
        """The orbit if its orders are listed."""
        return self.orbit if isinstance(self.orbit, OrderList) else None

    def is_legal(self, order: Order) -> bool:
        """Whether an order of slots is in the certified orbit."""
        return self.orbit.allows(order)


def encode_items(
    records: Records, method: Method, *, seed: int, encode: PromptEncoder
) -> list[EncodedItem]:
    """Each record as ``method`` sees it; draws come from ``generator(seed, purpose, record_id)``.

    Raises :class:`RunError` if some records list their orders and others do not.
    """
    listed = sum(isinstance(record, SupervisedRecord) for record in records)
    if 0 < listed < len(records):
        raise RunError(
            "records of few and of many operations cannot be trained on together",
            found=f"{listed} with all orders listed and {len(records) - listed} with a partial order",
            expected="records of one dataset",
        )
    return [_encode_item(record, method, seed, encode) for record in records]


def _encode_item(
    supervised: SupervisedRecord | PosetRecord, method: Method, seed: int, encode: PromptEncoder
) -> EncodedItem:
    record = supervised.record
    orbit: OrderList | PartialOrder
    if isinstance(supervised, SupervisedRecord):
        orbit = OrderList(members=torch.tensor(supervised.legal), swaps=supervised.histories)
    else:
        orbit = supervised.order
    return EncodedItem(
        record_id=record.record_id,
        prompt=encode(record, method.serialisation, generator(seed, "render", record.record_id)),
        orbit=orbit,
        credit=_credit(orbit, method, seed, record.record_id),
    )


def _credit(
    orbit: OrderList | PartialOrder, method: Method, seed: int, record_id: str
) -> OrderList | PartialOrder | None:
    """The orbit, or for a shuffled orbit a set of its size drawn once: of a partial order, one with its slots renamed.

    A random set of as many orders, which is what few operations have, could not be told from its complement by any
    estimate; a renamed order has as many linear extensions and relates as many pairs, but not just the same.
    """
    if method.ratio == "trajectory":
        return None
    if method.ratio == "orbit":
        return orbit
    draw = generator(seed, "shuffled-orbit", record_id)
    if isinstance(orbit, OrderList):
        return OrderList(members=torch.tensor(draw.permutation(orbit.members.numpy())))
    while True:
        names = [int(name) for name in draw.permutation(orbit.num_operations)]
        pairs = [(names[a], names[b]) for a, b in orbit.pairs]
        renamed = PartialOrder.of(orbit.num_operations, pairs)
        # Some renaming changes any order that relates a pair at all.
        if renamed != orbit or not orbit.pairs:
            return renamed
