"""Read traces of tool calls from the logs that people have.

A log is JSON lines (or one JSON list), each of one of these forms, told apart by what is in it:

- plain: ``{"name": ..., "arguments": {...}}``, with ``"output"`` if it is known;
- a chat message of OpenAI's form (``tool_calls``, and ``role: tool`` for what came back), an item of its Responses
  (``function_call``, ``function_call_output``), or a message of content blocks (``tool_use``, ``tool_result``);
- a request or a response of JSON-RPC, as the Model Context Protocol has them (``tools/call``);
- a whole trace: ``{"messages": [...]}`` or ``{"calls": [...]}``, with ``"initial"`` for what ``reset`` is given.

Lines that are no whole traces belong to one trace. Whatever else a message holds is kept as text that was known before
the calls that follow it. Not covered: whether an environment gives what the log has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from vcrt.documents import MAX_BYTES, read_limited, strict_json
from vcrt.environments.tool_calls import Call, call_text
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json
from vcrt.printable import counted

FORMS = (
    '{"name": ..., "arguments": {...}}, a message with tool calls (OpenAI or content blocks), a JSON-RPC tools/call, '
    'or {"messages": [...]}'
)
#: What says nothing about calls in JSON-RPC.
_OTHER_METHODS = ("initialize", "ping", "tools/list")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """The calls of a trace in their order, and where it stands.

    ``initial`` is what the environment is reset to, None if the log does not say. ``known[k]`` are the texts that were
    there before call ``k``, outputs of calls apart: an argument found in one comes from there. ``places[k]`` is the
    file and line of call ``k``. ``invalid`` are calls that failed before a tool ran: where each stands, and why; they
    are not among ``calls``.
    """

    name: str
    calls: tuple[Call, ...]
    places: tuple[str, ...]
    initial: Json = None
    known: tuple[tuple[str, ...], ...] = ()
    invalid: tuple[tuple[str, str], ...] = ()

    def without(self, invalid: Mapping[int, tuple[str, str]]) -> Trace:
        """The trace without some calls, by number, each with where it stands and why it is left out."""
        kept = [number for number in range(len(self.calls)) if number not in invalid]
        return replace(
            self,
            calls=tuple(self.calls[number] for number in kept),
            places=tuple(self.places[number] for number in kept),
            known=tuple(self.known[number] for number in kept) if self.known else (),
            invalid=(*self.invalid, *invalid.values()),
        )

    def place_of(self, number: int) -> str:
        """Where a call stands: its file and line, its number, and the call itself."""
        call = self.calls[number]
        return f"{self.places[number]}, call {number} {call_text(call.name, call.arguments)}"


def read_traces(path: Path) -> tuple[Trace, ...]:
    """The traces of a log; raises :class:`vcrt.errors.MalformedInputError` naming the line that is wrong."""
    if not path.is_file():
        raise MalformedInputError(
            "no log there",
            where=str(path),
            found="a directory" if path.is_dir() else "no such file",
            expected="a file of JSON lines",
        )
    traces: list[Trace] = []
    lines = _Gathered(str(path))
    for where, value in _values(path):
        if not isinstance(value, Mapping):
            raise _malformed(where, f"a {type(value).__name__}")
        whole = value.get("messages", value.get("calls"))
        if isinstance(whole, list):
            gathered = _Gathered(str(value.get("id", where)), initial=value.get("initial"))
            for place, item in enumerate(whole, start=1):
                gathered.take(item, f"{where}, item {place}")
            traces.append(gathered.trace())
        else:
            lines.take(value, where)
    traces += [lines.trace()] if lines.calls else []
    if not any(trace.calls or trace.invalid for trace in traces):
        raise MalformedInputError(
            "a log without any call of a tool", where=str(path), expected=FORMS
        )
    return tuple(traces)


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    text = read_limited(path, MAX_BYTES)
    if b"\0" in text[:4]:
        raise MalformedInputError(
            "a log that is not in UTF-8",
            where=str(path),
            found="UTF-16 or UTF-32",
            expected="UTF-8",
            remedy=f"iconv -f UTF-16 -t UTF-8 {path.name} > utf8-{path.name}",
        )
    try:
        whole = strict_json(text)
    except ValueError:
        whole = None
    if isinstance(whole, list):
        yield from ((f"{path}, item {place}", item) for place, item in enumerate(whole, start=1))
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            where = f"{path}:{number}"
            try:
                yield where, strict_json(line)
            except ValueError as error:
                raise _malformed(where, f"no JSON: {str(error)[:200]}") from error


@dataclass(slots=True)
class _Gathered:
    """What was read of a trace so far; outputs find their calls by the identifiers that both have."""

    name: str
    initial: Json = None
    calls: list[Call] = field(default_factory=list)
    known: list[tuple[str, ...]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    waiting: dict[str, int] = field(default_factory=dict)
    #: Identifiers of calls without an output yet, in one message; and those of them that came twice, with the place.
    open: set[str] = field(default_factory=set)
    twice: dict[str, str] = field(default_factory=dict)
    #: Calls whose arguments cannot be read, and why.
    unread: dict[int, MalformedInputError] = field(default_factory=dict)

    def trace(self) -> Trace:
        """All of it; raises the error of a call that cannot be read, unless its output says that it failed."""
        for number, error in self.unread.items():
            if not shows_failure(self.calls[number].logged):
                raise error
        invalid = {n: (self.places[n], error.what) for n, error in self.unread.items()}
        return Trace(
            name=self.name,
            calls=tuple(self.calls),
            initial=self.initial,
            known=tuple(self.known),
            places=tuple(self.places),
        ).without(invalid)

    def take(self, value: Any, where: str) -> None:
        """Take an item of a trace; raises :class:`MalformedInputError`."""
        match value:
            case {"initial": initial} if not self.calls and "name" not in value:
                self.initial = initial
            case {"jsonrpc": _}:
                self._json_rpc(value, where)
            case {"type": "function_call", "name": name}:
                self.call(name, value.get("arguments"), value.get("call_id"), where)
            case {"type": "function_call_output", "call_id": identifier}:
                self.output(identifier, value.get("output"), where)
            case {"role": "tool", "tool_call_id": identifier}:
                self.output(identifier, value.get("content"), where)
            case {"role": str()}:
                self._message(value, where)
            case {"name": name} | {"tool": name}:
                arguments = value.get("arguments", value.get("args", {}))
                self.call(name, arguments, None, where, logged=_logged(value))
            case _:
                raise _malformed(where, json.dumps(value)[:120])

    def _message(self, message: Mapping[str, Any], where: str) -> None:
        self.open.clear()
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        for block in blocks:
            match block:
                case {"type": "tool_use", "name": name}:
                    self.call(name, block.get("input"), block.get("id"), where)
                case {"type": "tool_result", "tool_use_id": identifier}:
                    output = block.get("content")
                    if block.get("is_error") is True:
                        text = [{"type": "text", "text": output}]
                        given = output if isinstance(output, list) else text
                        output = {"content": given, "isError": True}
                    self.output(identifier, output, where)
                case {"text": str(text)}:
                    self.texts.append(text)
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if not isinstance(function, Mapping) or "name" not in function:
                raise _malformed(where, f"the tool call {json.dumps(call)[:100]}")
            self.call(function["name"], function.get("arguments"), call.get("id"), where)

    def _json_rpc(self, message: Mapping[str, Any], where: str) -> None:
        identifier = str(message.get("id"))
        match message:
            case {"method": "tools/call", "params": {"name": name, **rest}}:
                self.call(name, rest.get("arguments", {}), identifier, where)
            case {"method": _}:
                # Another request: what answers it is no call's output.
                self.waiting.pop(identifier, None)
            case {"result": result} if identifier in self.waiting:
                self.output(identifier, result, where)
            case {"error": {"message": str(reason)}} if identifier in self.waiting:
                self.output(identifier, {"error": reason}, where)

    def call(
        self, name: Any, arguments: Any, identifier: Any, where: str, logged: str | None = None
    ) -> None:
        if not isinstance(name, str) or not name:
            raise _malformed(where, f"a tool named {name!r:.80}")
        try:
            text = isinstance(arguments, str)
            arguments = (strict_json(arguments) if arguments.strip() else {}) if text else arguments
            what = "a call whose arguments are no object"
        except ValueError:
            what = "a call whose arguments are no JSON"
        arguments = {} if arguments is None else arguments
        if not isinstance(arguments, dict):
            self.unread[len(self.calls)] = MalformedInputError(
                what,
                where=f"{where}, tool {name!r}",
                found=(arguments if isinstance(arguments, str) else json.dumps(arguments))[:120],
                expected="a JSON object of arguments by name; or an output that says that the call failed, such as "
                "`Error: no JSON`, with which it is left out",
                remedy="write what was meant, delete the call, or add the output that the agent got",
            )
            arguments = {}
        if identifier is not None:
            self._await(str(identifier), where)
        self.places.append(where)
        self.calls.append(Call(name, arguments, logged))
        self.known.append(tuple(self.texts))

    def _await(self, identifier: str, where: str) -> None:
        self.twice.pop(identifier, None)
        if identifier in self.open:
            self.twice[identifier] = where
        self.open.add(identifier)
        self.waiting[identifier] = len(self.calls)

    def output(self, identifier: Any, output: Any, where: str) -> None:
        place = self.waiting.get(str(identifier))
        if str(identifier) in self.twice:
            raise MalformedInputError(
                "two calls of one message with one identifier: it cannot be said whose output follows",
                where=self.twice[str(identifier)],
                found=f"identifier {str(identifier)[:80]!r} twice, and its output in {where}",
                expected="an identifier of its own for each call of a message",
                remedy="give one of the two calls, and its output, another identifier",
            )
        self.open.discard(str(identifier))
        if place is None:
            raise MalformedInputError(
                "the output of a call that does not stand before it",
                where=where,
                found=f"identifier {str(identifier)[:80]!r}",
                expected=f"that of one of {counted(len(self.calls), 'call')} so far",
            )
        call, logged = self.calls[place], canonical_json(output).decode()
        if call.logged not in (None, logged):
            raise MalformedInputError(
                "two outputs of one call",
                where=where,
                found=f"identifier {str(identifier)[:80]!r}, of the call in {self.places[place]}, again",
                expected="one output for each call",
                remedy="delete the one that the agent did not get",
            )
        self.calls[place] = Call(call.name, call.arguments, logged)


def _logged(value: Mapping[str, Any]) -> str | None:
    for name in ("output", "result"):
        if name in value:
            return canonical_json(value[name]).decode()
    return canonical_json({"error": value["error"]}).decode() if "error" in value else None


def same_output(logged: str, output: str) -> bool:
    """Whether an output, as canonical JSON, is what a log has, which may have wrapped it or written it as text.

    >>> same_output('[{"type":"text","text":"done"}]', '"done"')
    True
    """
    return not _forms(json.loads(logged)).isdisjoint(_forms(_json_or_text(output)))


#: What may stand before the reason of a refusal: "error" in any case, or the name of an exception.
_BEFORE_REASON = re.compile(r"((?i:error)|([A-Za-z_]\w*\.)*[A-Z]\w*):\s*")
#: What a clock or chance gives: UUIDs and other long hexadecimal numbers, times, and seconds since 1970.
_DRAWN = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{9,}(\.\d+)?"
    r"|(?<![0-9a-z])(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{6,64}(?![0-9a-z])"
    r"|\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)


def same_refusal(logged: str, reason: str) -> bool:
    """Whether a log's output says that a call was refused for this reason.

    It does as ``{"error": reason}``, as the reason alone, as ``Error: reason`` in any case, and after the name of any
    exception, as in ``ValueError: reason``; each also as the text of a result of MCP, or of content blocks.

    >>> same_refusal('{"content":[{"type":"text","text":"Error: no tea"}],"isError":true}', "no tea")
    True
    """
    for text in _forms(json.loads(logged)):
        match _json_or_text(text):
            case {"error": str(said), **more} if not more:
                pass
            case said:
                said = said if isinstance(said, str) else text
        said = said.strip()
        if reason.strip() in (said, _BEFORE_REASON.sub("", said, count=1)):
            return True
    return False


#: How an output that is a text begins if the call failed.
_FAILURE = re.compile(r"\s*((?i:error)\b|([A-Za-z_]\w*\.)*\w*(Error|Exception)\s*:)")


def shows_failure(logged: str | None) -> bool:
    """Whether a log's output says that the call failed, whatever the reason: as :func:`same_refusal` knows refusals.

    >>> shows_failure('"Error: unknown tool"'), shows_failure('{"error":"x"}'), shows_failure('"no error"')
    (True, True, False)
    """
    if logged is None:
        return False
    value = json.loads(logged)
    if isinstance(value, Mapping) and value.get("isError") is True:
        return True
    for text in _forms(value):
        said = _json_or_text(text)
        if isinstance(said, Mapping) and said.get("error"):
            return True
        if _FAILURE.match(said if isinstance(said, str) else text):
            return True
    return False


def looks_drawn(logged: str, output: str) -> bool:
    """Whether two outputs differ only in what looks like a time or a random identifier.

    >>> looks_drawn('{"id":"ev-0a1b2c"}', '{"id":"ev-9f8e7d"}')
    True
    """
    one, other = (
        {_DRAWN.sub("*", form) for form in _forms(value)}
        for value in (json.loads(logged), _json_or_text(output))
    )
    return not one.isdisjoint(other)


def _forms(value: Any) -> set[str]:
    """The texts that one output may be written as."""
    found = {canonical_json(value).decode()}
    if isinstance(value, str):
        inner = _json_or_text(value)
        found |= {value.strip()} if inner == value else _forms(inner) | {value.strip()}
    if isinstance(value, Mapping) and isinstance(value.get("content"), list):
        found |= _forms(value["content"])
        if value.get("structuredContent") is not None:
            found |= _forms(value["structuredContent"])
    if isinstance(value, list) and value and all(_is_text(block) for block in value):
        found |= _forms("\n".join(block["text"] for block in value))
    if isinstance(value, Mapping) and set(value) in ({"result"}, {"output"}):
        found |= _forms(next(iter(value.values())))
    return found


def _is_text(block: Any) -> bool:
    return isinstance(block, Mapping) and isinstance(block.get("text"), str)


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _malformed(where: str, found: str) -> MalformedInputError:
    return MalformedInputError(
        "a line of a log that is none of the forms", where=where, found=found, expected=FORMS
    )


def windows(number: int, size: int | None, most: int) -> Iterable[range]:
    """Which calls of a trace are certified together: all, or every ``size`` that follow each other.

    More calls than ``most`` are cut into parts of about one length, the fewest that do.
    """
    if size is not None:
        return [range(start, start + size) for start in range(number - size + 1)]
    parts = -(-number // most)
    return [range(*cut) for cut in pairwise(number * part // parts for part in range(parts + 1))]
