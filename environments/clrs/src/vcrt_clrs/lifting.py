"""Lift windows of genuine runs: every ``num_operations`` steps that follow each other, from the true state.

Nothing is chosen here. Certification tells of each window which of its steps commute and whether it is what a data set
asks for; most windows are not. Steps that would change nothing are no part of a run (see
:meth:`vcrt_clrs.schema.AlgorithmSchema.steps`). Where dm-clrs works in synchronous rounds, a window begins
at the state within the round and its steps are run in place, so a step that read an older state may be refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from vcrt.environments.contract import Episode
from vcrt.errors import UnknownNameError, VcrtError
from vcrt.limits import MAX_LIFTED
from vcrt.randomness import derive_seed
from vcrt_clrs.environment import ALGORITHMS
from vcrt_clrs.episodes import ENVIRONMENT, lifted_episode
from vcrt_clrs.reading import MAX_LENGTH
from vcrt_clrs.shim import load_dm_clrs
from vcrt_clrs.trace import Instance, genuine_trace

#: How many steps a window may have, since every order of them is replayed.
MIN_STEPS = 2
#: The largest seed that dm-clrs takes.
MAX_SEED = 2**32 - 1


def lift_windows(
    algorithm: str,
    seeds: Iterable[int],
    length: int,
    num_operations: int = 4,
    *,
    edge_probability: float | None = None,
) -> list[Episode]:
    """All windows of the runs on the inputs of ``length`` that dm-clrs draws under ``seeds``, in order.

    ``edge_probability`` is the sampler's ``p`` for graphs; without it, one that the schema's own episodes use. The
    provenance names the input, which all windows of one run share, and the window's offset; its seed is derived from
    both and from ``num_operations``, so that every window has an ``episode_id`` of its own.

    Raises :class:`vcrt.errors.UnknownNameError` for an unknown algorithm and :class:`vcrt.errors.VcrtError` for a
    number out of range.
    """
    if algorithm not in ALGORITHMS:
        raise UnknownNameError.of(f"{ENVIRONMENT} algorithm", algorithm, ALGORITHMS)
    probabilities = ALGORITHMS[algorithm].edge_probabilities
    if probabilities and edge_probability is None:
        edge_probability = probabilities[len(probabilities) // 2]
    _check("length", length, 2, MAX_LENGTH)
    _check("num_operations", num_operations, MIN_STEPS, MAX_LIFTED)
    if not probabilities and edge_probability is not None:
        raise VcrtError(
            f"the inputs of {algorithm} are no graphs",
            where="edge_probability",
            found=str(edge_probability),
            expected="none",
        )
    if edge_probability is not None:
        _check("edge_probability", edge_probability, 0, 1)
    windows: list[Episode] = []
    for seed in seeds:
        _check("seed", seed, 0, MAX_SEED)
        instance = Instance(
            algorithm=algorithm, length=length, edge_probability=edge_probability, seed=seed
        )
        windows += _windows(instance, num_operations)
    return windows


def _windows(instance: Instance, num_operations: int) -> list[Episode]:
    schema = ALGORITHMS[instance.algorithm]
    steps = list(schema.steps(genuine_trace(load_dm_clrs(), instance)))
    return [
        lifted_episode(
            instance.algorithm,
            schema.write_state(steps[offset].state),
            tuple(step.operation for step in steps[offset : offset + num_operations]),
            instance,
            f"{ENVIRONMENT}.{instance.algorithm}.window/1:offset={offset}",
            _window_seed(instance, num_operations, offset),
        )
        for offset in range(len(steps) - num_operations + 1)
    ]


def _window_seed(instance: Instance, num_operations: int, offset: int) -> int:
    """A seed of 53 bits, so that it is exact in any JSON reader."""
    return derive_seed(instance.seed, instance.source, "window", num_operations, offset) >> 11


def _check(field: str, value: float, low: int, high: int) -> None:
    if not low <= value <= high:
        raise VcrtError(
            "windows cannot be lifted",
            where=field,
            found=str(value),
            expected=f"a number from {low} to {high}",
        )
