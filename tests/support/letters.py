"""Letters that a model writes, each of them a step."""

from __future__ import annotations

import os
import re

from vcrt import UnreadableCompletion, WrittenStep, WrittenSteps, WrittenTrace
from vcrt.environments.contract import Accepted, Rejected, StepEnvironment, Versions


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
