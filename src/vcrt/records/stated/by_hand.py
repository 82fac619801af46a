"""Relation records as a user writes them: operations by name, relations as triples of names."""

from __future__ import annotations

from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, FailFast, Strict

from vcrt.certification.relations import OperationRelation
from vcrt.errors import MalformedInputError
from vcrt.records.policy_view import RelationType
from vcrt.records.stated.form import validated
from vcrt.records.stated.record import MAX_NAME, StatedRecord, require_operations


class _ByHand(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    operations: Annotated[list[str], FailFast()]
    # JSON has lists alone.
    relations: Annotated[list[Annotated[tuple[str, str, str], Strict(strict=False)]], FailFast()]


def from_hand(value: Any, where: str) -> StatedRecord:
    """Read a record as a user writes it. Raises :class:`MalformedInputError`."""
    given = validated(_ByHand, value, where)
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
