"""Read operations by name with the relations between them, and draw the pointers that a policy is shown.

Such a *relation record* has three forms of JSON, which differ in their keys:

- written by hand: ``{"operations": [NAME, ...], "relations": [[FIRST, SECOND, KIND], ...]}``, where KIND is
  ``commutes``, ``precedes`` or ``conflicts``, and FIRST stands before SECOND unless they commute;
- a certificate from ``vcrt show EPISODE --json``, whose form and digest are checked as in ``vcrt verify``;
- the output of ``vcrt lift lean --json``, or one theorem of it.

A pair without a relation may stand in either order. The input is not trusted, so its size, depth, types and meaning are
checked. Not covered: whether a verifier agrees with the relations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, FailFast, ValidationError
from pydantic import Strict as StrictOf

from vcrt.certificates.certificates import OperationRelation, directed
from vcrt.documents import MAX_BYTES, strict_json
from vcrt.errors import MalformedInputError, UnknownNameError
from vcrt.forms import Strict, in_a_line
from vcrt.limits import MAX_OPERATIONS
from vcrt.partial_orders import PartialOrder, cycle_of
from vcrt.printable import counted
from vcrt.records.anonymise import Anonymised, draw_pointers, in_slots
from vcrt.records.certificate import certificate_of
from vcrt.records.policy_view import (
    LARGEST_POOL,
    RELATION_TOKENS,
    PolicyRecord,
    RelationType,
    pointer_pool,
)
from vcrt_train.randomness import generator

FORM = '{"operations": [NAME, ...], "relations": [[FIRST, SECOND, KIND], ...]}'
SOURCES = f"{FORM}, or what `vcrt show EPISODE --json` or `vcrt lift lean --json` prints"

#: The longest name of an operation, in characters.
MAX_NAME = 200

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, kw_only=True, slots=True)
class RelationRecord:
    """Operations by name, and sorted relations between them by index.

    Raises :class:`MalformedInputError` for fewer than 2 or more than ``MAX_OPERATIONS`` operations, a name that is
    blank, too long or repeated, a relation of an operation with itself, two for one pair, an unknown kind, and a cycle.
    """

    operations: tuple[str, ...]
    relations: tuple[OperationRelation, ...]

    def __post_init__(self) -> None:
        _require_operations(self.operations)
        pairs: set[frozenset[int]] = set()
        for relation in self.relations:
            pair = frozenset((relation.first, relation.second))
            first, second = self.operations[relation.first], self.operations[relation.second]
            found = f"{first!r}, {second!r}, {str(relation.kind)[:MAX_NAME]!r}"
            if relation.kind not in RELATION_TOKENS:
                expected = f"one of {', '.join(RELATION_TOKENS)}"
                raise MalformedInputError(
                    "unknown kind of relation", found=found, expected=expected
                )
            if len(pair) == 1:
                raise MalformedInputError("a relation of an operation with itself", found=found)
            if pair in pairs:
                raise MalformedInputError("two relations for one pair", found=found)
            pairs.add(pair)
        cycle = cycle_of(len(self.operations), directed(self.relations))
        if cycle:
            names = (repr(self.operations[place]) for place in sorted(set(cycle)))
            raise MalformedInputError(
                "the relations contain a cycle, so no order keeps them all",
                found=f"a cycle through {', '.join(names)}",
                expected="precedes and conflicts that some order keeps",
            )

    def names(self, order: Iterable[int]) -> tuple[str, ...]:
        """Return the operations' names in this order."""
        return tuple(self.operations[place] for place in order)


def with_pointers(
    relation_record: RelationRecord, seed: int, num_pointers: int | None = None
) -> Anonymised:
    """Draw pointers for the record's operations, from the usual pool or from ``num_pointers`` that a policy knows.

    The smaller pool counts. The draw depends only on the seed and the numbers of pointers and operations. Raises
    :class:`MalformedInputError` if there are too few pointers.
    """
    number = len(relation_record.operations)
    pool = min(pointer_pool(number), num_pointers or LARGEST_POOL)
    if pool < number:
        raise MalformedInputError(
            "the policy's backbone knows fewer pointers than the record has operations",
            found=f"{counted(number, 'operation')}",
            expected=f"at most {pool}",
            remedy="ask a policy on the backbone embedded-long, or on a language model",
        )
    pointers, slots = draw_pointers(generator(seed, "decide", "pointers"), number, pool)
    record = PolicyRecord(
        record_id="", pointers=pointers, relations=in_slots(relation_record.relations, slots)
    )
    return Anonymised(record=record, slot_of_operation=slots)


