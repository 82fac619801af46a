"""Write a schedule for people and for other tools: as text, JSON, Mermaid and DOT.

Pure text. Not covered: how a schedule is made (see :mod:`vcrt.calls.schedules`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vcrt.calls.batches import Batch, Conflict
from vcrt.calls.differences import HIDDEN, Differing
from vcrt.calls.scheduled import Scheduled
from vcrt.calls.schedules import Edge, Schedule
from vcrt.certificates.certificates import PathEvidence
from vcrt.certificates.pairs import reason_of
from vcrt.hashing import Json
from vcrt.printable import counted, duration, listed, printable
from vcrt.records.certificate import after

#: What an edge says of its two steps.
_VERBS = {
    "precedes": "precedes",
    "conflicts": "conflicts with",
    "observes": "comes before",
    "data flow": "gives a value to",
    "not compared": "was not compared with",
    "not settled": "was not settled with",
}
#: How each kind is drawn, in Mermaid and in DOT.
_ARROWS = {
    "data flow": ("-.->", "dashed"),
    "not compared": ("-.->", "dotted"),
    "not settled": ("-.->", "dotted"),
}
#: The most conflicts of a batch, places of a state, and unsettled pairs that text lists; characters of a reason.
_CONFLICTS, _PLACES, _UNSETTLED, _WIDTH = 4, 2, 8, 60


def edge_reason(edge: Edge) -> str:
    """Say in words why a step waits for another."""
    if edge.flow is not None:
        return (
            f"its argument {edge.flow.argument} is {edge.flow.value!r:.80}, first seen in the output of {edge.first}; "
            "replay with fixed arguments cannot tell"
        )
    if edge.kind == "not settled":
        return "the time limit came before it was settled; the log's order is kept"
    if edge.certificate is None:
        return "no context was replayed in which both orders of the two were asked for"
    refused = "refused in the other order: " * (edge.kind == "precedes")
    return f"{after(edge.certificate.context)}: {refused}{reason_of(edge.certificate)}"


def schedule_lines(one: Scheduled, schedule: Schedule) -> list[str]:
    """The schedule as lines: waves, critical path, what the log sent together, and why each step waits."""
    lines = []
    for number, wave in enumerate(schedule.waves, start=1):
        lines.append(f"wave {number}: {counted(len(wave), 'call')}")
        lines += [f"  {step:>2}  {one.names[step]}{_id_of(one, step)}" for step in wave]
    path = " -> ".join(map(str, schedule.critical_path))
    lines += [f"critical path: {path}", _rounds_line(one, schedule)]
    for batch in one.batches:
        lines += _batch_lines(batch)
    if one.batches:
        lines += [f"could have been sent together: {_all(wave)}" for wave in one.joined]
    if not schedule.edges:
        lines.append("no call waits for another")
    told = {each.calls for batch in one.batches for each in batch.conflicts}
    for edge in schedule.direct:
        if (edge.first, edge.second) not in told and edge.kind != "not settled":
            lines.append(_edge_line(one, edge))
    implied = len(schedule.edges) - len(schedule.direct)
    if implied:
        verb = "follows" if implied == 1 else "follow"
        lines.append(f"{counted(implied, 'more pair')} {verb} from these")
    if schedule.probes:
        most = "" if schedule.max_probes is None else f" (limit {schedule.max_probes:,})"
        lines.append(
            f"checked further: {counted(sum(schedule.probes.values()), 'call')} after both orders of "
            f"{counted(len(schedule.probes), 'pair')} that commute{'s' * (len(schedule.probes) == 1)}, all "
            f"answered alike{most}"
        )
    if schedule.stopped_after is not None:
        pairs = [f"{edge.first} and {edge.second}" for edge in schedule.unsettled]
        more = ", ..." * (len(pairs) > _UNSETTLED)
        lines.append(
            f"stopped after {duration(schedule.stopped_after)} (--within): {counted(len(pairs), 'pair')} not settled, "
            f"and kept in the log's order{': ' * bool(pairs)}{', '.join(pairs[:_UNSETTLED])}{more}"
        )
    elif not schedule.complete:
        lines.append(
            f"contexts were sampled; {counted(schedule.checked_orders, 'order')} that the schedule allows, many "
            "drawn at random, were replayed besides, and all fared as the trace does"
            if schedule.checked_orders
            else "contexts were sampled: not every order that the schedule allows was replayed"
        )
    if schedule.complete and schedule.checked_orders:
        lines.append(
            f"only {counted(schedule.checked_orders, 'order')} could be tested from fresh states in time (--within)"
        )
    return lines


def _id_of(one: Scheduled, step: int) -> str:
    identifier = one.ids[step] if one.ids else None
    return "" if identifier is None else f"  [{identifier}]"


def _rounds_line(one: Scheduled, schedule: Schedule) -> str:
    calls, waves = counted(schedule.num_steps, "call"), counted(len(schedule.waves), "wave")
    rounds, enough = len(one.rounds), one.num_rounds
    fewer = f"{one.speed_up:.1f} times fewer"
    if not one.batches:
        return f"{calls} in {waves}: {fewer} rounds, if all calls take equally long"
    found = "fewer may do, with more time" if schedule.unsettled else "no fewer would do"
    if enough < rounds:
        found = f"{enough} would do: {fewer}, if all calls take equally long"
    elif enough > rounds:
        found = f"{enough} are needed, as not all that was sent together is safe"
        if schedule.unsettled:
            found = f"{enough} here, as some of what was sent together conflicts or is not settled"
    return f"{calls} in {counted(rounds, 'round')} in the log; {found}"


def _batch_lines(batch: Batch) -> list[str]:
    """What a message's calls do to each other: what each order of two gives, and which calls are safe."""
    lines = [
        f"{batch.place}: {counted(len(batch.calls), 'call')} sent together, {_all(batch.calls)}"
    ]
    if batch.raced:
        lines[0] += ", which raced: the log has what they give in this order"
    if batch.problem is not None:
        return [*lines, f"  not compared: {batch.problem}"]
    for conflict in batch.conflicts[:_CONFLICTS]:
        certificate = conflict.certificate
        after = [call for call in certificate.context if call >= batch.calls[0]]
        lines.append(f"  {_all(conflict.calls)} conflict{f' after {_all(after)}' * bool(after)}:")
        for path in (certificate.forward, certificate.reverse):
            lines.append(f"    {path.operations[0]} first: {_given(conflict, path)}")
    if len(batch.conflicts) > _CONFLICTS:
        lines.append(
            f"  {counted(len(batch.conflicts) - _CONFLICTS, 'more pair')} conflict (--json)"
        )
    if batch.safe:
        verb = "is" if len(batch.safe) == 1 else "are"
        orders = "every order" if batch.complete else "every order that was tried"
        contexts = counted(batch.num_contexts, "context")
        lines.append(
            f"  {_all(batch.safe)} {verb} safe if done as a whole: the same in {orders}, in {contexts}"
        )
    if batch.not_compared:
        lines.append(f"  {_all(batch.not_compared)}: not compared with all others")
    if batch.num_cut:
        more = counted(batch.num_cut, "more call")
        lines.append(f"  {more} of the message not compared with these, so none is called safe")
    return lines


