"""Relation records from what ``vcrt lift lean --json`` prints: one theorem of it, its steps by label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, FailFast

from vcrt.certification.relations import OperationRelation, directed
from vcrt.errors import MalformedInputError, UnknownNameError
from vcrt.partial_orders import PartialOrder
from vcrt.printable import counted
from vcrt.records.policy_view import RELATION_TOKENS, RelationType
from vcrt.records.stated.form import validated
from vcrt.records.stated.record import MAX_NAME, StatedRecord, require_operations


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


def from_lifted(value: Any, where: str, theorem: str | None) -> StatedRecord:
    """Read a list of lifted files or one theorem; ``theorem`` chooses one of several.

    Raises :class:`MalformedInputError`, and :class:`UnknownNameError` for a theorem that is not there.
    """
    return _from_theorem(_chosen(_theorems(value, where), theorem, where))


def _theorems(value: Any, where: str) -> list[_Theorem]:
    if isinstance(value, dict):
        return [validated(_Theorem, value, where)]
    return [theorem for file in value for theorem in validated(_LiftedFile, file, where).theorems]


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
