"""Read one item of a log, in any known form, as calls, results and texts in their order. Pure.

Not covered: which call a result belongs to, and messages of JSON-RPC (see :mod:`vcrt.calls.log_traces`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from vcrt.calls.log_events import (
    FORMS,
    LIKE_RESULT_ROLE,
    Answered,
    Called,
    Event,
    Said,
    Turn,
    Unread,
    bare,
    form_said,
    malformed,
    unread_in,
)
from vcrt.documents import strict_json
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json

#: Forms that are known and not read, by the fields that tell them.
_NOT_READ = (
    ("LangSmith runs", {"run_type"}),
    ("runs of inputs and outputs", {"inputs", "outputs"}),
    ("LangChain's serialized constructors", {"lc", "kwargs"}),
    ("a response of OpenAI's chat completions", {"choices"}),
    ("ShareGPT conversations", {"conversations"}),
    ("a SWE-agent trajectory, whose messages stand in its `history`", {"trajectory"}),
    ("an inspect_ai log, whose samples have the messages", {"samples"}),
    ("tau2 simulations, which have the messages", {"simulations"}),
    ("Gemini's contents", {"contents"}),
    ("OpenTelemetry spans", {"resourceSpans"}),
)
#: LangChain's types of messages, and their roles.
_LANGCHAIN = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "function",
}
#: Roles of messages that are a result; others whose names look so are not read.
_RESULT_ROLES = ("tool", "function")
#: Fields that say which session a line of Claude Code is of.
_SESSION = {"uuid", "leafUuid", "sessionId", "session_id", "messageId"}
#: The fields that an object may have beside a call whose arguments are left out: others may be its arguments.
_BESIDE = {"id", "type", "call_id", "index", "status"}
_OUTPUTS = ("output", "result")
#: The names of a call's identifier.
_IDENTIFIERS = ("id", "call_id", "tool_call_id", "toolCallId")
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
_NO_JSON = "a call whose arguments are no JSON"
#: Other names of arguments and outputs, without case and signs.
_OTHER_NAMES = re.compile(
    r"(tool)?(inputs?|params|parameters|kwargs|arguments?|args|outputs?|results?|responses?|returns?|returnvalue"
    r"|returned|observations?|content|std(out|err)|repl(y|ies)|answers?)"
)


def events_of(value: Any, where: str) -> Iterator[Event]:
    """Return the events of an item in order; raises :class:`MalformedInputError` for an item of no known form."""
    if not isinstance(value, Mapping):
        raise malformed(where, f"a {type(value).__name__}")
    for form, fields in _NOT_READ:
        if fields <= set(value) and "arguments" not in value:
            raise MalformedInputError(
                f"a log of a form that is not read: {form}",
                where=where,
                found=_fields(value),
                expected=FORMS,
                remedy="write its calls in one of these forms, one a line, each with its output",
            )
    kind = value.get("type")
    match value:
        case {"role": str()}:
            yield from _message(value, where)
        case {"type": "user" | "assistant", "message": {"role": str()} as message}:  # Claude Code
            yield from _message(message, where, _text(message.get("id")))
        case {"type": "system", **rest} if _SESSION & set(value):
            yield from unread_in(rest.pop("content", None), "content")
            yield from unread_in(rest)
        case {"type": str(), "data": {"content": _} as message} if kind in _LANGCHAIN:
            yield from _message({**message, "role": _LANGCHAIN[kind]}, where)
        case {"type": str(), "content": _} if kind in _LANGCHAIN:
            yield from _message({**value, "role": _LANGCHAIN[kind]}, where)
        case {"parts": list(parts), "kind": "request" | "response"}:
            yield from _parts(parts, where)
            yield from unread_in({key: value[key] for key in value if key != "parts"})
        case {"type": "function_call" | "mcp_call"}:
            yield from _item(value, where)
        case {"type": "function_call_output", "call_id": identifier, "output": output}:
            yield Answered(str(identifier), _flagged(value, output))
        case {"type": "tool_use" | "mcp_tool_use" | "tool_result" | "mcp_tool_result"}:
            yield from _blocks([value], where)
        case {"type": "reasoning" | "mcp_list_tools"}:  # items without calls
            yield from ()
        case {"name": _} | {"tool": _} if kind in (None, "tool_call", "call", "function"):
            yield _plain(value, where)
        case {"type": str()} if _SESSION & set(value):
            yield from unread_in(value)
        case _:
            found = next(unread_in(value), None)
            if found is not None:
                yield Unread(found.place, found.form)
            raise malformed(where, json.dumps(value)[:120])


def _fields(value: Mapping[str, Any]) -> str:
    return ("an object with " + ", ".join(map(repr, value)))[:120]


def _plain(value: Mapping[str, Any], where: str) -> Called:
    if {"name", "tool"} <= set(value):
        raise malformed(where, "both 'name' and 'tool'")
    name = value.get("name", value.get("tool"))
    given = [value[key] for key in _OUTPUTS if key in value]
    if len(given) > 1 and canonical_json(given[0]) != canonical_json(given[1]):
        raise malformed(where, f"a call of {name!r} with two outputs")
    own = {"name", "tool", *_OUTPUTS, "isError", "is_error", "outcome", "error"}
    if {"arguments", "args"} & set(
        value
    ):  # else it could be the result of a call that stands elsewhere
        own |= {*_IDENTIFIERS}
    arguments = _arguments(value, own, where)
    output, error = value.get("output", value.get("result")), value.get("error")
    shown = next((_text(value[key]) for key in _IDENTIFIERS if key in value), None)
    if not _failed(value) and not any(key in value for key in _OUTPUTS):
        return Called(name, arguments, shown=shown)
    alone = output is None and error not in (None, False, True, "")
    logged = _json({"error": error} if alone else _flagged(value, output))
    return Called(name, arguments, logged=logged, shown=shown)


def _arguments(value: Mapping[str, Any], beside: Collection[str], where: str) -> Any:
    """Return the arguments of a call. They may be missing if no other field could be the arguments.

    ``beside`` are the other fields of its form. The names of all further fields must show that they are neither
    arguments nor an output, because a field that is overlooked could distinguish two orders.
    """
    given = [key for key in ("arguments", "args") if key in value]
    if len(given) > 1:
        raise malformed(where, "a call with both 'arguments' and 'args'")
    rest = [key for key in value if key not in beside and key not in _BESIDE]
    if given:
        _require_notes(value, {given[0], *beside, *_BESIDE}, where)
        return value[given[0]]
    if rest:
        raise malformed(where, f"a call without `arguments`, but with {rest[0]!r}"[:120])
    return {}


def _require_notes(value: Mapping[str, Any], own: Collection[str], where: str) -> None:
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


def _item(value: Mapping[str, Any], where: str) -> Iterator[Event]:
    """Read an item of OpenAI's Responses, or of a list of calls in that form."""
    beside = {"name", "call_id", "server_label", "approval_request_id", "created_by"}
    beside |= {"output", "error"} if value["type"] == "mcp_call" else set()
    call = Called(value.get("name"), _arguments(value, beside, where), _text(value.get("call_id")))
    if value["type"] == "function_call":
        yield call
        return
    logged = None
    if value.get("output") is not None or _failed(value):
        logged = _json(_flagged(value, value.get("output")))
    yield Called(call.name, call.arguments, logged=logged, shown=_text(value.get("id")))


