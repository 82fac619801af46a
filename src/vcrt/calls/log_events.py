"""Define the kinds of events in a log, and find items that look like calls but have no known form. Pure.

Not covered: which forms are read (see :mod:`vcrt.calls.log_forms`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vcrt.errors import MalformedInputError
from vcrt.hashing import Json

FORMS = (
    '{"name": ..., "arguments": {...}}, a message with tool calls (OpenAI, content blocks, LangChain, pydantic-ai, '
    'Gemini), a JSON-RPC tools/call, or {"messages": [...]}'
)


@dataclass(frozen=True, slots=True)
class Turn:
    """The beginning of a message with calls: results without identifiers belong to its calls, in their order.

    ``message`` is the message's own identifier, where a log may have its calls in several lines.
    """

    message: str | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """A text that is not the output of a call."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call, with its output as canonical JSON if the same item has it.

    ``problem`` says why its arguments cannot be read, if the log itself marks them as invalid. ``shown`` is the
    identifier that the log has, if ``identifier`` is another: no result refers to it, or several calls have it.
    """

    name: Any
    arguments: Any
    identifier: str | None = None
    logged: str | None = None
    problem: str | None = None
    shown: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of the call with this identifier, or, without an identifier, of the next call.

    ``tool`` is the tool's name; ``own`` is an identifier that may be the call's or the message's. ``not_run`` says why
    no tool ran, if the log says so.
    """

    identifier: str | None
    output: Json
    tool: str | None = None
    own: str | None = None
    not_run: str | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """Something that looks like a call or a result but has no known form: its place in the item, and its form.

    ``calls`` are the calls in it, if all have names and identifiers: they may repeat calls that were read elsewhere.
    ``of`` is the identifier of the call that it only tells of again.
    """

    place: str
    form: str
    calls: tuple[Called, ...] = ()
    of: str | None = None

    def error(self, where: str) -> MalformedInputError:
        """Return the error of a log that contains this."""
        return MalformedInputError(
            "a call or a result in a form that is not read",
            where=", ".join(filter(None, (where, self.place))),
            found=self.form,
            expected=FORMS,
            remedy="write it in one of these forms; delete it if it belongs to none of the environment's tools",
        )


Event = Turn | Said | Called | Answered | Unread

#: Roles of messages that are a result, or look so.
LIKE_RESULT_ROLE = re.compile(r"(?i)tool|function|ipython|observation|environment")
#: Fields, and values of `type`, that say that an object is, or has, a call or a result; without case and signs.
_FIELD = re.compile(
    r"(invalid|server|mcp|custom|builtin|requested)?(tool|function)"
    r"(call|use|input|result|response|return|output|invocation|request)s?(ids?)?"
)
_OUTPUTS = {"content", "output", "result", "response", "text"}
_TYPE = re.compile(
    r".*(tool|function)(call|use|result|response|return|output|invocation|request).*|.*[a-z]call(output)?"
)


def malformed(where: str, found: str, what: str = "is none of the forms") -> MalformedInputError:
    """Return the error of a line that cannot be read."""
    return MalformedInputError(
        f"a line of a log that {what}", where=where, found=found, expected=FORMS
    )


def unread_in(value: Any, place: str = "") -> Iterator[Unread]:
    """Find calls or results in an object that has no known form."""
    if isinstance(value, list):
        for number, each in enumerate(value, start=1):
            yield from unread_in(each, f"{place} {number}".strip())
    if not isinstance(value, Mapping):
        return
    form = form_said(value)
    if form is not None:
        yield Unread(place, form, _calls(value))
        return
    for key, each in value.items():
        inner = f"{place}.{key}".strip(".")
        if _FIELD.fullmatch(bare(key)) and _says_something(each):
            if isinstance(each, str) and bare(key).endswith("id") and not _OUTPUTS & set(value):
                continue  # an identifier alone refers to a call that stands elsewhere
            yield Unread(inner, f"field {key!r}", _calls(each))
        else:
            yield from unread_in(each, inner)


def form_said(value: Mapping[str, Any]) -> str | None:
    """Return the form of an object that declares itself a call or a result."""
    for key in ("type", "kind", "part_kind"):
        kind = value.get(key)
        if isinstance(kind, str) and _TYPE.fullmatch(bare(kind)):
            return f"{key} {kind!r}"
    role = value.get("role")
    if isinstance(role, str) and LIKE_RESULT_ROLE.search(role):
        return f"role {role!r}"
    return "run_type 'tool'" if value.get("run_type") == "tool" else None


def _says_something(value: Any) -> bool:
    """Tell whether a value is more than empty, a number, or counts by name."""
    if isinstance(value, Mapping):
        return any(map(_says_something, value.values()))
    return bool(value) and not isinstance(value, bool | int | float)


def _calls(value: Any) -> tuple[Called, ...]:
    """Return the calls in an object or a list of objects; none if one lacks a name, arguments or an identifier."""
    found = list[Called]()
    for each in value if isinstance(value, list) else [value]:
        call = each if isinstance(each, Mapping) else {}
        function = call.get("function", call)
        inner = function if isinstance(function, Mapping) else call
        given = [inner[key] for key in ("arguments", "args", "input") if key in inner]
        identifier = call.get("call_id", call.get("id"))
        if len(given) != 1 or not isinstance(identifier, str):
            return ()
        name = function if isinstance(function, str) else inner.get("name")
        found.append(Called(name, given[0], identifier))
    return tuple(found)


def bare(name: Any) -> str:
    """Return a name in lower case without punctuation."""
    return re.sub(r"[^a-z]", "", str(name).lower())
