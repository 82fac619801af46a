"""Letters that a model writes, each of them a step; environments that go wrong, too.

They lie here because a worker process imports the module of its environment: this one is quick to import.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path

from vcrt import UnreadableCompletion, WrittenStep, WrittenSteps, WrittenTrace
from vcrt.environments.contract import Accepted, Rejected, StepEnvironment, Versions
from vcrt.environments.written import answer_span


class Letters(WrittenSteps, StepEnvironment):
    """Each letter is a step; b needs a, no letter comes twice, and the task says which are wanted."""

    name = "letters"
    schemas = ()

    def versions(self):
        return Versions(environment=self.name, adapter="1", canonicalizer="1", verifier="1")

    def sample(self, schema, seed):
        raise NotImplementedError

    def initial_state(self, episode):
        return frozenset()

    def step(self, state, operation):
        letter = operation.payload
        if letter in state or (letter == "b" and "a" not in state):
            return Rejected(f"{letter} is too early or there")
        return Accepted(state | {letter})

    def canonical(self, state):
        return "".join(sorted(state)).encode()

    def parse(self, task, completion):
        found = list(re.finditer(r"[a-e]", completion))
        if not found:
            raise UnreadableCompletion("no letter")
        steps = [WrittenStep(*each.span(), each[0]) for each in found]
        return WrittenTrace(initial=None, steps=tuple(steps))

    def solved(self, task, state):
        return state == set(task["letters"])


class Dying(Letters):
    """One that dies over a c that comes first."""

    def step(self, state, operation):
        if operation.payload == "c" and not state:
            os._exit(3)
        return super().step(state, operation)


class Interrupted(Letters):
    """One that dies while a file is there."""

    def step(self, state, operation):
        if Path(os.environ["VCRT_TESTS_DIES"]).exists():
            os._exit(3)
        return super().step(state, operation)


class Misreading(Letters):
    """One that reads steps one over the other while a file is there."""

    def parse(self, task, completion):
        trace = super().parse(task, completion)
        if Path(os.environ["VCRT_TESTS_DIES"]).exists():
            return replace(trace, steps=(trace.steps[0], *trace.steps))
        return trace


class SlowToBegin(Letters):
    """One that hangs when it is made."""

    call_timeout_s = 0.25

    def __init__(self):
        time.sleep(60)


class Answered(Letters):
    """One whose steps stand behind a d; before it, letters are thoughts."""

    def parse(self, task, completion):
        start, end = answer_span(completion, ("d", None))
        found = list(re.finditer(r"[abc]", completion[start:end]))
        if not found:
            raise UnreadableCompletion("no letter behind d")
        steps = [WrittenStep(start + each.start(), start + each.end(), each[0]) for each in found]
        return WrittenTrace(initial=None, steps=tuple(steps))


class Bag(Letters):
    """One that takes any letter any number of times; e is free text that goes with the letter behind it."""

    def initial_state(self, episode):
        return ""

    def step(self, state, operation):
        return Accepted("".join(sorted(state + operation.payload)))

    def canonical(self, state):
        return state.encode()

    def parse(self, task, completion):
        found = list(re.finditer(r"(?:e )*[abcd]", completion))
        if not found:
            raise UnreadableCompletion("no letter")
        steps = [WrittenStep(*each.span(), each[0][-1]) for each in found]
        return WrittenTrace(initial=None, steps=tuple(steps))

    def solved(self, task, state):
        return set(state) >= set(task["letters"])


class Hanging(Letters):
    """One that hangs while a file is there, and is not waited for longer than a second."""

    call_timeout_s = 1.0

    def step(self, state, operation):
        while Path(os.environ["VCRT_TESTS_HANGS"]).exists():
            time.sleep(0.1)
        return super().step(state, operation)


class Reversed(Letters):
    """The other way round: a needs b."""

    name = "reversed"

    def step(self, state, operation):
        swapped = replace(operation, payload={"a": "b", "b": "a"}.get(operation.payload, "c"))
        return super().step(state, swapped)


class Lined(Letters):
    """Letters in a row: each order ends otherwise, and any has what is wanted."""

    def initial_state(self, episode):
        return ()

    def step(self, state, operation):
        letter = operation.payload
        return Rejected("there") if letter in state else Accepted((*state, letter))

    def canonical(self, state):
        return "".join(state).encode()

    def solved(self, task, state):
        return set(state) == set(task["letters"])
