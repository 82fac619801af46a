"""Lift windows of genuine runs of CLRS algorithms: ``vcrt lift clrs``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vcrt.api.lifting import Lifted, certified, replay_merged_evidence, require_within, some
from vcrt.certification.episodes import PAPER_PRESET
from vcrt.certification.pairs import report_orders
from vcrt.environments.contract import Episode
from vcrt.environments.registry import load_environment
from vcrt.errors import VcrtError
from vcrt.limits import MAX_LIFTED
from vcrt.printable import counted
from vcrt.processes import Backend
from vcrt.progress import SILENT, Progress, tell
from vcrt.storage import require_new
from vcrt_clrs.lifting import MAX_SEED, MIN_STEPS, lift_windows
from vcrt_clrs.reading import MAX_LENGTH


def lift_clrs(
    algorithms: Sequence[str],
    *,
    output: str | Path | None = None,
    runs: int = 20,
    length: int = 8,
    steps: int = 4,
    seed: int = 0,
    jobs: int | None = None,
    backend: Backend = "loky",
    progress: Progress = SILENT,
) -> Lifted:
    """Lift all windows of genuine runs of CLRS algorithms; those of four steps are certified, others reported.

    Example: vcrt lift clrs mst_kruskal --runs 10

    Args:
        algorithms: Names of CLRS algorithms.
        output: A new dataset of the certified episodes; nothing is written without it. Until it is whole, finished work
            lies in OUTPUT.shards.
        runs: Genuine runs whose windows are lifted.
        length: Length of those runs' inputs.
        steps: Steps of a window, 2 to 8; others than 4 are reported, not frozen, by this process alone.
        seed: Seed of the first run.

    Raises:
        VcrtError: There is no window; or, before anything is lifted, a number is out of range, or `output` exists.
        UnknownNameError: There is no such algorithm.
    """
    require_within("runs", runs, 1)
    require_within("length", length, 2, MAX_LENGTH)
    require_within("steps", steps, MIN_STEPS, MAX_LIFTED)
    require_within("seed", seed, 0, MAX_SEED + 1 - runs)
    certifying = steps == PAPER_PRESET.num_operations
    if output is not None and not certifying:
        raise VcrtError(
            "only episodes of four steps can be frozen",
            found=f"steps {steps} with an output",
            remedy="leave out one of the two",
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
    orders = [
        report_orders(replay_merged_evidence(environment, [episode])[0]) for episode in episodes
    ]
    return Lifted(orders=tuple(orders))
