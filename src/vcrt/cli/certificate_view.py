"""An episode and its certificates as a person reads them: steps, relations, orders, and every pair in every context.

Only the rendering; what is shown comes from :mod:`vcrt.records.examination`. Nothing is cut off but hashes and the
initial state, which the JSON form holds whole. Steps are numbered from 0, as everywhere in vcrt's files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vcrt.certification.certificates import (
    Certificate,
    InconsistentReplayError,
    PathEvidence,
    Verdict,
    certificates,
)
from vcrt.certification.episodes import CertifiedEpisode, Exclusion, ExclusionKind, legal_orders
from vcrt.certification.relations import OperationRelation
from vcrt.environments.contract import Operation, Replay
from vcrt.hashing import canonical_json
from vcrt.orders import Order
from vcrt.records.certificate import in_words
from vcrt.records.examination import Examined
from vcrt.report.wording import counted, listed, printable

#: Digits of a hash that are printed.
HASH_DIGITS = 10
#: Characters of the initial state that are printed.
INITIAL_CHARS = 300

#: What each exclusion means.
EXCLUSIONS: dict[ExclusionKind, str] = {
    "nondeterministic": "the same steps in the same order were answered differently another time",
    "ambiguous_correspondence": "two steps have one signature, or one has none, so steps cannot be told apart",
    "missing_provenance": "it is not known where the episode comes from",
    "version_disagreement": "the verifier's versions changed between two replays",
    "context_dependent": "a pair of steps commutes in one context and not in another",
    "no_effect": "a step was accepted and left the state as it was",
    "unequal_futures": "two states with one hash fared differently, so equal hashes prove nothing here",
    "outside_schema": "its legal orders are not as many as an episode of the dataset must have",
    "second_opinion": "an independent engine disagrees with the verifier",
    "duplicate": "its content is that of another episode",
}

_STYLES: dict[Verdict, str] = {
    "diamond": "green",
    "precedes": "red",
    "conflicts": "yellow",
    "vacuous": "dim",
}
_MEANINGS: dict[Verdict, str] = {
    "diamond": "one state",
    "precedes": "one refused",
    "conflicts": "two states",
    "vacuous": "certifies nothing",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """What is shown, how its environment describes a step, and where the evidence comes from."""

    examined: Examined
    describe: Callable[[Operation], str]
    origin: str
    only_pair: tuple[int, int] | None = None


def print_view(console: Console, view: View) -> None:
    """Print everything, or, for ``only_pair``, the steps and that pair."""
    examined = view.examined
    _print_head(console, view)
    _heading(console, "Steps, in reference order")
    console.print(_steps_table(view))
    if view.only_pair is None:
        if isinstance(examined.outcome, CertifiedEpisode):
            _heading(console, "Relations")
            for relation in examined.outcome.relations:
                console.print(_text(f"  {relation_text(relation)}"))
        replays = examined.evidence.replays.replays
        _heading(console, f"Orders, {len(replays)} replayed")
        for title, orders in order_groups(replays):
            console.print(_indented(title, 2))
            console.print(_indented(" ".join(map(order_text, orders)), 4))
    certifies = (
        "" if isinstance(examined.outcome, CertifiedEpisode) else "; all this certifies nothing"
    )
    _heading(console, f"Pairs, each in every context that an accepted sequence reaches{certifies}")
    _print_pairs(console, view)


def relation_text(relation: OperationRelation) -> str:
    """A relation in words, with its direction."""
    one, other = relation.first, relation.second
    if relation.kind == "commutes":
        return f"{one} commutes with {other}: they may be swapped"
    if relation.kind == "precedes":
        return f"{one} precedes {other}: {other} then {one} is refused"
    return f"{one} conflicts with {other}: {other} then {one} ends in another state"


def order_text(order: Order) -> str:
    """An order in as few characters as tell it: ``0213``."""
    return ("" if len(order) <= 10 else "-").join(map(str, order))


def order_groups(replays: Sequence[Replay]) -> list[tuple[str, list[Order]]]:
    """The orders by what became of them, the legal ones first, each group with its title."""
    legal = set(legal_orders(replays))
    groups: dict[tuple[bool, str], list[Order]] = {}
    for replay in replays:
        title = _fate(replay, replay.sequence in legal)
        groups.setdefault((replay.sequence not in legal, title), []).append(replay.sequence)
    return [
        (f"{len(orders)} of {len(replays)} {title}", orders)
        for (_, title), orders in sorted(groups.items())
    ]


def pair_title(pair: tuple[int, int], local: Sequence[Certificate]) -> str:
    """What the contexts of a pair certify together."""
    steps = f"Steps {pair[0]} and {pair[1]}"
    telling = _telling(local)
    if not telling:
        return f"{steps}: nothing is certified"
    if len(telling) > 1:
        return f"{steps}: the contexts disagree"
    certificate = telling[0][0]
    before = certificate.before
    after = next(step for step in pair if step != before)
    if certificate.verdict == "diamond":
        return f"{steps}: a diamond, they commute"
    if certificate.verdict == "precedes":
        return f"{steps}: an anti-diamond, {before} precedes {after}"
    return f"{steps}: an anti-diamond, {before} conflicts with {after}"


def explanations(local: Sequence[Certificate]) -> list[str]:
    """Why, in plain words: one line for each thing that the contexts of a pair certify, and one for vacuous ones."""
    lines = []
    for alike in _telling(local):
        others = [c.context for c in alike[1:]]
        also = f"; likewise after {_contexts(others)}" if others else ""
        lines.append(f"after {in_words(alike[0].context)}: {_explanation(alike[0])}{also}")
    vacuous = [c.context for c in local if c.verdict == "vacuous"]
    if vacuous:
        lines.append(f"after {_contexts(vacuous)}: neither order runs, which certifies nothing")
    return lines


def _explanation(certificate: Certificate) -> str:
    one, other = certificate.pair
    forward, reverse = certificate.forward, certificate.reverse
    both = f"{one} then {other} accepted; {other} then {one} accepted"
    if certificate.verdict == "diamond":
        return f"{both}; both end in state {_hash(forward.state_hashes[-1])}"
    if certificate.verdict == "conflicts":
        ends = f"{_hash(forward.state_hashes[-1])} and {_hash(reverse.state_hashes[-1])}"
        return f"{both}; they end in two states, {ends}"
    accepted, refused = (forward, reverse) if forward.accepted else (reverse, forward)
    return (
        f"{accepted.operations[0]} then {accepted.operations[1]} accepted; "
        f"{refused.operations[0]} then {refused.operations[1]}: step {_refused_step(refused)} refused: "
        f"'{refused.rejection}'"
    )


def _refused_step(path: PathEvidence) -> int:
    return path.operations[len(path.state_hashes)]


def _telling(local: Sequence[Certificate]) -> list[list[Certificate]]:
    """The certificates that are not vacuous, grouped by what they say."""
    groups: dict[tuple[Verdict, int], list[Certificate]] = {}
    for certificate in local:
        if certificate.verdict != "vacuous":
            groups.setdefault((certificate.verdict, certificate.before), []).append(certificate)
    return list(groups.values())


def _contexts(contexts: Iterable[Order]) -> str:
    """Several contexts in words: ``0, 0 2 and 2 0``."""
    return listed([in_words(context) for context in contexts])


def _fate(replay: Replay, legal: bool) -> str:
    if replay.rejection is None:
        end = _hash(replay.state_hashes[-1])
        return f"{'legal: end' if legal else 'accepted, but not legal: end'} in state {end}"
    reached = len(replay.state_hashes) - 1
    place = (
        f"at step {replay.sequence[reached]}" if reached < len(replay.sequence) else "as a whole"
    )
    return f"refused {place}: '{replay.rejection.reason}'"


def _print_head(console: Console, view: View) -> None:
    examined = view.examined
    episode, versions = examined.evidence.episode, examined.versions
    console.print(_text(episode.episode_id, "bold"))
    rows = [("outcome", _outcome_text(examined))]
    if isinstance(examined.outcome, Exclusion):
        rows.append(("found", examined.outcome.detail))
    libraries = [f"{name} {_short_version(value)}" for name, value in versions.libraries.items()]
    rows += [
        ("evidence", view.origin),
        ("environment", f"{episode.environment}, schema {episode.schema}"),
        ("source", episode.provenance.source),
        ("generator", f"{episode.provenance.generator}, seed {episode.provenance.seed}"),
        ("content", episode.content_hash()),
        ("verifier", versions.verifier),
        ("versions", f"adapter {versions.adapter}, canonicalizer {versions.canonicalizer}"),
        ("libraries", ", ".join(libraries) or "none"),
    ]
    rows += [
        ("2nd opinion", f"{check.checker}: {check.agreed} of {check.checked} agree")
        for check in examined.evidence.cross_checks
    ] or [("2nd opinion", "none: this environment has no second engine")]
    initial = canonical_json(episode.initial).decode()
    shown = initial[:INITIAL_CHARS]
    cut = f" ... ({len(initial):,} characters, whole in --json)" if shown != initial else ""
    rows.append(("start", f"{shown}{cut}"))
    rows.append(("", f"state {_hash(examined.evidence.replays.replays[0].state_hashes[0])}"))
    grid = _grid()
    for name, value in rows:
        style = "bold" if name in ("outcome", "found") else ""
        grid.add_row(_text(name, "dim"), _text(value, style))
    console.print(grid)


def _outcome_text(examined: Examined) -> str:
    outcome = examined.outcome
    if isinstance(outcome, Exclusion):
        return f"excluded, {outcome.kind}: {EXCLUSIONS[outcome.kind]}"
    num_orders = len(outcome.replays)
    return (
        f"certified: {len(outcome.orbit)} of {num_orders} orders are legal, "
        f"{counted(len(outcome.certificates), 'local certificate')}"
    )


def _steps_table(view: View) -> Table:
    grid = _grid()
    for index, operation in enumerate(view.examined.evidence.episode.operations):
        native = view.describe(operation).removeprefix(f"{operation.signature}: ")
        shown = "" if native == operation.signature else native
        grid.add_row(_text(str(index), "bold"), _text(operation.signature), _text(shown))
    return grid


def _print_pairs(console: Console, view: View) -> None:
    evidence = view.examined.evidence
    try:
        local = certificates(evidence.replays)
    except InconsistentReplayError as error:
        console.print(_indented(f"no pair can be compared: {error}", 2))
        return
    for pair in combinations(range(evidence.episode.num_operations), 2):
        if view.only_pair in (None, pair):
            _print_pair(console, pair, [c for c in local if c.pair == pair])


def _print_pair(console: Console, pair: tuple[int, int], local: Sequence[Certificate]) -> None:
    console.print()
    console.print(_text(pair_title(pair, local), "bold"))
    for line in explanations(local):
        console.print(_indented(line, 2))
    messages: dict[tuple[int, str], int] = {}
    # Narrow enough for 80 columns.
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in ("after", "order", "first", "second", "verdict"):
        table.add_column(name, overflow="fold")
    for certificate in local:
        style = _STYLES[certificate.verdict]
        sides = (
            (in_words(certificate.context), certificate.forward, certificate.verdict),
            (
                _hash(certificate.context_hash),
                certificate.reverse,
                _MEANINGS[certificate.verdict],
            ),
        )
        for after, path, verdict in sides:
            first, second = _answers(path, messages)
            order = " ".join(map(str, path.operations))
            table.add_row(after, order, first, second, Text(verdict, style))
        table.add_section()
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
    for (step, message), number in messages.items():
        console.print(_indented(f"({number}) the verifier on step {step}: {message}", 2))


def _answers(path: PathEvidence, messages: dict[tuple[int, str], int]) -> tuple[str, str]:
    """What the verifier answered to the first and to the second step, with the number of its message."""
    accepted = [f"accepted {_hash(state_hash)}" for state_hash in path.state_hashes]
    if path.rejection is None:
        first, second = accepted
        return first, second
    number = messages.setdefault((_refused_step(path), path.rejection), len(messages) + 1)
    first, second, *_ = (*accepted, f"refused ({number})", "not run")
    return first, second


def _hash(digest: str) -> str:
    return digest[:HASH_DIGITS]


def _short_version(value: str) -> str:
    is_digest = len(value) == 64 and set(value) <= set("0123456789abcdef")
    return _hash(value) if is_digest else value


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2))
    for _ in range(3):
        grid.add_column(overflow="fold")
    return grid


def _heading(console: Console, title: str) -> None:
    console.print()
    console.print(_text(title, "bold underline"))


def _indented(text: str, columns: int) -> Padding:
    return Padding(_text(text), (0, 0, 0, columns), expand=False)


def _text(text: str, style: str = "") -> Text:
    """Text without control characters: what is shown may come from a file that anyone wrote."""
    return Text("\n".join(map(printable, text.split("\n"))), style=style, overflow="fold")
