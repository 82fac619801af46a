"""Episodes: a theory and operations of which exactly one ordered pair must keep its order.

``attribute_chain`` (precedes): a ground rule gives the attribute that another needs; reversed, the second is rejected.
``naf_sweep`` (conflicts): a sweep derives what another negates as failure; reversed, the premature sweep is accepted
and derives a fact outside the perfect model. Promised: among the operations found, all steps of the reference order
change the state, the order of one pair matters and nothing else does. Certification shows that anew, by replay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations, count
from math import factorial

import numpy as np

from vcrt.environments.contract import Accepted, Episode, Operation, Provenance, Schema
from vcrt.environments.proofwriter.engine import Facts, Grounding, ground, model
from vcrt.environments.proofwriter.generator import sample_theory
from vcrt.environments.proofwriter.operations import (
    TheoryState,
    action_table,
    ground_operation,
    sweep_operation,
    transition,
)
from vcrt.environments.proofwriter.theory import Assumption, Theory, theory_to_json
from vcrt.randomness import generator

ATTRIBUTE_CHAIN = Schema(
    name="attribute_chain",
    summary="one rule gives a person the attribute that another rule needs",
    relation="precedes",
)
NAF_SWEEP = Schema(
    name="naf_sweep",
    summary="one rule derives what another rule takes to be absent",
    relation="conflicts",
)
SCHEMAS = (ATTRIBUTE_CHAIN, NAF_SWEEP)
GENERATOR = "vcrt theories 1"
#: How many choices of the other operations are tried with one pair before the next pair.
_TRIES = 6


def sample_episode(schema: Schema, seed: int, num_operations: int = 4) -> Episode:
    """The episode of that seed, lifted from a generated theory (the first of its attempts that holds one)."""
    for attempt in count():
        names = (schema.name, num_operations, attempt)
        rng = generator(seed, *names, "episode")
        closed = schema is NAF_SWEEP or bool(rng.integers(2))
        assumption: Assumption = "CWA" if closed else "OWA"
        theory = sample_theory(seed, *names, assumption=assumption, num_operations=num_operations)
        operations = lift(schema, theory, rng, num_operations)
        if operations is not None:
            return episode_of(schema, theory, operations, seed=seed, generated_by=GENERATOR)
    raise AssertionError("count() does not end")


def episode_of(
    schema: Schema,
    theory: Theory,
    operations: Sequence[Operation],
    *,
    seed: int,
    generated_by: str,
) -> Episode:
    """The episode that runs ``operations`` on a theory; its source is the theory's content hash."""
    return Episode(
        environment="proofwriter",
        schema=schema.name,
        initial=theory_to_json(theory),
        operations=tuple(operations),
        provenance=Provenance(
            source=f"proofwriter/{theory.content_hash()}", generator=generated_by, seed=seed
        ),
    )


def lift(
    schema: Schema, theory: Theory, rng: np.random.Generator, num_operations: int = 4
) -> tuple[Operation, ...] | None:
    """Operations of a theory that make an episode of the schema, in a legal order, or None if none is found.

    Any theory will do, generated or read from a file; raises as :func:`engine.model` does.
    """
    grounding = ground(theory)
    start = TheoryState(grounding.facts, action_table(grounding))
    holds = model(grounding)
    if schema is NAF_SWEEP and theory.assumption != "CWA":
        return None
    candidates = _candidates(schema, grounding)
    live = [operation for operation in candidates if _run(start, (operation,)) is not None]
    pairs = [
        (first, second)
        for first in live
        for second in candidates
        if first is not second and _is_pair(schema, start, first, second, holds)
    ]
    for index in rng.permutation(len(pairs)):
        pair = pairs[int(index)]
        others = [o for o in live if all(_independent(start, o, member) for member in pair)]
        for _ in range(_TRIES if len(others) >= num_operations - 2 else 0):
            chosen = rng.permutation(len(others))[: num_operations - 2]
            operations = (*pair, *(others[int(i)] for i in chosen))
            if _only_pair_matters(schema, start, operations, holds):
                return _some_legal_order(operations, rng)
    return None


