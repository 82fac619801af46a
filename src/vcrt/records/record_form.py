"""Choose how the records of a dataset state the certified relations: all of them, or in a form that is harder to read.

The form belongs to a dataset and is the same for all of its records. It changes what the policy sees, never what is
certified, rewarded or credited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field, model_validator

from vcrt.certificates.certificates import OperationRelation, directed
from vcrt.errors import MalformedInputError
from vcrt.forms import ClosedModel
from vcrt.limits import MAX_ENUMERATED
from vcrt.orders import transitive_reduction
from vcrt.printable import counted
from vcrt.randomness import Draws, permuted
from vcrt.records.policy_view import (
    LARGE_POOL,
    MAX_DISTRACTORS,
    PointerRelation,
    RelationType,
    pointer_pool,
)

Relations: TypeAlias = Literal["all", "reduced"]
Commutations: TypeAlias = Literal["shown", "omitted"]
Pool: TypeAlias = Literal["usual", "large"]
View: TypeAlias = Literal["relations", "steps", "footprints"]


class RecordForm(ClosedModel):
    """The form of a dataset's records.

    ``relations``: all directed relations, or their transitive reduction alone. ``commutations``: whether commuting
    pairs are shown. ``distractors``: the number of further relations among operations that do not occur. ``pool``:
    whether few operations draw their pointers from the usual pool of 8, or from the pool of 32 that up to 32 operations
    have, so that records of any length look alike. ``view``: whether a record has relations, or in their place the
    native steps as text, or each step's declared reads and writes; then the policy must find the dependences itself.
    :func:`vcrt.certify` takes each of them by its name.

    >>> RecordForm(relations="reduced", commutations="omitted", distractors=2).distractors
    2
    """

    model_config = ConfigDict(strict=True)
    left_out = ("pool", "view")

    relations: Relations = "all"
    commutations: Commutations = "shown"
    distractors: Annotated[int, Field(ge=0, le=MAX_DISTRACTORS)] = 0
    pool: Pool = "usual"
    view: View = "relations"

    @model_validator(mode="after")
    def _forms_of_relations_need_relations(self) -> RecordForm:
        if self.is_text and (self.relations == "reduced" or self.distractors):
            raise ValueError(
                f"records of {self.view} have no relations: leave relations and distractors as they are"
            )
        return self

    @property
    def is_text(self) -> bool:
        """Whether records show steps as text, and no relations."""
        return self.view != "relations"

    def pool_of(self, num_operations: int) -> int:
        """Return the number of pointers from which a record of this many operations draws.

        >>> RecordForm().pool_of(4), RecordForm(pool="large").pool_of(4), RecordForm().pool_of(6)
        (8, 32, 32)
        """
        usual = pointer_pool(num_operations)
        return usual if self.pool == "usual" else max(usual, LARGE_POOL)

    def kept(self, relations: Iterable[OperationRelation]) -> list[OperationRelation]:
        """Return an episode's relations that its record states, in their order."""
        if self.is_text:
            return []
        relations = list(relations)
        kept = directed(relations)
        if self.relations == "reduced":
            kept = sorted(transitive_reduction(kept))
        shown = self.commutations == "shown"
        return [
            relation
            for relation in relations
            if (shown if relation.kind == "commutes" else (relation.first, relation.second) in kept)
        ]

    def draw_distractors(self, own: Sequence[int], draw: Draws) -> tuple[PointerRelation, ...]:
        """Draw relations of the record's kinds among the pointers of the pool that are not ``own``.

        They form no cycle, and depend on ``own`` and the draw alone. Raise :class:`MalformedInputError` if too few
        pointers are left.
        """
        if not self.distractors:
            return ()
        pool = self.pool_of(len(own))
        others = [pointer for pointer in range(pool) if pointer not in own]
        order = permuted(draw, others)
        pairs = [(a, b) for place, a in enumerate(order) for b in order[place + 1 :]]
        if len(pairs) < self.distractors:
            raise MalformedInputError(
                "too few pointers are left for the distractors",
                found=f"{self.distractors} distractors beside {counted(len(own), 'operation')}",
                expected=f"at most {len(pairs)}, as the pool has {pool} pointers",
            )
        kinds: tuple[RelationType, ...] = ("precedes", "conflicts")
        if self.commutations == "shown":
            kinds = (*kinds, "commutes")
        chosen = permuted(draw, len(pairs))[: self.distractors]
        found = []
        for place in chosen:
            kind = kinds[int(draw.integers(len(kinds)))]
            first, second = sorted(pairs[place]) if kind == "commutes" else pairs[place]
            found.append(PointerRelation(first, second, kind))
        return tuple(sorted(found))

    @property
    def text(self) -> str:
        """The differences from the usual form, in words; empty if there are none."""
        pool = f"pointers drawn from {LARGE_POOL} or more" if self.pool == "large" else ""
        if self.is_text:
            return pool
        distractors = f"{counted(self.distractors, 'relation')} among operations that do not occur"
        parts = (
            "only relations that do not follow from others" if self.relations == "reduced" else "",
            "no commuting pairs" if self.commutations == "omitted" else "",
            distractors if self.distractors else "",
            pool,
        )
        return ", ".join(filter(None, parts))


#: The form with every certified relation, and nothing else.
PLAIN_FORM = RecordForm()


def usual_form(num_operations: int | None) -> RecordForm:
    """Return the default form of records of so many operations; None stands for any number.

    Most pairs of many operations commute, and would make every record long. Where numbers differ, short records look
    like long ones.

    >>> usual_form(8).commutations, usual_form(None).pool
    ('omitted', 'large')
    """
    if num_operations is None:
        return RecordForm(commutations="omitted", pool="large")
    return PLAIN_FORM if num_operations <= MAX_ENUMERATED else RecordForm(commutations="omitted")
