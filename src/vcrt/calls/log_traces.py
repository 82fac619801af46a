"""Assemble the events of a log into traces, and match each result with its call.

In a session of the Model Context Protocol, client and server each number their own requests: a result belongs to
the waiting request that has its identifier and expects its form. Not covered: other forms of items (see
:mod:`vcrt.calls.log_forms`), and files (see :mod:`vcrt.calls.call_logs`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vcrt.calls.log_events import Answered, Called, Event, Said, Turn, Unread, malformed, unread_in
from vcrt.calls.log_forms import events_of, parsed
from vcrt.documents import strict_json
from vcrt.environments.tool_calls import Call, Span, call_text
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json
from vcrt.printable import counted


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """The calls of a trace in order, and their places in the log.

    ``initial`` is the argument of the environment's reset, None if the log does not say. ``known[k]`` are the texts
    before call ``k``, without outputs of calls: an argument found in one comes from there. ``places[k]`` is the file
    and line of call ``k``. ``invalid`` lists place and reason of calls that failed before a tool ran; they are not
    among ``calls``.
    """

    name: str
    calls: tuple[Call, ...]
    places: tuple[str, ...]
    initial: Json = None
    known: tuple[tuple[str, ...], ...] = ()
    invalid: tuple[tuple[str, str], ...] = ()

    def without(self, invalid: Mapping[int, tuple[str, str]]) -> Trace:
        """Return the trace without the calls of these numbers, each with its place and why it is left out."""
        kept = [number for number in range(len(self.calls)) if number not in invalid]
        return replace(self.reordered(kept), invalid=(*self.invalid, *invalid.values()))

    def reordered(self, order: Sequence[int]) -> Trace:
        """Return the trace with only these calls, in this order."""
        return replace(
            self,
            calls=tuple(self.calls[number] for number in order),
            places=tuple(self.places[number] for number in order),
            known=tuple(self.known[number] for number in order) if self.known else (),
        )

    def is_before(self, one: int, other: int) -> bool:
        """Tell whether a call had its output before another was made."""
        first, second = self.calls[one].span, self.calls[other].span
        if first is None or second is None or first.answered is None:
            return one < other
        return first.answered < second.made

    def sent_together(self, one: int, other: int) -> bool:
        """Tell whether two calls came in one message, or neither had its output when the other was made."""
        first, second = self.calls[one].span, self.calls[other].span
        messages = {None if span is None else span.message for span in (first, second)}
        if len(messages) == 1 and None not in messages:
            return True
        return not self.is_before(one, other) and not self.is_before(other, one)

    def raced(self, part: range) -> bool:
        """Tell whether some calls stand in another order than they were made in."""
        spans = [self.calls[number].span for number in part]
        made = [span.made for span in spans if span is not None]
        return made != sorted(made)

    def answered_at(self, number: int) -> tuple[bool, int]:
        """Return the key that sorts calls by the order of their outputs; calls without an output come last."""
        span = self.calls[number].span
        answered = None if span is None else span.answered
        return answered is None, number if answered is None else answered

    def at_once(self, number: int) -> range:
        """Return the range of calls that were awaited together with this call."""
        first, last = number, number + 1
        while True:
            start = min((k for k in range(first) if not self.is_before(k, first)), default=first)
            stop = last
            while stop < len(self.calls) and not all(
                self.is_before(k, stop) for k in range(start, stop)
            ):
                stop += 1
            if (start, stop) == (first, last):
                return range(first, last)
            first, last = start, stop

    def inside_messages(self) -> frozenset[int]:
        """Return the calls of which an earlier one was sent together with it or with a later one."""
        found = set[int]()
        for first in range(len(self.calls)):
            last = first
            for other in range(first + 1, len(self.calls)):
                if self.sent_together(first, other):
                    last = other
                elif other - last > _APART:
                    break
            found.update(range(first + 1, last + 1))
        return frozenset(found)

    def num_beside(self, batch: range, part: range) -> int:
        """Return how many calls outside of a part of the trace were sent together with some of a batch in it."""
        # A call that comes later and was waited for with these was so with all calls between: they are in the batch.
        last = len(self.calls) if batch.stop == part.stop else part.stop
        outside = (*range(part.start), *range(part.stop, last))
        return sum(any(self.sent_together(*sorted((k, n))) for n in batch) for k in outside)

    def place_of(self, number: int) -> str:
        """Return the place of a call in words: its file and line, its number, and the call itself."""
        call = self.calls[number]
        return f"{self.places[number]}, call {number} {call_text(call.name, call.arguments)}"


#: So many calls behind a message's last one, none is taken to belong to it.
_APART = 256
_CALL = "tools/call"
#: Fields of the results of a server's own requests, which no result of a tool has together.
_OF_SERVERS: dict[str, set[str]] = {
    "roots/list": {"roots"},
    "elicitation/create": {"action"},
    "sampling/createMessage": {"role", "content", "model"},
}


@dataclass(slots=True)
class Requests:
    """The requests of a session so far; its calls get their own identifiers, independent of the session's."""

    count: int = 0
    #: By identifier, as JSON: the requests that wait, each with its method and, of a call, its own identifier.
    waiting: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    answered: dict[str, str] = field(default_factory=dict)
    #: Calls that were cancelled and have no result, by their own identifiers: where.
    cancelled: dict[str, str] = field(default_factory=dict)

    def events(self, message: Mapping[str, Any], where: str) -> Iterator[Event]:
        """Return the events of a message; raises :class:`MalformedInputError` for a message that is ambiguous."""
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
        """Raise an error if a call was cancelled and nothing says whether it ran."""
        for where in self.cancelled.values():
            raise MalformedInputError(
                "a call was cancelled and has no output: it is not known whether it ran",
                where=where,
                expected="its result, which shows that it ran",
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
        shown = None if own is None else str(message["id"])
        return Called(params["name"], params.get("arguments", {}), own, shown=shown)

    def _answer(self, message: Mapping[str, Any], identifier: str, where: str) -> Iterator[Event]:
        waiting = self.waiting.get(identifier, [])
        alone = len(waiting) == 1
        fitting = [each for each in waiting if _fits(each[0], message, alone=alone)]
        if len(fitting) != 1 and any(method == _CALL for method, _ in waiting):
            raise MalformedInputError(
                "a result may be that of the call or of another request",
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
    """Tell whether a message may answer a request of this method; ``alone``: no other request waits."""
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
    """Tell whether a result has the form of a tool's result."""
    content = result.get("content") if isinstance(result, Mapping) else None
    return isinstance(content, list) and "role" not in result


#: Fields of calls and messages: a line that has one does not only say where the calls begin.
_OF_ITEMS = {
    *("name", "tool", "arguments", "args", "jsonrpc", "role", "type", "kind", "content"),
    "tool_calls",
}


@dataclass(slots=True)
class Gathered:
    """The events of a trace so far; outputs are matched with calls by their identifiers."""

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
    #: The place and the name of the last message.
    message: tuple[str, str] = "", ""
    #: The calls of the last message, and which have a result without an identifier: where, and whether it names the
    #: tool.
    turn: list[int] = field(default_factory=list)
    in_order: dict[int, tuple[str, bool]] = field(default_factory=dict)
    #: Calls whose arguments cannot be read, and why.
    unread: dict[int, MalformedInputError] = field(default_factory=dict)
    requests: Requests = field(default_factory=Requests)
    #: Calls and outputs so far.
    happened: int = 0

    def trace(self) -> Trace:
        """Return the whole trace, with the calls in ``unread``; raises an error for anything ambiguous."""
        self._end_turn()
        self.requests.require_answers()
        return Trace(
            name=self.name,
            calls=tuple(self.calls),
            initial=self.initial,
            known=tuple(self.known),
            places=tuple(self.places),
        )

    def take(self, value: Any, where: str) -> None:
        """Add an item of a trace; raises :class:`MalformedInputError`."""
        match value:
            case {"initial": initial, **rest} if not self.calls and not _OF_ITEMS & set(rest):
                if self.initial is not None:
                    raise malformed(where, "a second `initial` before the first call")
                self.initial = initial
                self.add_all(unread_in(rest), where)
            case {"initial": initial} if initial is not None:
                raise MalformedInputError(
                    "an `initial` where no trace begins",
                    where=where,
                    found=json.dumps(initial)[:120],
                    expected="in a line of its own before the first call, or beside a trace's `messages` or `calls`",
                    remedy="move it there; calls that begin from another state are another trace",
                )
            case {"jsonrpc": _}:
                self.add_all(self.requests.events(value, where), where)
            case _:
                self.add_all(events_of(value, where), where)

    def add_all(self, events: Iterable[Event], where: str) -> None:
        """Add the events of an item; raises :class:`MalformedInputError`."""
        for event in events:
            match event:
                case Turn(message):
                    self._end_turn()
                    self.message = where, message or where
                case Said(text):
                    self.texts.append(text)
                case Called():
                    self._called(event, where)
                case Answered(identifier, output):
                    if identifier is None:
                        place = self._next(event, where)
                        self._answer(place, output, where)
                    else:
                        place = self._output(identifier, output, where)
                    if event.not_run is not None:
                        self.unread[place] = MalformedInputError(event.not_run, where=where)
                    if (
                        self.message[0] == where
                    ):  # what comes behind it was made with this output at hand
                        self.message = where, f"{self.message[1]}, after {self.happened}"
                case Unread(_, _, calls):
                    again = event.of in self.waiting or (calls and all(map(self._repeats, calls)))
                    if not again:
                        raise event.error(where)

    def _repeats(self, call: Called) -> bool:
        """Tell whether it repeats a call that was read."""
        place = self.waiting.get(call.identifier or "")
        if place is None:
            return False
        read = self.calls[place]
        return (read.name, read.arguments) == (call.name, parsed(call.arguments))

    def _called(self, call: Called, where: str) -> None:
        name, arguments, what = call.name, call.arguments, call.problem
        if not isinstance(name, str) or not name:
            raise malformed(where, f"a tool named {name!r:.80}")
        try:
            text = isinstance(arguments, str) and what is None
            arguments = (strict_json(arguments) if arguments.strip() else {}) if text else arguments
        except ValueError:
            what = "a call whose arguments are no JSON"
        arguments = {} if arguments is None and what is None else arguments
        if what is not None or not isinstance(arguments, dict):
            self.unread[len(self.calls)] = MalformedInputError(
                what or "a call whose arguments are no object",
                where=f"{where}, tool {name!r}",
                found=(arguments if isinstance(arguments, str) else json.dumps(arguments))[:120],
                expected="a JSON object of arguments by name; or an output that says that the call failed, such as "
                "`Error: no JSON`: then the call is left out",
                remedy="write what was meant, delete the call, or add the output that the agent got",
            )
            arguments = {}
        place, identifier = len(self.calls), call.identifier
        if identifier is not None:
            self.twice.pop(identifier, None)
            if identifier in self.open:
                self.twice[identifier] = where
            self.open.add(identifier)
            self.waiting[identifier] = place
        self.turn.append(place)
        self.places.append(where)
        message = self.message[1] if self.message[0] == where else None
        span = Span(made=self.happened, message=message)
        self.calls.append(
            Call(name, arguments, span=span, identifier=call.shown or call.identifier)
        )
        self.happened += 1
        self.known.append(tuple(self.texts))
        if call.logged is not None:
            self._note_answer(place, call.logged)

    def _end_turn(self) -> None:
        """End a message's calls; raises an error if a result could belong to several calls."""
        left = {self.calls[n].name for n in self.turn if self.calls[n].logged is None}
        for number, (where, named) in self.in_order.items():
            if left and (not named or self.calls[number].name in left):
                raise MalformedInputError(
                    "a result without an identifier could belong to several calls of a message",
                    where=where,
                    found=f"a message with {counted(len(self.turn), 'call')}, of which "
                    f"{counted(len(self.turn) - len(self.in_order), 'call')} has no result",
                    expected="a result for each call of a message, in their order; or identifiers",
                    remedy="add the results that are missing, or the identifiers of the calls",
                )
        self.turn, self.in_order = [], {}
        self.open.clear()

    def _next(self, answer: Answered, where: str) -> int:
        """Return the call that a result without an identifier belongs to."""
        left = [number for number in self.turn if self.calls[number].logged is None]
        if not left:
            raise MalformedInputError(
                "a result has no identifier, and no call of the last message waits for one",
                where=where,
                expected="results after the message with their calls, one for each call, in the order of the calls",
                remedy="give the call and its result one identifier, or delete the result",
            )
        call = self.calls[left[0]]
        if answer.tool not in (None, call.name):
            raise MalformedInputError(
                "a result without an identifier is of another tool than the call that waits",
                where=where,
                found=f"tool {answer.tool!r:.80}",
                expected=f"{call.name!r:.80}, called in {self.places[left[0]]}",
                remedy="put the results in the order of their calls, or give them identifiers",
            )
        own = self.waiting.get(answer.own or "", left[0])
        if own != left[0] and own in left:
            raise MalformedInputError(
                "a result has the identifier of another call than the one that waits",
                where=where,
                found=f"identifier {answer.own!r:.80}",
                expected=f"that of {call.name!r:.80}, called in {self.places[left[0]]}",
                remedy="name the call's identifier in `tool_call_id`",
            )
        if answer.own not in self.waiting:
            self.in_order[left[0]] = where, answer.tool is not None
        return left[0]

    def _output(self, identifier: str, output: Any, where: str) -> int:
        place = self.waiting.get(identifier)
        if identifier in self.twice:
            raise MalformedInputError(
                "two calls of one message have one identifier: it is not known which one gave the output",
                where=self.twice[identifier],
                found=f"identifier {identifier[:80]!r} twice, and its output in {where}",
                expected="an identifier of its own for each call of a message",
                remedy="give one of the two calls, and its output, another identifier",
            )
        self.open.discard(identifier)
        if place is None:
            raise MalformedInputError(
                "an output has no call before it",
                where=where,
                found=f"identifier {identifier[:80]!r}",
                expected=f"that of an earlier call ({counted(len(self.calls), 'call')} so far)",
            )
        self._answer(place, output, where)
        return place

    def _answer(self, place: int, output: Any, where: str) -> None:
        call, logged = self.calls[place], canonical_json(output).decode()
        if call.logged not in (None, logged):
            raise MalformedInputError(
                "two outputs of one call",
                where=where,
                found=f"another output of the call in {self.places[place]}",
                expected="one output for each call",
                remedy="delete the one that the agent did not get",
            )
        self._note_answer(place, logged)

    def _note_answer(self, place: int, logged: str) -> None:
        call, span = self.calls[place], self.calls[place].span
        if span is not None and span.answered is None:
            span = replace(span, answered=self.happened, texts=len(self.texts))
            self.happened += 1
        self.calls[place] = replace(call, logged=logged, span=span)
