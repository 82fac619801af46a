"""Make tasks in which a model finds the deductions itself: facts, rules and statements to show, without steps.

A step is a line such as ``Bob is kind, by rule 3``; ``on Erin`` follows if the conclusion does not show the entity that
the rule was applied to. :mod:`vcrt.environments.written_episodes` makes tasks that list their steps.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from vcrt.environments.contract import Episode, Operation, ReplayRequest
from vcrt.environments.written import WrittenSteps, WrittenTrace
from vcrt.environments.written_episodes import WrittenTask, read_lines, read_task
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, canonical_json
from vcrt.randomness import Draws, permuted
from vcrt_proofwriter import engine
from vcrt_proofwriter.english import atom_sentence, rule_sentence
from vcrt_proofwriter.environment import ProofWriterEnvironment
from vcrt_proofwriter.operations import (
    GROUND,
    actions_of,
    operation_of,
    rule_and_binding,
)
from vcrt_proofwriter.theory import Atom, Theory, theory_from_json

_ASK = "Write the deductions, one a line, each from what holds by then, with its rule."


class WrittenProofs(WrittenSteps, ProofWriterEnvironment):
    """Deductions that a model writes; a task is solved when the statements to show hold.

    Every non-empty line must be a deduction of the task's theory; the engine decides whether the facts so far allow it.
    """

    def parse(self, task: Json, completion: str) -> WrittenTrace:
        """Return the deductions of a completion."""
        given = read_task(task)
        known = _deductions(canonical_json(given["initial"]))
        return read_lines(given, known, completion, free_text=False)

    def solved(self, task: Json, state: Any) -> bool:
        """Return whether all statements to show hold."""
        facts: engine.Facts = state.facts
        return facts.issuperset(read_task(task)["show"])


def proof_task(environment: ProofWriterEnvironment, episode: Episode, draw: Draws) -> WrittenTask:
    """Return the task to show the conclusions of an episode that no step needs; ``draw`` orders them.

    Raise :class:`MalformedInputError` for an episode with a step that is refused or is not one deduction.
    """
    (replay,) = environment.replay([ReplayRequest(episode, tuple(range(episode.num_operations)))])
    if replay.terminal_hash is None:
        raise MalformedInputError(
            "no task can be made from an episode",
            where=episode.episode_id,
            found="its order is refused",
        )
    theory = environment.initial_state(episode).actions.grounding.theory
    needed = {
        fact
        for operation in episode.operations
        for fact in environment.footprint(episode, operation).reads
    }
    concluded = [_conclusion(theory, operation) for operation in episode.operations]
    show = [atom for atom in concluded if atom.text not in needed]
    show = [show[place] for place in permuted(draw, len(show))]
    lines = [_line(theory, operation) for operation in episode.operations]
    return WrittenTask(
        prompt="\n".join(
            [
                f"Facts: {environment.task(episode)}",
                *(f"Rule {n}: {rule_sentence(rule)}" for n, rule in enumerate(theory.rules, 1)),
                "Show: " + " ".join(map(atom_sentence, show)),
                _ASK,
                "Answer:\n",
            ]
        ),
        task={
            "initial": episode.initial,
            "schema": episode.schema,
            "source": episode.provenance.source,
            "steps": [
                [line, one.payload, one.signature]
                for line, one in zip(lines, episode.operations, strict=True)
            ],
            "show": [atom.text for atom in show],
        },
        completion="\n".join(lines),
    )


def _conclusion(theory: Theory, operation: Operation) -> Atom:
    """Return an operation's conclusion; raise :class:`MalformedInputError` unless it is a single deduction."""
    number, binding = rule_and_binding(operation)
    conclusion = theory.rules[number - 1].conclusion
    if binding is not None:
        return conclusion.bind(binding)
    if conclusion.variables():
        raise MalformedInputError(
            "no task can be made from an episode",
            where=f"operation {operation.signature!r}",
            found="a rule on all at once",
            expected="single deductions",
        )
    return conclusion


def _line(theory: Theory, operation: Operation) -> str:
    """Return the line that a model writes for a deduction."""
    number, binding = rule_and_binding(operation)
    sentence = atom_sentence(_conclusion(theory, operation)).removesuffix(".")
    is_hidden = binding is not None and not theory.rules[number - 1].conclusion.variables()
    return f"{sentence}, by rule {number}" + (f" on {binding}" if is_hidden else "")


@lru_cache(maxsize=64)
def _deductions(initial: bytes) -> dict[str, tuple[Json, str]]:
    """Return the payload and signature of each single deduction of a theory in canonical JSON, by its line."""
    theory = theory_from_json(json.loads(initial), "task, initial")
    operations = [
        operation_of(theory, key)
        for key in actions_of(engine.ground(theory)).steps
        if key[0] == GROUND
    ]
    return {_line(theory, one): (one.payload, one.signature) for one in operations}
