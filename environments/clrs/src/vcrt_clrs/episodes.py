"""Make episodes from dm-clrs traces, and compare an episode and its transition with the genuine trace.

Lifting looks at structure alone; certification decides whether an episode has the promised relations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any, TypeAlias

import numpy as np

from vcrt.environments.contract import CrossCheck, Episode, Operation, Provenance
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.hashing import Json
from vcrt.randomness import Generator, derive_seed, generator
from vcrt_clrs.schema import DIGEST_BYTES, AlgorithmSchema, AlgorithmState, state_after
from vcrt_clrs.trace import NUM_SEEDS, Instance, Rows, Trace, genuine_trace

ENVIRONMENT = "clrs"

#: The lengths of sampled inputs and, for graphs, their edge probabilities.
Sizes: TypeAlias = tuple[Sequence[int], Sequence[float]]
#: Inputs that are drawn for one episode before its size counts as out of reach; usual sizes need a few.
MAX_DRAWS = 2000


def sample_episode(algorithm: AlgorithmSchema[Any], seed: int, num_operations: int) -> Episode:
    """Return the episode of ``seed``: draw inputs under named seeds until one has the structure.

    Raise :class:`VcrtError` if none has it, because ``num_operations`` is too large.
    """
    name = algorithm.schema.name
    rng = generator(seed, ENVIRONMENT, name, "lift")
    sizes = algorithm.lengths, algorithm.edge_probabilities
    runs = traces(algorithm, sizes, name, seed, rng)
    for instance, trace in islice(runs, MAX_DRAWS):
        lifted = algorithm.lift(trace, num_operations, rng)
        if lifted is not None:
            state, steps = lifted
            operations = tuple(map(algorithm.operation, steps))
            made_by = f"{ENVIRONMENT}.{name}/2"
            initial = algorithm.write_state(state)
            return lifted_episode(name, initial, operations, instance, made_by, seed)
    lengths = algorithm.lengths
    raise VcrtError(
        f"no episode of {num_operations} operations was found",
        where=f"{ENVIRONMENT}/{name}/{seed}",
        found=f"none in {MAX_DRAWS} inputs of length {min(lengths)} to {max(lengths)}",
        remedy="ask for fewer operations",
    )


def traces(
    algorithm: AlgorithmSchema[Any],
    sizes: Sizes,
    schema: str,
    seed: int,
    rng: Generator,
) -> Iterator[tuple[Instance, Trace]]:
    """Yield runs of an algorithm on inputs drawn for the episode of ``seed``, each under a seed of its own."""
    lengths, probabilities = sizes
    for draw in count():
        instance = Instance(
            algorithm=algorithm.schema.name,
            length=int(rng.choice(lengths)),
            edge_probability=float(rng.choice(probabilities)) if probabilities else None,
            seed=derive_seed(seed, ENVIRONMENT, schema, "sampler", draw) % NUM_SEEDS,
        )
        yield instance, genuine_trace(instance)


def lifted_episode(
    schema: str,
    initial: Json,
    operations: tuple[Operation, ...],
    instance: Instance,
    made_by: str,
    seed: int,
) -> Episode:
    """Return an episode lifted from the run on an input."""
    return Episode(
        environment=ENVIRONMENT,
        schema=schema,
        initial=initial,
        operations=operations,
        provenance=Provenance(source=instance.source, generator=made_by, seed=seed),
    )


def cross_check(algorithm: AlgorithmSchema[Any], episode: Episode) -> tuple[CrossCheck, ...]:
    """Return three comparisons with dm-clrs's trace for the episode's provenance.

    ``dm-clrs trace``: the run contains the inputs, the initial state and each operation. ``dm-clrs hint rows``: the
    transition gives every hint row, from the inputs alone. ``dm-clrs outputs``: the algorithm, continued from the state
    after the reference order, ends at the genuine outputs (see :func:`completion`).
    """
    instance = Instance.parse(episode.provenance.source)
    if instance.algorithm != algorithm.schema.name:
        raise MalformedInputError(
            "an episode's provenance names another algorithm",
            where="provenance.source",
            found=instance.algorithm,
            expected=algorithm.schema.name,
        )
    trace = genuine_trace(instance)
    initial = algorithm.read_state(episode.initial)
    place, located = _locate(algorithm, trace, initial, episode.operations)
    terminal = state_after(initial, (initial.read(o.payload) for o in episode.operations))
    done = None if place is None else place + episode.num_operations
    return (
        CrossCheck("dm-clrs trace", len(located), sum(located)),
        _compare_rows(algorithm.hint_rows(trace), trace),
        completion(algorithm, trace, terminal, done),
    )


def completion(
    algorithm: AlgorithmSchema[Any], trace: Trace, state: AlgorithmState | None, done: int | None
) -> CrossCheck:
    """Check that the run of ``trace``, continued from ``state`` after ``done`` steps, ends as the genuine one.

    It compares all outputs and the last hint rows that the algorithm's ``finish`` names. Without a state, because the
    reference order was refused, there is nothing to compare. Without ``done``, because the initial state is not in the
    run, nothing agrees.
    """
    if state is None:
        return CrossCheck("dm-clrs outputs", 0, 0)
    if done is None:
        return CrossCheck("dm-clrs outputs", len(trace.outputs), 0)
    finished = algorithm.finish(state, done)
    names = finished.keys() | trace.outputs.keys()
    equal = [_ends_as(finished, trace, name) for name in names]
    return CrossCheck("dm-clrs outputs", len(names), sum(equal))


def _ends_as(finished: Rows, trace: Trace, name: str) -> bool:
    if name in trace.outputs:
        return name in finished and np.array_equal(finished[name], trace.outputs[name])
    last = finished[name]
    return np.array_equal(last, trace.hints[name][: trace.num_rows][-len(last) :])


def _locate(
    algorithm: AlgorithmSchema[Any],
    trace: Trace,
    initial: AlgorithmState,
    operations: Sequence[Operation],
) -> tuple[int | None, list[bool]]:
    """Return the number of steps before ``initial`` in the run, and whether it has the inputs, state and operations."""
    start = algorithm.start(trace).canonical()
    canonical = initial.canonical()
    steps = algorithm.steps(trace)
    place = next((n for n, each in enumerate(steps) if each.before.canonical() == canonical), None)
    inputs = canonical[:DIGEST_BYTES] == start[:DIGEST_BYTES]
    if place is None:
        return None, [inputs, False, *(False for _ in operations)]
    ahead = [algorithm.operation(each.step) for each in steps[place:]]
    if algorithm.placing == "next in order":
        window = ahead[: len(operations)]
        found = [o in window and window.index(o) == n for n, o in enumerate(operations)]
    else:
        known = ahead[: len(operations)] if algorithm.placing == "next" else ahead
        found = [operation in known for operation in operations]
    return place, [inputs, True, *found]


def _compare_rows(own: Rows, trace: Trace) -> CrossCheck:
    """Count the rows that equal the genuine row of their place, under every name."""
    num_rows = min(map(len, own.values()))
    count = min(num_rows, trace.num_rows)
    equal = np.full(count, own.keys() == trace.hints.keys())
    for name in own.keys() & trace.hints.keys():
        same = own[name][:count] == trace.hints[name][:count]
        equal &= same.reshape(count, -1).all(axis=1)
    return CrossCheck("dm-clrs hint rows", max(num_rows, trace.num_rows), int(equal.sum()))
