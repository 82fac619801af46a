"""Write annotations of tools for people and for other tools: as rows of tables, as lines, and as JSON.

In JSON, each tool has the form of the Model Context Protocol: its name, ``annotations``, and the evidence in
``_meta``. Pure text. Not covered: how annotations are made (see :mod:`vcrt.calls.annotations`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vcrt.calls.annotations import (
    Annotations,
    DeclaredHint,
    HintName,
    PairEvidence,
    ToolEvidence,
    Witness,
)
from vcrt.calls.conditions import Tested
from vcrt.calls.proportions import LEVEL, Proportion
from vcrt.hashing import Json
from vcrt.printable import counted, printable

TOOL_COLUMNS = ("tool", "changed the state", "sources", "at most", "made again", "refused", "hints")
PAIR_COLUMNS = (
    *("a", "b", "commuted", "sources", "not, at most", "otherwise", "seen to commute if", "unseen"),
)
#: The most relations that a line names.
_NAMED = 3


def tool_rows(annotations: Annotations) -> list[tuple[str, ...]]:
    """A row for each tool, under :data:`TOOL_COLUMNS`."""
    return [
        (
            printable(tool.name),
            _of(tool.changed),
            _number(tool.changed_in.total),
            _percent(tool.changed_in),
            _again(tool),
            _of(tool.refused),
            ", ".join(
                f"{hint}: {str(value).lower()}"
                for hint, value in tool.hints(annotations.risk).items()
            ),
        )
        for tool in annotations.tools
    ]


def pair_rows(annotations: Annotations) -> list[tuple[str, ...]]:
    """A row for each pair of tools that were compared, under :data:`PAIR_COLUMNS`."""
    return [
        (
            *map(printable, pair.tools),
            _of(pair.commuted),
            _number(pair.not_commuted_in.total),
            _percent(pair.not_commuted_in),
            ", ".join(f"{n} {v}" for v, n in pair.verdicts.items() if v not in _NO_ANSWER),
            printable(pair.rule or ""),
            _of(pair.tested.right) if pair.tested.right.total else "",
        )
        for pair in annotations.pairs
        if pair.commuted.total
    ]


_NO_ANSWER = ("diamond", "vacuous")


def untried_lines(annotations: Annotations) -> list[str]:
    """Give the cases that no context of a pair had: the pair's condition and bound say nothing about them."""
    lines = [
        f"  {printable(', '.join(pair.tools))}: {_named([one.text for one in pair.untried])}"
        for pair in annotations.pairs
        if pair.commuted.total and pair.untried
    ]
    return ["never tried, so that nothing is said of it:", *lines] if lines else []


def declared_lines(annotations: Annotations) -> list[str]:
    """Compare the declared hints with replay: a line for each that it contradicts or does not support, and counts."""
    if annotations.undeclared is not None:
        return [f"declared hints were not looked at: {annotations.undeclared}"]
    if not annotations.declared:
        return ["no hint on these tools is declared that replay could contradict"]
    lines = [
        declared_line(hint) for hint in annotations.declared if hint.standing == "contradicted"
    ]
    lines += [
        declared_line(hint) for hint in annotations.declared if hint.standing == "unsupported"
    ]
    standings = [hint.standing for hint in annotations.declared]
    counts = ", ".join(f"{standings.count(s)} {s}" for s in dict.fromkeys(sorted(standings)))
    return [*lines, f"{counted(len(standings), 'declared hint')}: {counts}"]


#: What contradicts a hint that promises something, and what it is counted in.
_SEEN: Mapping[HintName, tuple[str, str]] = {
    "readOnlyHint": ("changed the state", "call"),
    "idempotentHint": ("changed it again when repeated", "call"),
    "sequential": ("gave another state or output in another order", "pair"),
}


def declared_line(hint: DeclaredHint) -> str:
    """Say in one line what replay shows of a declared hint."""
    said = f"{hint.tool}: {hint.hint} {str(hint.declared).lower()}"
    what, kind = _SEEN[hint.hint]
    if hint.witness is None:
        return (
            f"{said} is not contradicted, but it never {what}, in {counted(hint.seen.total, kind)}"
        )
    return (
        f"{said} is contradicted: {what} in {_of(hint.seen)} {kind}s, such as {' and '.join(hint.witness.calls)} "
        f"{_place(hint.witness)}"
    )


