"""Read one item of a log, in any known form, as calls, results and texts in their order. Pure.

Not covered: which call a result belongs to, and messages of JSON-RPC (see :mod:`vcrt.calls.log_traces`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vcrt.calls.log_events import (
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
from vcrt.calls.log_fields import (
    BESIDE,
    arguments_of,
    failed,
    fields_of,
    flagged,
    json_text,
    require_notes,
    text_of,
)
from vcrt.calls.log_parts import parts_of_message, parts_of_pydantic_ai
from vcrt.calls.log_refused import require_read
from vcrt.documents import strict_json
from vcrt.hashing import canonical_json

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
#: Items of OpenAI's Responses in a rollout of Codex; and its other lines, which hold no call that was made.
_ITEMS_READ = {"message", "reasoning", "function_call", "function_call_output"}
_OF_CODEX = {"session_meta", "turn_context", "compacted", "event_msg"}
#: Fields that say which session a line of Claude Code is of.
_SESSION = {"uuid", "leafUuid", "sessionId", "session_id", "messageId"}
_OUTPUTS = ("output", "result")
#: The names of a call's identifier.
_IDENTIFIERS = ("id", "call_id", "tool_call_id", "toolCallId")
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
    message = _constructed(value)
    if message is not None:
        yield from events_of(message, where)
        return
    require_read(value, where)
    kind = value.get("type")
    match value:
        case {"parts": list(parts), **rest} if "kind" not in value and "content" not in value:
            yield from parts_of_message(parts, where)
            rest.pop("role", None)
            yield from unread_in(rest)
        case {"role": str(), "is_demo": True}:  # of SWE-agent, which did not make its calls
            yield from ()
        case {"role": str()}:
            yield from _message(value, where)
        case {"type": "user" | "assistant", "message": {"role": str()} as message}:  # Claude Code
            yield from _message(message, where, text_of(message.get("id")))
        case {"type": "system", **rest} if _SESSION & set(value):
            yield from unread_in(rest.pop("content", None), "content")
            yield from unread_in(rest)
        case {"type": str(), "data": {"content": _} as message} if kind in _LANGCHAIN:
            yield from _message({**message, "role": _LANGCHAIN[kind]}, where)
        case {"type": str(), "content": _} if kind in _LANGCHAIN:
            yield from _message({**value, "role": _LANGCHAIN[kind]}, where)
        case {"parts": list(parts), "kind": "request" | "response"}:
            yield from parts_of_pydantic_ai(parts, where)
            yield from unread_in({key: value[key] for key in value if key != "parts"})
        case {"type": "response_item", "payload": {"type": str(inner)} as payload}:  # Codex
            yield from events_of(payload, where) if inner in _ITEMS_READ else unread_in(payload)
        case {"type": "event_msg", "payload": {"call_id": str(identifier)} as payload}:
            yield Unread("payload", f"event {payload.get('type')!r}", of=identifier)
        case {"type": str(), "payload": {} as payload} if kind in _OF_CODEX:
            yield from unread_in(payload, "payload")
        case {"type": "function_call" | "mcp_call"}:
            yield from _item(value, where)
        case {"type": "function_call_output", "call_id": identifier, "output": output}:
            yield Answered(str(identifier), flagged(value, output))
        case {"type": "tool_use" | "mcp_tool_use" | "tool_result" | "mcp_tool_result"}:
            yield from _blocks([value], where)
        case {"type": "reasoning" | "mcp_list_tools"}:  # items without calls
            yield from ()
        case {"name": _} | {"tool": _} if kind in (None, "tool_call", "call", "function"):
            yield _plain(value, where)
        case {"type": "attachment", "attachment": {"type": str(what)}} if what.startswith("hook_"):
            yield from ()  # what a hook of Claude Code said, not a tool
        case {"type": str()} if _SESSION & set(value):
            yield from unread_in(value)
        case _:
            found = next(unread_in(value), None)
            if found is not None:
                yield Unread(found.place, found.form)
            raise malformed(where, json.dumps(value)[:120])


def _constructed(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a message of LangChain from what its constructor was given; None if it is none."""
    match value:
        case {"lc": _, "type": "constructor", "id": [*_, str(name)], "kwargs": {} as message}:
            kind = message.get("type", name.removesuffix("Message").lower())
            return {**message, "type": kind} if kind in _LANGCHAIN and "lc" not in message else None
    return None


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
    arguments = arguments_of(value, own, where)
    output, error = value.get("output", value.get("result")), value.get("error")
    shown = next((text_of(value[key]) for key in _IDENTIFIERS if key in value), None)
    if not failed(value) and not any(key in value for key in _OUTPUTS):
        return Called(name, arguments, shown=shown)
    alone = output is None and error not in (None, False, True, "")
    logged = json_text({"error": error} if alone else flagged(value, output))
    return Called(name, arguments, logged=logged, shown=shown)


