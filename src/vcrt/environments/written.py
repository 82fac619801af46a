"""Read the steps of a trace that a language model wrote, so that its own text can be replayed and certified.

A task is JSON: what the environment needs to know of one problem. A completion is text with steps in it, and with free
text before, between and after them. An environment says where each step stands (a span of characters) and what runs
for it; everything outside of the spans stays where it is when steps change places. :class:`WrittenEnvironment` is for
environments of one's own, of which a step is a line; any other environment becomes one by :class:`WrittenSteps`.

Not covered: which orders of the steps are certified (:mod:`vcrt.replay.completions`), and how probable they are.
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

#: The schema of episodes that are made of completions.
WRITTEN = "written"
#: The most characters of an operation's name that are made of its payload.
_MAX_NAME = 120
#: The most lists and objects inside of each other in a call that is read, the arguments included.
_MAX_DEPTH = 65


class UnreadableCompletion(Exception):
    """A completion in which the environment finds no steps, raised by ``parse``: its message is the reason."""


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """A step of a completion: its characters, from ``start`` up to ``end``, and what the environment runs for it.

    Free text that belongs to the step, such as the thought that leads to it, lies inside. ``signature`` is the step's
    name; by default it is made of ``payload``, and numbered where a step occurs again.
    """

    start: int
    end: int
    payload: Json
    signature: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenTrace:
    """The steps of a completion, in their order, and the native state that they start from.

    ``schema`` and ``source`` are those of the episode that the steps make, for environments that look at them.
    """

    initial: Json
    steps: tuple[WrittenStep, ...]
    schema: str = WRITTEN
    source: str | None = None


class WrittenSteps(Environment):
    """What an environment adds so that a model's own text can be certified: :meth:`parse`, perhaps :meth:`solved`.

    Any environment that is there already gets it by a class with both as bases, this one first.

    >>> issubclass(WrittenEnvironment, WrittenSteps)
    True
    """

    @abstractmethod
    def parse(self, task: Json, completion: str) -> WrittenTrace:
        """The steps of a completion; raises :class:`UnreadableCompletion` with the reason if it has none.

        Must find the same steps in the same text with its steps in other places: what a step is may not depend on what
        stands before it.
        """

    def solved(self, task: Json, state: Any) -> bool:
        """Whether the state after the last step is what the task asks for. Default: whatever was accepted is.

        Environments of the batch form are given the SHA-256 of its canonical form.
        """
        return True

    def _gave(self, task: Json, outputs: Mapping[str, str]) -> bool:
        """Whether the outputs of steps, by signature, are what the task asks for. Default: whatever they are."""
        return True


class WrittenEnvironment(CallEnvironment[State], WrittenSteps, Generic[State]):
    """An environment of one's own whose steps are lines of text. Subclasses give ``name``, ``reset`` and ``call``.

    ``reset(task)`` gives the state before the first step. A line such as ``add(item="egg", number=2)`` is the call
    ``call(state, "add", {"item": "egg", "number": 2})``; another form of line is read by :meth:`read_step`. Lines that
    are no step go with the step that follows them. :attr:`answer` names what the steps stand between, if a completion
    has more than steps: what is before and after is never moved.
    """

    #: What begins and what ends the part of a completion that has the steps; None: the whole completion has them, or,
    #: for one of the two, its beginning or its end.
    answer: ClassVar[tuple[str | None, str | None] | None] = None

    @abstractmethod
    def reset(self, initial: Json) -> State:
        """The state before the first step of a task."""

    def read_step(self, task: Json, line: str) -> tuple[str, Mapping[str, Json]] | None:
        """The call that a line is, as a name and arguments; None for a line of free text.

        Default: ``name(key=value, ...)`` whose values are JSON. A line that begins like one and is none makes the
        completion unreadable, by :class:`UnreadableCompletion`.
        """
        call = read_call(line)
        if call is None and re.match(r"[\s\d.*>-]*\w+\(", line):
            raise UnreadableCompletion(f"no step: {line.strip()[:80]}")
        return call

    def parse(self, task: Json, completion: str) -> WrittenTrace:
        """The lines of the answer that are steps, each with the free text before it."""
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
    """Where the part of a completion between two markers begins and ends; all of it on the side of one that is None.

    Raises :class:`UnreadableCompletion` unless each marker stands there once, in this order.

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
    """The name and the arguments of a line such as ``add(item="egg", number=2)``; None for any other.

    So are NaN, lone surrogates, and values of more than 64 lists and objects inside of each other.

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
    """Whether no more than ``depth`` lists and objects lie inside of each other."""
    if isinstance(value, dict):
        value = list(value.values())
    return not isinstance(value, list) or (
        depth > 0 and all(_is_shallow(each, depth - 1) for each in value)
    )


def require_written(environment: object) -> WrittenSteps:
    """The environment, if it reads completions; raises :class:`MalformedInputError`."""
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
    """The episode of a completion's steps, in the order in which they are written.

    Steps that occur again are numbered. Raises :class:`MalformedInputError` for spans that overlap or lie outside.
    """
    last, seen, operations = 0, dict[str, int](), list[Operation]()
    for step in trace.steps:
        if not last <= step.start < step.end <= len(completion):
            raise MalformedInputError(
                "steps whose spans are not one behind the other",
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
    """JSON with its keys in the order in which a record gives them back: each replay is given the same."""
    recorded: Json = json.loads(canonical_json(value))
    return recorded


def failure_of(environment: WrittenSteps, task: Json, episode: Episode) -> str | None:
    """Why a trace fails, in the verifier's words; None if every step is accepted and the task is solved."""
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
