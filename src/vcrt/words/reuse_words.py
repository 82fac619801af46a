"""Say in sentences and in JSON which calls a cache could have answered. Pure text."""

from __future__ import annotations

from collections.abc import Sequence

from vcrt.calls.reuse import Place, Reuse, Reused
from vcrt.hashing import Json
from vcrt.printable import counted, printable


def reuse_lines(one: Reuse) -> list[str]:
    """Give a line for each call of a trace."""
    if one.problem is not None:
        return [f"nothing can be said: {printable(one.problem)}"]
    lines = []
    for number, call in enumerate(one.calls):
        identifier = f"  [{one.ids[number]}]" if one.ids[number] else ""
        lines.append(
            f"  {number:>2}  {printable(one.names[number] + identifier)}: {_said(call, one)}"
        )
    return lines


def _said(call: Reused, one: Reuse) -> str:
    if call.by_state is None:
        return "asked, and changes the state" if call.changes else "asked"
    name, number = call.by_state
    place = f"{number}" if name == one.name else f"{number} of {printable(name)}"
    if call.changes:
        return f"must be made, as it changes the state; its answer is that of {place}"
    by_history = ", by an identical history too" if call.by_history else ""
    return f"may be served the answer of {place}{by_history}"


def reuse_summary(every: Sequence[Reuse]) -> list[str]:
    """Say how many answers each key serves, and what that rests on."""
    calls = sum(len(one.calls) for one in every)
    served = sum(len(one.served) for one in every)
    history = sum(len(one.by_history) for one in every)
    lines = [
        f"{counted(calls, 'call')}: a cache could serve {served} by the state, {history} by an identical history",
        "all calls were made twice: each answer that would be served is the real one; two things are not seen: effects "
        "outside of the state, and answers that age",
    ]
    ignored = sorted({each for one in every for each in one.ignored})
    if ignored:
        lines.append(
            f"not compared, since the environment ignores it: {', '.join(map(printable, ignored))}"
        )
    return lines


def reuse_document(one: Reuse) -> dict[str, Json]:
    """Return what is said of a trace as JSON."""
    return {
        "name": one.name,
        "problem": one.problem,
        "calls": [
            {
                "call": number,
                "name": one.names[number],
                "id": one.ids[number],
                "key": call.made.key,
                "changes": call.changes,
                "by_state": _place(call.by_state),
                "by_history": _place(call.by_history),
            }
            for number, call in enumerate(one.calls)
        ],
        "ignored": list(one.ignored),
        "complete": one.problem is None and not one.left_out,
        "left_out": [each.to_json() for each in one.left_out],
    }


def _place(where: Place | None) -> Json:
    return None if where is None else {"name": where[0], "call": where[1]}