def _item(value: Mapping[str, Any], where: str) -> Iterator[Event]:
    """Read an item of OpenAI's Responses, or of a list of calls in that form."""
    beside = {"name", "call_id", "server_label", "approval_request_id", "created_by"}
    beside |= {"internal_chat_message_metadata_passthrough"}  # of Codex
    beside |= {"output", "error"} if value["type"] == "mcp_call" else set()
    call = Called(
        value.get("name"), arguments_of(value, beside, where), text_of(value.get("call_id"))
    )
    if value["type"] == "function_call":
        yield call
        return
    logged = None
    if value.get("output") is not None or failed(value):
        logged = json_text(flagged(value, value.get("output")))
    yield Called(call.name, call.arguments, logged=logged, shown=text_of(value.get("id")))


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
        raise malformed(where, f"a result without 'content': {fields_of(message)}"[:120])
    identifiers = message.get("tool_call_ids") or [message.get("tool_call_id")]
    if not isinstance(identifiers, list) or len(identifiers) != 1:
        raise malformed(where, f"one result of several calls: {json.dumps(identifiers)}"[:120])
    tool = message.get("name") or message.get("tool_name")
    identifier = text_of(identifiers[0])
    content = message["content"]
    if (
        message.get("artifact") is not None
    ):  # LangChain's: what a tool gives beside what the model sees
        content = {"content": content, "artifact": message["artifact"]}
    return Answered(
        identifier,
        flagged(message, content),
        tool if isinstance(tool, str) and identifier is None else None,
        text_of(message.get("id")),
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
        yield Called(call.get("name"), call.get("args"), text_of(call.get("id")), problem=_NO_JSON)


def _tool_call(call: Any, where: str) -> Called:
    identifier = text_of(call.get("id")) if isinstance(call, Mapping) else None
    match call:
        case {"function": {} as function}:
            require_notes(call, {"function", "extra_content", *BESIDE}, where)
            return _function(function, identifier, where)
        case {"type": kind} if kind not in (None, "function", "tool_call"):
            raise malformed(where, f"the tool call {json.dumps(call)}"[:120])
        case {"function": str(function)}:  # inspect_ai
            arguments = arguments_of(call, {"function", "parse_error", "view"}, where)
            problem = _NO_JSON if call.get("parse_error") else None
            return Called(function, arguments, identifier, problem=problem)
    return _function(call, identifier, where)


def _function(function: Any, identifier: str | None, where: str) -> Called:
    if not isinstance(function, Mapping) or "name" not in function:
        raise malformed(where, f"the tool call {json.dumps(function)}"[:120])
    return Called(function["name"], arguments_of(function, {"name"}, where), identifier)


def _blocks(blocks: Iterable[Any], where: str, listed: Iterable[Called] = ()) -> Iterator[Event]:
    """Read the blocks of a message's content, without calls that are also in its list of calls."""
    known = {call.identifier or "": call for call in listed}
    for number, block in enumerate(blocks, start=1):
        match block:
            case {"type": "tool_use" | "mcp_tool_use", "name": name, "input": given}:
                require_notes(block, {"name", "input", "server_name", *BESIDE}, where)
                call = Called(name, given, text_of(block.get("id")))
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
                yield Answered(str(identifier), flagged(block, block.get("content")))
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