def _json(value: Json) -> str:
    return canonical_json(value).decode()


def _text(identifier: Any) -> str | None:
    return None if identifier is None or identifier == "" else str(identifier)


def _failed(value: Mapping[str, Any]) -> bool:
    """Tell whether a result declares that the call failed."""
    flags = [str(value.get(key)).lower() for key in ("isError", "is_error", "status", "outcome")]
    return (
        "true" in flags[:2]
        or value.get("error") not in (None, False, "", [], {})
        or not {"error", "failed", "denied"}.isdisjoint(flags[2:])
    )


def _flagged(value: Mapping[str, Any], output: Any) -> Json:
    """Return a result's output; if the call failed, in the form of MCP failures."""
    if not _failed(value):
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


def _message(
    message: Mapping[str, Any], where: str, identifier: str | None = None
) -> Iterator[Event]:
    content, role = message.get("content"), message["role"]
    blocks = content if isinstance(content, list) else [content]
    if role in _RESULT_ROLES and not any(_is_part(block) for block in blocks):
        yield _result(message, where)
        return
    if role not in _RESULT_ROLES and (LIKE_RESULT_ROLE.search(role) or message.get("tool_call_id")):
        yield Unread("", f"a result of role {role!r}")
    listed = list(_tool_calls(message, where))
    first = list(_blocks(blocks, where, listed))
    if listed or any(isinstance(each, Called) for each in first):
        yield Turn(identifier)
        said = [key for key in message if message[key] not in (None, "", [], {})]
        outputs = [key for key in said if key != "content" and _is_of_call(key)]
        if outputs:
            raise malformed(where, f"a message of calls with {outputs[0]!r} beside them")
    # What is not read may repeat a call of the list.
    yield from (each for each in first if not isinstance(each, Unread))
    yield from listed
    yield from (each for each in first if isinstance(each, Unread))
    read = {"content", "role", "tool_calls", "function_call", "invalid_tool_calls", "tool_call_id"}
    yield from unread_in({key: message[key] for key in message if key not in read})


def _is_of_call(key: str) -> bool:
    """Tell whether a field's name is one of arguments or outputs."""
    return _OTHER_NAMES.fullmatch(bare(key)) is not None


def _is_part(block: Any) -> bool:
    """Tell whether a block is a call or a result itself."""
    return isinstance(block, Mapping) and form_said(block) is not None


