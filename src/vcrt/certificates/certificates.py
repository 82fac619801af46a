"""Make local certificates, and derive an episode's relation graph from them.

A certificate says what happened when two adjacent operations ran in both orders after one context. It is evidence, not
inference: it holds the verifier's answers to four transitions, with the hashes of the states between them. Contexts
that no accepted sequence reaches have no certificate; contexts in which neither order can run certify nothing and are
*vacuous*. All contexts of a pair must agree on its relation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

from vcrt.certificates.replay_tree import EpisodeReplays, Reached
from vcrt.environments.contract import some_outputs
from vcrt.hashing import Json
from vcrt.orders import Order, transitive_closure

_UNKNOWN = Reached(None, "not replayed")

Verdict: TypeAlias = Literal["diamond", "precedes", "conflicts", "observes", "vacuous"]
RelationType: TypeAlias = Literal["commutes", "precedes", "conflicts", "observes"]
ExclusionKind: TypeAlias = Literal[
    "nondeterministic",
    "ambiguous_correspondence",
    "missing_provenance",
    "version_disagreement",
    "context_dependent",
    "no_effect",
    "unequal_futures",
    "outside_schema",
    "too_large",
    "second_opinion",
    "duplicate",
]


class UncertifiedError(Exception):
    """The replays of an episode certify nothing; ``kind`` and message say why."""

    def __init__(self, kind: ExclusionKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, slots=True)
class PathEvidence:
    """One local order: the state hashes after its first and second operation, as far as they were accepted.

    ``rejection`` is the verifier's message for the operation that it refused, ``None`` if both were accepted.
    ``outputs`` are those of the accepted operations, empty if they have none.
    """

    operations: tuple[int, int]
    state_hashes: tuple[str, ...]
    rejection: str | None
    outputs: tuple[str | None, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether both transitions were accepted."""
        return self.rejection is None

    @property
    def output_of(self) -> Mapping[int, str | None]:
        """The outputs of the accepted operations, by operation."""
        return dict(zip(self.operations, self.outputs, strict=False))

    @classmethod
    def of(cls, operations: tuple[int, int], passed: Sequence[Reached]) -> PathEvidence:
        """Make the evidence from the answers to the first operation and, if that was accepted, to the second."""
        accepted = [reached for reached in passed if reached.state_hash is not None]
        hashes = tuple(reached.state_hash or "" for reached in accepted)
        outputs = some_outputs([reached.output for reached in accepted])
        return cls(operations, hashes, passed[-1].rejection, outputs)

    def to_json(self) -> dict[str, Json]:
        """The JSON form."""
        value: dict[str, Json] = {
            "operations": list(self.operations),
            "state_hashes": list(self.state_hashes),
            "rejection": self.rejection,
        }
        return {**value, "outputs": list(self.outputs)} if self.outputs else value


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """Both orders of a pair in one context; ``forward`` runs the pair in the reference order.

    Source: the diamond and anti-diamond of the paper's Section "Diamonds and Anti-Diamonds".
    """

    context: Order
    context_hash: str
    forward: PathEvidence
    reverse: PathEvidence

    @property
    def pair(self) -> tuple[int, int]:
        """The two operations, in the reference order."""
        return self.forward.operations

    @property
    def verdict(self) -> Verdict:
        """``diamond``, ``precedes`` (one refused), ``conflicts`` (other states), ``observes`` or ``vacuous``.

        ``observes``: both orders end in one state, with other outputs. ``vacuous``: both are refused.
        """
        if not self.forward.accepted and not self.reverse.accepted:
            return "vacuous"
        if not self.forward.accepted or not self.reverse.accepted:
            return "precedes"
        if self.forward.state_hashes[-1] != self.reverse.state_hashes[-1]:
            return "conflicts"
        return "observes" if self.observers else "diamond"

    @property
    def observers(self) -> tuple[int, ...]:
        """The operations of the pair whose output depends on their order, if both orders were accepted."""
        if not (self.forward.accepted and self.reverse.accepted):
            return ()
        one, other = self.forward.output_of, self.reverse.output_of
        return tuple(i for i in self.pair if one.get(i) != other.get(i))

    @property
    def before(self) -> int:
        """The operation that stands first in the accepted order (``precedes``) or in the reference (otherwise)."""
        if self.verdict == "precedes" and not self.forward.accepted:
            return self.reverse.operations[0]
        return self.forward.operations[0]

    def to_json(self) -> dict[str, Json]:
        """The JSON form, verdict included."""
        return {
            "context": list(self.context),
            "context_hash": self.context_hash,
            "forward": self.forward.to_json(),
            "reverse": self.reverse.to_json(),
            "verdict": self.verdict,
        }


