"""Check operations by name with relations between them, and draw what a policy is shown of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vcrt.certification.relations import OperationRelation, directed
from vcrt.errors import MalformedInputError
from vcrt.limits import MAX_OPERATIONS
from vcrt.orders import Order, linear_extensions
from vcrt.partial_orders import PartialOrder
from vcrt.printable import counted
from vcrt.randomness import generator
from vcrt.records.policy_view import (
    RELATION_TOKENS,
    PointerRelation,
    PolicyRecord,
    pointer_pool,
)

#: The longest name of an operation, in characters.
MAX_NAME = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class StatedRecord:
    """Operations by name, and sorted relations between them by place. Raises :class:`MalformedInputError`.

    That is for fewer than 2 or more than ``MAX_OPERATIONS`` operations, names that are empty, too long or twice the
    same, a relation of an operation with itself, two for one pair, an unknown kind, and a cycle.
    """

    operations: tuple[str, ...]
    relations: tuple[OperationRelation, ...]

    def __post_init__(self) -> None:
        require_operations(self.operations)
        pairs: set[frozenset[int]] = set()
        for relation in self.relations:
            self._require_relation(relation, pairs)
            pairs.add(frozenset((relation.first, relation.second)))
        cycle = [self.operations[place] for place in _on_cycles(self)]
        if cycle:
            raise MalformedInputError(
                "the relations contain a cycle, so no order keeps them all",
                found=f"a cycle through {', '.join(map(repr, cycle))}",
                expected="precedes and conflicts that some order keeps",
            )

    def _require_relation(self, relation: OperationRelation, earlier: set[frozenset[int]]) -> None:
        ends = (self.operations[relation.first], self.operations[relation.second])
        found = f"{ends[0]!r}, {ends[1]!r}, {str(relation.kind)[:MAX_NAME]!r}"
        if relation.kind not in RELATION_TOKENS:
            raise MalformedInputError(
                "unknown kind of relation",
                found=found,
                expected=f"one of {', '.join(RELATION_TOKENS)}",
            )
        if relation.first == relation.second:
            raise MalformedInputError(
                "a relation of an operation with itself", found=found, expected="two operations"
            )
        if frozenset((relation.first, relation.second)) in earlier:
            raise MalformedInputError(
                "two relations for one pair", found=found, expected="one, in one direction"
            )

    @property
    def legal_orders(self) -> tuple[Order, ...]:
        """The orders that keep every pair which precedes or conflicts: the linear extensions of those relations.

        For few operations: all of them are listed.
        """
        return tuple(linear_extensions(len(self.operations), directed(self.relations)))

    def names(self, order: Iterable[int]) -> tuple[str, ...]:
        """The operations' names in this order."""
        return tuple(self.operations[place] for place in order)


def _on_cycles(stated: StatedRecord) -> list[int]:
    """The operations that the directed relations put before themselves."""
    after = [0] * len(stated.operations)
    for first, second in directed(stated.relations):
        after[first] |= 1 << second
    for middle, reached in enumerate(after):
        for place, found in enumerate(after):
            if found >> middle & 1:
                after[place] |= reached
    return [place for place, found in enumerate(after) if found >> place & 1]


@dataclass(frozen=True, kw_only=True, slots=True)
class PointedRecord:
    """What a policy is shown of a stated record; ``operations[slot]`` is the place of each slot's operation."""

    record: PolicyRecord
    operations: tuple[int, ...]

    @property
    def order(self) -> PartialOrder:
        """What the legal orders of slots extend."""
        pairs = [(r.first, r.second) for r in self.record.relations if r.kind != "commutes"]
        return PartialOrder.of(self.record.num_operations, pairs)


def pointed(stated: StatedRecord, seed: int, num_pointers: int | None = None) -> PointedRecord:
    """The record with pointers drawn for its operations, of the ``num_pointers`` that a policy knows if they are fewer.

    The draw depends on the seed and the numbers of pointers and operations alone. Raises :class:`MalformedInputError`
    if there are too few pointers.
    """
    pool = pointer_pool(len(stated.operations))
    if num_pointers is not None and num_pointers < pool:
        pool = num_pointers
    if pool < len(stated.operations):
        raise MalformedInputError(
            "the policy's backbone knows fewer pointers than the record has operations",
            found=f"{counted(len(stated.operations), 'operation')}",
            expected=f"at most {pool}",
            remedy="ask a policy on the backbone embedded-long, or on a language model",
        )
    draw = generator(seed, "decide", "pointers").permutation(pool)
    drawn = [int(pointer) for pointer in draw[: len(stated.operations)]]
    pointers = tuple(sorted(drawn))
    slots = [pointers.index(pointer) for pointer in drawn]
    relations = []
    for relation in stated.relations:
        first, second = slots[relation.first], slots[relation.second]
        if relation.kind == "commutes":
            first, second = sorted((first, second))
        relations.append(PointerRelation(first, second, relation.kind))
    record = PolicyRecord(record_id="", pointers=pointers, relations=tuple(sorted(relations)))
    return PointedRecord(
        record=record, operations=tuple(drawn.index(pointer) for pointer in pointers)
    )


def require_operations(operations: Sequence[str]) -> None:
    """Raise :class:`MalformedInputError` unless these can be a record's operations."""
    if not 2 <= len(operations) <= MAX_OPERATIONS:
        raise MalformedInputError(
            "a number of operations that cannot be decided",
            found=f"{counted(len(operations), 'operation')}",
            expected=f"2 to {MAX_OPERATIONS}",
            remedy="leave out operations that commute with all others, or decide in parts"
            if operations[2:]
            else None,
        )
    for name in operations:
        if not name.strip() or len(name) > MAX_NAME:
            raise MalformedInputError(
                "a name that no operation can have",
                found=repr(name[:MAX_NAME]),
                expected=f"1 to {MAX_NAME} characters, not all of them blank",
            )
        if operations.count(name) > 1:
            raise MalformedInputError(
                "two operations of one name", found=repr(name), expected="each name once"
            )