def _result(message: Mapping[str, Any], where: str) -> Answered:
    if "content" not in message:
        raise malformed(where, f"a result without 'content': {_fields(message)}"[:120])
    identifiers = message.get("tool_call_ids") or [message.get("tool_call_id")]
    if not isinstance(identifiers, list) or len(identifiers) != 1:
        raise malformed(where, f"one result of several calls: {json.dumps(identifiers)}"[:120])
    tool = message.get("name") or message.get("tool_name")
    identifier = _text(identifiers[0])
    return Answered(
        identifier,
        _flagged(message, message["content"]),
        tool if isinstance(tool, str) and identifier is None else None,
        _text(message.get("id")),
    )


def _tool_calls(message: Mapping[str, Any], where: str) -> Iterator[Called]:
    calls, function = message.get("tool_calls") or [], message.get("function_call")
    if calls and function:
        raise malformed(where, "a message with both 'tool_calls' and 'function_call'")
    invalid = message.get("invalid_tool_calls") or []
    if not isinstance(calls, list) or not isinstance(invalid, list):
        raise malformed(where, f"tool_calls {json.dumps(calls or invalid)}"[:120])
    if function:
        yield _function(function, None, where)
    for call in calls:
        yield _tool_call(call, where)
    for call in invalid:  # LangChain's
        if not isinstance(call, Mapping):
            raise malformed(where, f"the tool call {json.dumps(call)}"[:120])
        yield Called(call.get("name"), call.get("args"), _text(call.get("id")), problem=_NO_JSON)


def _tool_call(call: Any, where: str) -> Called:
    identifier = _text(call.get("id")) if isinstance(call, Mapping) else None
    match call:
        case {"function": {} as function}:
            _require_notes(call, {"function", "extra_content", *_BESIDE}, where)
            return _function(function, identifier, where)
        case {"type": kind} if kind not in (None, "function", "tool_call"):
            raise malformed(where, f"the tool call {json.dumps(call)}"[:120])
        case {"function": str(function)}:  # inspect_ai
            arguments = _arguments(call, {"function", "parse_error", "view"}, where)
            problem = _NO_JSON if call.get("parse_error") else None
            return Called(function, arguments, identifier, problem=problem)
    return _function(call, identifier, where)


def _function(function: Any, identifier: str | None, where: str) -> Called:
    if not isinstance(function, Mapping) or "name" not in function:
        raise malformed(where, f"the tool call {json.dumps(function)}"[:120])
    return Called(function["name"], _arguments(function, {"name"}, where), identifier)


def _blocks(blocks: Iterable[Any], where: str, listed: Iterable[Called] = ()) -> Iterator[Event]:
    """Read the blocks of a message's content, without calls that are also in its list of calls."""
    known = {call.identifier or "": call for call in listed}
    for number, block in enumerate(blocks, start=1):
        match block:
            case {"type": "tool_use" | "mcp_tool_use", "name": name, "input": given}:
                _require_notes(block, {"name", "input", "server_name", *_BESIDE}, where)
                call = Called(name, given, _text(block.get("id")))
                same = known.get(call.identifier or "")
                if not known:
                    yield call
                elif same is None or (
                    given and (same.name, parsed(same.arguments)) != (name, given)
                ):
                    raise malformed(
                        where, f"a block with a call of {name!r:.80} that the list of calls has not"
                    )
            case {"type": "tool_result" | "mcp_tool_result", "tool_use_id": identifier}:
                other = [key for key in block if key != "content" and _is_of_call(key)]
                if other:
                    raise malformed(where, f"a call or a result with {other[0]!r}")
                yield Answered(str(identifier), _flagged(block, block.get("content")))
            case str(text) | {"text": str(text)} if not _is_part(block):
                yield Said(text)
                yield from unread_in(block, f"block {number}")
            case _:
                yield from unread_in(block, f"block {number}")


def parsed(arguments: Any) -> Any:
    """Parse arguments that may be written as text."""
    try:
        return strict_json(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def _parts(parts: Iterable[Any], where: str) -> Iterator[Event]:
    """Read the parts of a message of pydantic-ai."""
    calls = list[Called]()
    others = list[Event]()
    for number, part in enumerate(parts, start=1):
        match part:
            case {"part_kind": "tool-call", "tool_name": name, "tool_call_id": identifier}:
                beside = {"tool_name", "tool_call_id", "part_kind", "provider_name", "tool_kind"}
                calls.append(Called(name, _arguments(part, beside, where), _text(identifier)))
            case {"part_kind": "tool-return", "tool_call_id": identifier, "content": output}:
                others.append(Answered(_text(identifier), _flagged(part, output)))
            case {"part_kind": "retry-prompt", "tool_name": str(), "tool_call_id": _, "content": _}:
                reason, identifier = part["content"], _text(part["tool_call_id"])
                text = reason if isinstance(reason, str) else json.dumps(reason)
                others.append(Answered(identifier, _flagged({"isError": True}, text)))
            case {"part_kind": "retry-prompt" | "text" | "user-prompt" | "system-prompt"}:
                content = part.get("content")
                texts = content if isinstance(content, list) else [content]
                others += [Said(text) for text in texts if isinstance(text, str)]
            case _:
                others += unread_in(part, f"part {number}")
    yield from others
    if calls:
        yield Turn()
    yield from calls
