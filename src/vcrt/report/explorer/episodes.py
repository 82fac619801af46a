"""One certified episode as the page has it: steps, relations, evidence and orders, as compact JSON.

Hashes and messages are listed once and referred to by place. An *answer* of the verifier is the place of a state
hash, or, below zero, ``-1 - place`` of the message that refused the step. All text is cut and made printable here; it
comes from files that anyone may have written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import factorial
from typing import Any

from vcrt.certification.certificates import Certificate, PathEvidence
from vcrt.certification.episodes import CertifiedEpisode
from vcrt.certification.relations import directed
from vcrt.environments.contract import Operation, Replay
from vcrt.hashing import Json, canonical_json
from vcrt.orders import all_orders
from vcrt.printable import printable
from vcrt.report.certificate_words import explanations, pair_title
from vcrt.report.explorer.geometry import swaps

#: Characters of one text that are shown.
MAX_CHARACTERS = 1500
#: Values of an initial state, and contexts of a pair, that are shown.
MAX_VALUES, MAX_CONTEXTS = 40, 40


def shown_text(text: str) -> str:
    """The text with its lines, cut off where it is too long, and without characters that do something."""
    lines = "\n".join(map(printable, text[:MAX_CHARACTERS].split("\n")))
    more = len(text) - MAX_CHARACTERS
    return f"{lines} ... ({more:,} more characters)" if more > 0 else lines


def episode_json(
    certified: CertifiedEpisode, describe: Callable[[Operation], str], *, is_drawn: bool
) -> dict[str, Json]:
    """The page's form of an episode; its orders are there if they are drawn, of ``MAX_DRAWN`` steps at most."""
    episode, listed = certified.episode, _Listed()
    num_contexts = {pair.pair: sum(pair.verdicts.values()) for pair in certified.pairs}
    pairs = [
        _pair(
            [c for c in certified.certificates if c.pair == pair],
            pair,
            listed,
            num_contexts.get(pair),
        )
        for pair in combinations(range(episode.num_operations), 2)
    ]
    orders: list[Json] = []
    if is_drawn:
        legal = set(certified.orbit)
        orders = [_order(replay, replay.sequence in legal, listed) for replay in certified.replays]
    shown: dict[str, Json] = {
        "id": shown_text(episode.episode_id),
        "environment": shown_text(episode.environment),
        "schema": shown_text(episode.schema),
        "facts": _facts(certified),
        "initial": _values(episode.initial),
        "steps": [_step(operation, describe) for operation in episode.operations],
        "relations": [[r.first, r.second, r.kind] for r in certified.relations],
        "numLegal": certified.num_legal,
        "complete": certified.complete,
        "numOrders": factorial(episode.num_operations),
        "start": listed.hash(certified.tree.initial_hash),
        "pairs": list(pairs),
        "orders": orders,
        "swaps": _certificate_of_swaps(certified) if is_drawn else [],
        "drawing": drawing_name(certified),
    }
    return {**shown, **listed.to_json()}


def required_pairs(certified: CertifiedEpisode) -> list[tuple[int, int]]:
    """The pairs that must keep their order, sorted."""
    return sorted(directed(certified.relations))


def drawing_name(certified: CertifiedEpisode) -> str:
    """Episodes with the same required pairs share a picture of this name."""
    return " ".join(f"{first}-{second}" for first, second in required_pairs(certified))


class _Listed:
    """Texts that are written once: state hashes, and the verifier's messages."""

    def __init__(self) -> None:
        self.hashes: dict[str, int] = {}
        self.messages: dict[str, int] = {}

    def hash(self, digest: str) -> int:
        return self.hashes.setdefault(digest, len(self.hashes))

    def refused(self, message: str) -> int:
        return -1 - self.messages.setdefault(shown_text(message), len(self.messages))

    def to_json(self) -> dict[str, Json]:
        return {
            "hashes": list(self.hashes),
            "messages": list(self.messages),
        }


def _step(operation: Operation, describe: Callable[[Operation], str]) -> Json:
    native = describe(operation).removeprefix(f"{operation.signature}: ")
    same = native == operation.signature
    return [shown_text(operation.signature), "" if same else shown_text(native)]


def _pair(
    local: Sequence[Certificate],
    pair: tuple[int, int],
    listed: _Listed,
    num_contexts: int | None = None,
) -> dict[str, Json]:
    """A pair; ``num_contexts`` is in how many contexts it was compared, if ``local`` are examples alone."""
    telling = [c for c in local if c.verdict != "vacuous"]
    return {
        "steps": list(pair),
        "kind": _kind(telling),
        "title": pair_title(pair, local),
        "why": [shown_text(line) for line in explanations(local)],
        "contexts": [
            {
                "after": list(certificate.context),
                "hash": listed.hash(certificate.context_hash),
                "verdict": certificate.verdict,
                "forward": _answers(certificate.forward, listed),
                "reverse": _answers(certificate.reverse, listed),
            }
            for certificate in local[:MAX_CONTEXTS]
        ],
        "numContexts": len(local) if num_contexts is None else num_contexts,
    }


def _kind(telling: Sequence[Certificate]) -> str:
    return telling[0].verdict if telling else "uncertified"


def _answers(path: PathEvidence, listed: _Listed) -> Json:
    answers: list[Json] = [listed.hash(digest) for digest in path.state_hashes]
    return answers if path.rejection is None else [*answers, listed.refused(path.rejection)]


def _order(replay: Replay, is_legal: bool, listed: _Listed) -> Json:
    answers: list[Json] = [listed.hash(digest) for digest in replay.state_hashes[1:]]
    if replay.rejection is not None:
        answers.append(listed.refused(replay.rejection.reason))
    return [int(is_legal), answers]


def _certificate_of_swaps(certified: CertifiedEpisode) -> list[Json]:
    """For each swap of the picture, where its certificate stands: pair and context; None where nothing was replayed."""
    places: dict[tuple[Any, ...], Json] = {}
    for number, pair in enumerate(combinations(range(certified.episode.num_operations), 2)):
        local = [c for c in certified.certificates if c.pair == pair][:MAX_CONTEXTS]
        for place, certificate in enumerate(local):
            places[(pair, certificate.context)] = [number, place]
    orders = all_orders(certified.episode.num_operations)
    found = []
    for here, _, position in swaps(certified.episode.num_operations):
        order = orders[here]
        one, other = sorted(order[position : position + 2])
        found.append(places.get(((one, other), order[:position])))
    return found


def _facts(certified: CertifiedEpisode) -> Json:
    episode, versions = certified.episode, certified.versions
    facts = [
        ("source", episode.provenance.source),
        ("generator", f"{episode.provenance.generator}, seed {episode.provenance.seed}"),
        ("content", episode.content_hash()),
        ("verifier", versions.verifier),
        ("versions", f"adapter {versions.adapter}, canonicalizer {versions.canonicalizer}"),
        *(
            ("second opinion", f"{check.checker}: {check.agreed} of {check.checked} agree")
            for check in certified.cross_checks
        ),
    ]
    return [[name, shown_text(value)] for name, value in facts]


def _values(initial: Json) -> Json:
    """The initial state as named values."""
    named = list(initial.items()) if isinstance(initial, dict) else [("", initial)]
    shown: list[Json] = [
        [
            shown_text(name),
            shown_text(value if isinstance(value, str) else canonical_json(value).decode()),
        ]
        for name, value in named[:MAX_VALUES]
    ]
    if len(named) > MAX_VALUES:
        shown.append(["", f"... and {len(named) - MAX_VALUES:,} more"])
    return shown
