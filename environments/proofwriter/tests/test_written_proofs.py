"""Proofs that a model writes from facts, rules and goals: what is a deduction, and which orders are certified."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from vcrt import certify_completion
from vcrt.environments.contract import Episode, Operation, Provenance
from vcrt.errors import MalformedInputError
from vcrt.randomness import generator
from vcrt_proofwriter.operations import SWEEP, operation_of
from vcrt_proofwriter.theory import theory_from_json
from vcrt_proofwriter.written_proofs import WrittenProofs, proof_task

THEORY = {
    "assumption": "CWA",
    "facts": [["Bob", "is", "blue", "+"], ["Erin", "is", "green", "+"]],
    "rules": [
        {"if": [["Bob", "is", "blue", "+"]], "then": ["Bob", "is", "kind", "+"]},
        {"if": [["someone", "is", "kind", "+"]], "then": ["someone", "is", "big", "+"]},
        {"if": [["someone", "is", "green", "+"]], "then": ["someone", "is", "young", "+"]},
    ],
}
#: The third needs the first.
STEPS = [("ground", 1, None), ("ground", 3, "Erin"), ("ground", 2, "Bob")]
LINES = ["Bob is kind, by rule 1", "Erin is young, by rule 3", "Bob is big, by rule 2"]


def episode(keys=STEPS):
    theory = theory_from_json(THEORY)
    return Episode(
        environment="proofwriter",
        schema="written",
        initial=THEORY,
        operations=tuple(operation_of(theory, key) for key in keys),
        provenance=Provenance(source="one", generator="test", seed=0),
    )


def made(keys=STEPS):
    return proof_task(WrittenProofs(), episode(keys), generator(0, "test"))


def judged(completion):
    return certify_completion(WrittenProofs, made().task, completion)


def test_a_task_says_what_to_show_and_nothing_of_the_way():
    found = made()
    assert sorted(found.task["show"]) == ['("Bob" "is" "big" "+")', '("Erin" "is" "young" "+")']
    assert found.completion.split("\n") == LINES
    before = found.prompt.split("Write the deductions")[0]
    assert "Rule 2: If someone is kind then they are big." in before
    shown = before.split("Show: ")[1]
    assert set(shown.strip().split(". ")) <= {
        "Bob is big",
        "Erin is young.",
        "Erin is young",
        "Bob is big.",
    }
    assert "Bob is kind" not in shown
    assert not any(line in found.prompt for line in LINES)
    json.dumps(found.task)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_every_order_in_which_the_deductions_hold_solves_the_task(order):
    lines = made().completion.split("\n")
    judgement = judged("\n".join(lines[step] for step in order))
    works = order.index(0) < order.index(2)
    assert (judgement.failure is None) is works
    if works:
        place = {step: at for at, step in enumerate(order)}
        assert list(judgement.order.pairs) == [(place[0], place[2])]


def test_a_line_says_whom_a_rule_was_applied_to_where_its_conclusion_does_not():
    environment = WrittenProofs()
    rules = [{"if": [["someone", "is", "blue", "+"]], "then": ["Erin", "is", "kind", "+"]}]
    given = made().task | {
        "initial": {**THEORY, "rules": rules},
        "show": ['("Erin" "is" "kind" "+")'],
    }
    (step,) = environment.parse(given, "Erin is kind, by rule 1 on Bob").steps
    assert step.signature == "rule 1 on Bob"
    assert certify_completion(WrittenProofs, given, "Erin is kind, by rule 1").failure.startswith(
        "unreadable"
    )


def test_a_task_may_be_solved_by_more_than_is_asked_for_but_not_by_less():
    assert judged(f"{LINES[0]}\n\n  {LINES[1]}\n{LINES[2]}\n").failure is None
    assert "do not solve" in judged("\n".join(LINES[:2])).failure
    # What holds already is refused.
    assert "holds already" in judged("\n".join([*LINES, LINES[0]])).failure


@pytest.mark.parametrize(
    ("completion", "words"),
    [
        ("", "no line is a step of the task"),
        ("Because Bob is blue.\n" + LINES[0], "a line is no step of the task"),
        ("Bob is kind, by rule 2", "a line is no step of the task"),
        ("Bob is kind, by rule 1 on Bob", "a line is no step of the task"),
        ("Zoe is big, by rule 2", "a line is no step of the task"),
        ("Bob is kind, by rule 9", "a line is no step of the task"),
        ("Bob is kind", "a line is no step of the task"),
        ("rule 1", "a line is no step of the task"),
    ],
)
def test_what_is_no_deduction_makes_an_answer_unreadable(completion, words):
    failure = judged(completion).failure
    assert failure.startswith("unreadable")
    assert words in failure


def test_episodes_that_are_no_proofs_are_refused():
    with pytest.raises(MalformedInputError, match="no task can be made") as error:
        made([STEPS[2], STEPS[0], STEPS[1]])
    assert "refused" in str(error.value)
    with pytest.raises(MalformedInputError, match="no task can be made") as error:
        made([(SWEEP, 3, None)])
    assert "on all at once" in str(error.value)
    theory = theory_from_json(THEORY)
    assert isinstance(operation_of(theory, STEPS[0]), Operation)


@pytest.mark.parametrize("schema", ["attribute_chain", "conjunctive_join"])
def test_the_environments_own_episodes_make_tasks_that_their_steps_solve(schema):
    environment = WrittenProofs()
    for seed in range(12):
        found = proof_task(environment, environment.sample(schema, seed), generator(0, "test"))
        judgement = certify_completion(WrittenProofs, found.task, found.completion)
        assert judgement.failure is None
        assert judgement.exclusion is None
        assert 0 < len(found.task["show"]) < 4
