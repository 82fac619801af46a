"""Say what an episode's certificates mean, in plain words: relations, orders, pairs, exclusions.

Pure text: :mod:`vcrt.cli.certificate_view` and :mod:`vcrt_train.report.explorer` lay it out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from math import factorial

from vcrt.certificates.certificates import (
    Certificate,
    ExclusionKind,
    OperationRelation,
    PathEvidence,
    Verdict,
)
from vcrt.certificates.episodes import CertifiedEpisode, Exclusion, legal_orders
from vcrt.certificates.long_episodes import PairContexts
from vcrt.certificates.pairs import other_outputs
from vcrt.certificates.probes import probed_pairs
from vcrt.certificates.replay_tree import ReplayTree
from vcrt.environments.contract import CrossCheck, Replay
from vcrt.hashing import canonical_json, sha256_hex
from vcrt.orders import Order
from vcrt.printable import counted, listed
from vcrt.records.certificate import after

#: Digits of a hash that are printed.
HASH_DIGITS = 10
#: What each exclusion means.
EXCLUSIONS: dict[ExclusionKind, str] = {
    "nondeterministic": "the same steps in the same order were answered differently another time",
    "ambiguous_correspondence": "two steps have one signature, or one has none, so steps cannot be told apart",
    "missing_provenance": "it is not known where the episode comes from",
    "version_disagreement": "the verifier's versions changed between two replays",
    "context_dependent": "a pair of steps commutes in one context and not in another",
    "no_effect": "a step was accepted, left the state as it was and gave no output",
    "unequal_futures": "two states with one hash fared differently, so equal hashes prove nothing here",
    "outside_schema": "its legal orders are not as many as an episode of the dataset must have",
    "too_large": "its orders fall into too many classes to replay one of each",
    "second_opinion": "an independent engine disagrees with the verifier",
    "duplicate": "its content is that of another episode",
}


def relation_text(relation: OperationRelation) -> str:
    """A relation in words, with its direction."""
    one, other = relation.first, relation.second
    if relation.kind == "commutes":
        return f"{one} commutes with {other}: they may be swapped"
    if relation.kind == "precedes":
        return f"{one} precedes {other}: {other} then {one} is refused"
    if relation.kind == "observes":
        return f"{one} comes before {other}, one of which observes the other: {other} then {one} gives other outputs"
    return f"{one} conflicts with {other}: {other} then {one} ends in another state"


def relation_lines(certified: CertifiedEpisode) -> list[str]:
    """Give the relations in words, one on each line; for many steps, pairs that commute are only counted."""
    if certified.exhaustive:
        return [relation_text(relation) for relation in certified.relations]
    required = [relation for relation in certified.relations if relation.kind != "commutes"]
    lines = [*map(relation_text, required)]
    if commuting := len(certified.relations) - len(required):
        pairs = counted(commuting, "other pair" if required else "pair")
        lines.append(f"{pairs} {'commutes' if commuting == 1 else 'commute'}")
    related = {frozenset((relation.first, relation.second)) for relation in certified.relations}
    pairs_of_steps = combinations(range(certified.episode.num_operations), 2)
    implied = [f"{a} and {b}" for a, b in pairs_of_steps if frozenset((a, b)) not in related]
    if implied:
        verb = "follows" if len(implied) == 1 else "follow"
        lines.append(
            f"{counted(len(implied), 'pair')} ({', '.join(implied)}) {verb} from other relations: "
            "such steps never stand side by side"
        )
    return lines


def order_text(order: Order) -> str:
    """Write an order briefly: ``0213``."""
    return ("" if len(order) <= 10 else "-").join(map(str, order))


def order_groups(replays: Sequence[Replay]) -> list[tuple[str, list[Order]]]:
    """Group the orders by their outcome, legal orders first, each group with its title."""
    legal = set(legal_orders(replays))
    groups: dict[tuple[bool, str], list[Order]] = defaultdict(list)
    for replay in replays:
        is_legal = replay.sequence in legal
        groups[not is_legal, _outcome(replay, is_legal)].append(replay.sequence)
    return [
        (f"{len(orders)} of {len(replays)} {title}", orders)
        for (_, title), orders in sorted(groups.items())
    ]


def legal_text(certified: CertifiedEpisode) -> str:
    """Say how many orders are legal, as far as they are counted; if contexts were sampled, count by the relations."""
    num_operations, num_legal = certified.episode.num_operations, certified.num_legal
    if num_legal is None:
        return f"the legal orders of {counted(num_operations, 'step')} are too many to count"
    share = f"{num_legal:,} of {factorial(num_operations):,} orders"
    return f"{share} are legal" if certified.complete else f"{share} keep the certified relations"


def evidence_lines(outcome: CertifiedEpisode | Exclusion, tree: ReplayTree) -> list[str]:
    """Say what was replayed of an episode of many steps, and what supports its legal orders."""
    accepted = counted(len(tree) - tree.num_refused, "sequence")
    first = f"{accepted} accepted, {tree.num_refused:,} refused at their last step"
    if isinstance(outcome, Exclusion):
        return [first]
    if outcome.complete:
        return [
            first,
            "complete: every step was run in every reachable context; sequences of the same steps that lead to states "
            "of one hash count as one context; all legal orders were counted in that lattice, and are those that keep "
            "the relations",
        ]
    replayed = sum(pair.replayed for pair in outcome.pairs)
    known = [pair.contexts for pair in outcome.pairs if pair.contexts is not None]
    of_all = f"of {sum(known):,}" if len(known) == len(outcome.pairs) else "of an unknown number of"
    return [
        first,
        f"sampled, not complete: pairs of steps were compared in {replayed:,} {of_all} contexts of a pair that legal "
        "orders reach",
        f"one representative of each of {counted(outcome.classes or 0, 'class', 'classes')} of orders was replayed "
        "as a whole, and fares as the relations say",
    ]


def contexts_text(pair: PairContexts) -> str:
    """Say in how many contexts a pair was compared, and how often each result was found."""
    contexts = "an unknown number of" if pair.contexts is None else f"{pair.contexts:,}"
    sampled = "" if pair.complete else " (sampled)"
    beside = f", and in {pair.beside:,} beside them" if pair.beside else ""
    reached = f"{pair.replayed:,} of {contexts} contexts that legal orders reach{sampled}"
    return f"compared in {reached}{beside}: {_verdicts(pair)}"


def contexts_cells(pair: PairContexts) -> tuple[str, str, str]:
    """Give table cells for a pair: contexts that legal orders reach, other contexts, and the results."""
    contexts = "" if pair.contexts is None else f" of {pair.contexts:,}"
    sampled = "" if pair.complete else " (sampled)"
    return f"{pair.replayed:,}{contexts}{sampled}", f"{pair.beside:,}", _verdicts(pair)


def _verdicts(pair: PairContexts) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in pair.verdicts.items()) or "nothing"


def pair_title(pair: tuple[int, int], local: Sequence[Certificate]) -> str:
    """Say what all contexts of a pair certify together."""
    steps = f"Steps {pair[0]} and {pair[1]}"
    groups = _informative(local)
    if not groups:
        return f"{steps}: nothing is certified"
    if len(groups) > 1:
        return f"{steps}: the contexts disagree"
    certificate = groups[0][0]
    if certificate.verdict == "diamond":
        return f"{steps}: a diamond, they commute"
    if certificate.verdict == "observes":
        observer = certificate.observers[0]
        (observed,) = {*pair} - {observer}
        return f"{steps}: an anti-diamond, {observer} observes {observed}"
    (after,) = {*pair} - {certificate.before}
    verb = "precedes" if certificate.verdict == "precedes" else "conflicts with"
    return f"{steps}: an anti-diamond, {certificate.before} {verb} {after}"


def commutes(local: Sequence[Certificate]) -> bool:
    """Tell whether contexts of a pair certify that it commutes, and no context certifies the opposite."""
    return {c.verdict for c in local} - {"vacuous"} == {"diamond"}


def explanations(local: Sequence[Certificate]) -> list[str]:
    """Explain each kind of result in the contexts of a pair in one line, and vacuous contexts in one line."""
    lines = []
    for alike in _informative(local):
        others = [c.context for c in alike[1:]]
        also = f"; likewise {_contexts(others)}" if others else ""
        lines.append(f"{after(alike[0].context)}: {_explanation(alike[0])}{also}")
    vacuous = [c.context for c in local if c.verdict == "vacuous"]
    if vacuous:
        lines.append(f"{_contexts(vacuous)}: neither order runs, which certifies nothing")
    return lines


def probes_lines(
    pair: tuple[int, int], local: Sequence[Certificate], checks: Sequence[CrossCheck]
) -> list[str]:
    """Say how many further calls support a pair's diamonds, if any were made after both orders of a pair."""
    probed = probed_pairs(checks)
    if not probed or not any(certificate.verdict == "diamond" for certificate in local):
        return []
    if pair not in probed:
        return ["checked further: nothing, as other pairs took the calls that may be made"]
    return [
        f"checked further: {counted(probed[pair], 'call')} after both orders, all answered alike"
    ]


