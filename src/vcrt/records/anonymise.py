"""Make of a certified episode its anonymous policy record, and the supervision that belongs to it.

Only the relations and fresh random draws enter a record. The map from operations to slots stays in the audit view.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from vcrt.certification.episodes import CertifiedEpisode
from vcrt.certification.relations import OperationRelation
from vcrt.hashing import canonical_json, sha256_hex
from vcrt.limits import MAX_ENUMERATED
from vcrt.orders import Order, all_orders
from vcrt.partial_orders import PartialOrder
from vcrt.randomness import generator
from vcrt.records.policy_view import PointerRelation, PolicyRecord
from vcrt.records.record_form import PLAIN_FORM, RecordForm
from vcrt.records.step_texts import NO_TEXTS, StepTexts
from vcrt.records.supervision import PosetRecord, SupervisedRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Anonymised:
    """A policy record and, for the audit view only, the slot of each operation."""

    record: PolicyRecord
    slot_of_operation: tuple[int, ...]

    def operations(self, slots: Iterable[int]) -> Order:
        """The operations in these slots."""
        return tuple(self.slot_of_operation.index(slot) for slot in slots)


def anonymise(
    certified: CertifiedEpisode,
    seed: int,
    form: RecordForm = PLAIN_FORM,
    texts: StepTexts = NO_TEXTS,
) -> Anonymised:
    """Draw fresh pointers for the operations and express the relation graph in them, in the given form.

    The record's identity is a digest that cannot be traced back without the audit view. Where the form has another
    view than relations, ``texts`` are what is shown of the operations.
    """
    episode = certified.episode
    content = episode.content_hash()
    pool = form.pool_of(episode.num_operations)
    draw = generator(seed, "pointers", content)
    pointers, slots = draw_pointers(draw, episode.num_operations, pool)
    return Anonymised(
        record=PolicyRecord(
            record_id=sha256_hex(canonical_json(["vcrt record", seed, content]))[:16],
            pointers=pointers,
            relations=in_slots(form.kept(certified.relations), slots),
            distractors=form.draw_distractors(pointers, generator(seed, "distractors", content)),
            pool=pool,
            task=texts.task,
            steps=tuple(texts.steps[slots.index(slot)] for slot in range(len(texts.steps))),
        ),
        slot_of_operation=slots,
    )


def supervise(
    certified: CertifiedEpisode, anonymised: Anonymised, *, listed: bool = True
) -> SupervisedRecord | PosetRecord:
    """The record with what is certified about the orders of its slots.

    Of more than ``vcrt.limits.MAX_ENUMERATED`` operations, and unless ``listed`` of fewer too (where a dataset has
    episodes of several lengths), that is the certified partial order. Of fewer, it is the
    orbit and the commuting histories: a history pair is the prefix that ends in ``a b`` and the one that ends in
    ``b a``, for each diamond whose prefixes begin an order of the orbit and leave a choice.
    """
    slots = anonymised.slot_of_operation
    if len(slots) > MAX_ENUMERATED or not listed:
        pairs = [(slots[first], slots[second]) for first, second in certified.order.pairs]
        return PosetRecord(record=anonymised.record, order=PartialOrder.of(len(slots), pairs))
    orbit = {_through(order, slots) for order in certified.orbit}
    prefixes = {order[:length] for order in certified.orbit for length in range(len(slots) + 1)}
    histories = set()
    for certificate in certified.certificates:
        a, b = certificate.pair
        ab, ba = (*certificate.context, a, b), (*certificate.context, b, a)
        leaves_choice = len(ab) <= len(slots) - 2
        if certificate.verdict == "diamond" and ab in prefixes and leaves_choice:
            one, other = sorted((_through(ab, slots), _through(ba, slots)))
            histories.add((one, other))
    return SupervisedRecord(
        record=anonymised.record,
        legal=tuple(order in orbit for order in all_orders(len(slots))),
        histories=tuple(sorted(histories)),
    )


def draw_pointers(draw: np.random.Generator, number: int, pool: int) -> tuple[Order, Order]:
    """Pointers of the pool for so many operations, ascending, and the slot of each operation."""
    drawn = draw.permutation(pool)[:number].tolist()
    pointers = tuple(sorted(drawn))
    return pointers, tuple(map(pointers.index, drawn))


def in_slots(
    relations: Iterable[OperationRelation], slots: Sequence[int]
) -> tuple[PointerRelation, ...]:
    """Relations between operations as relations between their slots, sorted."""
    found = []
    for relation in relations:
        first, second = slots[relation.first], slots[relation.second]
        if relation.kind == "commutes":
            first, second = sorted((first, second))
        found.append(PointerRelation(first, second, relation.kind))
    return tuple(sorted(found))


def _through(order: Order, slots: tuple[int, ...]) -> Order:
    return tuple(slots[operation] for operation in order)
