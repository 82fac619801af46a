"""Operations by name and the relations between them, as a user states them or as another command gives them.

Read from three forms of JSON, told apart by what is in them:

- written by hand: ``{"operations": [NAME, ...], "relations": [[FIRST, SECOND, KIND], ...]}``, where KIND is
  ``commutes``, ``precedes`` or ``conflicts``, and FIRST stands before SECOND unless they commute;
- a certificate, as ``vcrt show EPISODE --json`` prints it, checked as ``vcrt verify`` checks its form and digest;
- what ``vcrt lift lean --json`` prints, or one theorem of it.

A pair without a relation may stand in either order. The input comes from anywhere, so size, depth, types and meaning
are checked. Not covered: whether a verifier agrees with the relations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, ValidationError

from vcrt.certification.relations import OperationRelation, directed
from vcrt.documents import MAX_BYTES, strict_json
from vcrt.errors import MalformedInputError, UnknownNameError
from vcrt.hashing import canonical_json
from vcrt.orders import Order, linear_extensions, transitive_closure
from vcrt.randomness import generator
from vcrt.records.certificate import certificate_of
from vcrt.records.policy_view import (
    POINTER_POOL,
    RELATION_TOKENS,
    PointerRelation,
    PolicyRecord,
    RelationType,
)

#: All orders of a record are scored: 720 of six operations, and seven times as many of one more.
MAX_OPERATIONS = 6
#: The longest name of an operation, in characters.
MAX_NAME = 200

FORM = '{"operations": [NAME, ...], "relations": [[FIRST, SECOND, KIND], ...]}'
SOURCES = f"{FORM}, or what `vcrt show EPISODE --json` or `vcrt lift lean FILE --json` prints"


@dataclass(frozen=True, kw_only=True, slots=True)
class StatedRecord:
    """Operations by name, and sorted relations between them by place. Raises :class:`MalformedInputError`.

    That is for fewer than 2 or more than ``MAX_OPERATIONS`` operations, names that are empty, too long or twice the
    same, a relation of an operation with itself, two for one pair, an unknown kind, and a cycle.
    """

    operations: tuple[str, ...]
    relations: tuple[OperationRelation, ...]

    def __post_init__(self) -> None:
        _require_operations(self.operations)
        pairs: set[frozenset[int]] = set()
        for relation in self.relations:
            self._require_relation(relation, pairs)
            pairs.add(frozenset((relation.first, relation.second)))
        closure = transitive_closure(directed(self.relations))
        cycle = [name for i, name in enumerate(self.operations) if (i, i) in closure]
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
        """The orders that keep every pair which precedes or conflicts: the linear extensions of those relations."""
        return tuple(linear_extensions(len(self.operations), directed(self.relations)))

    def names(self, order: Iterable[int]) -> tuple[str, ...]:
        """The operations' names in this order."""
        return tuple(self.operations[place] for place in order)


@dataclass(frozen=True, kw_only=True, slots=True)
class PointedRecord:
    """What a policy is shown of a stated record; ``operations[slot]`` is the place of each slot's operation."""

    record: PolicyRecord
    operations: tuple[int, ...]


def pointed(stated: StatedRecord, seed: int) -> PointedRecord:
    """The record with pointers drawn for its operations; the draw depends on the seed alone."""
    draw = generator(seed, "decide", "pointers").permutation(POINTER_POOL)
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


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _ByHand(_Strict):
    operations: list[str]
    relations: list[tuple[str, str, str]]


class _Lenient(BaseModel):
    # Of a lifted theorem, only what is used here is typed.
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class _Step(_Lenient):
    label: str


class _Pair(_Lenient):
    first: int
    second: int
    relation: str
    before: int | None


class _Theorem(_Lenient):
    name: str
    steps: list[_Step]
    pairs: list[_Pair]


class _LiftedFile(_Lenient):
    theorems: list[_Theorem] = []


def read_stated(data: bytes, where: str, *, theorem: str | None = None) -> StatedRecord:
    """Read a record of any of the three forms; ``theorem`` chooses one of several lifted ones.

    Raises :class:`MalformedInputError` and, for certificates, :class:`vcrt.errors.DatasetError`, with ``where`` as
    the place of the data; :class:`UnknownNameError` for a theorem that is not there.
    """
    if len(data) > MAX_BYTES:
        raise _malformed(where, f"more than {MAX_BYTES:,} bytes")
    try:
        value = strict_json(data)
    except ValueError as error:
        raise _malformed(where, f"no JSON: {error}" if data.strip() else "nothing") from error
    is_lifted = isinstance(value, list) or (isinstance(value, dict) and "pairs" in value)
    if theorem is not None and not is_lifted:
        raise MalformedInputError(
            "there are no theorems to choose from",
            where=where,
            found=f"--theorem {theorem}",
            expected="what `vcrt lift lean FILE --json` prints",
            remedy="leave --theorem out",
        )
    try:
        if is_lifted:
            return _from_theorem(_chosen(_theorems(value, where), theorem, where))
        if isinstance(value, dict) and "format" in value:
            return _from_certificate(value, Path(where))
        return _by_hand(_validated(_ByHand, value, where))
    except MalformedInputError as error:
        raise MalformedInputError(
            error.what,
            where=error.where or where,
            found=error.found,
            expected=error.expected,
            remedy=error.remedy,
        ) from error