def summary_lines(annotations: Annotations) -> list[str]:
    """Describe the evidence, and how often conditions were right on sources they were not learned on."""
    contexts = sum(sum(pair.verdicts.values()) for pair in annotations.pairs)
    lines = [
        f"{counted(annotations.num_episodes, 'episode')} from {counted(annotations.num_sources, 'source')}: "
        f"{counted(sum(tool.refused.total for tool in annotations.tools), 'call')} and "
        f"{counted(contexts, 'pair')} of calls, each in each state once"
    ]
    for kind, number in annotations.left_out.items():
        lines.append(f"{counted(number, 'episode')} left out: {kind}")
    lines += limit_lines(annotations)
    if annotations.num_disputed:
        lines.append(
            f"{counted(annotations.num_disputed, 'call')} gave another answer in a state of the same hash in another "
            "episode: canonical() leaves out what they see or change, and no count here can be relied on"
        )
    lines += [
        f"{printable(tool.name)}: {counted(tool.refused.total, 'call')} refused, none accepted: nothing is known of "
        "what it does"
        for tool in annotations.tools
        if not tool.changed.total
    ]
    unknown = [tool for tool in annotations.tools if tool.unknown_after and tool.changed.total]
    if unknown:
        lines.append(
            f"what refused calls of {_named([tool.name for tool in unknown])} left is not known (a dataset has no state"
            " after a refusal; a tool may break if it is called again): none of these is called read-only or idempotent"
        )
    if not any(pair.commuted.total for pair in annotations.pairs):
        lines.append("no two calls were accepted after one another: nothing is known of pairs")
    refused = [pair for pair in annotations.pairs if pair.num_refused and not pair.commuted.total]
    if refused:
        lines.append(
            f"{counted(len(refused), 'pair')} of tools met in refused calls alone: nothing is known of "
            + ", ".join(printable(" and ".join(pair.tools)) for pair in refused)
        )
    tested = annotations.tested
    if tested.commuted.total:
        lines.append(
            "conditions were tested on contexts from sources that they were not learned from: they were right in "
            f"{_of(tested.right)} ({_of(tested.conditional)} for those on arguments) and covered {_of(tested.covered)} "
            f"of what commuted; without any condition, {_of(tested.commuted)} commuted"
        )
    else:
        lines.append(
            "conditions were not tested: a test needs the same tools in at least two sources"
        )
    lines.append(
        f"each bound holds by itself, at {LEVEL:.0%}, for the next source, if it is drawn as these were; bounds say "
        "nothing about arguments whose relation was never tried"
    )
    return lines


def limit_lines(annotations: Annotations) -> list[str]:
    """Say what was not replayed for lack of time, and which changes the states' bytes cannot show."""
    lines = []
    if annotations.cut:
        lines.append(
            f"{_named(annotations.cut)}: replayed in part, for lack of time (--within) or for too many contexts. "
            "Pairs of calls that were not compared are not counted; in bounds, such a source counts as one that shows "
            "the opposite"
        )
    if annotations.ignored is None:
        why = "what the states' bytes leave out is not known; name the environment: --environment"
    elif annotations.ignored:
        names = ", ".join(map(printable, annotations.ignored))
        why = f"the states' bytes leave out what the environment ignores ({names})"
    else:
        return lines
    return [*lines, f"no tool is called read-only or idempotent, and a change may be unseen: {why}"]


def annotation_document(annotations: Annotations) -> dict[str, Json]:
    """Return all annotations as JSON."""
    return {
        "environment": annotations.environment,
        "episodes": annotations.num_episodes,
        "sources": annotations.num_sources,
        "left_out": dict(annotations.left_out),
        "calls_left_out": [one.to_json() for one in annotations.missing],
        "cut": list(annotations.cut),
        "complete": not annotations.missing and not annotations.cut,
        "disputed": annotations.num_disputed,
        "level": LEVEL,
        "risk": annotations.risk,
        "tools": [_tool_document(tool, annotations.risk) for tool in annotations.tools],
        "pairs": [_pair_document(pair) for pair in annotations.pairs],
        "declared": [_hint_document(hint) for hint in annotations.declared],
        "undeclared": annotations.undeclared,
        "ignored": None if annotations.ignored is None else list(annotations.ignored),
        "conditions": _tested_document(annotations.tested),
    }