def _explanation(certificate: Certificate) -> str:
    one, other = certificate.pair
    forward, reverse = certificate.forward, certificate.reverse
    if forward.accepted and reverse.accepted:
        both = f"{one} then {other} accepted; {other} then {one} accepted"
        first, second = (short_hash(path.state_hashes[-1]) for path in (forward, reverse))
        if certificate.verdict == "diamond":
            return f"{both}; both end in state {first}"
        if certificate.verdict == "observes":
            return f"{both}; both end in state {first}, but {other_outputs(certificate)}"
        return f"{both}; they end in two states, {first} and {second}"
    accepted, refused = (forward, reverse) if forward.accepted else (reverse, forward)
    first, second = (" then ".join(map(str, path.operations)) for path in (accepted, refused))
    step = refused_step(refused)
    return f"{first} accepted; {second}: step {step} refused: '{refused.rejection}'"


def refused_step(path: PathEvidence) -> int:
    """The step at which a local order was refused."""
    return path.operations[len(path.state_hashes)]


def _informative(local: Sequence[Certificate]) -> list[list[Certificate]]:
    """The certificates that are not vacuous, grouped by what they say."""
    groups: dict[tuple[Verdict, int], list[Certificate]] = defaultdict(list)
    for certificate in local:
        if certificate.verdict != "vacuous":
            groups[certificate.verdict, certificate.before].append(certificate)
    return list(groups.values())


def _contexts(contexts: Iterable[Order]) -> str:
    """Several contexts in words: ``after 0, after 0 2 and after 2 0``."""
    return listed([after(context) for context in contexts])


def _outcome(replay: Replay, legal: bool) -> str:
    if replay.rejection is None:
        end = short_hash(replay.state_hashes[-1])
        if legal or not replay.outputs:
            return f"{'legal: end' if legal else 'accepted, but not legal: end'} in state {end}"
        outputs = canonical_json([list(pair) for pair in sorted(replay.output_of.items())])
        seen = short_hash(sha256_hex(outputs))
        return f"accepted, but not legal: end in state {end} with outputs {seen}"
    reached = len(replay.state_hashes) - 1
    place = (
        f"at step {replay.sequence[reached]}" if reached < len(replay.sequence) else "as a whole"
    )
    return f"refused {place}: '{replay.rejection.reason}'"


def short_hash(digest: str) -> str:
    """The first digits of a hash."""
    return digest[:HASH_DIGITS]
