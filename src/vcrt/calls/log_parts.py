"""Read messages that consist of parts: of pydantic-ai, of Gemini, and of OpenTelemetry's semantic conventions. Pure.

Not covered: other forms of messages (see :mod:`vcrt.calls.log_forms`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vcrt.calls.log_events import Answered, Called, Event, Said, Turn, bare, malformed, unread_in
from vcrt.calls.log_fields import arguments_of, flagged, require_notes, text_of
from vcrt.errors import MalformedInputError

#: What pydantic-ai answers, in these words, for a call that it did not run as a tool.
_NOT_RUN = frozenset(
    {
        "Tool not executed - a final result was already processed.",
        "Final result processed.",
        "Output not used as the final result - addressing tool retries from this round first.",
        "Output tool not used - a final result was already processed.",
        "Output tool not used - output failed validation.",
        "Output tool not used - output function execution failed.",
        "Output tool processed, but its value will not be the final result of the agent run.",
    }
)
#: Fields of a part of Gemini that hold no call, without case and signs.
_OF_GEMINI = frozenset(
    {
        *("thought", "thoughtsignature", "inlinedata", "filedata", "mediaresolution"),
        *("mediaprocessing", "audiotranscription", "videometadata", "partmetadata"),
        *("speechmetadata", "documentmetadata", "spreadsheetmetadata", "audiometadata"),
    }
)


def parts_of_pydantic_ai(parts: Iterable[Any], where: str) -> Iterator[Event]:
    """Return the events of the parts of a message of pydantic-ai."""
    calls = list[Called]()
    others = list[Event]()
    for number, part in enumerate(parts, start=1):
        match part:
            case {"part_kind": "tool-call", "tool_name": name, "tool_call_id": identifier}:
                beside = {"tool_name", "tool_call_id", "part_kind", "provider_name", "tool_kind"}
                calls.append(Called(name, arguments_of(part, beside, where), text_of(identifier)))
            case {"part_kind": "tool-return", "tool_call_id": _, "content": _}:
                others.append(_returned(part, where))
            case {"part_kind": "retry-prompt", "tool_name": str(), "tool_call_id": _, "content": _}:
                others.append(_returned({**part, "outcome": "retried"}, where))
            case {
                "part_kind": "retry-prompt"
                | "retry-feedback"
                | "text"
                | "user-prompt"
                | "system-prompt"
            }:
                content = part.get("content")
                texts = content if isinstance(content, list) else [content]
                others += [Said(text) for text in texts if isinstance(text, str)]
            case _:
                others += unread_in(part, f"part {number}")
    yield from others
    if calls:
        yield Turn()
    yield from calls


def _returned(part: Mapping[str, Any], where: str) -> Answered:
    """Read the result of a call, which says how the call ended."""
    content, outcome, retry = part["content"], part.get("outcome"), part.get("retry")
    if outcome == "interrupted":
        raise MalformedInputError(
            "a call was interrupted: it is not known whether it ran",
            where=where,
            found=f"outcome 'interrupted' of {part.get('tool_name')!r:.80}",
            expected="a result of the tool",
            remedy="if the call changed nothing, delete it and this part; otherwise write what it gave",
        )
    cause = retry.get("cause") if isinstance(retry, Mapping) else None
    if outcome == "denied":
        cause = "it was denied"
    elif isinstance(content, str) and content in _NOT_RUN:
        cause = content.rstrip(".")
    elif outcome == "retried" and cause is None and isinstance(content, list):
        cause = "validation_error"  # a list is what the check of the arguments found
    not_run = None if cause in (None, "model_retry") else f"a call that was not run: {cause}"
    if outcome == "retried" or not_run:
        text = content if isinstance(content, str) else json.dumps(content)
        output = flagged({"isError": True}, text)
    else:
        output = flagged(part, content)
    return Answered(text_of(part["tool_call_id"]), output, not_run=not_run)


def parts_of_message(parts: Iterable[Any], where: str) -> Iterator[Event]:
    """Return the events of the parts of a message of Gemini, or of OpenTelemetry's ``gen_ai`` messages."""
    read = [event for n, part in enumerate(parts, start=1) for event in _part(part, n, where)]
    first = next((n for n, event in enumerate(read) if isinstance(event, Called)), len(read))
    yield from read[:first]
    if first < len(read):
        yield Turn()
    yield from read[first:]


def _part(part: Any, number: int, where: str) -> Iterator[Event]:
    place = f"part {number}"
    match part:
        case {"functionCall": {"name": name} as call} | {"function_call": {"name": name} as call}:
            yield Called(name, arguments_of(call, {"name"}, where), text_of(call.get("id")))
            _require_gemini(part, "functioncall", where)
        case {"functionResponse": {"name": name, "response": output} as given} | {
            "function_response": {"name": name, "response": output} as given
        }:
            require_notes(given, {"id", "name", "response", "scheduling"}, where)
            identifier = text_of(given.get("id"))
            yield Answered(identifier, output, name if identifier is None else None)
            _require_gemini(part, "functionresponse", where)
        case {"type": "tool_call", "name": name} if not part.get("builtin"):
            _require_content(part, ("arguments",), where)
            beside = {"name", "code_arg_name", "code_arg_language"}
            yield Called(name, arguments_of(part, beside, where), text_of(part.get("id")))
        case {"type": "tool_call_response"} if not part.get("builtin"):
            key = _require_content(part, ("response", "result"), where)
            require_notes(part, {"id", "type", "name", key, "is_error"}, where)
            identifier, name = text_of(part.get("id")), part.get("name")
            yield Answered(identifier, flagged(part, part[key]), None if identifier else name)
        case {"toolCallId": _}:
            raise malformed(where, f"a call of the AI SDK: {json.dumps(part)}"[:120])
        case {"type": "text" | "reasoning", "content": str(text)}:
            yield Said(text)
            yield from unread_in(part, place)
        case {"type": str()}:
            yield from unread_in(part, place)
        case _:
            _require_gemini(part, "text", where)
            if isinstance(part.get("text"), str):
                yield Said(part["text"])


def _require_gemini(part: Any, read: str, where: str) -> None:
    """Raise an error for a part of Gemini with a field that is neither read nor known to hold no call."""
    fields = part.items() if isinstance(part, Mapping) else [("", part)]
    for key, value in fields:
        if value is not None and bare(key) not in {read, *_OF_GEMINI}:
            found = f"{key!r} of the part {json.dumps(part)}"
            raise malformed(where, found[:120], "has a part that is not read")


def _require_content(part: Mapping[str, Any], keys: tuple[str, ...], where: str) -> str:
    """Return the one of these fields that a part has; without one, its content was not recorded."""
    given = [key for key in keys if key in part]
    if len(given) != 1:
        raise MalformedInputError(
            "a call or a result whose content was not recorded",
            where=where,
            found=f"{part['type']!r} with {', '.join(map(repr, part))}"[:120],
            expected=" or ".join(f"`{key}`" for key in keys),
            remedy="record it: `include_content=True` of pydantic-ai, or "
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY; or write what was given, "
            "`null` if it was nothing",
        )
    return given[0]
