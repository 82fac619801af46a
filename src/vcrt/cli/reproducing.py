"""The paper's experiment in one command: certify, verify, search, plan, train, evaluate once, report.

Every stage that is finished is checked and left as it is, and an interrupted one goes on, so that the same command
always ends in the same files.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from vcrt.certification.config import sampled
from vcrt.certification.schema_names import select_schemas
from vcrt.cli.progress import showing_progress
from vcrt.cli.reporting import print_report
from vcrt.datasets.agreement import verify_agreement
from vcrt.datasets.freezing import discard_work_of_finished, make_dataset
from vcrt.errors import DatasetError, RunError
from vcrt.policy.backbone import load_backbone
from vcrt.policy.reference import BackboneReference
from vcrt.printable import counted
from vcrt.protocol.evaluation import evaluate
from vcrt.protocol.experiment import Experiment, create_experiment, open_experiment
from vcrt.protocol.planned_training import train
from vcrt.protocol.planning import frozen_plan
from vcrt.protocol.same_code import require_same_code
from vcrt.protocol.scores import SCORES_FILE, read_scores
from vcrt.protocol.search import SEARCH_FILE, Search, read_search
from vcrt.protocol.trials import discard_trials_of_finished, run_search
from vcrt.records.dataset import Dataset, open_dataset, require_agreement
from vcrt.records.manifest import AGREEMENT
from vcrt.records.record_form import PLAIN_FORM
from vcrt.storage import make_directory, remove_leftovers, sole_user
from vcrt.training.methods import method
from vcrt.training.run import RunConfig

LOCK_FILE = "lock"
RETENTION_SHARE = 0.1


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduction:
    """What is reproduced, and where: all files lie below ``output``, unless a ``dataset`` elsewhere is given."""

    output: Path
    dataset: Path | None
    schemas: tuple[str, ...]
    episodes: int
    methods: tuple[str, ...]
    backbone: BackboneReference
    runs: int
    run: RunConfig
    how_chosen: str
    trials: int
    seed: int
    jobs: int


def reproduce(console: Console, asked: Reproduction) -> Path:
    """Do whatever is missing, and write the report; returns its directory.

    Raises :class:`vcrt.errors.VcrtError` if what is there was made with other options.
    """
    for name in asked.methods:
        method(name)
    make_directory(asked.output)
    with sole_user(asked.output / LOCK_FILE, "this reproduction", RunError):
        remove_leftovers(asked.output)
        return _reproduce(console, asked)


def _reproduce(console: Console, asked: Reproduction) -> Path:
    dataset = _dataset(console, asked)
    search = _search(console, asked, dataset) if asked.trials else None
    experiment = _experiment(asked, dataset, search)
    with _stage(console, "train"), showing_progress(console) as progress:
        train(experiment, jobs=asked.jobs, progress=progress)
    if (experiment.path / SCORES_FILE).exists() and experiment.ledger.entries("scores"):
        read_scores(experiment)
    else:
        with _stage(console, "evaluate"), showing_progress(console) as progress:
            evaluate(experiment, jobs=asked.jobs, progress=progress)
    report = asked.output / "report"
    print_report(console, experiment, report)
    return report


def _dataset(console: Console, asked: Reproduction) -> Dataset:
    path = asked.dataset or asked.output / "dataset"
    if asked.dataset is not None and asked.schemas:
        raise DatasetError(
            "the schemas are those of the dataset",
            found="--dataset and --schemas",
            expected="one of them",
        )
    if asked.dataset is None:
        config = sampled(select_schemas(asked.schemas), asked.episodes, seed=asked.seed)
        discard_work_of_finished(config, path)
        if not path.exists():
            with _stage(console, "certify"), showing_progress(console) as progress:
                make_dataset(config, path, jobs=asked.jobs, progress=progress)
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
        with _stage(console, "verify"), showing_progress(console) as progress:
            verify_agreement(dataset, jobs=asked.jobs, progress=progress)
    require_agreement(dataset)
    return dataset


def _search(console: Console, asked: Reproduction, dataset: Dataset) -> Search:
    path = asked.output / SEARCH_FILE
    discard_trials_of_finished(path)
    if not path.exists():
        with _stage(console, "search"), showing_progress(console) as progress:
            run_search(
                dataset,
                path,
                backbone=asked.backbone,
                methods=asked.methods,
                held_out=dataset.environments,
                num_trials=asked.trials,
                run=asked.run,
                jobs=asked.jobs,
                seed=asked.seed,
                retention_share=RETENTION_SHARE,
                progress=progress,
            )
    search = read_search(path)
    search.require_same_training(asked.run, asked.methods)
    search.require(
        root_hash=dataset.manifest.root_hash,
        backbone_identity=asked.backbone.identity,
        backbone_digest=load_backbone(asked.backbone).digest,
        learning_rate=asked.run.learning_rate,
        methods=asked.methods,
        num_trials=asked.trials,
        seed=asked.seed,
    )
    return search


def _experiment(asked: Reproduction, dataset: Dataset, search: Search | None) -> Experiment:
    path = asked.output / "experiment"
    plan = frozen_plan(
        dataset.path,
        methods=asked.methods,
        held_out=(),
        runs=asked.runs,
        run=asked.run,
        seed=asked.seed,
        search=search,
        backbone=asked.backbone,
        how_chosen=asked.how_chosen,
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
def _stage(console: Console, name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    console.print(f"{name}: {time.monotonic() - began:.0f} s", highlight=False)
