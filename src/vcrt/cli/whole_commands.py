"""The commands that do everything in one call: the demo, and the paper's experiment.

Each loads what it needs when it runs, so that ``vcrt --help`` is quick.
"""

from __future__ import annotations

from pathlib import Path

from vcrt.cli.model_options import NO_OPTIONS, Model
from vcrt.cli.options import plain_console
from vcrt.errors import VcrtError
from vcrt.jobs import num_jobs


def demo(
    output: Path = Path("runs"),
    episodes: int = 100,
    updates: int = 400,
    runs: int = 1,
    seed: int = 0,
    jobs: int | None = None,
) -> None:
    """Certify, freeze, verify, train, evaluate once and report, with the embedded defaults.

    Example: vcrt demo --output runs/demo

    Args:
        output: Folder in which a new numbered folder is made for everything that the demo writes.
        episodes: Certified episodes for each environment, spread evenly over its schemas.
        updates: Updates of each training run.
        runs: Independent training runs of each method and fold.
        seed: Seed of everything.
        jobs: Worker processes; as many as there are cores by default.
    """
    for option, value in (("--episodes", episodes), ("--updates", updates), ("--runs", runs)):
        if value < 1:
            raise VcrtError("too small a number", found=f"{option} {value}", expected="at least 1")
    from vcrt.cli.demo import run_demo

    run_demo(
        plain_console(),
        output,
        episodes=episodes,
        updates=updates,
        runs=runs,
        seed=seed,
        jobs=num_jobs(jobs),
    )


def reproduce(
    output: Path,
    dataset: Path | None = None,
    schemas: tuple[str, ...] = (),
    episodes: int = 500,
    methods: tuple[str, ...] = (),
    runs: int = 3,
    model: Model = NO_OPTIONS,
    trials: int = 8,
    seed: int = 0,
    jobs: int | None = None,
) -> None:
    """Do the paper's experiment, or whatever of it is missing: certify, verify, search, plan, train, evaluate, report.

    What is finished is checked and left as it is; an interrupted call goes on when it is given again. Dataset, search,
    plan, checkpoints, scores and result tables are the same bytes each time.

    Example: vcrt reproduce --output runs/paper

    Args:
        output: The folder of everything.
        dataset: A certified dataset to use in place of a new one.
        schemas: Environments, or single schemas as environment/schema; all that come with vcrt if none is given.
        episodes: Certified episodes for each schema.
        methods: The methods, of those that `vcrt methods` lists; the paper's six if none is given.
        runs: Independent runs of each method and fold.
        model: Which model is trained, and how.
        trials: Settings tried for each method and fold, on source items alone; 0 takes the library's defaults.
        seed: Seed of everything.
        jobs: Worker processes; as many as there are cores by default. The result does not depend on it.
    """
    from vcrt.cli.reproducing import Reproduction
    from vcrt.cli.reproducing import reproduce as run
    from vcrt.training.methods import PAPER_METHODS

    run(
        plain_console(),
        Reproduction(
            output=output,
            dataset=dataset,
            schemas=schemas,
            episodes=episodes,
            methods=methods or PAPER_METHODS,
            backbone=model.reference(),
            runs=runs,
            run=model.run_config(),
            how_chosen=model.how_chosen(),
            trials=trials,
            seed=seed,
            jobs=num_jobs(jobs),
        ),
    )


def doctor(json: bool = False) -> None:
    """Say what is installed here, which Lean, which device, what is missing, and the command that mends it.

    The exit status is that of an error if something that vcrt needs cannot be used; extras that are not installed are
    named and count for nothing.

    Example: vcrt doctor

    Args:
        json: Print the findings for machines.
    """
    from vcrt.cli.doctor import run_doctor

    run_doctor(plain_console(), as_json=json)
