"""Schemas of several dependent steps: four steps out of a genuine run, in the run's own order.

The steps are picked from those that follow a state of the run, until their poset has the shape that was drawn. The
shapes are drawn alike, although a run has many more forks than crossings, so that a data set has all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from vcrt.environments.clrs.bellman_ford import BellmanFord
from vcrt.environments.clrs.episodes import ENVIRONMENT, draw_instance
from vcrt.environments.clrs.matrix_chain import MatrixChainOrder
from vcrt.environments.clrs.schema import AlgorithmSchema, AlgorithmState, GenuineStep
from vcrt.environments.clrs.shim import DmClrs
from vcrt.environments.clrs.trace import genuine_trace
from vcrt.environments.contract import Accepted, Episode, Operation, Provenance, Schema
from vcrt.environments.posets import NUM_STEPS, SHAPES, poset_of
from vcrt.errors import VcrtError
from vcrt.orders import transitive_closure
from vcrt.randomness import generator

#: Inputs drawn for one episode before its shape is declared out of reach; the rarest needs about a tenth.
MAX_DRAWS = 4000
#: Pools of steps that are looked at in one run, how many steps a pool has, and how far from its state they may stand.
_POOLS, _POOL_SIZE, _REACH = 3, 8, 12


@dataclass(frozen=True, kw_only=True, slots=True)
class PosetSchema:
    """A schema, the algorithm whose runs it takes steps from, and the shapes that these have."""

    schema: Schema
    algorithm: AlgorithmSchema[Any]
    shapes: tuple[str, ...]


#: Shapes that at least one of a thousand choices of steps has; in a run, sinks, crossings and diamonds are rarer.
_IN_ROUNDS = tuple(
    shape for shape in SHAPES if shape not in ("sink", "crossing", "diamond", "early join")
)
#: The schemas of several dependent steps, by name.
POSETS: Mapping[str, PosetSchema] = {
    each.schema.name: each
    for each in (
        PosetSchema(
            schema=Schema(
                name="bellman_ford_poset",
                summary="relaxations of one run, several of which need or change what others do",
                relation="either",
                preset="several",
            ),
            algorithm=BellmanFord(),
            shapes=_IN_ROUNDS,
        ),
        PosetSchema(
            schema=Schema(
                name="matrix_chain_poset",
                summary="cells filled in one run, several of which are read by others",
                relation="either",
                preset="several",
            ),
            algorithm=MatrixChainOrder(),
            shapes=(*_IN_ROUNDS, "early join"),
        ),
    )
}


def sample_poset(poset: PosetSchema, library: DmClrs, seed: int) -> Episode:
    """The episode of ``seed``: its shape is drawn, then inputs and steps until four of them have it.

    Raises :class:`VcrtError` if none have.
    """
    name, algorithm = poset.schema.name, poset.algorithm
    rng = generator(seed, ENVIRONMENT, name, "lift")
    shape = poset.shapes[int(rng.integers(len(poset.shapes)))]
    for draw in range(MAX_DRAWS):
        instance = draw_instance(algorithm, rng, seed, name, draw)
        steps = list(algorithm.steps(genuine_trace(library, instance)))
        for _ in range(_POOLS if len(steps) >= NUM_STEPS else 0):
            pool = _pool(steps, rng)
            for picked in _picks(pool, shape, rng):
                if _shape(pool, picked) == shape:
                    return Episode(
                        environment=ENVIRONMENT,
                        schema=name,
                        initial=algorithm.write_state(pool.state),
                        operations=tuple(pool.operations[place] for place in picked),
                        provenance=Provenance(
                            source=instance.source, generator=f"{ENVIRONMENT}.{name}/1", seed=seed
                        ),
                    )
    raise VcrtError(
        f"no four steps of shape {shape!r} were found",
        where=f"{ENVIRONMENT}/{name}/{seed}",
        found=f"none in {MAX_DRAWS} inputs",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pool:
    """A state of a run and steps that follow it, in the run's order and in their checked form."""

    state: AlgorithmState
    operations: tuple[Operation, ...]
    steps: tuple[Any, ...]

    def take(self, state: AlgorithmState, place: int) -> AlgorithmState | None:
        """The state after a step, None if it is refused."""
        transition = state.take(self.steps[place])
        return transition.state if isinstance(transition, Accepted) else None

    def end(self, *places: int) -> bytes | None:
        """The canonical state after some steps, None if one is refused."""
        state: AlgorithmState | None = self.state
        for place in places:
            state = None if state is None else self.take(state, place)
        return None if state is None else state.canonical()


def _pool(steps: Sequence[GenuineStep[Any]], rng: np.random.Generator) -> _Pool:
    first = int(rng.integers(len(steps) - NUM_STEPS + 1))
    ahead = steps[first : first + _REACH]
    places = sorted(rng.permutation(len(ahead))[:_POOL_SIZE].tolist())
    state = steps[first].state
    operations = tuple(ahead[place].operation for place in places)
    return _Pool(
        state=state,
        operations=operations,
        steps=tuple(state.read(operation.payload) for operation in operations),
    )


def _picks(pool: _Pool, shape: str, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Four steps of the pool, each choice once, where as many pairs depend on each other as the shape needs.

    Looks at the pairs from the pool's state alone, which is quick. A pair of which neither order runs there shows
    nothing and may be either.
    """
    apart, unknown = set(), set()
    for one, other in combinations(range(len(pool.steps)), 2):
        forward, reverse = pool.end(one, other), pool.end(other, one)
        if forward is None and reverse is None:
            unknown.add((one, other))
        elif forward != reverse:
            apart.add((one, other))
    fewest, most = len(SHAPES[shape]), len(transitive_closure(SHAPES[shape]))
    picks = []
    for picked in combinations(range(len(pool.steps)), NUM_STEPS):
        pairs = set(combinations(picked, 2))
        num_apart = len(pairs & apart)
        if num_apart <= most and num_apart + len(pairs & unknown) >= fewest:
            picks.append(picked)
    return [picks[place] for place in rng.permutation(len(picks)).tolist()]


def _shape(pool: _Pool, picked: Sequence[int]) -> str | None:
    found = poset_of(
        pool.state,
        lambda state, index: pool.take(state, picked[index]),
        lambda state: state.canonical(),
    )
    return None if found is None else found.shape
