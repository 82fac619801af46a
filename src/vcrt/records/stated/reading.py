"""Read a relation record from bytes of any of its three forms: written by hand, a certificate, or lifted from Lean."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, FailFast, ValidationError
from pydantic import Strict as StrictOf

from vcrt.certification.relations import OperationRelation, directed
from vcrt.documents import MAX_BYTES, in_a_line, strict_json
from vcrt.errors import MalformedInputError, UnknownNameError
from vcrt.partial_orders import PartialOrder
from vcrt.printable import counted
from vcrt.records.certificate import certificate_of
from vcrt.records.forms import Strict
from vcrt.records.policy_view import RELATION_TOKENS, RelationType
from vcrt.records.stated.record import MAX_NAME, StatedRecord, require_operations

FORM = '{"operations": [NAME, ...], "relations": [[FIRST, SECOND, KIND], ...]}'
SOURCES = f"{FORM}, or what `vcrt show EPISODE --json` or `vcrt lift lean FILE --json` prints"

_Model = TypeVar("_Model", bound=BaseModel)


class _ByHand(Strict):
    operations: Annotated[list[str], FailFast()]
    # JSON has lists alone.
    relations: Annotated[list[Annotated[tuple[str, str, str], StrictOf(strict=False)]], FailFast()]


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
    steps: Annotated[list[_Step], FailFast()]
    pairs: Annotated[list[_Pair], FailFast()]


class _LiftedFile(_Lenient):
    theorems: Annotated[list[_Theorem], FailFast()] = []


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
            return _from_lifted(value, where, theorem)
        if isinstance(value, dict) and "format" in value:
            return _from_certificate(value, Path(where))
        return _from_hand(value, where)
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


def _from_hand(value: Any, where: str) -> StatedRecord:
    """Read a record as a user writes it. Raises :class:`MalformedInputError`."""
    given = _validated(_ByHand, value, where)
    require_operations(given.operations)
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


def _from_lifted(value: Any, where: str, theorem: str | None) -> StatedRecord:
    """Read a list of lifted files or one theorem; ``theorem`` chooses one of several.

    Raises :class:`MalformedInputError`, and :class:`UnknownNameError` for a theorem that is not there.
    """
    return _from_theorem(_chosen(_theorems(value, where), theorem, where))


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


def _from_theorem(theorem: _Theorem) -> StatedRecord:
    names = [step.label for step in theorem.steps]
    require_operations(names)
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
    closure = PartialOrder.of(len(names), directed(stated.relations)).pairs
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


def _validated(model: type[_Model], value: Any, where: str) -> _Model:
    """``value`` as a ``model``. Raises :class:`MalformedInputError` that names the first wrong field."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _malformed(where, in_a_line(error)) from error


def _malformed(where: str, found: str) -> MalformedInputError:
    """The error for what is no relation record in any form."""
    return MalformedInputError("not a relation record", where=where, found=found, expected=SOURCES)
