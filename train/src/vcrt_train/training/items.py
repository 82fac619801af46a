"""Encode records for training: prompts with their legal orders, of any number of operations.

An item of up to ``vcrt.limits.MAX_ENUMERATED`` operations lists its legal orders; a longer one holds the certified
partial order, which determines them.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
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

    #: ``[M]`` bool: which columns of :func:`vcrt.orders.all_orders` are in the set.
    members: Tensor
    swaps: tuple[SwapHistory, ...] = ()

    def allows(self, order: Order) -> bool:
        """Return whether a whole order of slots is in the set."""
        return bool(self.members[order_columns(len(order))[order]])


@dataclass(frozen=True, kw_only=True)
class EncodedItem:
    """One record, encoded for training, on the CPU."""

    record_id: str
    prompt: Prompt
    #: The certified orbit, which determines the reward, the margin and the retained mass.
    orbit: OrderList | PartialOrder
    #: The set whose mass gives a success its ratio, of the orbit's kind; None if the sampled order alone gives it.
    credit: OrderList | PartialOrder | None

    @property
    def listed(self) -> OrderList | None:
        """The orbit if its orders are listed, else None."""
        return self.orbit if isinstance(self.orbit, OrderList) else None

    def states(self, prefixes: Collection[Order]) -> dict[Order, Hashable]:
        """Return a name for the state after each of these prefixes: equal names, equal states by certificates.

        Of two prefixes with different names it is not known that their states differ. Prefixes outside of the orbit
        have names of their own: whatever follows them fails.
        """
        if isinstance(self.orbit, PartialOrder):
            return {
                prefix: frozenset(prefix) if self.orbit.allows(prefix) else prefix
                for prefix in prefixes
            }
        swapped = {max(pair): min(pair) for pair in self.orbit.swaps}

        def first(prefix: Order) -> Order:
            # Equal steps from equal states lead to equal states; of two swapped prefixes, the first names theirs.
            if len(prefix) < 2:
                return prefix
            reached = (*first(prefix[:-1]), prefix[-1])
            return first(swapped[reached]) if reached in swapped else reached

        return {prefix: first(prefix) for prefix in prefixes}

    def is_legal(self, order: Order) -> bool:
        """Return whether an order of slots is in the certified orbit."""
        return self.orbit.allows(order)


def encode_items(
    records: Records, method: Method, *, seed: int, encode: PromptEncoder
) -> list[EncodedItem]:
    """Encode each record for ``method``; draws come from ``generator(seed, purpose, record_id)``.

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
    """Return the orbit or, for a shuffled orbit, another set of its size, drawn once; None if a sample has no set.

    A partial order gets its slots renamed: it keeps the numbers of linear extensions and of related pairs. A random set
    of orders, as for few operations, would not do, because no estimate could tell it from its complement.
    """
    if not method.has_credit:
        return None
    if method.ratio != "shuffled_orbit":
        return orbit
    draw = generator(seed, "shuffled-orbit", record_id)
    if isinstance(orbit, OrderList):
        return OrderList(members=torch.tensor(draw.permutation(orbit.members.numpy())))
    while True:
        names = [int(name) for name in draw.permutation(orbit.num_operations)]
        pairs = [(names[a], names[b]) for a, b in orbit.pairs]
        renamed = PartialOrder.of(orbit.num_operations, pairs)
        # Some renaming changes every partial order that relates a pair.
        if renamed != orbit or not orbit.pairs:
            return renamed
