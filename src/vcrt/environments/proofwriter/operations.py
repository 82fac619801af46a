"""Run the two native operations of ProofWriter, from JSON payloads, as transitions between fact sets.

A *ground* operation is one rule under one binding: accepted if and only if its conditions hold in the current state
and its conclusion is new. A *sweep* is one rule applied once to every binding of the current state: accepted if and
only if it adds a fact. Negation as failure is judged in the current state. Not covered: which orders are sound.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

from vcrt.environments.contract import Accepted, Operation, Rejected, Transition
from vcrt.environments.proofwriter.engine import Facts, Grounding, GroundRule
from vcrt.environments.proofwriter.sentences import rule_sentence
from vcrt.environments.proofwriter.theory import Theory
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, sha256_hex

GROUND = "ground"
SWEEP = "sweep"
_KEYS = frozenset({"operation", "rule", "binding", "text"})
#: Operation, rule number and binding.
ActionKey: TypeAlias = tuple[str, int, str | None]
#: The ground rules that an operation may fire; all that do fire add their heads at once.
Step: TypeAlias = tuple[GroundRule, ...]


class Digests(dict[int, str]):
    """SHA-256 of the canonical form of a set of facts, made when it is first asked for."""

    def __init__(self, grounding: Grounding) -> None:
        super().__init__()
        self._grounding = grounding

    def __missing__(self, facts: int) -> str:
        digest = self[facts] = sha256_hex(canonical(self._grounding, facts))
        return digest


def canonical(grounding: Grounding, facts: int) -> bytes:
    """The sorted texts of a set of facts, one a line, as UTF-8."""
    return "\n".join(grounding.sorted_texts(facts)).encode()


@dataclass(frozen=True, slots=True, eq=False)
class Actions:
    """All operations of a theory by their keys, and the digests of its states."""

    grounding: Grounding
    steps: Mapping[ActionKey, Step]
    digests: Digests

    def step(self, operation: Operation) -> Step:
        """What an operation may fire; raises :class:`MalformedInputError` for one that is not of this theory."""
        payload = cast("Mapping[str, Any]", operation.payload)
        try:
            return self.steps[payload["operation"], payload["rule"], payload["binding"]]
        except (KeyError, TypeError, IndexError):
            raise _bad_payload(operation, self) from None


class TheoryState(NamedTuple):
    """The facts that hold, as bits, and the actions of the theory that they belong to."""

    bits: int
    actions: Actions

    @property
    def facts(self) -> Facts:
        """The facts as ProofWriter texts."""
        return self.actions.grounding.texts(self.bits)


def ground_operation(theory: Theory, rule: int, binding: str | None) -> Operation:
    """Rule number ``rule`` (from 1) on ``binding`` (None for a rule without a variable)."""
    return Operation(
        signature=f"rule {rule}" if binding is None else f"rule {rule} on {binding}",
        payload=_payload(theory, GROUND, rule, binding),
    )


def sweep_operation(theory: Theory, rule: int) -> Operation:
    """Rule number ``rule`` (from 1) on all bindings at once."""
    return Operation(signature=f"sweep rule {rule}", payload=_payload(theory, SWEEP, rule, None))


def _payload(theory: Theory, operation: str, rule: int, binding: str | None) -> dict[str, Json]:
    return {
        "operation": operation,
        "rule": rule,
        "binding": binding,
        "text": rule_sentence(theory.rules[rule - 1]),
    }


def actions_of(grounding: Grounding) -> Actions:
    """All operations of a theory."""
    steps: dict[ActionKey, Step] = {}
    for number, group in grounding.by_rule.items():
        steps[SWEEP, number, None] = group
        for rule in group:
            steps[GROUND, number, rule.binding] = (rule,)
    return Actions(grounding, steps, Digests(grounding))


def run_step(step: Step, facts: int) -> int:
    """The facts after a step; the same facts if it adds none."""
    added = 0
    for _, _, needs, absent, head in step:
        if not needs & ~facts and not facts & (absent | head):
            added |= head
    return facts | added


def transition(state: TheoryState, operation: Operation) -> Transition[TheoryState]:
    """Run one operation; raises :class:`MalformedInputError` for a payload that names nothing of this theory."""
    facts, actions = state
    step = actions.step(operation)
    after = run_step(step, facts)
    if after == facts:
        return refusal(operation, step, state)
    return Accepted(TheoryState(after, actions))


def refusal(operation: Operation, step: Step, state: TheoryState) -> Rejected:
    """Why a step that adds nothing to the state is refused."""
    facts, actions = state
    if cast("Mapping[str, Any]", operation.payload)["operation"] == SWEEP:
        return Rejected(f"{operation.signature} adds no fact")
    (rule,) = step
    first = actions.grounding.first_text
    if rule.head & facts:
        return Rejected(f"the conclusion {first(rule.head)} holds already")
    if missing := rule.needs & ~facts:
        return Rejected(f"the condition {first(missing)} does not hold")
    return Rejected(f"{first(rule.absent & facts)} holds, but a condition asks for its absence")


def check_operation(operation: Operation, theory: Theory, actions: Actions) -> None:
    """Raise :class:`MalformedInputError`, naming the field, unless ``transition`` can run the operation as it says."""
    payload = operation.payload
    if not isinstance(payload, Mapping) or set(payload) != _KEYS:
        raise _bad_payload(operation, actions)
    operation_kind, rule, binding = payload["operation"], payload["rule"], payload["binding"]
    # True and 1.0 are equal to 1 as keys, but not the same JSON.
    if type(rule) is not int or not isinstance(operation_kind, str):
        raise _bad_payload(operation, actions)
    if isinstance(binding, (list, dict)) or (operation_kind, rule, binding) not in actions.steps:
        raise _bad_payload(operation, actions)
    if payload["text"] != (expected := rule_sentence(theory.rules[rule - 1])):
        raise _fault(operation, "text", payload["text"], repr(expected))


def rule_and_binding(operation: Operation) -> tuple[int, str | None]:
    """The rule's number and its binding (None: all) of an operation that :func:`check_operation` has passed."""
    payload = cast("Mapping[str, Any]", operation.payload)
    return payload["rule"], payload["binding"]


def _bad_payload(operation: Operation, actions: Actions) -> MalformedInputError:
    payload = operation.payload
    if not isinstance(payload, Mapping) or set(payload) != _KEYS:
        found = sorted(map(str, payload)) if isinstance(payload, Mapping) else payload
        return _fault(operation, None, found, f"an object with the keys {', '.join(sorted(_KEYS))}")
    kind, rule, binding = payload["operation"], payload["rule"], payload["binding"]
    if kind not in (GROUND, SWEEP):
        return _fault(operation, "operation", kind, f"{GROUND!r} or {SWEEP!r}")
    numbers = sorted({number for _, number, _ in actions.steps})
    if type(rule) is not int or rule not in numbers:
        return _fault(operation, "rule", rule, f"a rule number from 1 to {len(numbers)}")
    allowed = [b for k, number, b in actions.steps if k == kind and number == rule]
    return _fault(operation, "binding", binding, f"one of {allowed}")


def _fault(
    operation: Operation, field: str | None, found: Json, expected: str
) -> MalformedInputError:
    return MalformedInputError(
        "the payload of an operation does not fit its theory",
        where=f"operation {operation.signature!r}, field {'payload' if field is None else 'payload.' + field}",
        found=repr(found)[:160],
        expected=expected,
    )
