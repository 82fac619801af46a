"""Make episodes of the traces in a log of calls, by running each trace once as it stands.

The environment's outputs are compared with the log's. If one differs, the environment is not the one that was
logged, and no call is lifted from there on. A call that is refused in the trace itself stays in the trace: its
refusal is its output. Not covered: reading logs (see :mod:`vcrt.calls.call_logs`), and replay in other orders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from vcrt.calls.call_logs import (
    looks_drawn,
    same_output,
    same_refusal,
    shows_failure,
    unwrapped,
    windows,
)
from vcrt.calls.data_flow import DataFlow, data_flow
from vcrt.calls.log_traces import Trace
from vcrt.certificates.replay_tree import ReplayTree
from vcrt.environments.contract import Environment, Episode, Operation, Provenance, Rejected
from vcrt.environments.drawn_ids import ids_at, own_ids, replaced
from vcrt.environments.tool_calls import (
    Call,
    CallEnvironment,
    InvalidRejected,
    call_text,
    episode_of_calls,
    hidden,
    operations_of,
    require_calls,
)
from vcrt.errors import MalformedInputError, UnknownNameError, VcrtError
from vcrt.hashing import Json, canonical_json
from vcrt.limits import MAX_OPERATIONS
from vcrt.printable import counted

#: The most calls of a log beside an episode's own that may tell states of it apart.
MAX_OTHER_CALLS = 32
#: The fewest calls that have two orders.
LEAST = 2
#: How many beginnings of orders are tried for calls that raced.
_MAX_TRIES = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Departure:
    """The first call of a trace whose output differs from the log's; ``place`` counts from 0.

    ``where`` has the log's line, ``remedy`` says how to mend it.
    """

    place: int
    call: str
    logged: str
    replayed: str
    where: str
    remedy: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """The calls ``first`` to ``last`` of a trace that are neither certified nor scheduled, and why.

    ``place`` is the place of a call that failed before a tool ran and so has no number in the trace.
    """

    trace: str
    first: int
    last: int
    reason: str
    total: int
    departure: Departure | None = None
    place: str | None = None

    @property
    def counted(self) -> str:
        """The number of these calls, and of all calls of the trace."""
        number = self.last - self.first + 1
        return (
            f"{number} of {counted(self.total, 'call')} {'is' if number == 1 else 'are'} left out"
        )

    @property
    def text(self) -> str:
        """The trace, how many calls are left out, which, and why."""
        if self.place is not None:
            return f"{self.trace}: {self.counted}, in {self.place}: {self.reason}"
        return f"{self.trace}: {self.counted}, {self.first} to {self.last}: {self.reason}"

    def to_json(self) -> dict[str, Json]:
        """The JSON form."""
        if self.place is not None:
            return {"trace": self.trace, "where": self.place, "reason": self.reason}
        found: dict[str, Json] = {
            "trace": self.trace,
            "first": self.first,
            "last": self.last,
            "reason": self.reason,
        }
        if self.departure is not None:
            found |= {
                "where": self.departure.where,
                "logged": self.departure.logged,
                "replayed": self.departure.replayed,
                "remedy": self.departure.remedy,
            }
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedWindow:
    """An episode of some calls of a trace; ``first`` is the first call's place, ``flows`` are between the calls."""

    trace: Trace
    first: int
    episode: Episode
    flows: tuple[DataFlow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTrace:
    """A trace that was run as logged: the windows lifted from it, and how its outputs compare with the log's.

    ``changes_nothing``: tools that are not declared read-only were called, and the state did not change. ``raced``
    says that calls which ran concurrently must have run in another order to give the log's outputs, or drew other ids
    than the log has; ``trace`` has them in this order, and with these ids.
    """

    trace: Trace
    windows: tuple[LiftedWindow, ...]
    num_logged: int
    num_refused: int
    departure: Departure | None
    changes_nothing: bool = False
    raced: tuple[str, ...] = ()

    @property
    def warning(self) -> str | None:
        """The warning about a trace whose calls raced or that changes nothing; None for other traces."""
        nothing = (
            f"{self.trace.name}: none of {counted(len(self.trace.calls), 'call')} changed anything that vcrt can see; "
            "if one did, let reset return what it changed, or override canonical, snapshot and restore"
        )
        return "; ".join((*self.raced, *([nothing] if self.changes_nothing else []))) or None

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The calls that are in no episode, follow an output that differs from the log's, or ran no tool."""
        total, departure = len(self.trace.calls), self.departure
        invalid = tuple(
            LeftOut(
                trace=self.trace.name,
                first=0,
                last=0,
                reason=f"{reason}, and whose output says that it failed; the others are numbered without it",
                total=total + len(self.trace.invalid),
                place=place,
            )
            for place, reason in self.trace.invalid
        )
        if departure is None and (self.windows or not total):
            return invalid
        return (
            *invalid,
            LeftOut(
                trace=self.trace.name,
                first=departure.place if departure is not None and self.windows else 0,
                last=total - 1,
                reason="fewer calls than an episode takes"
                if departure is None
                else f"{departure.where} gives another output than the log has",
                total=total,
                departure=departure,
            ),
        )


def run_trace(
    environment: Environment,
    trace: Trace,
    number: int,
    *,
    source: str,
    window: int | None = None,
    redact: bool = False,
    others: Sequence[Call] = (),
    least: int = LEAST,
) -> RunTrace:
    """Run a trace as logged and lift it whole, or lift each window of ``window`` calls.

    Fewer than ``least`` calls are not lifted.
    ``others`` are calls of the whole log: calls of tools that only read, and some others, are made after both orders
    of a pair that seems to commute. ``number`` distinguishes the episodes from those of other traces of the log, and
    ``source`` is their origin. With ``redact``, evidence holds only the SHA-256 of outputs and reasons. Raises
    :class:`MalformedInputError` for an environment whose steps are no calls, and :class:`UnknownNameError` for a
    tool that the environment does not have.
    """
    environment = require_calls(environment)
    trace = _known(environment, trace)
    outputs, fails, reads = _outputs(environment, trace)
    raced: tuple[str, ...] = ()
    aligned = set[int]()
    while departure := _departure(environment, trace, outputs, fails):
        ids = {} if departure.place in aligned else _own_ids(environment, trace, departure)
        if ids:
            aligned.add(departure.place)
            raced = (*raced, f"{departure.where}: {_said(ids, redact=redact)}")
            trace = _with_ids(trace, departure.place, ids)
            outputs, fails, reads = _outputs(environment, trace)
            continue
        order = _order_of_race(environment, trace, departure.place)
        if order is None:
            break
        raced = (*raced, _race_text(trace, order))
        trace = trace.reordered(order)
        outputs, fails, reads = _outputs(environment, trace)
    lifted = len(trace.calls) if departure is None else departure.place
    if departure is not None and redact:
        logged, replayed = hidden(departure.logged), hidden(departure.replayed)
        departure = replace(departure, logged=logged, replayed=replayed)
    as_operations = partial(operations_of, redact=redact, keep_order=True)
    operations = as_operations(trace.calls, fails=fails, earlier=() if environment.ids else None)
    reading = {tool.name for tool in environment.tools() if tool.read_only}
    flows = data_flow(
        [call.arguments for call in trace.calls[:lifted]],
        outputs[:lifted],
        trace.known[:lifted],
        [call.span for call in trace.calls[:lifted]],
        [call.name for call in trace.calls[:lifted]],
    )
    # The arguments of a message's calls were written before any of them had an output.
    flows = tuple(flow for flow in flows if not trace.sent_together(flow.first, flow.second))
    others = _other_calls(trace.calls, reads, reading, others)

    def lift(part: range) -> LiftedWindow:
        own = trace.calls[part.start : part.stop]
        earlier = trace.calls[: part.start] if environment.ids else None
        episode = episode_of_calls(
            environment.name,
            environment.schemas[0].name,
            trace.initial,
            as_operations(
                own,
                fails=[place - part.start for place in fails if place in part],
                earlier=earlier,
            ),
            Provenance(
                source=source,
                generator=f"calls {part.start} to {part.stop - 1} of {len(trace.calls)}",
                # A trace has fewer windows than this.
                seed=number * 1_000_000 + part.start,
            ),
            before=operations[: part.start],
            probes=as_operations(_not_among(others, own)),
            keep_order=True,
        )
        within = tuple(
            replace(flow, first=flow.first - part.start, second=flow.second - part.start)
            for flow in flows
            if flow.first in part and flow.second in part
        )
        return LiftedWindow(trace=trace, first=part.start, episode=episode, flows=within)

    inside = trace.inside_messages() if lifted > MAX_OPERATIONS else ()
    parts = windows(lifted, window, MAX_OPERATIONS, inside) if lifted >= least else ()
    return RunTrace(
        trace=trace,
        windows=tuple(map(lift, parts)),
        num_logged=sum(call.logged is not None for call in trace.calls),
        num_refused=sum(place < lifted for place in fails),
        departure=departure,
        raced=raced,
        changes_nothing=len(reads) == len(outputs)
        and any(call.name not in reading for call in trace.calls),
    )


def _own_ids(
    environment: CallEnvironment[Any], trace: Trace, departure: Departure
) -> dict[str, str]:
    """Return the ids that the departing call drew, by those of the log; nothing if its tool draws none."""
    call = trace.calls[departure.place]
    places = environment.ids.get(call.name)
    if (
        places is None
        or call.logged is None
        or type(environment).redact is not CallEnvironment.redact
    ):
        return {}
    logged, drawn = (
        next((found for each in unwrapped(text) if (found := ids_at(each, places))), [])
        for text in (call.logged, departure.replayed)
    )
    if not drawn and not logged:
        raise MalformedInputError(
            "the output has nothing at the place of an id",
            where=departure.where,
            found=f"ids={{{call.name!r}: {places!r}}}, and the output {departure.replayed[:120]}",
            expected="a place in the output, such as 'order.id'; \"\" is the whole output",
        )
    before, log = (_words(trace, number) for number in (departure.place, len(trace.calls)))
    before.append(dict(call.arguments))
    return own_ids(logged, drawn, before=before, log=log, where=departure.where)


def _words(trace: Trace, number: int) -> list[Json]:
    """Return what a log has up to the first ``number`` calls, their outputs included, and before the next one."""
    calls, texts = trace.calls[:number], trace.known[: number + 1]
    outputs = [json.loads(each.logged) for each in calls if each.logged is not None]
    arguments = [dict(each.arguments) for each in calls]
    return [trace.initial, *arguments, *outputs, *map(list, texts)]


def _with_ids(trace: Trace, place: int, ids: Mapping[str, str]) -> Trace:
    """Return the trace with these ids replaced from the output of a call on."""
    calls = [
        replace(
            call,
            arguments=replaced(call.arguments, ids) if number > place else call.arguments,
            logged=None
            if call.logged is None
            else canonical_json(replaced(json.loads(call.logged), ids)).decode(),
        )
        for number, call in enumerate(trace.calls[place:], start=place)
    ]
    return replace(trace, calls=(*trace.calls[:place], *calls))


def _said(ids: Mapping[str, str], *, redact: bool) -> str:
    pairs = [f"{other} stands for the log's {one}" for one, other in ids.items()]
    return "ids drawn anew" if redact else "drawn anew: " + ", ".join(pairs)


def with_own_names(environment: Environment, trace: Trace) -> Trace:
    """Return the trace with the environment's names of tools, where a client of MCP wrote ``mcp__SERVER__TOOL``.

    Raises :class:`MalformedInputError` for a trace that names the environment's tools in two ways, as if they were of
    two servers, and for a name that fits two tools.
    """
    tools = {tool.name for tool in require_calls(environment).tools()}
    found: dict[str, int] = {}
    calls = list(trace.calls)
    for place, call in enumerate(calls):
        own, prefix = {call.name} & tools, ""
        if not own and call.name.startswith("mcp__"):
            own = {tool for tool in tools if call.name[5:].endswith(f"__{_as_clients_write(tool)}")}
            prefix = call.name[: -len(min(own, key=len, default=""))]
        if not own:
            continue
        found.setdefault(prefix, place)
        if len(own) > 1 or len(found) > 1:
            raise MalformedInputError(
                "a name fits two tools" if len(own) > 1 else "the log names the tools in two ways",
                where=trace.place_of(place),
                found=" and ".join(sorted(own))
                if len(own) > 1
                else " and ".join(trace.calls[each].name for each in found.values()),
                expected="calls of one server's tools, all with its prefix or all without",
                remedy=f"replace {call.name} by the tool that was called: {' or '.join(sorted(own))}"
                if len(own) > 1
                else "write the environment's own names into the log, and delete calls of other servers",
            )
        calls[place] = replace(call, name=own.pop())
    return replace(trace, calls=tuple(calls))


def _as_clients_write(tool: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", tool)


def _other_calls(
    calls: Sequence[Call], reads: Collection[int], reading: Collection[str], others: Sequence[Call]
) -> list[Call]:
    """Return calls that may distinguish states.

    Calls that only read come first, as they were made and with each value that any call had for an argument of that
    name.
    """
    only_read = {call.name for place, call in enumerate(calls) if place in reads} | {*reading}
    only_read -= {call.name for place, call in enumerate(calls) if place not in reads}
    every = {_text_of(call): call for call in (*calls, *others)}
    values: dict[str, dict[str, Json]] = {}
    for call in every.values():
        for key, value in call.arguments.items():
            values.setdefault(key, {})[canonical_json(value).decode()] = value
    found = {text: call for text, call in every.items() if call.name in only_read}
    for call in list(found.values()):
        for key in call.arguments:
            for value in list(values[key].values())[:MAX_OTHER_CALLS]:
                other = Call(call.name, {**call.arguments, key: value})
                found.setdefault(_text_of(other), other)
    for text, call in every.items():
        found.setdefault(text, call)
    return [replace(call, logged=None) for call in found.values()]


def _not_among(others: Sequence[Call], own: Sequence[Call]) -> list[Call]:
    known = set(map(_text_of, own))
    return [call for call in others if _text_of(call) not in known][:MAX_OTHER_CALLS]


def _text_of(call: Call) -> str:
    return canonical_json(call.to_json()).decode()


def flows_of(tree: ReplayTree, episode: Episode) -> tuple[DataFlow, ...]:
    """Return the flows between an episode's steps, if they are calls and the reference order is accepted."""
    payloads = [operation.payload for operation in episode.operations]
    calls = [each for each in payloads if isinstance(each, Mapping)]
    given = [
        each for each in (call.get("arguments") for call in calls) if isinstance(each, Mapping)
    ]
    reference = tree.replay(tuple(range(tree.num_operations)))
    if len(given) < len(payloads) or not reference.accepted:
        return ()
    outputs = [reference.output(k) for k in range(len(given))]
    return data_flow(given, outputs, names=[str(each.get("name", "")) for each in calls])


def _known(environment: CallEnvironment[Any], trace: Trace) -> Trace:
    """Return the trace without calls of unknown tools whose outputs say that they failed."""
    tools = [tool.name for tool in environment.tools()]
    unknown: dict[int, tuple[str, str]] = {}
    for place, call in enumerate(trace.calls):
        if tools and call.name not in tools:
            error = UnknownNameError.of("tool", call.name, tools, where=trace.place_of(place))
            if not shows_failure(call.logged):
                raise error
            unknown[place] = trace.places[place], f"a call of an {error.what}"
    return trace.without(unknown)


def _outputs(
    environment: CallEnvironment[Any], trace: Trace
) -> tuple[tuple[str | None, ...], dict[int, Rejected], set[int]]:
    """Return the calls' outputs in the order of the log, up to and including the first that differs from the log's.

    Also return the places and refusals of calls that are refused there, and the places of calls that leave the state
    as it is. Raises :class:`MalformedInputError` for a call that no tool takes, if the log does not say that it
    failed.
    """
    fails: dict[int, Rejected] = {}
    while True:
        operations = operations_of(
            trace.calls, fails=fails, earlier=() if environment.ids else None
        )
        state = environment.initial_state(_whole(environment, trace, operations))
        outputs: list[str | None] = []
        reads: set[int] = set()
        form = environment.canonical(state)
        for place, operation in enumerate(operations):
            try:
                answer = environment.step(state, operation)
            except VcrtError as error:
                raise error.within(trace.places[place]) from error
            if isinstance(answer, InvalidRejected) and not shows_failure(trace.calls[place].logged):
                raise MalformedInputError(
                    "a call that no tool of the environment takes",
                    where=trace.place_of(place),
                    found=answer.reason,
                    expected="a tool that takes it, or an output in the log that says that it failed, such as "
                    "`Error: unknown tool`",
                    remedy="mend the environment's class; or delete the call, or add the output that the agent got",
                )
            if isinstance(answer, Rejected):
                # It may have changed something before it refused: all is run again with this refusal as an output.
                fails[place] = answer
                break
            state = answer.state
            outputs.append(answer.output)
            before, form = form, environment.canonical(state)
            if form == before:
                reads.add(place)
            if _differs(trace.calls[place], answer.output, fails.get(place)):
                return tuple(outputs), fails, reads
        else:
            return tuple(outputs), fails, reads


def _order_of_race(
    environment: CallEnvironment[Any], trace: Trace, place: int
) -> tuple[int, ...] | None:
    """Find an order of a trace's calls that gives the log's outputs up to the concurrent calls at ``place``.

    Two calls are exchanged only if neither had an output when the other was made. Returns None if there is no such
    order, or none among the first that are tried.
    """
    batch = trace.at_once(place)
    tries = _MAX_TRIES

    def found(done: tuple[int, ...], rest: frozenset[int]) -> tuple[int, ...] | None:
        nonlocal tries
        if not rest:
            return done
        for number in sorted(rest, key=trace.answered_at):
            if any(trace.is_before(other, number) for other in rest):
                continue
            if tries == 0:
                return None
            tries -= 1
            if _explains(environment, trace.reordered((*done, number))):
                whole = found((*done, number), rest - {number})
                if whole is not None:
                    return whole
        return None

    order = found(tuple(range(batch.start)), frozenset(batch)) if len(batch) > 1 else None
    return None if order is None else (*order, *range(batch.stop, len(trace.calls)))


def _explains(environment: CallEnvironment[Any], trace: Trace) -> bool:
    """Tell whether the calls of a trace give the outputs of the log."""
    try:
        outputs, fails, _ = _outputs(environment, trace)
    except VcrtError:  # a tool may break in an order in which it was not called
        return False
    place = len(outputs) - 1
    return not _differs(trace.calls[place], outputs[place], fails.get(place))


def _race_text(trace: Trace, order: tuple[int, ...]) -> str:
    moved = [number for place, number in enumerate(order) if place != number]
    part = order[min(moved) : max(moved) + 1]
    calls = [call_text(trace.calls[n].name, trace.calls[n].arguments) for n in part]
    return (
        f"{trace.places[min(moved)]}: calls {min(moved)} to {max(moved)} were waited for at once, and raced: the log "
        f"has what they give in the order {', '.join(calls)}, in which they are taken and numbered; others "
        "may give the same"
    )


def _whole(
    environment: CallEnvironment[Any], trace: Trace, operations: Sequence[Operation]
) -> Episode:
    provenance = Provenance(source=trace.name, generator="as it stands", seed=0)
    schema = environment.schemas[0].name
    return episode_of_calls(environment.name, schema, trace.initial, operations, provenance)


def _differs(call: Call, output: str | None, refusal: Rejected | None) -> bool:
    """Tell whether a call's output differs from the log's, or it was refused for another reason."""
    if call.logged is None or same_output(call.logged, output or "null"):
        return False
    if refusal is None:
        return True
    # Each executor says in its own words that no tool takes a call.
    return not isinstance(refusal, InvalidRejected) and not same_refusal(
        call.logged, refusal.reason
    )


def _departure(
    environment: CallEnvironment[Any],
    trace: Trace,
    outputs: Sequence[str | None],
    fails: Mapping[int, Rejected],
) -> Departure | None:
    place = len(outputs) - 1
    if place < 0 or not _differs(trace.calls[place], outputs[place], fails.get(place)):
        return None
    call, output = trace.calls[place], outputs[place] or "null"
    logged = call.logged or "null"
    said = json.loads(logged)
    again, *_ = _outputs(environment, trace)
    remedy = environment.begin_advice
    if again[: place + 1] != outputs or looks_drawn(logged, output):
        remedy = environment.drawn_advice
    elif any(trace.sent_together(place, k) for k in range(len(trace.calls)) if k != place):
        remedy += (
            ". Or the calls that were sent together overlapped in the log's run, so that one read what another then "
            "wrote: no order of whole calls gives that; delete these outputs from the log to see what each order gives"
        )
    return Departure(
        place=place,
        call=call_text(call.name, call.arguments),
        logged=said if isinstance(said, str) else logged,
        replayed=output,
        where=trace.place_of(place),
        remedy=remedy,
    )
