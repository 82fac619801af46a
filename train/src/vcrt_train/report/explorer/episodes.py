"""Write one certified episode in the page's form: steps, relations, evidence and orders, as compact JSON.

Hashes and messages are listed once, and other parts refer to their indices. An *answer* of the verifier is the index of
a state hash or, below zero, ``-1 - index`` of the message that refused the step. All text is cut and made printable
here, because anyone may have written the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import factorial
from typing import Any

from vcrt.calls.schedules import waves_of
from vcrt.certificates.certificates import Certificate, PathEvidence, directed
from vcrt.certificates.episodes import CertifiedEpisode
from vcrt.certificates.probes import in_brief
from vcrt.environments.contract import Operation, Replay
from vcrt.hashing import Json, canonical_json
from vcrt.orders import Order, all_orders
from vcrt.printable import printable
from vcrt.words.certificate_words import explanations, pair_title, probes_lines
from vcrt_train.report.explorer.geometry import Pairs, swaps

#: The most characters of one text that are shown.
MAX_CHARACTERS = 1500
#: The most values of an initial state, and contexts of a pair, that are shown.
MAX_VALUES, MAX_CONTEXTS = 40, 40
#: Characters with a meaning for an HTML parser in a script element, and line ends of JavaScript but not of JSON.
_ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def embedded(value: Any) -> str:
    """Write the value as JSON for a ``<script type="application/json">``, without ``<``, ``>`` and ``&``.

    Raises ``ValueError`` for a number that is not finite.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(_ESCAPED)


def shown_text(text: str) -> str:
    """Return the text with its lines, cut if it is too long, and with control characters escaped."""
    lines = "\n".join(map(printable, text[:MAX_CHARACTERS].split("\n")))
    more = len(text) - MAX_CHARACTERS
    return f"{lines} ... ({more:,} more characters)" if more > 0 else lines


def episode_json(
    certified: CertifiedEpisode, describe: Callable[[Operation], str], *, is_drawn: bool
) -> dict[str, Json]:
    """Return the page's form of an episode; it has orders if they are drawn, up to ``MAX_DRAWN`` steps."""
    episode, listed = certified.episode, _Listed()
    local: dict[tuple[int, int], list[Certificate]] = {
        pair: [] for pair in combinations(range(episode.num_operations), 2)
    }
    for certificate in certified.certificates:
        local[certificate.pair].append(certificate)
    # With many steps, certificates are only examples.
    num_contexts = {pair: len(some) for pair, some in local.items()}
    num_contexts |= {pair.pair: sum(pair.verdicts.values()) for pair in certified.pairs}
    pairs = [
        _pair(certified, pair, some, num_contexts[pair], listed) for pair, some in local.items()
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
        "pairs": pairs,
        "orders": orders,
        "swaps": _certificates_of_swaps(local, episode.num_operations) if is_drawn else [],
        "drawing": drawing_name(required_pairs(certified)),
        "waves": [list(wave) for wave in waves_of(certified.order)],
    }
    return {**shown, "hashes": list(listed.hashes), "messages": list(listed.messages)}


def required_pairs(certified: CertifiedEpisode) -> Pairs:
    """Return the pairs that must keep their order, sorted."""
    return tuple(sorted(directed(certified.relations)))


def drawing_name(required: Pairs) -> str:
    """Return the name of the picture, which episodes with the same required pairs share."""
    return " ".join(f"{first}-{second}" for first, second in required)


class _Listed:
    """Texts that are written once: state hashes, and the verifier's messages."""

    def __init__(self) -> None:
        self.hashes: dict[str, int] = {}
        self.messages: dict[str, int] = {}

    def hash(self, digest: str) -> int:
        return self.hashes.setdefault(digest, len(self.hashes))

    def refused(self, message: str) -> int:
        return -1 - self.messages.setdefault(shown_text(message), len(self.messages))


def _step(operation: Operation, describe: Callable[[Operation], str]) -> Json:
    native = describe(operation).removeprefix(f"{operation.signature}: ")
    same = native == operation.signature
    return [shown_text(operation.signature), "" if same else shown_text(native)]


def _pair(
    certified: CertifiedEpisode,
    pair: tuple[int, int],
    local: Sequence[Certificate],
    num_contexts: int,
    listed: _Listed,
) -> Json:
    verdicts = (c.verdict for c in local if c.verdict != "vacuous")
    return {
        "steps": list(pair),
        "kind": next(verdicts, "uncertified"),
        "title": pair_title(pair, local),
        "why": [
            shown_text(line)
            for line in (*explanations(local), *probes_lines(pair, local, certified.cross_checks))
        ],
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
        "numContexts": num_contexts,
    }


def _answers(path: PathEvidence, listed: _Listed) -> Json:
    answers: list[Json] = [listed.hash(digest) for digest in path.state_hashes]
    return answers if path.rejection is None else [*answers, listed.refused(path.rejection)]


def _order(replay: Replay, is_legal: bool, listed: _Listed) -> Json:
    answers: list[Json] = [listed.hash(digest) for digest in replay.state_hashes[1:]]
    if replay.rejection is not None:
        answers.append(listed.refused(replay.rejection.reason))
    return [int(is_legal), answers]


def _certificates_of_swaps(
    local: Mapping[tuple[int, int], Sequence[Certificate]], num_operations: int
) -> list[Json]:
    """Return pair and context, as indices, of each drawn swap's certificate; None if nothing was replayed."""
    places: dict[tuple[frozenset[int], Order], Json] = {
        (frozenset(pair), certificate.context): [number, place]
        for number, (pair, some) in enumerate(local.items())
        for place, certificate in enumerate(some[:MAX_CONTEXTS])
    }
    orders = all_orders(num_operations)
    return [
        places.get((frozenset(orders[here][position : position + 2]), orders[here][:position]))
        for here, _, position in swaps(num_operations)
    ]


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
            for check in in_brief(certified.cross_checks)
        ),
    ]
    return [[name, shown_text(value)] for name, value in facts]


def _values(initial: Json) -> Json:
    """Return the initial state as named values."""
    named = list(initial.items()) if isinstance(initial, dict) else [("", initial)]
    texts = [
        (name, value if isinstance(value, str) else canonical_json(value).decode())
        for name, value in named[:MAX_VALUES]
    ]
    shown: list[Json] = [[shown_text(name), shown_text(text)] for name, text in texts]
    if len(named) > MAX_VALUES:
        shown.append(["", f"... and {len(named) - MAX_VALUES:,} more"])
    return shown
