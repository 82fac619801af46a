"""Say what a log says in a few kinds of events, and find what looks like a call and is read by no form. Pure.

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
    '{"name": ..., "arguments": {...}}, a message with tool calls (OpenAI, content blocks, LangChain, pydantic-ai), '
    'a JSON-RPC tools/call, or {"messages": [...]}'
)


@dataclass(frozen=True, slots=True)
class Turn:
    """A message begins that has calls: results without identifiers are those of its calls, in their order."""


@dataclass(frozen=True, slots=True)
class Said:
    """A text that is no output of a call."""

    text: str


@dataclass(frozen=True, slots=True)
class Called:
    """A call, with its output as canonical JSON if that stands beside it.

    ``problem`` says why its arguments cannot be read, if the log says so itself.
    """

    name: Any
    arguments: Any
    identifier: str | None = None
    logged: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """What came back of a call: of that with the identifier, or, without one, of the next.

    ``tool`` is the tool's name; ``own`` is an identifier that may be the call's or the message's.
    """

    identifier: str | None
    output: Json
    tool: str | None = None
    own: str | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """What looks like a call or a result, and is of no form that is read: where it stands in the item, and its form.

    ``calls`` are the calls in it as far as all have names and identifiers: they may repeat what was read elsewhere.
    """

    place: str
    form: str
    calls: tuple[Called, ...] = ()

    def error(self, where: str) -> MalformedInputError:
        """The error of a log that has it."""
        return MalformedInputError(
            "a call or a result in a form that is not read",
            where=", ".join(filter(None, (where, self.place))),
            found=self.form,
            expected=FORMS,
            remedy="write it in one of these forms; or delete it, if it is none of the environment's tools",
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
    """The error of a line that is not read."""
    return MalformedInputError(
        f"a line of a log that {what}", where=where, found=found, expected=FORMS
    )


def unread_in(value: Any, place: str = "") -> Iterator[Unread]:
    """What looks like a call or a result in an object of which nothing is read."""
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
    """The form of an object that says itself that it is a call or a result."""
    for key in ("type", "kind", "part_kind"):
        kind = value.get(key)
        if isinstance(kind, str) and _TYPE.fullmatch(bare(kind)):
            return f"{key} {kind!r}"
    role = value.get("role")
    if isinstance(role, str) and LIKE_RESULT_ROLE.search(role):
        return f"role {role!r}"
    return "run_type 'tool'" if value.get("run_type") == "tool" else None


def _says_something(value: Any) -> bool:
    """Whether a value is more than nothing, a number, or counts by name."""
    if isinstance(value, Mapping):
        return any(map(_says_something, value.values()))
    return bool(value) and not isinstance(value, bool | int | float)


def _calls(value: Any) -> tuple[Called, ...]:
    """The calls that an object or a list of objects is, none if one has no name, arguments and identifier."""
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
    """A name without case and signs."""
    return re.sub(r"[^a-z]", "", str(name).lower())