def _from_certificate(value: dict[str, Any], path: Path) -> StatedRecord:
    certified = certificate_of(value, path).certified
    names = tuple(operation.signature for operation in certified.episode.operations)
    return StatedRecord(operations=names, relations=tuple(sorted(certified.relations)))


def _by_hand(given: _ByHand) -> StatedRecord:
    _require_operations(given.operations)
    places = {name: place for place, name in enumerate(given.operations)}
    relations = []
    for first, second, kind in given.relations:
        for name in (first, second):
            if name not in places:
                raise MalformedInputError(
                    "a relation names an operation that is not there",
                    found=repr(name[:MAX_NAME]),
                    expected=f"one of {', '.join(map(repr, places))}",
                )
        # What kind it is, the record itself checks.
        kept = cast(RelationType, kind)
        relations.append(OperationRelation(places[first], places[second], kept))
    return StatedRecord(operations=tuple(given.operations), relations=tuple(sorted(relations)))


def _from_theorem(theorem: _Theorem) -> StatedRecord:
    names = [step.label for step in theorem.steps]
    _require_operations(names)
    relations = []
    for pair in theorem.pairs:
        ends = (pair.first, pair.second)
        if not all(0 <= end < len(names) for end in ends) or pair.before not in (None, *ends):
            raise MalformedInputError(
                "a pair of steps that are not there", found=f"{ends}, before {pair.before}"
            )
        first, second = ends if pair.before != pair.second else ends[::-1]
        if pair.relation == "depends on context":
            raise MalformedInputError(
                "a pair without one relation: it depends on what ran before",
                where=theorem.name,
                found=f"{names[first]!r} and {names[second]!r}: {pair.relation}",
                expected=f"one of {', '.join(RELATION_TOKENS)}",
                remedy="a policy is asked about relations that hold in every context",
            )
        if pair.relation != "uncertified":
            kept = cast(RelationType, pair.relation)
            relations.append(OperationRelation(first, second, kept))
    stated = StatedRecord(operations=tuple(names), relations=tuple(sorted(relations)))
    closure = transitive_closure(directed(stated.relations))
    for pair in theorem.pairs:
        ends = (pair.first, pair.second)
        if pair.relation == "uncertified" and ends not in closure and ends[::-1] not in closure:
            raise MalformedInputError(
                "a pair about which nothing is certified",
                where=theorem.name,
                found=f"{names[pair.first]!r} and {names[pair.second]!r}",
                expected="a relation, or an order that follows from other relations",
            )
    return stated


def _theorems(value: Any, where: str) -> list[_Theorem]:
    if isinstance(value, dict):
        return [_validated(_Theorem, value, where)]
    return [theorem for file in value for theorem in _validated(_LiftedFile, file, where).theorems]


def _chosen(theorems: Sequence[_Theorem], name: str | None, where: str) -> _Theorem:
    names = [theorem.name for theorem in theorems]
    found = [theorem for theorem in theorems if name in (None, theorem.name)]
    if len(found) == 1:
        return found[0]
    if name is not None and not found:
        raise UnknownNameError.of("theorem", name, names)
    raise MalformedInputError(
        "which theorem?" if found else "no theorem was judged",
        where=where,
        found=f"{len(found)} theorems: {', '.join(n[:MAX_NAME] for n in names)}" if found else None,
        expected="one theorem",
        remedy="choose one with --theorem NAME" if name is None and found else None,
    )


def _require_operations(operations: Sequence[str]) -> None:
    if not 2 <= len(operations) <= MAX_OPERATIONS:
        raise MalformedInputError(
            "a number of operations that cannot be decided",
            found=f"{len(operations)} operations",
            expected=f"2 to {MAX_OPERATIONS}: every order is scored, {MAX_OPERATIONS} operations have 720",
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


_Model = TypeVar("_Model", bound=BaseModel)


def _validated(model: type[_Model], value: Any, where: str) -> _Model:
    try:
        return model.model_validate_json(canonical_json(value))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"]) or "(root)"
        raise _malformed(where, f"field {name[:MAX_NAME]}: {first['msg']}") from error


def _malformed(where: str, found: str) -> MalformedInputError:
    return MalformedInputError("not a relation record", where=where, found=found, expected=SOURCES)
