"""Read the steps of a trace that a language model wrote, so that its own text can be replayed and certified.

A task is JSON: what the environment needs to know about one problem. A completion is text that contains steps, with
free text before, between and after them. An environment gives each step's place (a span of characters) and what it runs
for the step; everything outside of the spans stays in place when steps change places. :class:`WrittenEnvironment` is
for environments of your own whose steps are lines; :class:`WrittenSteps` extends any other environment.

:mod:`vcrt.replay.completions` chooses the orders that are certified.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic

from vcrt.environments.contract import (
    Environment,
    Episode,
    Operation,
    Provenance,
    Rejected,
    ReplayRequest,
    State,
    StepEnvironment,
)
from vcrt.environments.tool_calls import CallEnvironment
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json, json_digest

#: The schema of episodes made from completions.
WRITTEN = "written"
#: The most characters of an operation's name that come from its payload.
_MAX_NAME = 120
#: The deepest nesting of lists and objects in a call that is read, its arguments included.
_MAX_DEPTH = 65


class UnreadableCompletion(Exception):
    """``parse`` raises it for a completion without steps that the environment can read; its message is the reason."""


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """A step of a completion: its characters, from ``start`` up to ``end``, and what the environment runs for it.

    The span includes free text that belongs to the step, such as the thought before it. ``signature`` is the step's
    name; by default it is made from ``payload``, and repeated steps are numbered.
    """

    start: int
    end: int
    payload: Json
    signature: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenTrace:
    """The steps of a completion, in their order, and the native state before the first.

    ``schema`` and ``source`` are those of the steps' episode, for environments that use them.
    """

    initial: Json
    steps: tuple[WrittenStep, ...]
    schema: str = WRITTEN
    source: str | None = None


class WrittenSteps(Environment):
    """What an environment adds to certify a model's own text: :meth:`parse` and, if it needs to, :meth:`solved`.

    A class with two bases, this one first, adds them to any existing environment.

    >>> issubclass(WrittenEnvironment, WrittenSteps)
    True
    """

    @abstractmethod
    def parse(self, task: Json, completion: str) -> WrittenTrace:
        """Return the steps of a completion; raise :class:`UnreadableCompletion` with the reason if it has none.

        It must find the same steps in the same text when its steps change places: a step must not depend on the text
        before it.
        """

    def solved(self, task: Json, state: Any) -> bool:
        """Return whether the state after the last step solves the task. By default, every accepted trace does.

        Environments of the batch form receive the SHA-256 of the state's canonical form.
        """
        return True

    def _gave(self, task: Json, outputs: Mapping[str, str]) -> bool:
        """Return whether the outputs of steps, by signature, are those that the task asks for; by default, any are."""
        return True


class WrittenEnvironment(CallEnvironment[State], WrittenSteps, Generic[State]):
    """An environment of your own whose steps are lines of text. Subclasses give ``name``, ``reset`` and ``call``.

    ``reset(task)`` returns the state before the first step. A line such as ``add(item="egg", number=2)`` is the call
    ``call(state, "add", {"item": "egg", "number": 2})``; override :meth:`read_step` for another form of line. Lines
    that are no step move with the step that follows them. If a completion has more than steps, :attr:`answer` names the
    markers around them: text before and after these never moves.
    """

    #: The markers at the beginning and end of the part with the steps. None means the whole completion; None for one of
    #: the two means its beginning or its end.
    answer: ClassVar[tuple[str | None, str | None] | None] = None

    @abstractmethod
    def reset(self, initial: Json) -> State:
        """Return the state before the first step of a task."""

    def read_step(self, task: Json, line: str) -> tuple[str, Mapping[str, Json]] | None:
        """Return the call in a line, as a name and arguments; None for a line of free text.

        By default, a call is ``name(key=value, ...)`` with JSON values. A line that begins like a call and is none
        makes the completion unreadable: raise :class:`UnreadableCompletion`.
        """
        call = read_call(line)
        if call is None and re.match(r"[\s\d.*>-]*\w+\(", line):
            raise UnreadableCompletion(f"no step: {line.strip()[:80]}")
        return call

    def parse(self, task: Json, completion: str) -> WrittenTrace:
        """Return the lines of the answer that are steps, each with the free text before it."""
        start, end = answer_span(completion, self.answer)
        steps = list[WrittenStep]()
        begun: int | None = start
        for line in re.finditer(r"[^\n]+", completion[start:end]):
            if not line[0].strip():
                continue
            first = start + line.start()
            begun = first if begun is None else begun
            call = self.read_step(task, line[0])
            if call is not None:
                name, arguments = call
                stop = first + len(line[0].rstrip())
                begun += len(completion[begun:stop]) - len(completion[begun:stop].lstrip())
                payload: Json = {"name": name, "arguments": dict(arguments)}
                steps.append(WrittenStep(begun, stop, payload))
                begun = None
        if not steps:
            raise UnreadableCompletion("no line is a step")
        return WrittenTrace(initial={"state": task}, steps=tuple(steps))


def answer_span(completion: str, markers: tuple[str | None, str | None] | None) -> tuple[int, int]:
    """Return where the part of a completion between two markers begins and ends; None leaves a side open.

    Raise :class:`UnreadableCompletion` unless each marker occurs once, in this order.

    >>> answer_span("well <answer>go</answer>", ("<answer>", "</answer>"))
    (13, 15)
    """
    first, last = markers or (None, None)
    for marker in (first, last):
        if marker is not None and (times := completion.count(marker)) != 1:
            raise UnreadableCompletion(f"{marker} stands there {times} times, not once")
    start = 0 if first is None else completion.index(first) + len(first)
    end = len(completion) if last is None else completion.index(last)
    if end < start:
        raise UnreadableCompletion(f"{last} stands before {first}")
    return start, end


def read_call(line: str) -> tuple[str, dict[str, Json]] | None:
    """Return the name and arguments of a line such as ``add(item="egg", number=2)``; None for any other.

    Return None also for NaN, lone surrogates, and arguments nested more than 64 lists and objects deep.

    >>> read_call('add(item="egg", number=2)')
    ('add', {'item': 'egg', 'number': 2})
    """
    found = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", line)
    if found is None:
        return None
    text, place, arguments = found[2], 0, dict[str, Json]()
    while text[place:].strip():
        comma = "," if arguments else ""
        key = re.compile(rf"\s*{comma}\s*(\w+)\s*=\s*").match(text, place)
        if key is None or key[1] in arguments:
            return None
        try:
            arguments[key[1]], place = json.JSONDecoder().raw_decode(text, key.end())
            canonical_json(arguments[key[1]])
        except (ValueError, RecursionError):
            return None
    return (found[1], arguments) if _is_shallow(arguments, _MAX_DEPTH) else None


def _is_shallow(value: Json, depth: int) -> bool:
    """Return whether at most ``depth`` lists and objects are nested."""
    if isinstance(value, dict):
        value = list(value.values())
    return not isinstance(value, list) or (
        depth > 0 and all(_is_shallow(each, depth - 1) for each in value)
    )


def require_written(environment: object) -> WrittenSteps:
    """Return the environment; raise :class:`MalformedInputError` if it does not read completions."""
    if isinstance(environment, WrittenSteps):
        return environment
    raise MalformedInputError(
        "an environment that does not read what a model writes",
        where=f"environment {getattr(environment, 'name', environment)!r}",
        found=type(environment).__name__,
        expected="a subclass of vcrt.WrittenEnvironment, or of WrittenSteps with a method parse",
    )


def episode_of(
    environment: WrittenSteps, task: Json, trace: WrittenTrace, completion: str
) -> Episode:
    """Return the episode of a completion's steps, in the order in which they are written.

    Number repeated steps. Raise :class:`MalformedInputError` for spans that overlap or lie outside of the text.
    """
    last, seen, operations = 0, dict[str, int](), list[Operation]()
    for step in trace.steps:
        if not last <= step.start < step.end <= len(completion):
            raise MalformedInputError(
                "the spans of steps do not follow each other in the text",
                where=f"environment {environment.name!r}, parse",
                found=f"characters {step.start} to {step.end} after {last}, of {len(completion)}",
                expected="spans that are not empty and do not overlap, in the order of the text",
            )
        last = step.end
        text = step.signature or canonical_json(step.payload).decode()
        seen[text] = seen.get(text, 0) + 1
        name = (
            f"{text[:_MAX_NAME]} {json_digest(step.payload)[:6]}" if len(text) > _MAX_NAME else text
        )
        signature = name if seen[text] == 1 else f"{name} #{seen[text]}"
        operations.append(Operation(signature=signature, payload=_as_recorded(step.payload)))
    return Episode(
        environment=environment.name,
        schema=trace.schema,
        initial=_as_recorded(trace.initial),
        operations=tuple(operations),
        provenance=Provenance(
            source=trace.source or json_digest(task), generator="completion", seed=0
        ),
    )


def _as_recorded(value: Json) -> Json:
    """Return JSON with its keys in the order of a record read back, so that each replay receives the same."""
    recorded: Json = json.loads(canonical_json(value))
    return recorded


def failure_of(environment: WrittenSteps, task: Json, episode: Episode) -> str | None:
    """Return why a trace fails, in the verifier's words; None if it accepts every step and the task is solved."""
    outputs: dict[str, str] = {}
    state: Any
    if isinstance(environment, StepEnvironment):
        state = environment.initial_state(episode)
        for operation in episode.operations:
            transition = environment.step(state, operation)
            if isinstance(transition, Rejected):
                return f"{operation.signature}: {transition.reason}"
            state = transition.state
            if transition.output is not None:
                outputs[operation.signature] = transition.output
    else:
        order = tuple(range(episode.num_operations))
        (replay,) = environment.replay([ReplayRequest(episode, order)])
        if replay.rejection is not None:
            return replay.rejection.reason
        state = replay.terminal_hash
        outputs = {episode.operations[k].signature: one for k, one in replay.output_of.items()}
    is_solved = environment.solved(task, state) and environment._gave(task, outputs)
    return None if is_solved else "the steps do not solve the task"
