"""Read the messages of a session of the Model Context Protocol as calls and results.

Client and server each number their own requests: a result is that of the waiting request with its identifier whose
results have its form. Not covered: other items of logs (see
:mod:`vcrt.environments.log_forms`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vcrt.environments.log_events import Answered, Called, Event, malformed
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json

_CALL = "tools/call"
#: Fields of the results of a server's own requests, which no result of a tool has together.
_OF_SERVERS: dict[str, set[str]] = {
    "roots/list": {"roots"},
    "elicitation/create": {"action"},
    "sampling/createMessage": {"role", "content", "model"},
}


@dataclass(slots=True)
class Requests:
    """The requests of a session so far; identifiers of its calls are of their own, whatever the session's."""

    count: int = 0
    #: By identifier, as JSON: the requests that wait, each with its method and, of a call, its own identifier.
    waiting: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    #: Calls that were cancelled and have no result, by their own identifiers: where.
    cancelled: dict[str, str] = field(default_factory=dict)

    def events(self, message: Mapping[str, Any], where: str) -> Iterator[Event]:
        """What a message says; raises :class:`MalformedInputError` for one that cannot be told."""
        identifier = json.dumps(message.get("id"))
        match message:
            case {"method": "tools/call"}:
                yield self._call(message, identifier, where)
            case {"method": "notifications/cancelled", "params": {"requestId": cancelled}}:
                for method, own in self.waiting.get(json.dumps(cancelled), ()):
                    if method == _CALL:
                        self.cancelled[own] = where
            case {"method": str(method)}:
                if message.get("id") is not None:
                    self.waiting.setdefault(identifier, []).append((method, ""))
            case {"result": result, "error": {} as error} if error and result is not None:
                raise malformed(
                    where,
                    f"a response with both a result and an error: {json.dumps(message)}"[:120],
                )
            case {"result": result, "error": None}:
                yield from self._answer({"result": result}, identifier, where)
            case {"result": _} | {"error": _}:
                yield from self._answer(message, identifier, where)
            case _:
                raise malformed(where, json.dumps(message)[:120])

    def require_answers(self) -> None:
        """Raise the error of a call that was cancelled, if nothing says whether it was run."""
        for where in self.cancelled.values():
            raise MalformedInputError(
                "a call that was cancelled and has no output: it cannot be said whether it was run",
                where=where,
                expected="its result, which says that it was run",
                remedy="delete the call if it changed nothing; delete the cancellation if the call was run",
            )

    def _call(self, message: Mapping[str, Any], identifier: str, where: str) -> Called:
        params = message.get("params")
        if not isinstance(params, Mapping) or "name" not in params:
            raise malformed(where, f"the tool call {json.dumps(message)}"[:120])
        other = sorted(set(params) - {"name", "arguments", "_meta"})
        if other:  # a task gives its result elsewhere
            raise malformed(where, f"a call of {params['name']!r} with {other[0]!r}"[:120])
        own = None
        if message.get("id") is not None:
            self.count += 1
            own = f"{message['id']} of request {self.count}"
            self.waiting.setdefault(identifier, []).append((_CALL, own))
        return Called(params["name"], params.get("arguments", {}), own)

    def _answer(self, message: Mapping[str, Any], identifier: str, where: str) -> Iterator[Event]:
        waiting = self.waiting.get(identifier, [])
        alone = len(waiting) == 1
        fitting = [each for each in waiting if _fits(each[0], message, alone=alone)]
        if len(fitting) != 1 and any(method == _CALL for method, _ in waiting):
            raise MalformedInputError(
                "a result of which it cannot be said whether it is the call's",
                where=where,
                found=f"identifier {identifier[:80]}, of {', '.join(each[0] for each in waiting)[:80]}",
                expected="one request that waits for a result of this form",
                remedy="write the requests of the server into the log as well; or delete them, with their results",
            )
        output = _output(message)
        if fitting:
            method, own = fitting[0]
            waiting.remove(fitting[0])
            if method == _CALL:
                self.answered[identifier] = own
                self.cancelled.pop(own, None)
                yield Answered(own, output)
            else:
                self.answered.pop(identifier, None)
        elif identifier in self.answered:
            yield Answered(self.answered[identifier], output)
        elif _is_of_tool(message.get("result")):
            yield Answered(f"{identifier} of no request", output)


def _output(message: Mapping[str, Any]) -> Json:
    if "error" not in message:
        result: Json = message["result"]
        return result
    error = message["error"]
    reason = error.get("message") if isinstance(error, Mapping) else error
    text = reason if isinstance(reason, str) else json.dumps(error)
    return {"content": [{"type": "text", "text": text}], "isError": True}


def _fits(method: str, message: Mapping[str, Any], *, alone: bool) -> bool:
    """Whether a message may be the answer to a request of this method; ``alone``: no other one waits."""
    if "error" in message:
        return True
    result = message["result"]
    fields = set(result) if isinstance(result, Mapping) else set()
    if method in _OF_SERVERS:
        return _OF_SERVERS[method] <= fields
    if method == _CALL and alone and not any(own <= fields for own in _OF_SERVERS.values()):
        return True
    return _is_of_tool(result) == (method == _CALL)


def _is_of_tool(result: Any) -> bool:
    """Whether a result has the form of a tool's."""
    content = result.get("content") if isinstance(result, Mapping) else None
    return isinstance(content, list) and "role" not in result
