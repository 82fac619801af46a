"""Certify, verify, search, plan, train, evaluate once and report in one call, as a small demo or as in the paper.

:func:`reproduce` checks finished stages and leaves them as they are, and continues an interrupted one, so the same call
always ends in the same files. It reports the time of each stage (:func:`vcrt.progress.tell`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from vcrt.certificates.episodes import preset_named
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import discard_work_of_finished, make_dataset
from vcrt.errors import DatasetError, RunError, UnknownNameError, VcrtError
from vcrt.printable import counted
from vcrt.processes import num_jobs
from vcrt.progress import SILENT, Progress, tell
from vcrt.records.dataset import Dataset, open_dataset, require_agreement
from vcrt.records.manifest import AGREEMENT, Agreement
from vcrt.records.record_form import PLAIN_FORM, RecordForm
from vcrt.replay.config import sampled, select_schemas
from vcrt.storage import make_directory, remove_leftovers, sole_user
from vcrt_train.api.experimenting import jobs_on_device
from vcrt_train.api.reporting import Report, report_in
from vcrt_train.config import DEFAULTS, ResolvedConfig, RunConfig
from vcrt_train.config_files import checked
from vcrt_train.policy.reference import reference_of

if TYPE_CHECKING:
    from vcrt_train.protocol.experiment import Experiment
    from vcrt_train.protocol.search import Search


LOCK_FILE = "lock"
#: Records on which a few short runs of two methods differ (research/benchmarks/results/orders/tables.md, `hard`).
DEMO_ENVIRONMENTS = ("clrs", "lean", "proofwriter")
DEMO_PRESET = "several"
DEMO_FORM = RecordForm(relations="reduced", commutations="omitted", distractors=2)
DEMO_METHODS = ("canonical-grpo", "exact-log-odds")
DEMO_CONFIG = replace(DEFAULTS, schedule=replace(DEFAULTS.schedule, updates=100))


@dataclass(frozen=True, kw_only=True, slots=True)
class Demo:
    """The products of a demo, in its new numbered folder."""

    folder: Path
    dataset: Dataset
    agreement: Agreement
    experiment: Experiment
    report: Report
    explorer: Path
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """The options of :func:`reproduce`; all files lie below ``output``, except a given ``dataset``."""

    output: Path
    dataset: Path | None
    schemas: tuple[str, ...]
    episodes: int
    methods: tuple[str, ...]
    held_out: tuple[str, ...]
    runs: int
    config: ResolvedConfig
    trials: int
    trial_updates: int
    seed: int
    jobs: int | None
    progress: Progress


def demo(
    output: str | Path = "runs",
    *,
    episodes: int = 100,
    runs: int = 4,
    config: RunConfig = DEMO_CONFIG,
    seed: int = 0,
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> Demo:
    """Certify, freeze, verify, train, evaluate once and report on a small scale, by default on the embedded backbone.

    The episodes have several anti-diamonds. Records leave out relations that follow from others, and pairs that
    commute. GRPO is compared with `exact-log-odds`, which knows the verdict on every order.

    Example: vcrt demo --output runs/demo

    Args:
        output: In this folder, the demo makes a new numbered folder and writes everything there.
        episodes: Certified episodes for each environment, spread evenly over its schemas.
        runs: Independent training runs of each method and fold.
        config: All settings of a run.
        seed: Seed of everything.

    Raises:
        VcrtError: A number is below one, or there is no such backbone; then nothing is made.
    """
    from vcrt_train.protocol.evaluation import evaluate
    from vcrt_train.protocol.experiment import create_experiment
    from vcrt_train.protocol.planned_training import train
    from vcrt_train.protocol.planning import frozen_plan
    from vcrt_train.report.explorer.explorer_contents import gather_explorer
    from vcrt_train.report.explorer.explorer_page import EXPLORER_FILE, write_explorer
    from vcrt_train.report.page import REPORT_FILE

    for name, value in (("episodes", episodes), ("runs", runs)):
        if value < 1:
            raise VcrtError("too small a number", found=f"{name} {value}", expected="at least 1")
    began, processes = time.monotonic(), num_jobs(jobs)
    backbone = reference_of(checked(config))
    folder = _new_folder(Path(output))
    schemas = select_schemas(DEMO_ENVIRONMENTS, DEMO_PRESET)
    per_schema = {name: -(-episodes // len(some)) for name, some in schemas.items()}
    asked = sampled(schemas, per_schema, seed=seed, preset=preset_named(DEMO_PRESET))
    dataset = make_dataset(
        asked, folder / "dataset", jobs=processes, progress=progress, form=DEMO_FORM
    )
    agreement = verify_agreement(dataset, jobs=processes, progress=progress)
    plan = frozen_plan(
        dataset.path,
        methods=DEMO_METHODS,
        held_out=(),
        runs=runs,
        config=config,
        seed=seed,
    )
    experiment = create_experiment(plan, folder / "experiment")
    processes = jobs_on_device(backbone, jobs)
    train(experiment, jobs=processes, progress=progress)
    evaluate(experiment, jobs=processes, progress=progress)
    explorer = folder / "report" / EXPLORER_FILE
    # Scoring every episode at every checkpoint takes a language model as long as its training.
    shown = experiment if backbone.is_embedded else None
    contents = gather_explorer(dataset, experiment=shown, report=REPORT_FILE, progress=progress)
    write_explorer(contents, explorer)
    return Demo(
        folder=folder,
        dataset=dataset,
        agreement=agreement,
        experiment=experiment,
        report=report_in(experiment, folder / "report"),
        explorer=explorer,
        seconds=time.monotonic() - began,
    )


def _new_folder(output: Path) -> Path:
    make_directory(output)
    for number in count(1):
        folder = output / f"demo-{number:03d}"
        with suppress(FileExistsError):
            folder.mkdir()
            break
    return folder


def reproduce(
    output: str | Path,
    *,
    dataset: str | Path | None = None,
    schemas: Sequence[str] = (),
    episodes: int = 500,
    methods: Sequence[str] = (),
    held_out: Sequence[str] = (),
    runs: int = 3,
    config: RunConfig = DEFAULTS,
    trials: int = 8,
    trial_updates: int | None = None,
    seed: int = 0,
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> Report:
    """Run the paper's experiment, or its missing stages: certify, verify, search, plan, train, evaluate, report.

    Finished stages are checked and left as they are; repeat an interrupted call to continue. Dataset, search, plan,
    checkpoints, scores and result tables have the same bytes each time.

    Example: vcrt reproduce --output runs/paper

    Args:
        output: The folder of everything.
        dataset: A certified dataset to use in place of a new one.
        schemas: Environments, or single schemas as environment/schema; the paper's if none is given.
        episodes: Certified episodes for each schema.
        methods: Methods, by the names that `vcrt methods` lists; the paper's six if none is given.
        held_out: Environments to hold out in turn; by default all environments of the dataset.
        runs: Independent runs of each method and fold.
        config: All settings of a run.
        trials: Number of settings tried for each method and fold, on source items alone; 0 tries none.
        trial_updates: Updates of each trial; by default as many as a run makes.
        seed: Seed of everything.

    Raises:
        VcrtError: Dataset, search or plan exist and were made with other options.
    """
    from vcrt_train.protocol.evaluation import evaluate
    from vcrt_train.protocol.planned_training import train
    from vcrt_train.protocol.scores import SCORES_FILE, read_scores
    from vcrt_train.training.methods import PAPER_METHODS, method

    config = checked(config).resolved()
    trial_updates = _trial_updates(config, trials, trial_updates)
    asked = _Asked(
        output=Path(output),
        dataset=None if dataset is None else Path(dataset),
        schemas=tuple(schemas),
        episodes=episodes,
        methods=tuple(methods) or PAPER_METHODS,
        held_out=tuple(held_out),
        runs=runs,
        config=config,
        trials=trials,
        trial_updates=trial_updates,
        seed=seed,
        jobs=jobs,
        progress=progress,
    )
    num_jobs(jobs)
    for name in asked.methods:
        method(name)
    if asked.dataset is None:
        known = tuple(select_schemas(asked.schemas))
        for name in asked.held_out:
            if name not in known:
                raise UnknownNameError.of("environment of the dataset", name, known)
    make_directory(asked.output)
    with sole_user(asked.output / LOCK_FILE, "this reproduction", RunError):
        remove_leftovers(asked.output)
        made = _dataset(asked)
        experiment = _experiment(asked, made, _search(asked, made) if trials else None)
        processes = jobs_on_device(experiment.plan.backbone, jobs)
        with _stage("train"):
            train(experiment, jobs=processes, progress=progress)
        if (experiment.path / SCORES_FILE).exists() and experiment.ledger.entries("scores"):
            read_scores(experiment)
        else:
            with _stage("evaluate"):
                evaluate(experiment, jobs=processes, progress=progress)
        return report_in(experiment, asked.output / "report")


def _trial_updates(config: RunConfig, trials: int, asked: int | None) -> int:
    """Return the number of updates of a trial; raises :class:`RunError` for an impossible one."""
    least, most = max(config.schedule.warmup_updates, 1), config.schedule.updates
    if asked is None:
        return most
    if not trials or not least <= asked <= most:
        raise RunError(
            "trials cannot be so long",
            where="--trial-updates",
            found=f"{asked}" if trials else f"{asked}, and no trials",
            expected=f"{least} to {most}; a run makes {most}" if trials else "some --trials",
            remedy="give another number, or leave it out: then trials are as long as runs",
        )
    return asked


def _dataset(asked: _Asked) -> Dataset:
    path = asked.dataset or asked.output / "dataset"
    if asked.dataset is not None and asked.schemas:
        raise DatasetError(
            "a dataset was given, and it has its own schemas",
            found="--dataset and --schemas",
            expected="one of them",
        )
    if asked.dataset is None:
        config = sampled(select_schemas(asked.schemas), asked.episodes, seed=asked.seed)
        discard_work_of_finished(config, path)
        if not path.exists():
            with _stage("certify"):
                make_dataset(config, path, jobs=num_jobs(asked.jobs), progress=asked.progress)
        manifest = open_dataset(path).manifest
        found = [manifest.seed, manifest.series, manifest.record_form]
        expected = [config.to_json()["seed"], config.to_json()["series"], PLAIN_FORM]
        if found != expected:
            raise RunError(
                "the dataset was made with other options",
                where=str(path),
                found=f"seed {manifest.seed}, {len(manifest.series)} series",
                expected=f"seed {asked.seed}, {counted(asked.episodes, 'episode')} of each of "
                f"{counted(len(config.series), 'schema')}",
                remedy="give the options that it was made with, or another --output",
            )
    dataset = open_dataset(path)
    if not (path / AGREEMENT).exists():
        with _stage("verify"):
            verify_agreement(dataset, jobs=num_jobs(asked.jobs), progress=asked.progress)
    require_agreement(dataset)
    return dataset


def _search(asked: _Asked, dataset: Dataset) -> Search:
    from vcrt_train.policy.backbone import load_backbone
    from vcrt_train.protocol.search import SEARCH_FILE, of_length, read_search
    from vcrt_train.protocol.trials import discard_trials_of_finished, run_search

    path = asked.output / SEARCH_FILE
    discard_trials_of_finished(path)
    backbone = reference_of(asked.config)
    if not path.exists():
        with _stage("search"):
            run_search(
                dataset,
                path,
                backbone=backbone,
                methods=asked.methods,
                held_out=asked.held_out or dataset.environments,
                num_trials=asked.trials,
                config=asked.config.override(of_length(asked.trial_updates)),
                jobs=jobs_on_device(backbone, asked.jobs),
                seed=asked.seed,
                progress=asked.progress,
            )
    search = read_search(path)
    if search.num_updates != asked.trial_updates:
        raise RunError(
            "the search was made with trials of another length",
            where=str(path),
            found=counted(search.num_updates, "update"),
            expected=counted(asked.trial_updates, "update"),
            remedy=f"give `--trial-updates {search.num_updates}`, or another --output",
        )
    search.require_same_training(asked.config, asked.methods)
    search.require(
        root_hash=dataset.manifest.root_hash,
        backbone_identity=backbone.identity,
        backbone_digest=load_backbone(backbone).digest,
        learning_rate=asked.config.optimiser.learning_rate,
        methods=asked.methods,
        num_trials=asked.trials,
        seed=asked.seed,
    )
    return search


def _experiment(asked: _Asked, dataset: Dataset, search: Search | None) -> Experiment:
    from vcrt_train.protocol.experiment import create_experiment, open_experiment
    from vcrt_train.protocol.planning import frozen_plan
    from vcrt_train.protocol.same_code import require_same_code

    path = asked.output / "experiment"
    plan = frozen_plan(
        dataset.path,
        methods=asked.methods,
        held_out=asked.held_out,
        runs=asked.runs,
        config=asked.config,
        seed=asked.seed,
        search=search,
    )
    if not path.exists():
        return create_experiment(plan, path, search=search)
    experiment = open_experiment(path)
    if experiment.plan.code != plan.code:
        require_same_code(experiment.plan)
    if experiment.plan.plan_hash != plan.plan_hash:
        raise RunError(
            "the experiment was planned with other options",
            where=str(path),
            found=f"plan {experiment.plan.plan_hash}",
            expected=f"plan {plan.plan_hash}",
            remedy="give the options that it was planned with, or another --output",
        )
    return experiment


@contextmanager
def _stage(name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    tell(f"{name}: {time.monotonic() - began:.0f} s")
