"""Find episodes in a theory: operations of which exactly one ordered pair must keep its order.

Every step of a found reference order changes the state and derives only facts that hold; the order of one pair matters
as its schema says, and no other order matters in any reachable context. Certification shows that anew, by replay.
``generator`` and ``files`` provide the theories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vcrt.environments.contract import Episode, Provenance, Schema
from vcrt.environments.relation_search import lattice_relations
from vcrt.orders import first_before_second
from vcrt_proofwriter.engine import ground, model
from vcrt_proofwriter.operations import (
    GROUND,
    SWEEP,
    ActionKey,
    Actions,
    Step,
    actions_of,
    operation_of,
    run_step,
)
from vcrt_proofwriter.theory import Theory, theory_to_json
from vcrt_proofwriter.vocabulary import Draws

ATTRIBUTE_CHAIN = Schema(
    name="attribute_chain",
    summary="one step gives an attribute that is the only condition of another",
    relation="precedes",
)
CONJUNCTIVE_JOIN = Schema(
    name="conjunctive_join",
    summary="one step gives an attribute that another joins with further ones",
    relation="precedes",
)
RELATIONAL_JOIN = Schema(
    name="relational_join",
    summary="one step gives what another needs to relate two entities",
    relation="precedes",
)
BINDING_SWEEP = Schema(
    name="binding_sweep",
    summary="a rule applied once to all entities finds fewer of them before another rule ran",
    relation="conflicts",
)
NAF_SWEEP = Schema(
    name="naf_sweep",
    summary="one rule derives what another rule takes to be absent",
    relation="conflicts",
)
SCHEMAS = (ATTRIBUTE_CHAIN, CONJUNCTIVE_JOIN, RELATIONAL_JOIN, BINDING_SWEEP, NAF_SWEEP)
_SWEEPS = (BINDING_SWEEP, NAF_SWEEP)

Pair: TypeAlias = tuple[ActionKey, ActionKey]
#: The arguments of a search for relations: the number of operations, the facts to start from, the transition, and the
#: facts as their own key.
Walked: TypeAlias = tuple[int, int, Callable[[int, int], int | None], Callable[[int], int]]


@dataclass(frozen=True, slots=True, eq=False)
class SearchSpace:
    """A theory's operations, its own facts and all facts that hold."""

    actions: Actions
    start: int
    holds: int

    def after(self, *keys: ActionKey) -> int:
        """Return the facts after these operations, or 0 if one of them is refused."""
        facts = self.start
        for key in keys:
            facts = _accepted(self.actions.steps[key], facts)
            if not facts:
                return 0
        return facts


def search_space(theory: Theory) -> SearchSpace:
    """Return the search space of a theory; raise as :func:`engine.model` does."""
    grounding = ground(theory)
    return SearchSpace(actions_of(grounding), grounding.facts, model(grounding))


def operations_of(schema: Schema, space: SearchSpace) -> list[ActionKey]:
    """Return the operations of the schema's kind; of several with the same effect, the first."""
    kind = SWEEP if schema in _SWEEPS else GROUND
    distinct: dict[object, ActionKey] = {}
    for key, step in space.actions.steps.items():
        if key[0] == kind:
            distinct.setdefault(frozenset(rule[2:] for rule in step), key)
    return list(distinct.values())


def enabled_operations(schema: Schema, space: SearchSpace) -> list[ActionKey]:
    """Return the operations of the schema's kind that the theory's own facts allow."""
    return [key for key in operations_of(schema, space) if space.after(key)]


def pairs(schema: Schema, space: SearchSpace) -> list[Pair]:
    """Return all pairs of operations that fit the schema by themselves."""
    candidates = operations_of(schema, space)
    return [
        (first, second)
        for first in enabled_operations(schema, space)
        for second in candidates
        if first != second and is_pair(schema, space, (first, second))
    ]


def is_pair(schema: Schema, space: SearchSpace, pair: Pair) -> bool:
    """Return whether a pair of operations behaves from the start, and is worded, as the schema requires."""
    first, second = pair
    steps = space.actions.steps
    if schema not in _SWEEPS and not steps[first][0].head & steps[second][0].needs:
        return False
    reference = space.after(first, second)
    if not reference or reference & ~space.holds:
        return False
    reversal = space.after(second, first)
    if schema is BINDING_SWEEP:
        return reversal not in (0, reference) and not reversal & ~reference
    if schema is NAF_SWEEP:
        return bool(reversal & ~space.holds)
    return not reversal and _wording(space.actions.grounding.theory, second) is schema


def _wording(theory: Theory, key: ActionKey) -> Schema | None:
    """Return the schema of a dependent ground operation, by its conditions and its conclusion.

    Return None for one that relates an entity to itself alone: it joins nothing.
    """
    _, number, binding = key
    rule = theory.rules[number - 1]
    atoms = [atom if binding is None else atom.bind(binding) for atom in rule.atoms()]
    if all(atom.predicate == "is" for atom in atoms):
        return ATTRIBUTE_CHAIN if len(set(atoms[:-1])) == 1 else CONJUNCTIVE_JOIN
    return RELATIONAL_JOIN if len({e for atom in atoms for e in atom.entities()}) > 1 else None


def commuting_with(space: SearchSpace, pair: Pair, enabled: Iterable[ActionKey]) -> list[ActionKey]:
    """Return the enabled operations that commute with both operations of a pair."""
    first, second = pair
    return [
        key
        for key in enabled
        if key not in pair
        and _same(space.after(key, first), space.after(first, key))
        and space.after(key, second) == space.after(second, key)
        and _same(space.after(first, key, second), space.after(first, second, key))
    ]


def _same(one: int, other: int) -> bool:
    return one == other != 0


def walked(space: SearchSpace, keys: Sequence[ActionKey]) -> Walked | None:
    """Return the arguments of a search for these operations' relations; None if they fail or derive a false fact."""
    reference = space.after(*keys)
    if not reference or reference & ~space.holds:
        return None
    steps = [space.actions.steps[key] for key in keys]
    return len(steps), space.start, lambda facts, n: _accepted(steps[n], facts) or None, int


def only_pair_matters(schema: Schema, space: SearchSpace, keys: Sequence[ActionKey]) -> bool:
    """Return whether operation 0 before 1 is the only requirement on orders, in every reachable context."""
    arguments = walked(space, keys)
    found = None if arguments is None else lattice_relations(*arguments)
    return (
        found is not None
        and found.anti_diamonds == ((0, 1),)
        and found.kinds[0, 1] == schema.relation
    )


def _accepted(step: Step, facts: int) -> int:
    after = run_step(step, facts)
    return after if after != facts else 0


def random_legal_order(keys: Sequence[ActionKey], draws: Draws) -> list[ActionKey]:
    """Return a random order of the operations with 0 before 1, all equally likely: no position reveals the pair."""
    return first_before_second(keys, draws.shuffled(range(len(keys))))


def episode_of(
    schema: Schema, theory: Theory, keys: Sequence[ActionKey], provenance: Provenance
) -> Episode:
    """Return the episode that runs these operations, in this order, on a theory."""
    return Episode(
        environment="proofwriter",
        schema=schema.name,
        initial=theory_to_json(theory),
        operations=tuple(operation_of(theory, key) for key in keys),
        provenance=provenance,
    )
