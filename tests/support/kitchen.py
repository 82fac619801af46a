"""A kitchen whose recipes a model writes, a line for each step: some steps need others, some only share the table."""

from __future__ import annotations

import os
import time

from vcrt import CallRefused, WrittenEnvironment, call_method


class Table:
    """What lies on the table, and what was made of it."""

    def __init__(self, task):
        self.have = sorted((task or {}).get("have", ()))
        self.made = []

    def take(self, item):
        if item in self.have:
            raise CallRefused(f"{item} is there already")
        self.have = sorted([*self.have, item])

    def mix(self, first, second):
        missing = [item for item in (first, second) if item not in self.have]
        if missing:
            raise CallRefused(f"no {missing[0]} on the table")
        self.made = sorted([*self.made, f"{first} with {second}"])

    def count(self):
        return len(self.have)

    def stall(self):
        time.sleep(600)

    def die(self):
        os._exit(9)

    def flicker(self):
        return time.time_ns()


class Kitchen(WrittenEnvironment):
    """Steps are lines such as ``take(item="egg")``; solved if what the task asks for was made."""

    name = "kitchen"
    call_timeout_s = 20.0

    def reset(self, task):
        return Table(task)

    def call(self, state, name, arguments):
        return call_method(state, name, arguments)

    def solved(self, task, state):
        return set((task or {}).get("wants", ())) <= set(state.made)


class ThoughtfulKitchen(Kitchen):
    """The same, whose completions think before they answer."""

    answer = ("<answer>", "</answer>")


class ImpatientKitchen(Kitchen):
    """One that does not wait long."""

    call_timeout_s = 0.5


class FirstLineKitchen(Kitchen):
    """One whose first line counts twice: what a step is depends on its place."""

    def parse(self, task, completion):
        trace = super().parse(task, completion)
        first = {**trace.steps[0].payload, "arguments": {"item": "salt"}}
        return type(trace)(
            initial=trace.initial,
            steps=(
                type(trace.steps[0])(trace.steps[0].start, trace.steps[0].end, first),
                *trace.steps[1:],
            ),
        )


TASK = {"wants": ["egg with milk"]}
TAKE_EGG, TAKE_MILK = 'take(item="egg")', 'take(item="milk")'
MIX = 'mix(first="egg", second="milk")'
SOLUTION = "\n".join([TAKE_EGG, TAKE_MILK, MIX])
