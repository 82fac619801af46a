"""The relation graph of an episode: one relation for each pair of operations, agreed on by all its contexts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from vcrt.certification.certificates import Certificate
from vcrt.hashing import Json

RelationType: TypeAlias = Literal["commutes", "precedes", "conflicts"]


class ContextDependentError(Exception):
    """The contexts of a pair certify different relations."""


class UncertifiedPairError(Exception):
    """No reachable context certifies anything about a pair."""


@dataclass(frozen=True, order=True, slots=True)
class OperationRelation:
    """The certified relation of two operations; ``first`` stands before ``second`` unless they commute.

    A conflict's direction is towards the certified terminal state, that is the direction of the reference order.
    """

    first: int
    second: int
    kind: RelationType

    def to_json(self) -> list[Json]:
        """The JSON form ``[first, second, kind]``."""
        return [self.first, self.second, self.kind]


def relation_graph(
    num_operations: int, certificates: Iterable[Certificate]
) -> tuple[OperationRelation, ...]:
    """One relation for each pair, sorted.

    Raises :class:`ContextDependentError` if two contexts disagree about a pair and :class:`UncertifiedPairError` if
    every context of a pair is vacuous.
    """
    found: dict[tuple[int, int], dict[OperationRelation, Certificate]] = {
        (a, b): {} for a in range(num_operations) for b in range(a + 1, num_operations)
    }
    for certificate in certificates:
        if certificate.verdict != "vacuous":
            found[certificate.pair].setdefault(_relation(certificate), certificate)
    graph: list[OperationRelation] = []
    for pair, relations in found.items():
        if not relations:
            raise UncertifiedPairError(f"operations {pair} can run in neither order in any context")
        if len(relations) > 1:
            seen = ", ".join(
                f"{relation.kind} after {list(c.context)}" for relation, c in relations.items()
            )
            raise ContextDependentError(f"operations {pair}: {seen}")
        graph.extend(relations)
    return tuple(sorted(graph))


def _relation(certificate: Certificate) -> OperationRelation:
    first, second = certificate.pair
    if certificate.verdict == "diamond":
        return OperationRelation(first, second, "commutes")
    before = certificate.before
    after = second if before == first else first
    kind: RelationType = "precedes" if certificate.verdict == "precedes" else "conflicts"
    return OperationRelation(before, after, kind)
