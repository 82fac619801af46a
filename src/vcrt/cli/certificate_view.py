"""Print an episode and its certificates for people: steps, relations, orders, and each pair in each context.

This module only renders what :mod:`vcrt.datasets.examination` gives. It shortens only hashes, the values of the initial
state and, for long episodes, contexts; the JSON form holds everything. Steps are numbered from 0, as everywhere in
vcrt's files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vcrt.api.datasets import Shown
from vcrt.certificates.certificates import (
    Certificate,
    PathEvidence,
    UncertifiedError,
    Verdict,
    certificates,
)
from vcrt.certificates.episodes import CertifiedEpisode, Exclusion
from vcrt.certificates.lattice import Lattice
from vcrt.certificates.long_episodes import PairContexts
from vcrt.certificates.probes import in_brief
from vcrt.certificates.replay_tree import EpisodeReplays, ReplayTree
from vcrt.cli.options import plain_console
from vcrt.datasets.examination import Describe, Examined
from vcrt.environments.contract import CrossCheck, Operation
from vcrt.errors import VcrtError
from vcrt.hashing import Json, canonical_json
from vcrt.printable import counted, printable
from vcrt.records.certificate import document_text, in_words
from vcrt.words.certificate_words import (
    EXCLUSIONS,
    commutes,
    contexts_cells,
    contexts_text,
    evidence_lines,
    explanations,
    legal_text,
    order_groups,
    order_text,
    pair_title,
    probes_lines,
    refused_step,
    relation_lines,
    short_hash,
)

#: Characters that are printed of each value in the initial state.
VALUE_CHARS = 200

_STYLES: dict[Verdict, str] = {
    "diamond": "green",
    "precedes": "red",
    "conflicts": "yellow",
    "observes": "yellow",
    "vacuous": "dim",
}
_MEANINGS: dict[Verdict, str] = {
    "diamond": "one state",
    "precedes": "one refused",
    "conflicts": "two states",
    "observes": "two outputs",
    "vacuous": "certifies nothing",
}


def print_shown(
    shown: Shown,
    *,
    json: bool = False,
    pair: tuple[int, int] | None = None,
    brief: bool = False,
    full: bool = False,
) -> None:
    """Print an episode, or the part of it that the options select.

    Args:
        json: Print one self-contained document, which `vcrt verify --certificate` checks.
        pair: Show only these two steps, by their numbers.
        brief: Leave out the initial state, the single orders and the evidence of each pair (default in a terminal).
        full: Show everything, in a terminal too (default where the output is piped).
    """
    if json:
        print(document_text(shown.examined.document()))
        return
    console = plain_console()
    brief = brief or (console.is_terminal and not full and pair is None)
    say_shown(console, shown, pair=pair, brief=brief)


def say_shown(
    console: Console, shown: Shown, *, pair: tuple[int, int] | None = None, brief: bool = False
) -> None:
    """Print an episode, or its steps and one ``pair``; raises :class:`VcrtError` if there is no such pair.

    With ``brief``, print only steps, relations and counts of orders.
    """
    examined = shown.examined
    episode, replays = examined.evidence.episode, examined.evidence.replays
    num_operations = episode.num_operations
    if pair is not None and not 0 <= min(pair) < max(pair) < num_operations:
        raise VcrtError(
            "no such pair",
            found=f"--pair {pair[0]} {pair[1]}",
            expected=f"two different steps from 0 to {num_operations - 1}",
        )
    describe = shown.describe()
    _print_head(console, shown, brief=brief)
    _heading(console, "Steps, in reference order")
    console.print(_steps_table(episode.operations, describe))
    if pair is None:
        if isinstance(examined.outcome, CertifiedEpisode):
            _heading(console, "Relations")
            for line in relation_lines(examined.outcome):
                console.print(_text(f"  {line}"))
        _print_orders(console, examined, brief=brief)
    if brief:
        more = "--full: the initial state, every order, and every pair in every context; --pair A B: one pair"
        console.print(f"\n{more}", style="dim", highlight=False, markup=False)
        return
    only_pair = None if pair is None else (min(pair), max(pair))
    certifies = (
        "" if isinstance(examined.outcome, CertifiedEpisode) else "; all this certifies nothing"
    )
    if not replays.exhaustive:
        _print_long_pairs(console, examined, only_pair, replays.tree, certifies)
    else:
        contexts = "each in every context that an accepted sequence reaches"
        _heading(console, f"Pairs, {contexts}{certifies}")
        _print_pairs(console, examined, only_pair, replays)


def _print_orders(console: Console, examined: Examined, *, brief: bool) -> None:
    evidence = examined.evidence.replays
    if not evidence.exhaustive:
        _heading(console, f"Evidence, {counted(len(evidence.tree), 'sequence')} replayed")
        for line in evidence_lines(examined.outcome, evidence.tree):
            console.print(_indented(line, 2))
        return
    _heading(console, f"Orders, {len(evidence.replays)} replayed")
    for title, orders in order_groups(evidence.replays):
        console.print(_indented(title, 2))
        if not brief:
            console.print(_indented(" ".join(map(order_text, orders)), 4))


def _print_head(console: Console, shown: Shown, *, brief: bool) -> None:
    examined = shown.examined
    episode, versions = examined.evidence.episode, examined.versions
    console.print(_text(episode.episode_id, "bold"))
    rows = [("outcome", _outcome_text(examined))]
    if isinstance(examined.outcome, Exclusion):
        rows.append(("found", examined.outcome.detail))
    libraries = [f"{name} {_short_version(value)}" for name, value in versions.libraries.items()]
    rows += [
        ("evidence", shown.origin),
        ("environment", f"{episode.environment}, schema {episode.schema}"),
        ("source", episode.provenance.source),
        ("generator", f"{episode.provenance.generator}, seed {episode.provenance.seed}"),
        ("content", episode.content_hash()),
        ("verifier", versions.verifier),
        ("versions", f"adapter {versions.adapter}, canonicalizer {versions.canonicalizer}"),
        ("libraries", ", ".join(libraries) or "none"),
    ]
    if brief:
        opinions = examined.evidence.cross_checks
        agreed = f"{sum(c.agreed for c in opinions)} of {sum(c.checked for c in opinions)} agree"
        rows = [row for row in rows if row[0] in ("outcome", "found", "evidence", "verifier")]
        rows += [("2nd opinion", agreed)] * bool(opinions)
        _print_rows(console, rows)
        return
    rows += [
        ("2nd opinion", f"{check.checker}: {check.agreed} of {check.checked} agree")
        for check in in_brief(examined.evidence.cross_checks)
    ] or [("2nd opinion", "none: this environment has no second engine")]
    rows.append(("start", f"state {short_hash(examined.evidence.replays.tree.initial_hash)}"))
    rows += [("", line) for line in _value_lines(episode.initial)]
    _print_rows(console, rows)


def _print_rows(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    grid = _grid()
    for name, value in rows:
        style = "bold" if name in ("outcome", "found") else ""
        grid.add_row(_text(name, "dim"), _text(value, style))
    console.print(grid)


def _outcome_text(examined: Examined) -> str:
    outcome = examined.outcome
    if isinstance(outcome, Exclusion):
        return f"excluded, {outcome.kind}: {EXCLUSIONS[outcome.kind]}"
    if not outcome.exhaustive:
        how = "every reachable context" if outcome.complete else "a sample of the contexts"
        return f"certified from {how}: {legal_text(outcome)}"
    num_orders = len(outcome.replays)
    return (
        f"certified: {len(outcome.orbit)} of {num_orders} orders are legal, "
        f"{counted(len(outcome.certificates), 'local certificate')}"
    )


def _value_lines(initial: Json) -> list[str]:
    """Give the initial state, one named value on each line; long values are cut off."""
    named = initial.items() if isinstance(initial, dict) else [("", initial)]
    lines = []
    for name, value in named:
        text = value if isinstance(value, str) else canonical_json(value).decode()
        cut = f" ... ({len(text):,} characters, whole in --json)" * (len(text) > VALUE_CHARS)
        lines.append(f"{name}: {text[:VALUE_CHARS]}{cut}" if name else f"{text[:VALUE_CHARS]}{cut}")
    return lines


def _steps_table(operations: Sequence[Operation], describe: Describe) -> Table:
    grid = _grid()
    for index, operation in enumerate(operations):
        native = describe(operation).removeprefix(f"{operation.signature}: ")
        shown = "" if native == operation.signature else native
        grid.add_row(_text(str(index), "bold"), _text(operation.signature), _text(shown))
    return grid


def _print_long_pairs(
    console: Console,
    examined: Examined,
    only_pair: tuple[int, int] | None,
    tree: ReplayTree,
    certifies: str,
) -> None:
    """Print every pair with its example; pairs that commute, the majority in a long episode, take one line each."""
    outcome = examined.outcome
    if isinstance(outcome, CertifiedEpisode):
        local, pairs = outcome.certificates, outcome.pairs
    else:
        local, pairs = Lattice.of(tree).certificates(), ()
    contexts = {found.pair: found for found in pairs}
    of_pair = {
        pair: [c for c in local if c.pair == pair]
        for pair in combinations(range(tree.num_operations), 2)
        if only_pair in (None, pair)
    }
    brief = {
        pair: next(c for c in some if c.verdict == "diamond")
        for pair, some in of_pair.items()
        if pair in contexts and only_pair is None and commutes(some)
    }
    if len(brief) < len(of_pair):
        _heading(console, f"Pairs, each with an example of what it shows{certifies}")
    for pair, some in of_pair.items():
        if pair in brief:
            continue
        _print_pair(console, pair, some, examined.evidence.cross_checks)
        if pair in contexts:
            console.print(_indented(contexts_text(contexts[pair]), 2))
    if brief:
        _heading(
            console, "Pairs that commute, each with one context; --pair shows one of them whole"
        )
        _print_brief(console, brief, contexts)


def _print_brief(
    console: Console,
    brief: Mapping[tuple[int, int], Certificate],
    contexts: Mapping[tuple[int, int], PairContexts],
) -> None:
    table = _evidence_table("steps", "after", "one state", "legal contexts", "beside", "found")
    for pair, certificate in brief.items():
        table.add_row(
            " ".join(map(str, pair)),
            in_words(certificate.context),
            short_hash(certificate.forward.state_hashes[-1]),
            *contexts_cells(contexts[pair]),
        )
    console.print()
    console.print(Padding(table, (0, 0, 0, 2), expand=False))


def _print_pairs(
    console: Console,
    examined: Examined,
    only_pair: tuple[int, int] | None,
    replays: EpisodeReplays,
) -> None:
    evidence = examined.evidence
    try:
        local = certificates(replays)
    except UncertifiedError as error:
        console.print(_indented(f"no pair can be compared: {error}", 2))
        return
    for pair in combinations(range(evidence.episode.num_operations), 2):
        if only_pair in (None, pair):
            _print_pair(console, pair, [c for c in local if c.pair == pair], evidence.cross_checks)


def _print_pair(
    console: Console,
    pair: tuple[int, int],
    local: Sequence[Certificate],
    checks: Sequence[CrossCheck],
) -> None:
    console.print()
    console.print(_text(pair_title(pair, local), "bold"))
    for line in (*explanations(local), *probes_lines(pair, local, checks)):
        console.print(_indented(line, 2))
    messages: dict[tuple[int, str], int] = {}
    table = _evidence_table("after", "order", "first", "second", "verdict")
    for certificate in local:
        style = _STYLES[certificate.verdict]
        sides = (
            (in_words(certificate.context), certificate.forward, certificate.verdict),
            (
                short_hash(certificate.context_hash),
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


def _evidence_table(*columns: str) -> Table:
    # Narrow enough for 80 columns.
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def _answers(path: PathEvidence, messages: dict[tuple[int, str], int]) -> tuple[str, str]:
    """Return the verifier's answers to the first and the second step, with the number of its message."""
    accepted = [f"accepted {short_hash(state_hash)}" for state_hash in path.state_hashes]
    if path.rejection is None:
        first, second = accepted
        return first, second
    number = messages.setdefault((refused_step(path), path.rejection), len(messages) + 1)
    first, second, *_ = (*accepted, f"refused ({number})", "not run")
    return first, second


def _short_version(value: str) -> str:
    is_digest = len(value) == 64 and set(value) <= set("0123456789abcdef")
    return short_hash(value) if is_digest else value


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
    """Return the text without control characters, because it may come from an untrusted file."""
    return Text("\n".join(map(printable, text.split("\n"))), style=style, overflow="fold")
