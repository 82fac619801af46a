"""Read fields that the forms of logs share: arguments, identifiers, and outputs that say that a call failed. Pure.

Not covered: which item is a call or a result (see :mod:`vcrt.calls.log_forms`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from vcrt.calls.log_events import malformed
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json

#: The fields that an object may have beside a call whose arguments are left out: others may be its arguments.
BESIDE = {"id", "type", "call_id", "index", "status"}
#: Words of the names of fields beside a call that hold neither its arguments nor its output.
_NOTES = frozenset(
    re.findall(
        r"\w+",
        "agent at attempt cache caller category comment control cost created date details duration elapsed "
        "end ended epoch extra fields finished handle id ids idx index internal iso kind label latency level "
        "line log meta metadata millis model ms namespace note ns number origin otel parent provider reason "
        "reasoning requestor requester request run sec seconds seq sequence server session signature source "
        "span specific start started stamp status step tag tags thought thread time timestamp title token "
        "tokens trace ts turn type unix updated us usage user uuid version view ",
    )
)


def fields_of(value: Mapping[str, Any]) -> str:
    """Return an object in words: the names of its fields."""
    return ("an object with " + ", ".join(map(repr, value)))[:120]


def arguments_of(value: Mapping[str, Any], beside: Collection[str], where: str) -> Any:
    """Return the arguments of a call. They may be missing if no other field could be the arguments.

    ``beside`` are the other fields of its form. The names of all further fields must show that they are neither
    arguments nor an output, because a field that is overlooked could distinguish two orders.
    """
    given = [key for key in ("arguments", "args") if key in value]
    if len(given) > 1:
        raise malformed(where, "a call with both 'arguments' and 'args'")
    rest = [key for key in value if key not in beside and key not in BESIDE]
    if given:
        require_notes(value, {given[0], *beside, *BESIDE}, where)
        return value[given[0]]
    if rest:
        raise malformed(where, f"a call without `arguments`, but with {rest[0]!r}"[:120])
    return {}


def require_notes(value: Mapping[str, Any], own: Collection[str], where: str) -> None:
    """Raise an error for a field beside a call that is not part of its form and could be its output."""
    for key, inner in value.items():
        if key in own or inner in (None, "", [], {}, False):
            continue
        words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", str(key))
        if not words or not {word.lower() for word in words} <= _NOTES:
            raise MalformedInputError(
                "a call with a field that is not read",
                where=where,
                found=f"field {key!r:.80}",
                expected="the fields of its form, and notes such as `started_at`",
                remedy='write `{"initial": ...}` as a line of its own, before the calls'
                if key == "initial"
                else "rename the field to `output` if it holds what the call gave; else delete it"
                if "output" in own
                else "if it holds what the call gave, write that as a result of this form (a message of role `tool`, a "
                "block `tool_result`, an item `function_call_output`); else delete it",
            )


def json_text(value: Json) -> str:
    """Return a value as canonical JSON."""
    return canonical_json(value).decode()


def text_of(identifier: Any) -> str | None:
    """Return an identifier as text; None for none, and for an empty one."""
    return None if identifier is None or identifier == "" else str(identifier)


def failed(value: Mapping[str, Any]) -> bool:
    """Tell whether a result declares that the call failed."""
    flags = [str(value.get(key)).lower() for key in ("isError", "is_error", "status", "outcome")]
    return (
        "true" in flags[:2]
        or value.get("error") not in (None, False, "", [], {})
        or not {"error", "failed", "denied"}.isdisjoint(flags[2:])
    )


def flagged(value: Mapping[str, Any], output: Any) -> Json:
    """Return a result's output; if the call failed, in the form of MCP failures."""
    if not failed(value):
        found: Json = output
        return found
    error = value.get("error")
    reason = error.get("message", error) if isinstance(error, Mapping) else error
    if output in (None, "", []) and reason not in (None, False, True, ""):
        output = reason
    if isinstance(output, Mapping) and isinstance(output.get("content"), list):  # of MCP
        return {**output, "isError": True}
    text = output if isinstance(output, str) else json.dumps(output)
    given = output if isinstance(output, list) else [{"type": "text", "text": text}]
    return {"content": given, "isError": True}