def certificates(evidence: EpisodeReplays) -> tuple[Certificate, ...]:
    """Make all local certificates of an episode, sorted by pair and context, from its exhaustive replays.

    Raises :class:`UncertifiedError` if replays disagree about a prefix that they share.
    """
    if evidence.tree.contradiction is not None:
        raise UncertifiedError("nondeterministic", evidence.tree.contradiction)
    answers, num_operations = evidence.tree.answers, evidence.tree.num_operations
    found = []
    for context, reached in sorted(answers.items()):
        if reached.state_hash is None or len(context) > num_operations - 2:
            continue
        remaining = [i for i in range(num_operations) if i not in context]
        for first, second in combinations(remaining, 2):
            found.append(
                Certificate(
                    context=context,
                    context_hash=reached.state_hash,
                    forward=path_after(answers, context, (first, second)),
                    reverse=path_after(answers, context, (second, first)),
                )
            )
    return tuple(sorted(found, key=lambda c: (c.pair, len(c.context), c.context)))


def path_after(
    answers: Mapping[Order, Reached], context: Order, operations: tuple[int, int]
) -> PathEvidence:
    """Return what two operations did after a context; operations that were not replayed count as refused."""
    passed = [answers.get((*context, operations[0]), _UNKNOWN)]
    if passed[0].state_hash is not None:
        passed.append(answers.get((*context, *operations), _UNKNOWN))
    return PathEvidence.of(operations, passed)


@dataclass(frozen=True, order=True, slots=True)
class OperationRelation:
    """The certified relation of two operations; ``first`` stands before ``second`` unless they commute.

    The direction of ``conflicts`` is the order that leads to the certified terminal state, and that of ``observes`` the
    order with the outputs of the reference order.
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
    """Derive one relation for each pair, sorted.

    A pair is not certified if every context of it is vacuous. With ``allow_implied``, such a pair has no relation if
    the others order it by transitivity, as the first and the last of three steps that need each other.

    Raises :class:`UncertifiedError` if two contexts disagree about a pair (``context_dependent``) and if nothing
    certifies a pair that needs a relation (``outside_schema``).
    """
    found: dict[tuple[int, int], dict[OperationRelation, Certificate]] = {
        pair: {} for pair in combinations(range(num_operations), 2)
    }
    for certificate in certificates:
        if certificate.verdict != "vacuous":
            found[certificate.pair].setdefault(_relation(certificate), certificate)
    for pair, relations in found.items():
        if len(relations) > 1:
            seen = ", ".join(
                f"{_said(relation)} after {list(c.context)}" for relation, c in relations.items()
            )
            raise UncertifiedError("context_dependent", f"operations {pair}: {seen}")
    graph = [relation for relations in found.values() for relation in relations]
    ordered = transitive_closure(directed(graph)) if allow_implied else frozenset()
    for pair, relations in found.items():
        if not relations and pair not in ordered and pair[::-1] not in ordered:
            detail = f"operations {pair} can run in neither order in any context"
            raise UncertifiedError("outside_schema", detail)
    return tuple(sorted(graph))


def _said(relation: OperationRelation) -> str:
    """Return a relation in words, and the operation that comes first."""
    first = "" if relation.kind == "commutes" else f" ({relation.first} first)"
    return f"{relation.kind}{first}"


def directed(relations: Iterable[OperationRelation]) -> list[tuple[int, int]]:
    """Return the pairs that must keep their order, as (before, after)."""
    return [(r.first, r.second) for r in relations if r.kind != "commutes"]


def _relation(certificate: Certificate) -> OperationRelation:
    verdict = certificate.verdict
    assert verdict != "vacuous"
    if verdict == "diamond":
        return OperationRelation(*certificate.pair, "commutes")
    before = certificate.before
    (after,) = {*certificate.pair} - {before}
    return OperationRelation(before, after, verdict)
