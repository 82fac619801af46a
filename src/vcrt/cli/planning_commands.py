"""The commands before training: the methods, the search for their settings, and the plan.

Each loads what it needs when it runs, so that ``vcrt --help`` is quick.
"""

from __future__ import annotations

from pathlib import Path

from vcrt.cli.model_options import NO_OPTIONS, Model
from vcrt.cli.options import DatasetPath, plain_console, print_document
from vcrt.cli.progress import showing_progress
from vcrt.jobs import num_jobs


def methods(json: bool = False) -> None:
    """List the methods: what each one trains on, and what it leaves out.

    Example: vcrt methods

    Args:
        json: Print the table for machines.
    """
    from vcrt.cli.searching import methods_document, print_methods

    if json:
        print_document(methods_document())
        return

    print_methods(plain_console())


def search(
    dataset: DatasetPath,
    output: Path,
    methods: tuple[str, ...] = ("canonical-grpo", "vcrt"),
    held_out: tuple[str, ...] = (),
    trials: int = 8,
    model: Model = NO_OPTIONS,
    seed: int = 0,
    jobs: int | None = None,
) -> None:
    """Search for hyper-parameters on source items only, with equal effort for every method and fold.

    A fold's trials train on a part of its source items and are scored on the rest; no file of the environment that it
    holds out is opened for it. What was finished is kept in OUTPUT.trials until the search is whole.

    Example: vcrt search runs/data --output runs/search.json --methods canonical-grpo vcrt

    Args:
        dataset: A verified dataset.
        output: The new file that `vcrt plan --search` takes.
        methods: Any of the names that `vcrt methods` lists.
        held_out: Environments to hold out in turn; all of the dataset's if none is given.
        trials: Settings tried for each method and fold; the first are the library's defaults.
        model: Which model is trained, and how; the plan must have the same.
        seed: Seed of everything; the plan must have the same.
        jobs: Worker processes; as many as there are cores by default.
    """
    from vcrt.protocol.trials import run_search
    from vcrt.records.dataset import open_dataset

    # The environment of a single fold is nobody's source; with more folds, each is one of another's.
    opened = open_dataset(dataset, without=held_out if len(held_out) == 1 else ())
    console = plain_console()
    with showing_progress(console) as progress:
        found = run_search(
            opened,
            output,
            backbone=model.reference(),
            methods=methods,
            held_out=held_out or opened.environments,
            num_trials=trials,
            run=model.run_config(),
            jobs=num_jobs(jobs),
            seed=seed,
            progress=progress,
        )
    from vcrt.cli.searching import print_search

    print_search(console, found)
    console.print(
        f"next: vcrt plan {dataset} --output EXPERIMENT --search {output}",
        highlight=False,
        soft_wrap=True,
    )


def plan(
    dataset: DatasetPath,
    output: Path,
    methods: tuple[str, ...] | None = None,
    held_out: tuple[str, ...] | None = None,
    runs: int = 3,
    model: Model = NO_OPTIONS,
    checkpoints: tuple[int, ...] = (),
    search: Path | None = None,
    seed: int = 0,
    also_test: tuple[Path, ...] = (),
    check_search: int = 0,
    json: bool = False,
) -> None:
    """Freeze what will be run on a dataset, before anything is trained.

    Example: vcrt plan runs/data --output runs/experiment --methods canonical-grpo vcrt no-anti

    Args:
        dataset: A verified dataset.
        output: The new experiment's directory.
        methods: Any of the names that `vcrt methods` lists; by default those of the search, or canonical-grpo and vcrt.
        held_out: Environments to hold out in turn; by default those of the search, or all of the dataset's.
        runs: Independent runs of each method and fold.
        model: Which model is trained, and how.
        checkpoints: The updates after which runs are kept and later scored, the last one included; by default 50, 100,
            150, every 400th and the last.
        search: A file made by `vcrt search`: each method and fold gets the settings that it chose.
        seed: Seed of everything.
        also_test: Further verified datasets, such as of longer episodes: what a run holds out of them is scored too.
        check_search: Run so many of the search's trials again, every other one among the chosen ones, and refuse a
            search of which one comes out otherwise; without it the search is called unverified.
        json: Print the plan's hash, the names of its runs and its warnings for machines.
    """
    from vcrt.api.experimenting import plan as frozen
    from vcrt.records.dataset import open_dataset
    from vcrt.report.wording import counted

    console = plain_console(aside=json)
    with showing_progress(console) as progress:
        experiment = frozen(
            dataset,
            output,
            methods=methods,
            held_out=held_out,
            runs=runs,
            model=model,
            checkpoints=checkpoints,
            search=search,
            seed=seed,
            also_test=also_test,
            check_search=check_search,
            progress=progress,
        )
    made = experiment.plan
    if json:
        names = [run.name for run in made.runs]
        print_document(
            {
                "experiment": str(experiment.path),
                "plan_hash": made.plan_hash,
                "runs": names,
                "warnings": list(made.warnings),
                "remarks": list(made.remarks),
            }
        )
        return
    free, episodes = open_dataset(dataset).manifest.num_all_legal(made.environments)
    note = (
        f"\nnote      every order of {free} of {counted(episodes, 'episode')} is legal: they are trained on and "
        "scored, but only the caps can move on them"
    )
    console.print(
        f"plan      {experiment.path}\nplan hash {made.plan_hash}\n"
        f"runs      {len(made.runs)}: {counted(len(made.methods), 'method')} x "
        f"{counted(len(made.held_out), 'fold')} x {counted(runs, 'run')}, "
        f"{counted(made.shared_config.num_updates, 'update')} each"
        + "".join(f"\nalso on   {one.name}: {one.dataset}" for one in made.also_test)
        + note * bool(free)
        + f"\nbackbone  {made.backbone.name}, {made.provenance.in_words()}",
        highlight=False,
        soft_wrap=True,
    )
    for kind, lines in (("WARNING", made.warnings), ("note", made.remarks)):
        for line in lines:
            console.print(f"{kind}: {line}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"next: vcrt train {output}", highlight=False, soft_wrap=True)
