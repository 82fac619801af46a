"""Make tasks in which a model finds the deductions itself: facts, rules and what is to be shown, and no step.

A step is a line such as ``rule 3 on Bob``, or ``rule 3`` for a rule about nobody in particular. Not covered: tasks that
list their steps (:mod:`vcrt.environments.written_episodes`).
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

import numpy as np

from vcrt.environments.contract import Episode, Operation, ReplayRequest
from vcrt.environments.proofwriter import engine
from vcrt.environments.proofwriter.environment import ProofWriterEnvironment
from vcrt.environments.proofwriter.operations import (
    GROUND,
    Actions,
    actions_of,
    operation_of,
    rule_and_binding,
)
from vcrt.environments.proofwriter.sentences import atom_sentence, rule_sentence
from vcrt.environments.proofwriter.theory import Atom, Theory, theory_from_json
from vcrt.environments.written import UnreadableCompletion, WrittenStep, WrittenSteps, WrittenTrace
from vcrt.environments.written_episodes import WrittenTask, read_task
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json

_ASK = 'Write the deductions, one a line, such as "rule 1 on {name}" or "rule 1", each from what holds by then.'
_LINE = re.compile(r"rule (\d{1,4})(?: on (.+))?")


class WrittenProofs(WrittenSteps, ProofWriterEnvironment):
    """Deductions that a model writes: a task is solved when what it is to show holds.

    Every line that is not empty must be a deduction of the task's theory; whether it may be made by then is the
    engine's to say.
    """

    def parse(self, task: Json, completion: str) -> WrittenTrace:
        """The deductions of a completion."""
        given = read_task(task)
        actions = _actions(canonical_json(given["initial"]))
        steps, place = list[WrittenStep](), 0
        for line in completion.split("\n"):
            text = line.strip()
            if text:
                operation = _operation(actions, text)
                start = place + line.index(text)
                end = start + len(text)
                steps.append(WrittenStep(start, end, operation.payload, operation.signature))
            place += len(line) + 1
        if not steps:
            raise UnreadableCompletion("no deduction")
        return WrittenTrace(
            initial=given["initial"],
            steps=tuple(steps),
            schema=given["schema"],
            source=given["source"],
        )

    def solved(self, task: Json, state: Any) -> bool:
        """Whether everything that was to be shown holds."""
        facts: engine.Facts = state.facts
        return facts.issuperset(read_task(task)["show"])


def proof_task(
    environment: ProofWriterEnvironment, episode: Episode, draw: np.random.Generator
) -> WrittenTask:
    """The task to show what an episode's steps conclude and none of them needs, in an order that ``draw`` gives.

    Raises :class:`MalformedInputError` for an episode with a step that is refused or is not one deduction.
    """
    (replay,) = environment.replay([ReplayRequest(episode, tuple(range(episode.num_operations)))])
    if replay.terminal_hash is None:
        raise MalformedInputError(
            "an episode that makes no task",
            where=episode.episode_id,
            found="its order is refused",
        )
    actions = environment.initial_state(episode).actions
    theory = actions.grounding.theory
    needed = {
        fact
        for operation in episode.operations
        for fact in environment.footprint(episode, operation).reads
    }
    concluded = [_conclusion(theory, operation) for operation in episode.operations]
    show = [atom for atom in concluded if atom.text not in needed]
    show = [show[place] for place in draw.permutation(len(show))]
    name = next((binding for _, _, binding in actions.steps if binding is not None), "Bob")
    return WrittenTask(
        prompt="\n".join(
            [
                f"Facts: {environment.task(episode)}",
                *(f"Rule {n}: {rule_sentence(rule)}" for n, rule in enumerate(theory.rules, 1)),
                "Show: " + " ".join(map(atom_sentence, show)),
                _ASK.format(name=name),
                "Answer:\n",
            ]
        ),
        task={
            "initial": episode.initial,
            "schema": episode.schema,
            "source": episode.provenance.source,
            "steps": [[one.signature, one.payload, one.signature] for one in episode.operations],
            "show": [atom.text for atom in show],
        },
        completion="\n".join(one.signature for one in episode.operations),
    )


def _conclusion(theory: Theory, operation: Operation) -> Atom:
    """What an operation concludes; raises :class:`MalformedInputError` for one that is not a single deduction."""
    number, binding = rule_and_binding(operation)
    conclusion = theory.rules[number - 1].conclusion
    if binding is not None:
        return conclusion.bind(binding)
    if conclusion.variables():
        raise MalformedInputError(
            "an episode that makes no task",
            where=f"operation {operation.signature!r}",
            found="a rule on all at once",
            expected="single deductions",
        )
    return conclusion


@lru_cache(maxsize=64)
def _actions(theory: bytes) -> Actions:
    """All deductions of a theory, given as canonical JSON."""
    return actions_of(engine.ground(theory_from_json(json.loads(theory), "task, initial")))


def _operation(actions: Actions, text: str) -> Operation:
    """The deduction that a line is; raises :class:`UnreadableCompletion` for one that the theory has not."""
    found = _LINE.fullmatch(text)
    if found is None:
        raise UnreadableCompletion("a line is no deduction")
    key = (GROUND, int(found[1]), found[2])
    if key not in actions.steps:
        raise UnreadableCompletion("a deduction that the theory has not")
    return operation_of(actions.grounding.theory, key)
