"""Make the relation graph of an episode: one relation for each pair of operations, agreed on by all its contexts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vcrt.certification.certificates import Certificate, UncertifiedError
from vcrt.hashing import Json
from vcrt.orders import transitive_closure

RelationType: TypeAlias = Literal["commutes", "precedes", "conflicts", "observes"]


@dataclass(frozen=True, order=True, slots=True)
class OperationRelation:
    """The certified relation of two operations; ``first`` stands before ``second`` unless they commute.

    The direction of ``conflicts`` is towards the certified terminal state, and that of ``observes`` towards the outputs
    that come with it: that of the reference order.
    """

    first: int
    second: int
    kind: RelationType

    def to_json(self) -> list[Json]:
        """The JSON form ``[first, second, kind]``."""
        return [self.first, self.second, self.kind]


def relation_graph(
    num_operations: int, certificates: Iterable[Certificate], *, allow_implied: bool = False
) -> tuple[OperationRelation, ...]:
    """One relation for each pair, sorted.

    If every context of a pair is vacuous, nothing certifies it. With ``allow_implied``, it has no relation then if the
    others order it by transitivity, as the first and the last of three steps that need each other.

    Raises :class:`UncertifiedError` if two contexts disagree about a pair (``context_dependent``) and if nothing
    certifies one that is not allowed to be without (``outside_schema``).
    """
    found: dict[tuple[int, int], dict[OperationRelation, Certificate]] = {
        (a, b): {} for a in range(num_operations) for b in range(a + 1, num_operations)
    }
    for certificate in certificates:
        if certificate.verdict != "vacuous":
            found[certificate.pair].setdefault(_relation(certificate), certificate)
    graph: list[OperationRelation] = []
    uncertified = []
    for pair, relations in found.items():
        if not relations:
            uncertified.append(pair)
        if len(relations) > 1:
            seen = ", ".join(
                f"{_said(relation)} after {list(c.context)}" for relation, c in relations.items()
            )
            raise UncertifiedError("context_dependent", f"operations {pair}: {seen}")
        graph.extend(relations)
    ordered = transitive_closure(directed(graph)) if allow_implied else frozenset()
    for one, other in uncertified:
        if (one, other) not in ordered and (other, one) not in ordered:
            detail = f"operations {one, other} can run in neither order in any context"
            raise UncertifiedError("outside_schema", detail)
    return tuple(sorted(graph))


def _said(relation: OperationRelation) -> str:
    """A relation in words, with the one that comes first."""
    first = "" if relation.kind == "commutes" else f" ({relation.first} first)"
    return f"{relation.kind}{first}"


def directed(relations: Iterable[OperationRelation]) -> list[tuple[int, int]]:
    """The pairs that must keep their order, as (before, after)."""
    return [(r.first, r.second) for r in relations if r.kind != "commutes"]


def _relation(certificate: Certificate) -> OperationRelation:
    first, second = certificate.pair
    verdict = certificate.verdict
    assert verdict != "vacuous"
    if verdict == "diamond":
        return OperationRelation(first, second, "commutes")
    before = certificate.before
    return OperationRelation(before, second if before == first else first, verdict)
