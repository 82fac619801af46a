"""Lift windows of genuine runs of CLRS algorithms: ``vcrt lift clrs``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from vcrt.api.lifting import (
    MIN_STEPS,
    Lifted,
    certified,
    require_within,
    some,
)
from vcrt.certificates.episodes import PAPER_PRESET
from vcrt.certificates.pairs import report_orders
from vcrt.environments.contract import Episode
from vcrt.environments.registry import load_environment
from vcrt.errors import UnknownNameError, VcrtError
from vcrt.limits import MAX_LIFTED
from vcrt.printable import counted
from vcrt.processes import Backend
from vcrt.progress import SILENT, Progress, tell
from vcrt.randomness import derive_seed
from vcrt.replay.lattice_replay import replay_merged
from vcrt.storage import require_new
from vcrt_clrs.environment import ALGORITHMS
from vcrt_clrs.episodes import ENVIRONMENT, lifted_episode
from vcrt_clrs.trace import MAX_LENGTH, NUM_SEEDS, Instance, genuine_trace


def lift_clrs(
    algorithms: Sequence[str],
    *,
    output: str | Path | None = None,
    runs: int = 20,
    length: int = 8,
    steps: int = 4,
    seed: int = 0,
    jobs: int | None = None,
    backend: Backend = "local",
    progress: Progress = SILENT,
) -> Lifted:
    """Lift all windows of steps from genuine runs of CLRS algorithms; certify those of four steps, report others.

    Example: vcrt lift clrs mst_kruskal --runs 10

    Args:
        algorithms: Names of CLRS algorithms.
        output: A new dataset of the certified episodes; nothing is written without it. Until it is whole, finished work
            lies in OUTPUT.shards.
        runs: Genuine runs whose windows are lifted.
        length: Length of those runs' inputs.
        steps: Steps of a window, 2 to 8. Windows of another length are reported by this process alone, not frozen.
        seed: Seed of the first run.

    Raises:
        VcrtError: There is no window; or, before anything is lifted, a number is out of range, or `output` exists.
        UnknownNameError: There is no such algorithm.
    """
    require_within("runs", runs, 1)
    require_within("length", length, 2, MAX_LENGTH)
    require_within("steps", steps, MIN_STEPS, MAX_LIFTED)
    require_within("seed", seed, 0, NUM_SEEDS - runs)
    certifying = steps == PAPER_PRESET.num_operations
    if output is not None and not certifying:
        raise VcrtError(
            "only episodes of four steps can be frozen",
            found=f"steps {steps} with an output",
            remedy="leave --output out, or give --steps 4",
        )
    environment = load_environment("clrs")
    names = list(dict.fromkeys(environment.schema(name).name for name in some(algorithms)))
    if output is not None:
        require_new(Path(output), VcrtError)
    episodes = list[Episode]()
    for name in names:
        windows = lift_windows(name, range(seed, seed + runs), length, num_operations=steps)
        tell(
            f"{counted(len(windows), 'window')} of {counted(steps, 'step')} in {counted(runs, 'run')} of "
            f"{name} on inputs of {length}"
        )
        episodes += windows
    if not episodes:
        raise VcrtError(
            "nothing was lifted",
            found=f"no run of {counted(steps, 'step')} or more",
            remedy="give a longer input with --length, more runs with --runs, or fewer --steps",
        )
    if certifying:
        return certified(episodes, output, jobs, backend, progress)
    orders = [report_orders(replay_merged(environment, [episode])[0]) for episode in episodes]
    return Lifted(orders=tuple(orders))


def lift_windows(
    algorithm: str, seeds: Iterable[int], length: int, num_operations: int = 4
) -> list[Episode]:
    """Return all windows of the runs on the inputs of ``length`` that dm-clrs draws under ``seeds``, in order.

    A window has consecutive steps, from their true state. It is not selected: certification decides which of its steps
    commute. Steps that would change nothing are not in a run (see :meth:`vcrt_clrs.schema.AlgorithmSchema.run`). Where
    dm-clrs works in synchronous rounds, a window begins at the state within the round and its steps run in place, so a
    step that read an older state may be refused.

    Graphs have the middle one of the schema's edge probabilities. The provenance names the input, which all windows of
    one run share, and the window's offset; its seed is derived from both and from ``num_operations``, so that every
    window has an ``episode_id`` of its own. Raise :class:`vcrt.errors.UnknownNameError` for an unknown algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise UnknownNameError.of(f"{ENVIRONMENT} algorithm", algorithm, ALGORITHMS)
    schema = ALGORITHMS[algorithm]
    probabilities = schema.edge_probabilities
    windows: list[Episode] = []
    for seed in seeds:
        instance = Instance(
            algorithm=algorithm,
            length=length,
            edge_probability=probabilities[len(probabilities) // 2] if probabilities else None,
            seed=seed,
        )
        steps = schema.steps(genuine_trace(instance))
        for offset in range(len(steps) - num_operations + 1):
            window = steps[offset : offset + num_operations]
            number = derive_seed(seed, instance.source, "window", num_operations, offset)
            windows.append(
                lifted_episode(
                    algorithm,
                    schema.write_state(window[0].before),
                    tuple(schema.operation(taken.step) for taken in window),
                    instance,
                    f"{ENVIRONMENT}.{algorithm}.window/1:offset={offset}",
                    # 53 bits are exact in any JSON reader.
                    number >> 11,
                )
            )
    return windows
