"""Run the two native operations of ProofWriter, from JSON payloads, as transitions between fact sets.

A *ground* operation is one rule under one binding: it is accepted if and only if its conditions hold in the current
state and its conclusion is new. A *sweep* is one rule applied once to every binding of the current state: it is
accepted if and only if it adds a fact. Negation as failure is judged in the current state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, cast

from pydantic import ConfigDict, Strict, TypeAdapter, ValidationError

from vcrt.environments.contract import Accepted, Operation, Rejected, Transition
from vcrt.errors import MalformedInputError
from vcrt.forms import first_error
from vcrt.hashing import Json
from vcrt_proofwriter.engine import Facts, Grounding, GroundRule
from vcrt_proofwriter.english import rule_sentence
from vcrt_proofwriter.theory import Theory

GROUND = "ground"
SWEEP = "sweep"
#: Operation, rule number and binding.
ActionKey: TypeAlias = tuple[str, int, str | None]
#: The ground rules that an operation may fire; all that fire add their heads at once.
Step: TypeAlias = tuple[GroundRule, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Actions:
    """All operations of a theory by their keys."""

    grounding: Grounding
    steps: Mapping[ActionKey, Step]

    def step(self, operation: Operation) -> BoundStep:
        """Return an operation with the ground rules that it may fire.

        Raise :class:`MalformedInputError`, naming the field, if it is not of this theory or contradicts it.
        """
        try:
            payload = _PAYLOAD.validate_python(operation.payload)
        except ValidationError as error:
            field, message = first_error(error)
            expected = "operation, rule, binding and text, as the sampled operations have them"
            raise _fault(operation, field, message, expected) from None
        kind, rule, rules = payload.operation, payload.rule, self.grounding.theory.rules
        if not 1 <= rule <= len(rules):
            raise _fault(operation, "rule", rule, f"a rule number from 1 to {len(rules)}")
        step = self.steps.get((kind, rule, payload.binding))
        if step is None:
            bindings = [b for k, number, b in self.steps if (k, number) == (kind, rule)]
            raise _fault(operation, "binding", payload.binding, f"one of {bindings}")
        expected = rule_sentence(rules[rule - 1])
        if payload.text != expected:
            raise _fault(operation, "text", payload.text, repr(expected))
        return BoundStep(operation, step)


class BoundStep(NamedTuple):
    """An operation and the ground rules that it may fire."""

    operation: Operation
    fires: Step


class TheoryState(NamedTuple):
    """The facts that hold, as bits, and the actions of their theory."""

    bits: int
    actions: Actions

    @property
    def facts(self) -> Facts:
        """The facts as ProofWriter texts."""
        return self.actions.grounding.texts(self.bits)

    def take(self, step: BoundStep) -> Transition[TheoryState]:
        """Run one operation; refuse one that adds nothing."""
        facts, actions = self
        after = run_step(step.fires, facts)
        if after != facts:
            return Accepted(TheoryState(after, actions))
        if cast("Mapping[str, Any]", step.operation.payload)["operation"] == SWEEP:
            return Rejected(f"{step.operation.signature} adds no fact")
        (rule,) = step.fires
        texts = actions.grounding.sorted_texts
        if rule.head & facts:
            return Rejected(f"the conclusion {texts(rule.head)[0]} holds already")
        if missing := rule.needs & ~facts:
            return Rejected(f"the condition {texts(missing)[0]} does not hold")
        present = texts(rule.absent & facts)[0]
        return Rejected(f"{present} holds, but a condition asks for its absence")


@dataclass(frozen=True, slots=True)
class _Payload:
    __pydantic_config__ = ConfigDict(extra="forbid")
    operation: Literal["ground", "sweep"]
    rule: Annotated[int, Strict()]
    binding: str | None
    text: str


_PAYLOAD = TypeAdapter(_Payload)


def operation_of(theory: Theory, key: ActionKey) -> Operation:
    """Return the operation of rule ``rule`` (from 1) on one binding (None if it has no variable), or on all at once."""
    kind, rule, binding = key
    where = "" if binding is None else f" on {binding}"
    return Operation(
        signature=f"sweep rule {rule}" if kind == SWEEP else f"rule {rule}{where}",
        payload={
            "operation": kind,
            "rule": rule,
            "binding": binding,
            "text": rule_sentence(theory.rules[rule - 1]),
        },
    )


def actions_of(grounding: Grounding) -> Actions:
    """Return all operations of a theory."""
    steps: dict[ActionKey, Step] = {}
    for number, group in grounding.by_rule.items():
        steps[SWEEP, number, None] = group
        for rule in group:
            steps[GROUND, number, rule.binding] = (rule,)
    return Actions(grounding, steps)


def run_step(step: Step, facts: int) -> int:
    """Return the facts after a step; the same facts if it adds none."""
    added = 0
    for _, _, needs, absent, head in step:
        if not needs & ~facts and not facts & (absent | head):
            added |= head
    return facts | added


def rule_and_binding(operation: Operation) -> tuple[int, str | None]:
    """Return the rule's number and its binding (None: all) of an operation that :meth:`Actions.step` accepted."""
    payload = cast("Mapping[str, Any]", operation.payload)
    return payload["rule"], payload["binding"]


def _fault(operation: Operation, field: str, found: Json, expected: str) -> MalformedInputError:
    path = "payload" if field == "(root)" else f"payload.{field}"
    return MalformedInputError(
        "the payload of an operation does not fit its theory",
        where=f"operation {operation.signature!r}, field {path}",
        found=repr(found)[:160],
        expected=expected,
    )