def _tool_document(tool: ToolEvidence, risk: float) -> dict[str, Json]:
    return {
        "name": tool.name,
        "annotations": dict(tool.hints(risk)),
        "_meta": {
            "vcrt": {
                "changed": _bounded(tool.changed, tool.changed_in),
                "refused": tool.refused.to_json(),
                "changed_again": _bounded(tool.changed_again, tool.changed_again_in),
                "same_output_again": tool.same_output.to_json(),
                "refused_again": tool.refused_again,
                "sources": tool.num_sources,
                "change": _witness(tool.change),
                "second_change": _witness(tool.second_change),
            }
        },
    }


def _pair_document(pair: PairEvidence) -> dict[str, Json]:
    return {
        "a": pair.tools[0],
        "b": pair.tools[1],
        "commuted": pair.commuted.to_json(),
        "not_commuted": _bounded(pair.commuted.opposite, pair.not_commuted_in),
        "refused": pair.num_refused,
        "verdicts": {str(verdict): number for verdict, number in pair.verdicts.items()},
        "sources": pair.num_sources,
        "condition": None
        if pair.condition is None
        else {
            "text": pair.rule,
            "joined": pair.condition.joined,
            "terms": [term.to_json() for term in pair.condition.terms],
        },
        "untried": [{**relation.to_json(), "text": relation.text} for relation in pair.untried],
        "tested": _tested_document(pair.tested),
        "against": _witness(pair.against),
    }


def _tested_document(tested: Tested) -> dict[str, Json]:
    """Describe a condition's test: in how many contexts it held, how many of them commuted, and how many it covers."""
    return {
        "unseen": tested.commuted.to_json(),
        "right": tested.right.to_json(),
        "right_always": tested.always.to_json(),
        "right_conditional": tested.conditional.to_json(),
        "wrong": tested.right.opposite.to_json(),
        "covered": tested.covered.to_json(),
    }


def _hint_document(hint: DeclaredHint) -> dict[str, Json]:
    return {
        "tool": hint.tool,
        "hint": hint.hint,
        "declared": hint.declared,
        "standing": hint.standing,
        "seen": hint.seen.to_json(),
        "witness": _witness(hint.witness),
    }


def _witness(witness: Witness | None) -> Json:
    return None if witness is None else witness.to_json()


def _place(witness: Witness) -> str:
    after = " ".join(map(str, witness.context))
    return f"after {after} of {witness.episode_id}" if after else f"first in {witness.episode_id}"


def _again(tool: ToolEvidence) -> str:
    """Say what repeated calls did after the first had changed the state; nothing if no call was repeated."""
    again = tool.changed_again
    found = []
    if again.total:
        found.append(f"changed it again in {_of(again)}, same output in {tool.same_output.count:,}")
    if tool.refused_again:
        found.append(f"refused in {tool.refused_again:,}")
    return "; ".join(found)


def _of(proportion: Proportion) -> str:
    return f"{proportion.count:,} of {proportion.total:,}"


def _percent(units: Proportion) -> str:
    """Write the bound in percent; there is none without units."""
    return f"{units.bound:.1%}" if units.total else ""


def _number(count: int) -> str:
    return f"{count:,}" if count else ""


def _bounded(proportion: Proportion, units: Proportion) -> dict[str, Json]:
    """Give the cases, how many of the sources show one, and the bound of the chance that the next source does."""
    bound = round(units.bound, 6) if units.total else None
    return {
        **proportion.to_json(),
        "sources": {"count": units.count, "total": units.total},
        "bound": bound,
    }


def _named(relations: Sequence[str]) -> str:
    more = len(relations) - _NAMED
    return printable("; ".join(relations[:_NAMED])) + (f"; {more} more" if more > 0 else "")
