"""Episodes out of dm-clrs traces, and the comparison of an episode and its transition with the genuine trace.

Not covered: whether an episode has the promised relations. Lifting looks at structure only; certification decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np

from vcrt.environments.clrs.schema import AlgorithmSchema, AlgorithmState, Row
from vcrt.environments.clrs.shim import DmClrs
from vcrt.environments.clrs.trace import Instance, Trace, genuine_trace
from vcrt.environments.contract import Accepted, CrossCheck, Episode, Provenance
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.randomness import derive_seed, generator

ENVIRONMENT = "clrs"

#: Graphs drawn for one episode before its size is declared out of reach; usual sizes need a few.
MAX_DRAWS = 2000


def sample_episode(
    algorithm: AlgorithmSchema[Any], library: DmClrs, seed: int, num_operations: int
) -> Episode:
    """The episode of ``seed``: graphs are drawn under named seeds until one has the structure.

    Raises :class:`VcrtError` if none has it, because ``num_operations`` asks for too much.
    """
    name = algorithm.schema.name
    rng = generator(seed, ENVIRONMENT, name, "lift")
    for draw in range(MAX_DRAWS):
        instance = Instance(
            algorithm=name,
            length=algorithm.length,
            edge_probability=algorithm.edge_probability,
            seed=derive_seed(seed, ENVIRONMENT, name, "sampler", draw) % 2**32,
        )
        lifted = algorithm.lift(genuine_trace(library, instance), num_operations, rng)
        if lifted is not None:
            return Episode(
                environment=ENVIRONMENT,
                schema=name,
                initial=lifted.initial,
                operations=lifted.operations,
                provenance=Provenance(
                    source=instance.source, generator=f"{ENVIRONMENT}.{name}/1", seed=seed
                ),
            )
    raise VcrtError(
        f"no episode of {num_operations} operations was found",
        where=f"{ENVIRONMENT}/{name}/{seed}",
        found=f"none in {MAX_DRAWS} graphs of {algorithm.length} nodes",
        remedy="ask for fewer operations",
    )


def cross_check(
    algorithm: AlgorithmSchema[Any], library: DmClrs, episode: Episode
) -> tuple[CrossCheck, ...]:
    """Three comparisons with the trace that dm-clrs gives for the episode's provenance.

    ``dm-clrs trace``: inputs, initial state and each operation stand in the trace. ``dm-clrs hint rows``: the
    transition gives every hint row, from the inputs alone. ``dm-clrs outputs``: the algorithm, run on from the state
    after the reference order, ends at the genuine outputs.
    """
    instance = Instance.parse(episode.provenance.source)
    if instance.algorithm != algorithm.schema.name:
        raise MalformedInputError(
            "an episode's provenance names another algorithm",
            where="provenance.source",
            found=instance.algorithm,
            expected=algorithm.schema.name,
        )
    trace = genuine_trace(library, instance)
    initial = algorithm.read_state(episode.initial)
    located = algorithm.located(trace, initial, episode.operations)
    rows = list(islice(algorithm.hint_rows(trace), trace.num_rows + 1))
    terminal = _terminal(initial, episode)
    finished = terminal is not None and _equal(algorithm.finish(terminal), trace.outputs)
    return (
        CrossCheck("dm-clrs trace", len(located), sum(located)),
        CrossCheck("dm-clrs hint rows", max(len(rows), trace.num_rows), _agreed(rows, trace)),
        CrossCheck("dm-clrs outputs", 1, int(finished)),
    )


def _terminal(state: AlgorithmState, episode: Episode) -> AlgorithmState | None:
    for operation in episode.operations:
        transition = state.run(operation.payload)
        if not isinstance(transition, Accepted):
            return None
        state = transition.state
    return state


def _agreed(rows: Sequence[Row], trace: Trace) -> int:
    """How many rows are equal to the genuine row of their place, under every name."""
    count = min(len(rows), trace.num_rows)
    if any(row.keys() != trace.hints.keys() for row in rows):
        return 0
    equal = np.ones(count, dtype=bool)
    for name, genuine in trace.hints.items():
        own = np.asarray([row[name] for row in rows[:count]])
        equal &= (own == genuine[:count]).reshape(count, -1).all(axis=1)
    return int(equal.sum())


def _equal(own: Row, genuine: Row) -> bool:
    """Whether both have the same names and exactly equal numbers."""
    return own.keys() == genuine.keys() and all(
        np.array_equal(own[name], genuine[name]) for name in genuine
    )
