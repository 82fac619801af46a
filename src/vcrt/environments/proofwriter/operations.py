"""The two native operations of ProofWriter, as JSON payloads and as transitions between fact sets.

A *ground* operation is one rule under one binding: accepted if and only if its conditions hold in the current state
and its conclusion is new. A *sweep* is one rule applied once to every binding of the current state: accepted if and
only if it adds a fact. Negation as failure is judged in the current state. Not covered: which orders are sound.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias, cast

from vcrt.environments.contract import Accepted, Operation, Rejected, Transition
from vcrt.environments.proofwriter.engine import Facts, Grounding, GroundRule
from vcrt.environments.proofwriter.sentences import rule_sentence
from vcrt.environments.proofwriter.theory import Theory
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json

GROUND = "ground"
SWEEP = "sweep"
_KEYS = frozenset({"operation", "rule", "binding", "text"})
#: What each operation may fire, by (operation, rule number, binding).
ActionTable: TypeAlias = Mapping[tuple[str, int, str | None], tuple[GroundRule, ...]]


class TheoryState(NamedTuple):
    """The facts that hold, and the actions of the theory that they belong to."""

    facts: Facts
    actions: ActionTable


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


def action_table(grounding: Grounding) -> ActionTable:
    """All operations of a theory."""
    table: dict[tuple[str, int, str | None], tuple[GroundRule, ...]] = {}
    for number, group in grounding.by_rule.items():
        table[SWEEP, number, None] = group
        for rule in group:
            table[GROUND, number, rule.binding] = (rule,)
    return table


def transition(state: TheoryState, operation: Operation) -> Transition[TheoryState]:
    """Run one operation; raises :class:`MalformedInputError` for a payload that names nothing of this theory."""
    facts, actions = state
    payload = cast("Mapping[str, Any]", operation.payload)
    try:
        candidates = actions[payload["operation"], payload["rule"], payload["binding"]]
    except (KeyError, TypeError, IndexError):
        raise _bad_payload(operation, actions) from None
    added = [rule.head for rule in candidates if rule.fires(facts)]
    if added:
        return Accepted(TheoryState(facts.union(added), actions))
    if payload["operation"] == SWEEP:
        return Rejected(f"{operation.signature} adds no fact")
    return Rejected(_reason(candidates[0], facts))


def _reason(rule: GroundRule, facts: Facts) -> str:
    if rule.head in facts:
        return f"the conclusion {rule.head} holds already"
    if missing := rule.needs - facts:
        return f"the condition {min(missing)} does not hold"
    return f"{min(rule.absent & facts)} holds, but a condition asks for its absence"


def check_operation(operation: Operation, theory: Theory, actions: ActionTable) -> None:
    """Raise :class:`MalformedInputError`, naming the field, unless ``transition`` can run the operation as it says."""
    payload = operation.payload
    if not isinstance(payload, Mapping) or set(payload) != _KEYS:
        raise _bad_payload(operation, actions)
    operation_kind, rule, binding = payload["operation"], payload["rule"], payload["binding"]
    # True and 1.0 are equal to 1 as keys, but not the same JSON.
    if type(rule) is not int or not isinstance(operation_kind, str):
        raise _bad_payload(operation, actions)
    if isinstance(binding, (list, dict)) or (operation_kind, rule, binding) not in actions:
        raise _bad_payload(operation, actions)
    if payload["text"] != (expected := rule_sentence(theory.rules[rule - 1])):
        raise _fault(operation, "text", payload["text"], repr(expected))


def rule_and_binding(operation: Operation) -> tuple[int, str | None]:
    """The rule's number and its binding (None: all) of an operation that :func:`check_operation` has passed."""
    payload = cast("Mapping[str, Any]", operation.payload)
    return payload["rule"], payload["binding"]


def _bad_payload(operation: Operation, actions: ActionTable) -> MalformedInputError:
    payload = operation.payload
    if not isinstance(payload, Mapping) or set(payload) != _KEYS:
        found = sorted(map(str, payload)) if isinstance(payload, Mapping) else payload
        return _fault(operation, None, found, f"an object with the keys {', '.join(sorted(_KEYS))}")
    kind, rule, binding = payload["operation"], payload["rule"], payload["binding"]
    if kind not in (GROUND, SWEEP):
        return _fault(operation, "operation", kind, f"{GROUND!r} or {SWEEP!r}")
    numbers = sorted({number for _, number, _ in actions})
    if type(rule) is not int or rule not in numbers:
        return _fault(operation, "rule", rule, f"a rule number from 1 to {len(numbers)}")
    allowed = [b for k, number, b in actions if k == kind and number == rule]
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
