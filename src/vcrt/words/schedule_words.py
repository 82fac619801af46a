"""Write a schedule for people and for other tools: as text, JSON, Mermaid and DOT.

Pure text. Not covered: how a schedule is made (see :mod:`vcrt.calls.schedules`).
"""

from __future__ import annotations

from collections.abc import Sequence

from vcrt.calls.schedules import Edge, Schedule
from vcrt.certificates.pairs import reason_of
from vcrt.hashing import Json
from vcrt.printable import counted, printable

#: What an edge says of its two steps.
_VERBS = {
    "precedes": "precedes",
    "conflicts": "conflicts with",
    "observes": "comes before",
    "data flow": "gives a value to",
    "not compared": "was not compared with",
}
#: How each kind is drawn, in Mermaid and in DOT.
_ARROWS = {"data flow": ("-.->", "dashed"), "not compared": ("-.->", "dotted")}


def edge_reason(edge: Edge) -> str:
    """Say in words why a step waits for another."""
    if edge.flow is not None:
        return (
            f"its argument {edge.flow.argument} is {edge.flow.value!r:.80}, first seen in the output of {edge.first}; "
            "replay with fixed arguments cannot tell"
        )
    if edge.certificate is None:
        return "no context was replayed in which both orders of the two were asked for"
    after = " ".join(map(str, edge.certificate.context)) or "nothing"
    if edge.kind == "precedes":
        return f"after {after}: refused in the other order: {reason_of(edge.certificate)}"
    return f"after {after}: {reason_of(edge.certificate)}"


def schedule_lines(schedule: Schedule, names: Sequence[str]) -> list[str]:
    """The schedule as lines: waves, critical path, and why each step waits."""
    lines = []
    for number, wave in enumerate(schedule.waves, start=1):
        lines.append(f"wave {number}: {counted(len(wave), 'call')}")
        lines += [f"  {step:>2}  {names[step]}" for step in wave]
    path = " -> ".join(map(str, schedule.critical_path))
    lines.append(f"critical path: {path}")
    lines.append(
        f"{counted(schedule.num_steps, 'call')} in {counted(len(schedule.waves), 'wave')}: "
        f"{schedule.speed_up:.1f} times fewer rounds, if each call takes as long"
    )
    if not schedule.edges:
        lines.append("no call waits for another")
    for edge in schedule.direct:
        lines.append(f"{edge.first} {_VERBS[edge.kind]} {edge.second}: {edge_reason(edge)}")
    implied = len(schedule.edges) - len(schedule.direct)
    if implied:
        verb = "follows" if implied == 1 else "follow"
        lines.append(f"{counted(implied, 'more pair')} {verb} from these")
    if schedule.probes:
        most = "" if schedule.max_probes is None else f", at most {schedule.max_probes:,}"
        lines.append(
            f"asked afterwards: {counted(sum(schedule.probes.values()), 'call')} after both orders of "
            f"{counted(len(schedule.probes), 'pair')} that commute{'s' * (len(schedule.probes) == 1)}{most}, all "
            "answered alike"
        )
    if not schedule.complete:
        lines.append(
            f"contexts were sampled; {counted(schedule.checked_orders, 'order')} that the schedule allows, drawn at "
            "random, were replayed besides, and all fared as the trace does"
            if schedule.checked_orders
            else "contexts were sampled: not every order that the schedule allows was replayed"
        )
    return lines


def schedule_document(schedule: Schedule, names: Sequence[str]) -> dict[str, Json]:
    """Return the schedule as JSON, each edge with its reason and its evidence."""
    return {
        "calls": list(names),
        "waves": [list(wave) for wave in schedule.waves],
        "critical_path": list(schedule.critical_path),
        "speed_up": round(schedule.speed_up, 3),
        "complete": schedule.complete,
        "checked_orders": schedule.checked_orders,
        "max_probes": schedule.max_probes,
        "probes": [
            {"first": first, "second": second, "calls": number}
            for (first, second), number in sorted(schedule.probes.items())
        ],
        "edges": [_edge_document(edge, edge in schedule.direct) for edge in schedule.edges],
    }


def _edge_document(edge: Edge, direct: bool) -> dict[str, Json]:
    return {
        "first": edge.first,
        "second": edge.second,
        "kind": edge.kind,
        "direct": direct,
        "replayed": edge.certificate is not None,
        "reason": edge_reason(edge),
        "certificate": None if edge.certificate is None else edge.certificate.to_json(),
    }


def as_mermaid(schedule: Schedule, names: Sequence[str]) -> str:
    """A flow chart in Mermaid's language, with a group for each wave."""
    lines = ["flowchart TD"]
    for number, wave in enumerate(schedule.waves, start=1):
        lines.append(f'  subgraph wave{number}["wave {number}"]')
        lines += [f'    s{step}["{step}: {_mermaid(names[step])}"]' for step in wave]
        lines.append("  end")
    for edge in schedule.direct:
        arrow = _ARROWS.get(edge.kind, ("-->", ""))[0]
        lines.append(f"  s{edge.first} {arrow}|{edge.kind}| s{edge.second}")
    return "\n".join(lines) + "\n"


def as_dot(schedule: Schedule, names: Sequence[str]) -> str:
    """Write a graph in Graphviz's language, with the steps of a wave beside each other."""
    lines = ["digraph schedule {", "  node [shape=box];"]
    for wave in schedule.waves:
        lines.append("  { rank=same;")
        lines += [f'    s{step} [label="{step}: {_dot(names[step])}"];' for step in wave]
        lines.append("  }")
    for edge in schedule.direct:
        style = _ARROWS.get(edge.kind, ("", "solid"))[1]
        lines.append(f'  s{edge.first} -> s{edge.second} [label="{edge.kind}", style={style}];')
    lines.append("}")
    return "\n".join(lines) + "\n"


def _mermaid(text: str) -> str:
    """Text without what Mermaid or HTML would act on, as character entities."""
    special = '"<>&#;`[]{}()|\\'
    return "".join(f"#{ord(c)};" if c in special else c for c in printable(text))


def _dot(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"')
