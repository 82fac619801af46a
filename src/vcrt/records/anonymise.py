"""Make the anonymous policy record of a certified episode, and its supervision.

A record holds the relations and fresh random draws alone; in the other views, texts of the steps replace the relations.
The view ``steps`` has the environment's own words, and so reveals the environment. In the view ``footprints``, each
resource is a number drawn afresh for each episode, and all environments share one wording: ``reads x1 x4, writes x7``.
It leaves out resources that only one step touches, or that no step writes: they connect nothing. No view reveals the
order. The map from operations to slots stays in the audit view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vcrt.certificates.certificates import OperationRelation
from vcrt.certificates.episodes import CertifiedEpisode
from vcrt.environments.contract import Environment, Episode
from vcrt.errors import MalformedInputError
from vcrt.hashing import canonical_json, sha256_hex
from vcrt.limits import MAX_ENUMERATED
from vcrt.orders import Order, all_orders
from vcrt.partial_orders import PartialOrder
from vcrt.randomness import Draws, generator, permuted
from vcrt.records.policy_view import PointerRelation, PolicyRecord
from vcrt.records.record_form import PLAIN_FORM, RecordForm, View
from vcrt.records.supervision import PosetRecord, SupervisedRecord
from vcrt.replay.evidence import CertifiedTexts


@dataclass(frozen=True, slots=True)
class StepTexts:
    """The text of each operation of an episode, in order, and of the start; both empty in the view ``relations``."""

    task: str = ""
    steps: tuple[str, ...] = ()


NO_TEXTS = StepTexts()


@dataclass(frozen=True, kw_only=True, slots=True)
class Anonymised:
    """A policy record and, for the audit view only, the slot of each operation."""

    record: PolicyRecord
    slot_of_operation: tuple[int, ...]

    def operations(self, slots: Iterable[int]) -> Order:
        """Return the operations in these slots."""
        return tuple(self.slot_of_operation.index(slot) for slot in slots)


def anonymise(
    certified: CertifiedEpisode | CertifiedTexts,
    seed: int,
    form: RecordForm = PLAIN_FORM,
    texts: StepTexts = NO_TEXTS,
) -> Anonymised:
    """Draw fresh pointers for the operations, and express the relation graph in them, in the given form.

    The record's identity is a digest that cannot be traced back without the audit view. In views other than
    ``relations``, ``texts`` are shown for the operations.
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
    """Return the record with the certified knowledge about the orders of its slots.

    For more than ``vcrt.limits.MAX_ENUMERATED`` operations, or unless ``listed`` (where a dataset has episodes of
    several lengths), this is the certified partial order. Otherwise it is the orbit and the commuting histories: each
    diamond whose prefixes begin an order of the orbit and leave a choice gives a history pair, the prefix that ends in
    ``a b`` and the one that ends in ``b a``.
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


def draw_pointers(draw: Draws, number: int, pool: int) -> tuple[Order, Order]:
    """Draw pointers of the pool for ``number`` operations, ascending, and the slot of each operation."""
    drawn = permuted(draw, pool)[:number]
    pointers = tuple(sorted(drawn))
    return pointers, tuple(map(pointers.index, drawn))


def in_slots(
    relations: Iterable[OperationRelation], slots: Sequence[int]
) -> tuple[PointerRelation, ...]:
    """Return relations between operations as relations between their slots, sorted."""
    found = []
    for relation in relations:
        first, second = slots[relation.first], slots[relation.second]
        if relation.kind == "commutes":
            first, second = sorted((first, second))
        found.append(PointerRelation(first, second, relation.kind))
    return tuple(sorted(found))


def _through(order: Order, slots: tuple[int, ...]) -> Order:
    return tuple(slots[operation] for operation in order)


def step_texts(
    environment: Environment, episodes: Sequence[Episode], view: View, seed: int
) -> list[StepTexts]:
    """Return the texts that the policy sees of each episode's steps, beside their pointers.

    Raise :class:`MalformedInputError` for a step without a footprint in the view ``footprints``.
    """
    if view == "relations":
        return [NO_TEXTS for _ in episodes]
    if view == "footprints":
        return [StepTexts("", _footprints(environment, episode, seed)) for episode in episodes]
    return [
        StepTexts(
            environment.task(episode).strip(),
            tuple(environment.describe(operation).strip() for operation in episode.operations),
        )
        for episode in episodes
    ]


def _footprints(environment: Environment, episode: Episode, seed: int) -> tuple[str, ...]:
    """Return what each operation reads and writes, by anonymous numbers of resources."""
    footprints = []
    for operation in episode.operations:
        footprint = environment.footprint(episode, operation)
        if footprint is None:
            raise MalformedInputError(
                "a step does not declare what it reads and writes",
                where=f"{episode.episode_id}, {operation.signature!r:.80}",
                expected="Footprint(reads, writes), from the environment's footprint",
                remedy="certify with `--view steps`, or leave the environment out",
            )
        footprints.append(footprint)
    touched = Counter(name for one in footprints for name in {*one.reads, *one.writes})
    written = {name for one in footprints for name in one.writes}
    shared = sorted(name for name, times in touched.items() if times > 1 and name in written)
    draw = generator(seed, "resources", episode.content_hash())
    numbers = dict(zip(shared, permuted(draw, len(shared)), strict=True))

    def told(verb: str, names: Sequence[str]) -> str:
        own = sorted(numbers[name] for name in set(names) & numbers.keys())
        return f"{verb} {' '.join(f'x{number}' for number in own)}" if own else ""

    texts = []
    for one in footprints:
        parts = [part for part in (told("reads", one.reads), told("writes", one.writes)) if part]
        texts.append(", ".join(parts) or "shares nothing")
    return tuple(texts)