class _ByHand(Strict):
    operations: Annotated[list[str], FailFast()]
    # JSON has no tuples, only lists.
    relations: Annotated[list[Annotated[tuple[str, str, str], StrictOf(strict=False)]], FailFast()]


class _Lenient(BaseModel):
    # Only the fields of a lifted theorem that are used here are typed.
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
    steps: Annotated[list[_Step], FailFast()]
    pairs: Annotated[list[_Pair], FailFast()]


class _LiftedFile(_Lenient):
    theorems: Annotated[list[_Theorem], FailFast()] = []


def read_relation_record(data: bytes, where: str, *, theorem: str | None = None) -> RelationRecord:
    """Read a record of any of the three forms; ``theorem`` chooses one of several lifted ones.

    Raises :class:`MalformedInputError` and, for certificates, :class:`vcrt.errors.DatasetError`, with ``where`` as
    the place of the data, and :class:`UnknownNameError` for a theorem that does not exist.
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
            expected="what `vcrt lift lean --json` prints",
            remedy="leave --theorem out",
        )
    try:
        if is_lifted:
            return _from_theorem(_chosen(_theorems(value, where), theorem, where))
        if isinstance(value, dict) and "format" in value:
            return _from_certificate(value, Path(where))
        return _from_hand(_validated(_ByHand, value, where))
    except MalformedInputError as error:
        raise error.at(error.where or where) from error


def _from_certificate(value: dict[str, Any], path: Path) -> RelationRecord:
    certified = certificate_of(value, path).certified
    names = tuple(operation.signature for operation in certified.episode.operations)
    return RelationRecord(operations=names, relations=tuple(sorted(certified.relations)))


def _from_hand(given: _ByHand) -> RelationRecord:
    _require_operations(given.operations)
    places = {name: place for place, name in enumerate(given.operations)}
    for name in (end for first, second, _ in given.relations for end in (first, second)):
        if name not in places:
            raise MalformedInputError(
                "a relation names an operation that is not there",
                found=repr(name[:MAX_NAME]),
                expected=f"one of {', '.join(map(repr, places))}",
            )
    return _record(
        given.operations, [(places[a], places[b], kind) for a, b, kind in given.relations]
    )


def _record(operations: Iterable[str], relations: Iterable[tuple[int, int, str]]) -> RelationRecord:
    # RelationRecord itself checks the kinds.
    kept = (OperationRelation(a, b, cast(RelationType, kind)) for a, b, kind in relations)
    return RelationRecord(operations=tuple(operations), relations=tuple(sorted(kept)))


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
        found=f"{counted(len(found), 'theorem')}: {', '.join(n[:MAX_NAME] for n in names)}"
        if found
        else None,
        expected="one theorem",
        remedy="choose one with --theorem NAME" if name is None and found else None,
    )


def _from_theorem(theorem: _Theorem) -> RelationRecord:
    names = [step.label for step in theorem.steps]
    _require_operations(names)
    relations, uncertified = [], []
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
        if pair.relation == "uncertified":
            uncertified.append(ends)
        else:
            relations.append((first, second, pair.relation))
    record = _record(names, relations)
    closure = PartialOrder.of(len(names), directed(record.relations)).pairs
    for first, second in uncertified:
        if (first, second) not in closure and (second, first) not in closure:
            raise MalformedInputError(
                "a pair about which nothing is certified",
                where=theorem.name,
                found=f"{names[first]!r} and {names[second]!r}",
                expected="a relation, or an order that follows from other relations",
            )
    return record


def _validated(model: type[_Model], value: Any, where: str) -> _Model:
    """Return ``value`` as a ``model``; raises :class:`MalformedInputError`, which names the first wrong field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _malformed(where, in_a_line(error)) from error


def _malformed(where: str, found: str) -> MalformedInputError:
    """Make the error for a document that is no relation record of any form."""
    return MalformedInputError("not a relation record", where=where, found=found, expected=SOURCES)


def _require_operations(operations: Sequence[str]) -> None:
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
