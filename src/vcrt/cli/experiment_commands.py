"""The commands about experiments: the demo, the whole, and each of its stages.

Each loads what it needs when it runs, so that ``vcrt --help`` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from vcrt.cli.model_options import NO_OPTIONS, Model
from vcrt.cli.options import DatasetPath, ExperimentPath, num_jobs, plain_console
from vcrt.cli.progress import showing_progress
from vcrt.errors import RunError, VcrtError

if TYPE_CHECKING:
    from vcrt.protocol.plan import Plan


def demo(
    output: Path = Path("runs"),
    episodes: int = 100,
    updates: int = 400,
    runs: int = 1,
    seed: int = 0,
    jobs: int | None = None,
) -> None:
    """Certify, freeze, verify, train, evaluate once and report, with the embedded defaults.

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


def methods() -> None:
    """List the methods: what each one trains on, and what it leaves out.

    Example: vcrt methods
    """
    from vcrt.cli.searching import print_methods

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
    """
    from vcrt.cli.planning import frozen_plan
    from vcrt.errors import RunError
    from vcrt.protocol.experiment import create_experiment
    from vcrt.protocol.search import read_search
    from vcrt.storage import require_new

    require_new(output, RunError)
    if search is not None and model.learning_rate is not None:
        raise VcrtError(
            "the learning rate would be chosen twice",
            found="--search and --learning-rate",
            expected="one of them",
        )
    found = None if search is None else read_search(search)
    made = frozen_plan(
        dataset,
        methods=methods or (found.methods if found else ("canonical-grpo", "vcrt")),
        held_out=held_out or (found.held_out if found else ()),
        runs=runs,
        run=model.run_config(checkpoints),
        seed=seed,
        search=found,
        backbone=model.reference(),
        how_chosen=model.how_chosen(),
    )
    experiment = create_experiment(made, output, search=found)
    console = plain_console()
    console.print(
        f"plan      {experiment.path}\nplan hash {made.plan_hash}", highlight=False, soft_wrap=True
    )
    console.print(f"next: vcrt train {output}", highlight=False, soft_wrap=True)


def train(
    experiment: ExperimentPath,
    resume: bool = False,
    jobs: int | None = None,
    num_processes: int = 1,
    sharded: bool = False,
    prompts_at_a_time: int | None = None,
    gradient_checkpointing: bool = False,
    trackers: tuple[str, ...] = (),
) -> None:
    """Train every run of a plan; a run opens no file of the environment that it holds out.

    `accelerate launch -m vcrt train EXPERIMENT` and `torchrun` do the same as --num-processes.

    Example: vcrt train runs/experiment --resume

    Args:
        experiment: A directory made by `vcrt plan`.
        resume: Go on with interrupted runs; the result is the same as without the interruption.
        jobs: Worker processes, one run each; by default as many as there are cores, or one on a GPU.
        num_processes: Processes that share the prompts of each update, one run after another; usually one a GPU.
        sharded: Each of them holds a part of the model (FSDP2) in place of the whole.
        prompts_at_a_time: Score at most so many prompts at a time, which needs less memory; same result but for
            rounding.
        gradient_checkpointing: Compute activations twice instead of keeping them, which needs less memory; same result
            but for rounding.
        trackers: Names of accelerate's trackers that are told of every update: trackio, tensorboard, wandb, ...
    """
    from vcrt.cli.launching import launch
    from vcrt.protocol.experiment import open_experiment
    from vcrt.protocol.planned_training import train as run_training
    from vcrt.training.distributed import is_launched, launched_group
    from vcrt.training.frugality import Frugality
    from vcrt.training.tracking import require_trackers

    opened = open_experiment(experiment)
    require_trackers(trackers)
    frugality = Frugality(
        prompts_at_a_time=prompts_at_a_time, gradient_checkpointing=gradient_checkpointing
    )
    if (num_processes > 1 or sharded) and not is_launched():
        options = ["--resume"] if resume else []
        told = ["--trackers", *trackers] if trackers else []
        if prompts_at_a_time is not None:
            options += ["--prompts-at-a-time", str(prompts_at_a_time)]
        if gradient_checkpointing:
            options += ["--gradient-checkpointing"]
        launch(["train", str(experiment), *options, *told], num_processes, sharded=sharded)
        return
    group = launched_group()
    console = plain_console(quiet=group.rank > 0)
    with showing_progress(console) as progress:
        digests = run_training(
            opened,
            jobs=_jobs_on_device(opened.plan, jobs),
            resume=resume,
            progress=progress,
            group=group,
            trackers=trackers,
            frugality=frugality,
        )
    console.print(f"{len(digests)} runs at their last update", highlight=False, soft_wrap=True)
    console.print(f"next: vcrt evaluate {experiment}", highlight=False, soft_wrap=True)


def _jobs_on_device(plan: Plan, jobs: int | None) -> int:
    """As many worker processes as there are cores by default, but one where they would share a GPU."""
    from vcrt.protocol.experiment import device_of

    return num_jobs(1 if jobs is None and device_of(plan) != "cpu" else jobs)


def evaluate(
    experiment: ExperimentPath,
    reopen: bool = False,
    reason: str | None = None,
    jobs: int | None = None,
) -> None:
    """Open the held-out folds and score every run, once.

    Example: vcrt evaluate runs/experiment

    Args:
        experiment: An experiment whose runs are all trained.
        reopen: Open again what was opened and scored before; every later report says so.
        reason: Why it is opened again.
        jobs: Worker processes; as many as there are cores by default.
    """
    from vcrt.protocol.evaluation import evaluate as run_evaluation
    from vcrt.protocol.experiment import open_experiment

    if reopen != bool(reason):
        raise RunError(
            "a second opening needs both --reopen and --reason",
            found="only one of them",
            remedy='for example: --reopen --reason "a checkpoint file was restored"',
        )
    console = plain_console()
    opened = open_experiment(experiment)
    with showing_progress(console) as progress:
        run_evaluation(
            opened, jobs=_jobs_on_device(opened.plan, jobs), reopen_reason=reason, progress=progress
        )
    console.print(f"next: vcrt report {experiment}", highlight=False, soft_wrap=True)


def report(
    experiment: ExperimentPath,
    output: Path | None = None,
    table: str | None = None,
    form: Literal["terminal", "text", "csv", "latex"] = "terminal",
) -> None:
    """Write the tables and one self-contained page of an evaluated experiment.

    Example: vcrt report runs/experiment

    Args:
        experiment: An evaluated experiment.
        output: A new folder to write to; `report` in the experiment by default, where it replaces an earlier one.
        table: Print this one table and write nothing; the names are those of the report's CSV files.
        form: How `--table` is printed.
    """
    if table is not None and output is not None:
        raise VcrtError(
            "one table is printed, not written",
            found="--table and --output",
            expected="one of them",
        )
    if table is None and form != "terminal":
        raise VcrtError("which table?", found=f"--form {form}", expected="--form with --table")
    if output is not None:
        from vcrt.storage import require_new

        require_new(output, RunError)
    from vcrt.cli.reporting import print_one_table, print_report
    from vcrt.protocol.experiment import open_experiment

    if table is not None:
        print_one_table(plain_console(), open_experiment(experiment), table, form)
    else:
        print_report(plain_console(), open_experiment(experiment), output or experiment / "report")


def decide(
    experiment: ExperimentPath,
    record: Annotated[str, tyro.conf.Positional],
    run: str | None = None,
    update: int | None = None,
    frozen: bool = False,
    theorem: str | None = None,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Ask a trained policy in which order to take operations, given the relations between them.

    Says the greedy order, its exact probability, and the orbit mass: that of all orders which keep every required
    pair. A record is JSON: {"operations": ["a", "b"], "relations": [["a", "b", "precedes"]]}, of 2 to 6 operations,
    with kinds commutes, precedes and conflicts (the first stands before the second), or what `vcrt show EPISODE --json`
    or `vcrt lift lean FILE --json` prints. Nothing is written, and the dataset need not be there.

    Example: vcrt decide runs/experiment record.json --run vcrt/clrs/0

    Args:
        experiment: An experiment with finished runs.
        record: The file of a record, or - for the standard input.
        run: A run as METHOD/HELD-OUT/SEED; by default the only one, or the only one of vcrt.
        update: The checkpoint after this update; the last one by default.
        frozen: Ask the backbone alone, as it was before training.
        theorem: The theorem to take, where `vcrt lift lean` found several.
        seed: Seed of the pointers that stand for the operations.
        json: Print the answer for machines.
    """
    from vcrt.cli.deciding import decide_record

    decide_record(
        plain_console(),
        experiment,
        record,
        run=run,
        update=update,
        frozen=frozen,
        theorem=theorem,
        seed=seed,
        as_json=json,
    )