def _candidates(schema: Schema, grounding: Grounding) -> list[Operation]:
    theory = grounding.theory
    if schema is NAF_SWEEP:
        return [sweep_operation(theory, number) for number in grounding.by_rule]
    return [
        ground_operation(theory, rule.rule, rule.binding)
        for rule in grounding.rules
        if all(atom.predicate == "is" for atom in theory.rules[rule.rule - 1].atoms())
    ]


def _is_pair(
    schema: Schema, start: TheoryState, first: Operation, second: Operation, holds: Facts
) -> bool:
    """Whether the two, alone, behave as the schema asks: first before second, and not the other way."""
    reversal = _run(start, (second, first))
    if schema is ATTRIBUTE_CHAIN and reversal is not None:
        return False
    if schema is NAF_SWEEP and (reversal is None or reversal <= holds):
        return False
    reference = _run(start, (first, second))
    return reference is not None and reference <= holds


def _independent(start: TheoryState, other: Operation, member: Operation) -> bool:
    """Whether the order of the two does not show from the start; a member that cannot run yet is no obstacle."""
    if other is member:
        return False
    if _run(start, (member,)) is None:
        return True
    result = _run(start, (other, member))
    return result is not None and result == _run(start, (member, other))


def _run(start: TheoryState, operations: Sequence[Operation]) -> Facts | None:
    """The facts after the operations, or None if one of them is refused."""
    state = start
    for operation in operations:
        step = transition(state, operation)
        if not isinstance(step, Accepted):
            return None
        state = step.state
    return state.facts


def _only_pair_matters(
    schema: Schema, start: TheoryState, operations: Sequence[Operation], holds: Facts
) -> bool:
    """Whether operation 0 before 1 is all that an order must keep, in every context that can be reached.

    Walks the subsets of the operations, with the number of orders that lead to each fact set.
    """
    layer: Counter[tuple[frozenset[int], Facts]] = Counter({(frozenset(), start.facts): 1})
    for _ in operations:
        following: Counter[tuple[frozenset[int], Facts]] = Counter()
        for (done, facts), number in layer.items():
            state = TheoryState(facts, start.actions)
            left = [index for index in range(len(operations)) if index not in done]
            for pair in combinations(left, 2):
                if not _behaves(schema, state, operations, pair):
                    return False
            for index in left:
                step = transition(state, operations[index])
                if isinstance(step, Accepted):
                    following[done | {index}, step.state.facts] += number
        layer = following
    reference = _run(start, operations)
    if reference is None or not reference <= holds:
        return False
    ends = {facts: number for (_, facts), number in layer.items()}
    return ends[reference] == factorial(len(operations)) // 2


def _behaves(
    schema: Schema, state: TheoryState, operations: Sequence[Operation], pair: tuple[int, int]
) -> bool:
    """Whether a pair is, in this context, what it should be; one of which neither order runs shows nothing."""
    first, second = (operations[index] for index in pair)
    forwards, backwards = _run(state, (first, second)), _run(state, (second, first))
    if pair != (0, 1):
        return forwards == backwards
    if forwards is None and backwards is None:
        return True
    if schema is ATTRIBUTE_CHAIN:
        return forwards is not None and backwards is None
    return forwards is not None and backwards is not None and forwards != backwards


def _some_legal_order(
    operations: Sequence[Operation], rng: np.random.Generator
) -> tuple[Operation, ...]:
    """A legal order, all equally likely, so that no position gives the pair away."""
    order = [int(index) for index in rng.permutation(len(operations))]
    first, second = order.index(0), order.index(1)
    if first > second:
        order[first], order[second] = 1, 0
    return tuple(operations[index] for index in order)
