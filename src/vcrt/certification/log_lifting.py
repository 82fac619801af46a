"""Make episodes of the traces in a log of calls, by running each trace once as it stands.

What the environment gives is compared with what the log has: from the first call on that differs, the environment is
not the one that was logged, and nothing is lifted. A call that is refused in the trace itself belongs to it: its
refusal is its output. Not covered: reading logs (see :mod:`vcrt.environments.call_logs`), and replay in other orders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vcrt.certification.data_flow import DataFlow, data_flow
from vcrt.certification.replay_tree import ReplayTree
from vcrt.environments.call_logs import Trace, same_output, windows
from vcrt.environments.contract import Environment, Episode, Operation, Provenance, Rejected
from vcrt.environments.tool_calls import (
    CallEnvironment,
    call_text,
    episode_of_calls,
    hidden,
    operations_of,
)
from vcrt.errors import MalformedInputError, UnknownNameError
from vcrt.limits import MAX_OPERATIONS

#: The fewest calls that have two orders.
LEAST = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Departure:
    """The first call (``place``, from 0 on) of a trace whose output is not what the log has."""

    place: int
    call: str
    logged: str
    replayed: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedWindow:
    """An episode of some calls of a trace; ``first`` is the place of the first one, and ``flows`` are among them."""

    trace: Trace
    first: int
    episode: Episode
    flows: tuple[DataFlow, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTrace:
    """A trace that was run as it stands: what was lifted of it, and how its outputs compare with the log's."""

    trace: Trace
    windows: tuple[LiftedWindow, ...]
    num_compared: int
    num_refused: int
    departure: Departure | None


def run_trace(
    environment: Environment,
    trace: Trace,
    number: int,
    *,
    source: str,
    window: int | None = None,
    redact: bool = False,
) -> RunTrace:
    """Run a trace as it stands and lift it whole, or each ``window`` of so many calls.

    ``number`` tells its episodes from those of other traces of the log, and ``source`` is where they are from. With
    ``redact``, evidence holds the SHA-256 of outputs and of reasons alone. Raises :class:`MalformedInputError` for an
    environment that is none of calls, and :class:`UnknownNameError` for a tool that it says it does not have.
    """
    if not isinstance(environment, CallEnvironment):
        raise MalformedInputError(
            "an environment whose steps are no calls",
            where=f"environment {environment.name!r}",
            found=type(environment).__name__,
            expected="a vcrt.CallEnvironment, with reset and call",
        )
    _require_known(environment, trace)
    outputs, fails = _outputs(environment, trace)
    departure = _departure(trace, outputs)
    lifted = len(trace.calls) if departure is None else departure.place
    if departure is not None and redact:
        logged, replayed = hidden(departure.logged), hidden(departure.replayed)
        departure = replace(departure, logged=logged, replayed=replayed)
    operations = operations_of(trace.calls, fails=fails, redact=redact)
    schema = environment.schemas[0].name
    made = []
    for part in windows(lifted, window, MAX_OPERATIONS) if lifted >= LEAST else ():
        if len(part) < LEAST:
            continue
        made.append(
            LiftedWindow(
                trace=trace,
                first=part.start,
                episode=episode_of_calls(
                    environment.name,
                    schema,
                    trace.initial,
                    operations_of(
                        trace.calls[part.start : part.stop],
                        fails=[place - part.start for place in fails if place in part],
                        redact=redact,
                    ),
                    Provenance(
                        source=source,
                        generator=f"calls {part.start} to {part.stop - 1} of {len(trace.calls)}",
                        # A trace has fewer windows than this.
                        seed=number * 1_000_000 + part.start,
                    ),
                    before=operations[: part.start],
                ),
                flows=data_flow(
                    [trace.calls[place].arguments for place in part],
                    [outputs[place] for place in part],
                    [trace.known[place] if trace.known else () for place in part],
                ),
            )
        )
    compared = sum(call.logged is not None for call in trace.calls[: lifted + 1])
    return RunTrace(
        trace=trace,
        windows=tuple(made),
        num_compared=compared,
        num_refused=sum(place < lifted for place in fails),
        departure=departure,
    )


def flows_of(tree: ReplayTree, episode: Episode) -> tuple[DataFlow, ...]:
    """The flows between an episode's steps, if they are calls with arguments and the reference order is accepted."""
    payloads = [operation.payload for operation in episode.operations]
    arguments = [each.get("arguments") for each in payloads if isinstance(each, Mapping)]
    given = [each for each in arguments if isinstance(each, Mapping)]
    reference = tree.replay(tuple(range(tree.num_operations)))
    if len(given) < len(payloads) or not reference.accepted:
        return ()
    return data_flow(given, [reference.output(k) for k in range(len(given))])


def _require_known(environment: CallEnvironment[Any], trace: Trace) -> None:
    tools = [tool.name for tool in environment.tools()]
    for place, call in enumerate(trace.calls):
        if tools and call.name not in tools:
            error = UnknownNameError.of("tool", call.name, tools)
            raise error.within(f"{trace.name}, call {place} {call_text(call.name, call.arguments)}")


def _outputs(
    environment: CallEnvironment[Any], trace: Trace
) -> tuple[tuple[str | None, ...], tuple[int, ...]]:
    """What each call gives where it stands, and the places of those that are refused there."""
    fails: list[int] = []
    while True:
        operations = operations_of(trace.calls, fails=fails)
        state = environment.initial_state(_whole(environment, trace, operations))
        outputs: list[str | None] = []
        for operation in operations:
            answer = environment.step(state, operation)
            if isinstance(answer, Rejected):
                break
            state = answer.state
            outputs.append(answer.output)
        if len(outputs) == len(operations):
            return tuple(outputs), tuple(fails)
        # It may have changed something before it refused: all is run again with this refusal as an output.
        fails.append(len(outputs))


def _whole(
    environment: CallEnvironment[Any], trace: Trace, operations: Sequence[Operation]
) -> Episode:
    provenance = Provenance(source=trace.name, generator="as it stands", seed=0)
    schema = environment.schemas[0].name
    return episode_of_calls(environment.name, schema, trace.initial, operations, provenance)


def _departure(trace: Trace, outputs: Sequence[str | None]) -> Departure | None:
    for place, (call, output) in enumerate(zip(trace.calls, outputs, strict=True)):
        if call.logged is not None and not same_output(call.logged, output or "null"):
            return Departure(
                place=place,
                call=call_text(call.name, call.arguments),
                logged=call.logged,
                replayed=output or "null",
            )
    return None
