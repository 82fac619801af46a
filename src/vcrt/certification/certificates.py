"""Local certificates: what happened when two adjacent operations were run in both orders after the same context.

A certificate is evidence, not inference: it holds the four transitions that the verifier answered, with the hashes of
the states between them. Contexts that no accepted sequence reaches have no certificate; contexts in which neither
order can run certify nothing and are *vacuous*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, TypeAlias

from vcrt.certification.replay_tree import EpisodeReplays, Reached
from vcrt.hashing import Json
from vcrt.orders import Order

Verdict: TypeAlias = Literal["diamond", "precedes", "conflicts", "vacuous"]


class InconsistentReplayError(Exception):
    """Two replays that share a prefix disagree about it: the verifier is not a function of the sequence."""


@dataclass(frozen=True, slots=True)
class PathEvidence:
    """One local order: the state hashes after its first and second operation, as far as they were accepted.

    ``rejection`` is the verifier's message for the operation that it refused, ``None`` if both were accepted.
    """

    operations: tuple[int, int]
    state_hashes: tuple[str, ...]
    rejection: str | None

    @property
    def accepted(self) -> bool:
        """Whether both transitions were accepted."""
        return self.rejection is None

    def to_json(self) -> dict[str, Json]:
        """The JSON form."""
        return {
            "operations": list(self.operations),
            "state_hashes": list(self.state_hashes),
            "rejection": self.rejection,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Certificate:
    """Both orders of a pair in one context; ``forward`` runs the pair as the reference order has it.

    Source: the diamond and anti-diamond of the paper's Section "Diamonds and Anti-Diamonds".
    """

    context: Order
    context_hash: str
    forward: PathEvidence
    reverse: PathEvidence

    @property
    def pair(self) -> tuple[int, int]:
        """The two operations, as the reference order has them."""
        return self.forward.operations

    @property
    def verdict(self) -> Verdict:
        """``diamond``, ``precedes`` (one refused), ``conflicts`` (another state), ``vacuous`` (both refused)."""
        if not self.forward.accepted and not self.reverse.accepted:
            return "vacuous"
        if not self.forward.accepted or not self.reverse.accepted:
            return "precedes"
        same = self.forward.state_hashes[-1] == self.reverse.state_hashes[-1]
        return "diamond" if same else "conflicts"

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
    """All local certificates of an episode, sorted by pair and context, from its exhaustive replays.

    Raises :class:`InconsistentReplayError` if replays disagree about a prefix that they share.
    """
    if evidence.tree.contradiction is not None:
        raise InconsistentReplayError(evidence.tree.contradiction)
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
                    forward=_path(answers, context, (first, second)),
                    reverse=_path(answers, context, (second, first)),
                )
            )
    return tuple(sorted(found, key=lambda c: (c.pair, len(c.context), c.context)))


def _path(
    answers: Mapping[Order, Reached], context: Order, operations: tuple[int, int]
) -> PathEvidence:
    hashes: list[str] = []
    for length in (1, 2):
        reached = answers[(*context, *operations[:length])]
        if reached.state_hash is None:
            return PathEvidence(operations, tuple(hashes), reached.rejection)
        hashes.append(reached.state_hash)
    return PathEvidence(operations, tuple(hashes), None)
