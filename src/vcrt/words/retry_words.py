"""Say in sentences and in JSON which calls may be made again. Pure text."""

from __future__ import annotations

from vcrt.calls.differences import HIDDEN, Differing
from vcrt.calls.retries import Retried, Retries
from vcrt.hashing import Json
from vcrt.printable import counted, printable
from vcrt.records.certificate import after

_SAID = {
    "safe": "safe",
    "other output": "done once, but answered otherwise",
    "other state": "not safe",
    "not known": "refused: nothing is known",
}
#: What the answers rest on.
CAVEAT = "each call was made twice in a row: a retry after other calls was not tried"
#: The most places of the state that a line names.
_PLACES = 3


def retries_lines(one: Retries) -> list[str]:
    """Give a line for each call, the hints that they contradict, and what this rests on."""
    if one.problem is not None:
        return [f"nothing can be said: {printable(one.problem)}"]
    lines = [_line(one, call) for call in one.calls]
    for tool, hint, call in one.contradicted:
        lines.append(
            f"{printable(tool)}: {hint} is declared, and call {call} changes the state again"
        )
    asked = f"; {counted(one.asked, 'call')} checked further, all answered alike"
    lines.append(CAVEAT + asked * bool(one.asked))
    if one.ignored:
        ignored = ", ".join(map(printable, one.ignored))
        lines.append(f"not compared, since the environment ignores it: {ignored}")
    return lines


def _line(one: Retries, made: Retried) -> str:
    identifier = one.ids[made.call]
    name = printable(one.names[made.call] + (f"  [{identifier}]" if identifier else ""))
    said = f"  {made.call:>2}  {name}: {_SAID[made.answer]}"
    if made.answer in ("safe", "not known"):
        return f"{said}, in {counted(made.num_states, 'state')}"
    told = [each for each in made.difference if each.call is None][:_PLACES]
    told += [each for each in made.difference if each.call is not None][:1]
    return f"{said}, {after(made.context)}: {'; '.join(map(_apart, told)) or 'another state'}"


def _apart(place: Differing) -> str:
    if place.reverse == HIDDEN:
        return f"{place.where} differs"
    once, twice = (each or "not there" for each in (place.forward, place.reverse))
    return printable(f"{place.where} is {twice} (made once: {once})")


def retries_document(one: Retries) -> dict[str, Json]:
    """Return the answers of a trace as JSON."""
    return {
        "name": one.name,
        "problem": one.problem,
        "calls": [
            {
                "call": each.call,
                "name": one.names[each.call],
                "id": one.ids[each.call],
                "answer": each.answer,
                "states": each.num_states,
                "after": list(each.context),
                "difference": [place.to_json() for place in each.difference],
            }
            for each in one.calls
        ],
        "contradicted": [
            {"tool": tool, "hint": hint, "call": call} for tool, hint, call in one.contradicted
        ],
        "asked": one.asked,
        "ignored": list(one.ignored),
        "complete": one.problem is None and not one.left_out,
        "left_out": [each.to_json() for each in one.left_out],
    }
