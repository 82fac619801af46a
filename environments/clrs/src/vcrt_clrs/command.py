"""Run the command ``vcrt lift clrs``: windows of runs of algorithms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import tyro

import vcrt_clrs
from vcrt.cli.lifted_view import print_lifted
from vcrt.cli.options import Backend, Jobs, VerifierTimeout, plain_console, set_verifier_timeout
from vcrt.cli.progress import showing_progress


def clrs(
    inputs: Annotated[tuple[str, ...], tyro.conf.Positional],
    output: Path | None = None,
    runs: int = 20,
    length: int = 8,
    steps: int = 4,
    seed: int = 0,
    jobs: Jobs = None,
    backend: Backend = "loky",
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Lift all windows of genuine runs of CLRS algorithms; those of four steps are certified, others reported.

    Example: vcrt lift clrs mst_kruskal --runs 10

    Args:
        inputs: Names of CLRS algorithms.
        output: A new dataset of the certified episodes; nothing is written without it. Until it is whole, finished
            work lies in OUTPUT.shards.
        runs: Genuine runs whose windows are lifted.
        length: Length of those runs' inputs.
        steps: Steps of a window, 2 to 8; others than 4 are reported, not frozen, by this process alone.
        seed: Seed of the first run.
    """
    set_verifier_timeout(verifier_timeout)
    console = plain_console()
    with showing_progress(console) as progress:
        lifted = vcrt_clrs.lift_clrs(
            inputs,
            output=output,
            runs=runs,
            length=length,
            steps=steps,
            seed=seed,
            jobs=jobs,
            backend=backend,
            progress=progress,
        )
    print_lifted(console, lifted)
