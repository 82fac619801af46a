"""Report what the replays of one episode show of its steps: which pairs commute, which do not, and why.

Pure functions of the replays of all orders, for any number of steps. Certification leaves out an episode that does not
fit; this report describes any answers of the verifier: relations that depend on the context, steps that never run next
to each other, a reference order that is refused. Not covered: whether the episode may be frozen (see
:mod:`vcrt.certificates.episodes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

from vcrt.certificates.certificates import Certificate, Verdict, certificates
from vcrt.certificates.episodes import idle_places, legal_orders
from vcrt.certificates.replay_tree import EpisodeReplays
from vcrt.environments.contract import Episode, Replay
from vcrt.hashing import json_digest
from vcrt.orders import Order

PairRelation: TypeAlias = Literal[
    "commutes", "precedes", "conflicts", "observes", "depends on context", "uncertified"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class PairReport:
    """The findings about two steps; ``first`` stands before ``second`` in the reference order.

    ``before`` is the step that must come first (``precedes``) or that comes first in the reference order
    (``conflicts``, ``observes``), and ``None`` for the other relations. ``examples`` holds one certificate for each
    verdict, except vacuous ones, and each direction, in the shortest context that shows it.
    """

    first: int
    second: int
    relation: PairRelation
    before: int | None
    reason: str
    """The verifier's own message where it refused one of the two, else what was seen."""
    always_first: int | None
    """Which of the two stands first in every legal order, be it through other steps; ``None`` if it may vary."""
    contexts: Mapping[Verdict, int]
    """In how many contexts each verdict was found."""
    examples: tuple[Certificate, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A refusal and its reason; ``None`` for the step if the whole sequence was refused at its end."""

    step: int | None
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OrdersReport:
    """The findings about an episode: its pairs, sorted, and how many of its orders are legal."""

    episode: Episode
    pairs: tuple[PairReport, ...]
    num_orders: int
    legal: tuple[Order, ...]
    """The orders that are accepted and end in the reference order's state; none if that one is refused."""
    num_other_state: int
    """How many orders are accepted, but do not end in the reference order's state."""
    reference_refusal: Refused | None
    """Where and why the reference order itself is refused, if it is."""
    idle: tuple[int, ...]
    """The steps that somewhere leave the state as it is."""
    digest: str
    """The SHA-256 of all certificates, by which the same evidence is known again."""

    @property
    def num_legal(self) -> int:
        """How many orders are legal."""
        return len(self.legal)


def report_orders(evidence: EpisodeReplays) -> OrdersReport:
    """Report what the replays of all orders of an episode show.

    Raises :class:`vcrt.certificates.certificates.UncertifiedError` if they contradict each other.
    """
    episode = evidence.episode
    by_pair: dict[tuple[int, int], list[Certificate]] = {
        pair: [] for pair in combinations(range(episode.num_operations), 2)
    }
    every = certificates(evidence)
    for certificate in every:
        by_pair[certificate.pair].append(certificate)
    legal = tuple(legal_orders(evidence.replays))
    reference = min(evidence.replays, key=lambda replay: replay.sequence)
    return OrdersReport(
        episode=episode,
        pairs=tuple(_pair(episode, pair, found, legal) for pair, found in by_pair.items()),
        num_orders=len(evidence.replays),
        legal=legal,
        num_other_state=sum(replay.accepted for replay in evidence.replays) - len(legal),
        reference_refusal=_refused(reference),
        idle=tuple(sorted({r.sequence[k] for r in evidence.replays for k in idle_places(r)})),
        digest=json_digest([certificate.to_json() for certificate in every]),
    )


def _pair(
    episode: Episode, pair: tuple[int, int], found: Sequence[Certificate], legal: Sequence[Order]
) -> PairReport:
    examples: dict[tuple[PairRelation, int | None], Certificate] = {}
    for certificate in found:
        if certificate.verdict != "vacuous":
            examples.setdefault(_relation(certificate), certificate)
    relation: PairRelation
    if len(examples) == 1:
        (((relation, before), example),) = examples.items()
        reason = reason_of(example)
    elif examples:
        relation, before = "depends on context", None
        reason = "; ".join(_in_context(episode, *item) for item in examples.items())
    else:
        relation, before = "uncertified", None
        reason = _why_nothing(found)
    return PairReport(
        first=pair[0],
        second=pair[1],
        relation=relation,
        before=before,
        reason=reason,
        always_first=_always_first(pair, legal),
        contexts=Counter(certificate.verdict for certificate in found),
        examples=tuple(examples.values()),
    )


def _always_first(pair: tuple[int, int], legal: Sequence[Order]) -> int | None:
    seen: set[int] = set()
    for order in legal:
        seen.add(min(pair, key=order.index))
        if len(seen) == 2:
            return None
    return seen.pop() if seen else None


def _relation(certificate: Certificate) -> tuple[PairRelation, int | None]:
    match certificate.verdict:
        case "precedes" | "conflicts" | "observes" as kind:
            return kind, certificate.before
        case _:
            return "commutes", None


def reason_of(certificate: Certificate) -> str:
    """Why a certificate has its verdict: the verifier's own message where it refused, else what was seen, in words."""
    match certificate.verdict:
        case "diamond":
            same = ", with the same outputs" * bool(certificate.forward.outputs)
            return f"both orders are accepted and end in one state{same}"
        case "conflicts":
            return "both orders are accepted and end in different states"
        case "observes":
            return (
                f"both orders are accepted and end in one state, but {other_outputs(certificate)}"
            )
        case _:
            return certificate.forward.rejection or certificate.reverse.rejection or ""


def other_outputs(certificate: Certificate) -> str:
    """Say in words which operations of a pair gave different outputs in the two orders, and which outputs."""
    first, second = certificate.pair
    found = []
    for observer in certificate.observers:
        given = _quoted(certificate.forward.output_of[observer])
        otherwise = _quoted(certificate.reverse.output_of[observer])
        if observer == first:
            found.append(f"{first} gives {given} before {second} and {otherwise} after it")
        else:
            found.append(f"{second} gives {given} after {first} and {otherwise} before it")
    return "; ".join(found)


def _quoted(output: str | None, length: int = 60) -> str:
    text = " ".join((output or "nothing").split())
    return f"'{text}'" if len(text) <= length else f"'{text[: length - 3]}...'"


def _in_context(
    episode: Episode, relation: tuple[PairRelation, int | None], certificate: Certificate
) -> str:
    signatures = [operation.signature for operation in episode.operations]
    kind, before = relation
    after = ", ".join(signatures[i] for i in certificate.context) or "nothing"
    first = "" if before is None else f" ({signatures[before]} first)"
    return f"after {after}: {kind}{first}, {reason_of(certificate)}"


def _why_nothing(found: Sequence[Certificate]) -> str:
    if not found:
        return "no accepted steps lead to where both of them are still to be taken"
    return f"neither order is accepted anywhere: {found[0].forward.rejection}"


def _refused(replay: Replay) -> Refused | None:
    if replay.rejection is None:
        return None
    left = replay.sequence[len(replay.state_hashes) - 1 :]
    return Refused(step=left[0] if left else None, reason=replay.rejection.reason)
