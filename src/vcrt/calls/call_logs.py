"""Read traces of tool calls from logs of common forms.

A log is JSON lines (or one JSON document, a list or an object). Each item has one of these forms, recognised by its
content:

- plain: ``{"name": ..., "arguments": {...}}``, with ``"output"`` if it is known;
- a chat message of OpenAI's form (``tool_calls`` or ``function_call``, and ``role: tool`` or ``function`` for results),
  an item of its Responses (``function_call``, ``function_call_output``, ``mcp_call``), a message of content blocks
  (``tool_use``, ``tool_result``, and MCP's blocks), a message of LangChain, of pydantic-ai, of Gemini, of
  OpenTelemetry's conventions, of inspect_ai, of Claude Code or of Codex;
- a JSON-RPC request or response of the Model Context Protocol (``tools/call``);
- a whole trace: ``{"messages": [...]}``, ``{"traj": [...]}``, ``{"contents": [...]}`` or ``{"calls": [...]}``, with
  ``"initial"`` for the argument of ``reset``; an inspect_ai log, tau2's simulations, a SWE-agent trajectory.

All lines that are not whole traces belong to one trace. Results without identifiers belong to the last message's calls,
in their order. The texts of messages count as known before the calls that follow. An item that looks like a call or a
result but has none of these forms is an error. Not covered: whether an environment gives the outputs of the log.
"""

from __future__ import annotations

import json
import re
import warnings
from ast import literal_eval
from codecs import BOM_UTF8
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vcrt.calls.log_events import FORMS, malformed, unread_in
from vcrt.calls.log_traces import Gathered, Trace
from vcrt.documents import MAX_BYTES, read_limited, strict_json
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.hashing import canonical_json

#: Where the items of a whole trace stand.
_ITEMS = ("messages", "calls", "traj", "contents")
#: What else a whole trace holds that is no call that was made.
_BESIDE_ITEMS = {*_ITEMS, "initial", "tools", "functions"}
_LISTS_OF_OUTPUTS = ("outputs", "results", "responses", "observations")
#: What an inspect_ai sample holds beside: how its messages came to be.
_OF_INSPECT = {
    *("epoch", "events", "events_data", "timelines", "store", "input", "attachments"),
    "error_retries",
}


def read_traces(path: Path) -> tuple[Trace, ...]:
    """Read the traces of a log; raises :class:`vcrt.errors.MalformedInputError` naming the line that is wrong."""
    if not path.is_file():
        raise MalformedInputError(
            "no log there",
            where=str(path),
            found="a directory" if path.is_dir() else "no such file",
            expected="a file of JSON lines, or one JSON document",
        )
    traces: list[Trace] = []
    lines = Gathered(str(path))
    for where, value in _documents(_values(path)):
        if not isinstance(value, Mapping):
            raise malformed(where, f"a {type(value).__name__}")
        items = [key for key in _ITEMS if isinstance(value.get(key), list)]
        full = [key for key in items if value[key]] or items[:1]
        if len(full) > 1:
            raise malformed(where, f"a trace with both {full[0]!r} and {full[1]!r}")
        if full:
            traces.append(_whole(value, full[0], where))
        else:
            lines.take(value, where)
    if lines.initial is not None and not lines.calls:
        raise MalformedInputError(
            "an `initial` belongs to no trace",
            where=str(path),
            found=f"in a line of its own: {json.dumps(lines.initial)[:100]}",
            expected="calls in lines of their own after it",
            remedy="write it beside the `messages` or `calls` of its trace",
        )
    traces += [_readable(lines)] if lines.calls else []
    if not any(trace.calls or trace.invalid for trace in traces):
        raise MalformedInputError(
            "a log without any call of a tool", where=str(path), expected=FORMS
        )
    return tuple(traces)


