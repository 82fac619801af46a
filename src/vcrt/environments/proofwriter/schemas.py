"""Sample episodes from generated theories: a pair that must keep its order, planted among operations that commute."""

from __future__ import annotations

from collections.abc import Sequence

from vcrt.environments.contract import Episode, Operation, Provenance, Schema
from vcrt.environments.proofwriter.draws import Draws
from vcrt.environments.proofwriter.generator import GENERATOR, plant
from vcrt.environments.proofwriter.operations import (
    SWEEP,
    ActionKey,
    ground_operation,
    sweep_operation,
)
from vcrt.environments.proofwriter.search import (
    Field,
    Pair,
    companions,
    field_of,
    is_pair,
    live_operations,
    only_pair_matters,
    some_legal_order,
)
from vcrt.environments.proofwriter.theory import Theory, theory_to_json
from vcrt.errors import MalformedInputError
from vcrt.randomness import generator

#: How many choices of the other operations are tried with one theory before the next theory.
_TRIES = 4


def sample_episode(schema: Schema, seed: int, num_operations: int = 4) -> Episode:
    """The episode of that seed, on the first of its generated theories that holds one."""
    draws = Draws(generator(seed, "proofwriter", schema.name, num_operations))
    while True:
        planted = plant(schema, draws, num_operations)
        try:
            field = field_of(planted.theory)
        except MalformedInputError:
            continue  # a theory that contradicts itself has no label
        keys = _with_others(schema, field, planted.pair, draws, num_operations)
        if keys is not None:
            source = f"proofwriter/{planted.theory.content_hash()}"
            provenance = Provenance(source=source, generator=GENERATOR, seed=seed)
            return episode_of(schema, planted.theory, some_legal_order(keys, draws), provenance)


def _with_others(
    schema: Schema, field: Field, pair: Pair, draws: Draws, num_operations: int
) -> list[ActionKey] | None:
    """The pair and operations that do not care, if there are enough of them."""
    if not is_pair(schema, field, pair):
        return None
    others = companions(field, pair, live_operations(schema, field))
    if len(others) < num_operations - 2:
        return None
    for _ in range(_TRIES):
        keys = [*pair, *draws.some(others, num_operations - 2)]
        if only_pair_matters(schema, field, keys):
            return keys
    return None


def episode_of(
    schema: Schema, theory: Theory, keys: Sequence[ActionKey], provenance: Provenance
) -> Episode:
    """The episode that runs these operations, in this order, on a theory."""
    return Episode(
        environment="proofwriter",
        schema=schema.name,
        initial=theory_to_json(theory),
        operations=tuple(_operation(theory, key) for key in keys),
        provenance=provenance,
    )


def _operation(theory: Theory, key: ActionKey) -> Operation:
    kind, number, binding = key
    if kind == SWEEP:
        return sweep_operation(theory, number)
    return ground_operation(theory, number, binding)