def backbone(
    action: Annotated[Literal["check", "lock", "pretrain"], tyro.conf.Positional] = "check",
    name: Annotated[str | None, tyro.conf.Positional] = None,
    revision: str | None = None,
    lock: Path | None = None,
    output: Path | None = None,
    seed: int | None = None,
    steps: int | None = None,
) -> None:
    """Lock a language model, check a backbone against its lock, or rebuild the embedded one by pretraining.

    A lock names the revision and the SHA-256 of each file that is loaded: configuration, safetensors weights and
    tokenizer. Plans, searches and training refuse a backbone that is not locked or has changed since. Only `lock` may
    download, and only for a hub name; everything else reads the local hub cache.

    Example: vcrt backbone lock models/granite
    Example: vcrt backbone lock Qwen/Qwen3.5-2B --revision main --lock qwen.lock.json
    Example: vcrt backbone check models/granite

    Args:
        action: What to do.
        name: A folder of a causal language model, or a hub name as OWNER/MODEL; the embedded backbone by default.
        revision: Branch, tag or commit of the hub, by default main; for a folder, a note on where its files are from.
        lock: The lock file, by default vcrt-lock.json in the folder; a hub name needs one.
        output: Where pretraining writes the new backbone.
        seed: Seed of the pretraining; the shipped backbone's by default.
        steps: Steps of the pretraining; the shipped backbone's by default.
    """
    from vcrt.cli.backbone import check_backbone, lock_backbone, pretrain_backbone

    console = plain_console()
    if action == "lock":
        lock_backbone(console, name, revision=revision, lock=lock)
    elif action == "check":
        check_backbone(console, name, lock=lock)
    elif output is None:
        raise VcrtError("where to?", expected="--output DIRECTORY")
    elif steps is not None and steps < 1:
        raise VcrtError("too few steps", found=f"--steps {steps}", expected="at least 1")
    else:
        pretrain_backbone(console, output, seed=seed, steps=steps)