def _documents(values: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the values of a log with its traces, where an item holds several of them, or other things beside one."""
    for where, value in values:
        match value:
            case {"eval": _, "samples": [_, *_] as several} | {"simulations": [_, *_] as several}:
                kind = "sample" if "eval" in value else "simulation"
                for number, one in enumerate(several, start=1):
                    yield f"{where}, {kind} {number}", one
            case {"trajectory": list(), "history": [_, *_] as history}:  # SWE-agent
                yield where, {"messages": history}
            case _:
                yield where, value


def _values(path: Path) -> Iterator[tuple[str, Any]]:
    text = read_limited(path, MAX_BYTES).removeprefix(BOM_UTF8)
    if text[:4] == b"PK\3\4":
        raise MalformedInputError(
            "a log that is an archive",
            where=str(path),
            found="a zip file, such as inspect_ai writes",
            expected="a file of JSON lines, or one JSON document",
            remedy=f"inspect log dump {path.name} > log.json",
        )
    if b"\0" in text[:4]:
        raise MalformedInputError(
            "a log that is not in UTF-8",
            where=str(path),
            found="UTF-16 or UTF-32",
            expected="UTF-8",
            remedy=f"iconv -f UTF-16 -t UTF-8 {path.name} > utf8-{path.name}",
        )
    lines = [
        (number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()
    ]
    whole = None
    try:
        whole = strict_json(text) if len(lines) > 1 or text.lstrip()[:1] == b"[" else None
    except json.JSONDecodeError:
        pass
    except ValueError as error:
        try:
            strict_json(lines[0][1])
        except json.JSONDecodeError:  # one document over several lines
            raise _no_json(str(path), error) from error
        except ValueError:  # a line that is deeper or larger than what is read
            pass
    if isinstance(whole, list):
        yield from ((f"{path}, item {place}", item) for place, item in enumerate(whole, start=1))
        return
    if whole is not None:
        yield str(path), whole
        return
    for number, line in lines:
        where = f"{path}:{number}"
        try:
            yield where, strict_json(line)
        except ValueError as error:
            raise _no_json(where, error) from error


def _no_json(where: str, error: ValueError) -> MalformedInputError:
    if isinstance(error, json.JSONDecodeError):
        return malformed(where, f"no JSON: {str(error)[:200]}")
    return malformed(where, str(error)[:200], "holds what is not read")


def _whole(value: Mapping[str, Any], key: str, where: str) -> Trace:
    """Read a whole trace, which has its items under ``key``."""
    lists = [name for name in _LISTS_OF_OUTPUTS if isinstance(value.get(name), list)]
    if any(value[name] for name in lists):
        raise malformed(where, f"a trace with {lists[0]!r} beside its {key}")
    gathered = Gathered(str(value.get("id", where)), initial=value.get("initial"))
    for place, item in enumerate(value[key], start=1):
        gathered.take(item, f"{where}, item {place}")
    if "epoch" in value:
        _require_all(value, gathered, where)
    left_out = _BESIDE_ITEMS | (_OF_INSPECT if "epoch" in value else set())
    rest = {name: value[name] for name in value if name not in left_out}
    gathered.add_all(unread_in(rest), where)
    return _readable(gathered)


def _require_all(sample: Mapping[str, Any], gathered: Gathered, where: str) -> None:
    """Raise an error for a sample of inspect_ai whose messages lack a call that its events have."""
    events = sample.get("events")
    for event in events if isinstance(events, list) else []:
        match event:
            case {"event": "tool", "id": str(made), "function": name} if (
                made not in gathered.waiting
            ):
                raise MalformedInputError(
                    "a sample of inspect_ai has a call that is not in its messages",
                    where=where,
                    found=f"a tool event of {name!r:.80} with the identifier {made[:80]!r}",
                    expected="all calls in `messages`: nothing was trimmed, and no agent called another",
                    remedy="write a log of the tool events: one call a line, each with its output",
                )


def _readable(gathered: Gathered) -> Trace:
    """Return the trace; raises an error for a call that cannot be read, unless its output says that it failed."""
    trace = gathered.trace()
    for number, error in gathered.unread.items():
        if not shows_failure(trace.calls[number].logged):
            raise error
    return trace.without(
        {number: (trace.places[number], error.what) for number, error in gathered.unread.items()}
    )


def same_output(logged: str, output: str) -> bool:
    """Tell whether an output, as canonical JSON, equals a log's, which may be wrapped or written as text.

    An output that is marked as an error, as in MCP, differs from any that is not. A number equals its JSON text; a
    list or an object also equals the text that Python's ``str`` makes of it.

    >>> same_output('[{"type":"text","text":"done"}]', '"done"')
    True
    """
    one, other = json.loads(logged), _json_or_text(output)
    both = {"content", "artifact"}
    if (
        isinstance(other, dict)
        and {*other} == both
        and not (isinstance(one, dict) and {*one} == both)
    ):
        other = other["content"]  # the log has what the model saw alone
    return _is_error(one) == _is_error(other) and not _forms(one).isdisjoint(_forms(other))


#: What may stand before the reason of a refusal: "error" in any case, or the name of an exception.
_BEFORE_REASON = re.compile(r"((?i:error)|([A-Za-z_]\w*\.)*[A-Z]\w*):\s*")
#: What frameworks write around a reason: Claude Code, FastMCP, MCP's SDK and OpenAI Agents before; pydantic-ai and
#: LangGraph behind.
_AROUND_REASON = re.compile(
    r"^<tool_use_error>|</tool_use_error>$|^Error (calling|executing) tool [^:\n]*:\s|"
    r"^An error occurred while running the tool\. Please try again\. Error:\s|"
    r"\s+Fix the errors and try again\.$|\s+Please fix your mistakes\.$"
)
#: What OpenAI Agents, FastMCP and MCP's SDK write in place of a reason that they hide.
_NO_REASON = re.compile(
    r"An error occurred while running the tool\. Please try again\.|Error (calling|executing) tool '?[\w./-]+'?"
)
#: What a clock or chance gives: UUIDs and other long hexadecimal numbers, times, and seconds since 1970.
_DRAWN = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{9,}(\.\d+)?"
    r"|(?<![0-9a-z])(id-)?(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{6,64}(?![0-9a-z])"
    r"|\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d:?\d\d)?",
    re.IGNORECASE,
)


def same_refusal(logged: str, reason: str) -> bool:
    """Tell whether a log's output says that a call was refused for this reason.

    Accepted forms are ``{"error": reason}``, the reason alone, ``Error: reason`` in any case, the reason after an
    exception's name, as in ``ValueError: reason``, and what frameworks write around it, such as ``Fix the errors and
    try again.``; each also as the text of an MCP result or of content blocks. The fixed texts of frameworks that hide
    the reason from the model stand for any.

    >>> same_refusal('{"content":[{"type":"text","text":"Error: no tea"}],"isError":true}', "no tea")
    True
    """
    for text in _forms(json.loads(logged)):
        match _json_or_text(text):
            case {"error": str(said), **more} if not more:
                pass
            case said:
                said = said if isinstance(said, str) else text
        if _NO_REASON.fullmatch(said.strip()):
            return True
        said = _AROUND_REASON.sub("", said.strip()).strip()
        bare = _BEFORE_REASON.sub("", said, count=1)
        # LangGraph writes the exception, such as ValueError('no tea').
        if reason.strip() in (said, bare) or re.fullmatch(
            rf"\w+\({re.escape(repr(reason))}\)", bare
        ):
            return True
    return False


#: How an output that is a text begins if the call failed.
_FAILURE = re.compile(
    r"\s*((?i:error)\b|([A-Za-z_]\w*\.)*\w*(Error|Exception)\s*:|<tool_use_error>"
    r"|An error occurred while running the tool\.)"
)


def shows_failure(logged: str | None) -> bool:
    """Tell whether a log's output is a refusal for any reason, in a form that :func:`same_refusal` accepts.

    >>> shows_failure('"Error: unknown tool"'), shows_failure('{"error":"x"}'), shows_failure('"no error"')
    (True, True, False)
    """
    if logged is None:
        return False
    value = json.loads(logged)
    if _is_error(value):
        return True
    for text in _forms(value):
        said = _json_or_text(text)
        if isinstance(said, Mapping) and said.get("error"):
            return True
        if _FAILURE.match(said if isinstance(said, str) else text):
            return True
    return False


def looks_drawn(logged: str, output: str) -> bool:
    """Tell whether two outputs differ only in text that looks like a time or a random identifier.

    >>> looks_drawn('{"id":"ev-0a1b2c"}', '{"id":"ev-9f8e7d"}')
    True
    """
    one, other = (
        {_DRAWN.sub("*", form) for form in _forms(value)}
        for value in (json.loads(logged), _json_or_text(output))
    )
    return not one.isdisjoint(other)


def unwrapped(logged: str) -> list[Any]:
    """Return what may be meant by an output in a log: what it is in, and what is in it."""
    return [_json_or_text(text) for text in sorted(_forms(json.loads(logged)))]


def _forms(value: Any) -> set[str]:
    """Return the texts that may stand for an output in a log."""
    found = {canonical_json(value).decode()}
    if isinstance(value, str):
        inner = _json_or_text(value)
        inner = _python_value(value) if inner == value else inner
        found |= {value.strip()} if inner == value else _forms(inner) | {value.strip()}
    if isinstance(value, Mapping) and _is_wrapped(value):
        found |= _forms(value["content"])
        if value.get("structuredContent") is not None:
            found |= _forms(value["structuredContent"])
    if isinstance(value, list) and value and all(map(_is_block_of_text, value)):
        found |= _forms("\n".join(block["text"] for block in value))
    if isinstance(value, Mapping) and set(value) in ({"result"}, {"output"}):
        found |= _forms(next(iter(value.values())))
    return found


#: The most characters of a text that is read as Python writes values.
_MAX_LITERAL = 100_000


def _is_error(value: Any) -> bool:
    """Tell whether an output, wrapped or not, is marked as an error."""
    match value:
        case str():
            inner = _json_or_text(value)
            return inner != value and _is_error(inner)
        case list() if value and all(_is_text(block) for block in value):
            return any(_is_error(block["text"]) for block in value)
        case {"isError": True} | {"is_error": True}:
            return True
        case {"content": list(blocks)}:
            return _is_error(blocks)
        case {"result": inner, **more} | {"output": inner, **more} if not more:
            return _is_error(inner)
    return False


def _is_wrapped(value: Mapping[str, Any]) -> bool:
    """Tell whether an output is a result of MCP: its blocks of content say of which type they are."""
    blocks = value.get("content")
    if not isinstance(blocks, list) or not all(
        isinstance(b, Mapping) and "type" in b for b in blocks
    ):
        return False
    return bool(blocks) or set(value) <= {"content", "structuredContent", "isError", "_meta"}


def _is_block_of_text(block: Any) -> bool:
    return _is_text(block) and block.get("type") in ("text", "input_text", "output_text")


def _is_text(block: Any) -> bool:
    return isinstance(block, Mapping) and isinstance(block.get("text"), str)


def _json_or_text(text: str) -> Any:
    """Parse a text as JSON, or return the text; a number stays text, because the texts 1.10 and 1.1 differ."""
    try:
        value = strict_json(text)
    except ValueError:  # a number that is none, half a character and the like are texts, too
        return text
    return text if isinstance(value, int | float) else value


def _python_value(text: str) -> Any:
    """Return the list or object that Python's `str` wrote, as OpenAI Agents does with outputs; else the text."""
    if text[:1] not in ("{", "[", "(") or len(text) > _MAX_LITERAL:
        return text
    try:
        with warnings.catch_warnings(action="ignore"):
            return json.loads(canonical_json(literal_eval(text)))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, VcrtError):
        return text


def windows(
    number: int, size: int | None, most: int, inside: Collection[int] = ()
) -> Iterable[range]:
    """Return which calls of a trace are certified together: all, or every ``size`` consecutive ones.

    More than ``most`` calls are cut into few parts of about equal length, and at no call ``inside`` a message, unless a
    message has more than ``most``.
    """
    if size is not None:
        return [range(start, start + size) for start in range(number - size + 1)]
    parts, start = list[range](), 0
    while number - start > most:
        even = start + (number - start) // -(-(number - start) // most)
        within = range(start + 2, min(start + most, number - 2) + 1)  # no part of one call
        whole = (k for k in within if k not in inside)
        stop = min(whole, key=lambda k: abs(k - even), default=even)
        parts.append(range(start, stop))
        start = stop
    return [*parts, range(start, number)]