def _all(calls: Sequence[int]) -> str:
    return listed([*map(str, calls)])


def _given(conflict: Conflict, path: PathEvidence) -> str:
    """What one order of two calls gives that the other does not."""
    if path.rejection is not None:
        return f"{path.operations[len(path.state_hashes)]} is refused: {_short(path.rejection)}"
    if conflict.certificate.verdict == "precedes":
        given = (f"{n} gives {_short(output or 'nothing')}" for n, output in path.output_of.items())
        return "; ".join(given) or "both are accepted"
    forward = path is conflict.certificate.forward
    places = _told(conflict.difference)
    given = (_is(each, each.forward if forward else each.reverse) for each in places)
    return "; ".join(given) or "another state"


def _told(places: Sequence[Differing]) -> list[Differing]:
    """The first places of the state, and the first of each call's output."""
    outputs = {place.call: place for place in reversed(places) if place.call is not None}
    return [
        *[place for place in places if place.call is None][:_PLACES],
        *(outputs[call] for call in sorted(outputs)),
    ]


def _is(place: Differing, text: str | None) -> str:
    where = place.where if place.call is None else f"{place.where} of {place.call}"
    return f"{where} differs" if text == HIDDEN else f"{where} is {_value(text)}"


def _value(text: str | None) -> str:
    return "not there" if text is None else text


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def _edge_line(one: Scheduled, edge: Edge) -> str:
    reason = edge_reason(edge)
    places = one.differences.get((edge.first, edge.second))
    if edge.certificate is not None and places:
        apart = (
            f"{_is(each, each.forward)} (with {edge.second} first: {_value(each.reverse)})"
            for each in _told(places)
        )
        reason = f"{after(edge.certificate.context)}: {'; '.join(apart)}"
    return f"{edge.first} {_VERBS[edge.kind]} {edge.second}: {reason}"


def scheduled_document(one: Scheduled, schedule: Schedule) -> dict[str, Json]:
    """Return a schedule as JSON, with a log's identifiers, rounds and batches, and where orders end apart."""
    found = schedule_document(schedule, one.names)
    edges: Any = found["edges"]
    for edge in edges:
        pair = edge["first"], edge["second"]
        edge["ids"] = _ids(one, pair)
        edge["difference"] = [place.to_json() for place in one.differences.get(pair, ())]
    return {
        **found,
        "ids": list(one.ids),
        "rounds": [list(calls) for calls in one.rounds],
        "num_rounds": one.num_rounds,
        "speed_up": round(one.speed_up, 3),
        "batches": [_batch_document(one, batch) for batch in one.batches],
        "joined": [list(wave) for wave in one.joined],
        "caveats": list(one.caveats),
    }


def _ids(one: Scheduled, calls: Sequence[int]) -> list[Json]:
    return [one.ids[call] for call in calls] if one.ids else []


def _batch_document(one: Scheduled, batch: Batch) -> dict[str, Json]:
    return {
        "place": batch.place,
        "calls": list(batch.calls),
        "ids": _ids(one, batch.calls),
        "raced": batch.raced,
        "cut": batch.num_cut,
        "safe": list(batch.safe),
        "not_compared": list(batch.not_compared),
        "contexts": batch.num_contexts,
        "complete": batch.complete,
        "problem": batch.problem,
        "conflicts": [
            {
                "calls": list(each.calls),
                "ids": _ids(one, each.calls),
                "difference": [place.to_json() for place in each.difference],
                "certificate": each.certificate.to_json(),
            }
            for each in batch.conflicts
        ],
    }


def schedule_document(schedule: Schedule, names: Sequence[str]) -> dict[str, Json]:
    """Return the schedule as JSON, each edge with its reason and its evidence."""
    return {
        "calls": list(names),
        "waves": [list(wave) for wave in schedule.waves],
        "critical_path": list(schedule.critical_path),
        "speed_up": round(schedule.speed_up, 3),
        "complete": schedule.complete,
        "stopped_after": schedule.stopped_after,
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
