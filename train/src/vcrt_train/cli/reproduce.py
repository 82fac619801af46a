"""Run the commands that do everything in one call: demo, and reproduce, the paper's experiment."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import vcrt_train
from vcrt.cli.certify import print_counts
from vcrt.cli.options import plain_console, say
from vcrt.cli.progress import showing_progress
from vcrt_train.cli.report import print_report
from vcrt_train.config import DEFAULTS, RunConfig


def demo(
    output: Path = Path("runs"),
    episodes: int = 100,
    runs: int = 1,
    seed: int = 0,
    jobs: int | None = None,
    config: RunConfig = DEFAULTS,
) -> None:
    """Certify, freeze, verify, train, evaluate once and report, by default with the embedded backbone.

    Example: vcrt demo --output runs/demo

    Args:
        output: Folder in which a new numbered folder is made for everything that the demo writes.
        episodes: Certified episodes for each environment, spread evenly over its schemas.
        runs: Independent training runs of each method and fold.
        seed: Seed of everything.
        config: All settings of a run.
    """
    console = plain_console()
    with showing_progress(console) as progress:
        made = vcrt_train.demo(
            output,
            episodes=episodes,
            runs=runs,
            config=config,
            seed=seed,
            jobs=jobs,
            progress=progress,
        )
    print_counts(console, made.dataset.manifest)
    print_report(console, made.report)
    agreement, dataset, vcrt_command = made.agreement, made.dataset.path, _command()
    say(
        console,
        f"{agreement.episodes} episodes, {agreement.agreed} of {agreement.replays} replays agree; "
        f"{made.seconds:.0f} s in all",
        f"root hash  {made.dataset.manifest.root_hash}",
        f"dataset    {dataset}",
        f"experiment {made.experiment.path}",
        f"report     {made.report.files['report.html']}",
        f"explorer   {made.explorer}",
        "",
        "try next:",
        f"  {vcrt_command} verify {dataset}",
        f"  {vcrt_command} environments validate clrs",
        f"  {vcrt_command} plan {dataset} --output {made.folder / 'ablation'} --methods vcrt no-orbit no-anti",
    )


def reproduce(
    output: Path,
    dataset: Path | None = None,
    schemas: tuple[str, ...] = (),
    episodes: int = 500,
    methods: tuple[str, ...] = (),
    held_out: tuple[str, ...] = (),
    runs: int = 3,
    trials: int = 8,
    trial_updates: int | None = None,
    seed: int = 0,
    jobs: int | None = None,
    config: RunConfig = DEFAULTS,
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
        held_out: Environments to hold out in turn; all of the dataset's if none is given.
        runs: Independent runs of each method and fold.
        trials: Settings tried for each method and fold, on source items alone; 0 takes the library's defaults.
        trial_updates: Updates of each of these trials; by default as many as a run makes.
        seed: Seed of everything.
        config: All settings of a run.
    """
    console = plain_console()
    with showing_progress(console) as progress:
        report = vcrt_train.reproduce(
            output,
            dataset=dataset,
            schemas=schemas,
            episodes=episodes,
            methods=methods,
            held_out=held_out,
            runs=runs,
            config=config,
            trials=trials,
            trial_updates=trial_updates,
            seed=seed,
            jobs=jobs,
            progress=progress,
        )
    print_report(console, report)


def _command() -> str:
    """How to call this very command from the shell: by its name only if the shell finds it."""
    called = Path(sys.argv[0])
    return called.name if shutil.which(called.name) else str(called)
