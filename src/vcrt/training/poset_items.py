"""Training items of any number of operations: prompts with the partial order that their legal orders extend.

Up to ``vcrt.orders.MAX_ENUMERATED`` operations an item lists its legal orders (:mod:`vcrt.training.items`); beyond, it
holds the certified partial order, and what is legal follows from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder
from vcrt.policy.backbone import PromptEncoder
from vcrt.policy.scoring import Prompt
from vcrt.randomness import generator
from vcrt.records.supervision import PosetRecord
from vcrt.training.methods import Method


@dataclass(frozen=True, kw_only=True)
class PosetItem:
    """One record as training sees it."""

    record_id: str
    prompt: Prompt
    #: What the legal orders extend, in slots; gives the reward, the margin and the retained mass.
    order: PartialOrder
    #: What the orders extend whose mass is the ratio of a success; None for the sampled order alone.
    credit: PartialOrder | None

    def is_legal(self, order: Order) -> bool:
        """Whether an order of slots keeps the certified partial order."""
        return self.order.allows(order)


def encode_poset_items(
    records: Sequence[PosetRecord], method: Method, *, seed: int, encode: PromptEncoder
) -> list[PosetItem]:
    """Each record as ``method`` sees it; draws come from ``generator(seed, purpose, record_id)``."""
    return [_encode(record, method, seed, encode) for record in records]


def _encode(supervised: PosetRecord, method: Method, seed: int, encode: PromptEncoder) -> PosetItem:
    record = supervised.record
    return PosetItem(
        record_id=record.record_id,
        prompt=encode(record, method.serialisation, generator(seed, "render", record.record_id)),
        order=supervised.order,
        credit=_credit(supervised, method, seed),
    )


def _credit(supervised: PosetRecord, method: Method, seed: int) -> PartialOrder | None:
    """The certified order, or for a shuffled orbit the same order with its slots renamed at random.

    A random set of as many orders, which is what few operations have, could not be told from its complement by any
    estimate; a renamed order has as many linear extensions and relates as many pairs, but not just the same.
    """
    if method.ratio == "trajectory":
        return None
    if method.ratio == "orbit":
        return supervised.order
    draw = generator(seed, "shuffled-orbit", supervised.record.record_id)
    while True:
        names = [int(name) for name in draw.permutation(supervised.num_operations)]
        pairs = [(names[a], names[b]) for a, b in supervised.order.pairs]
        renamed = PartialOrder.of(supervised.num_operations, pairs)
        # Some renaming changes any order that relates a pair at all.
        if renamed != supervised.order or not supervised.order.pairs:
            return renamed
