"""An experiment's directory: the plan, the ledger, the runs and, after the opening, the scores.

    plan.json                        what will be run, hashed
    ledger.sqlite                    plan, finished runs, opening and scores, chained by hash
    runs/METHOD/HELD-OUT/SEED/       checkpoints
    scores.json                      greedy passes of every run and of the frozen backbone

Training loads the source environments of its fold and no other file of the audit view.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from vcrt.errors import RunError
from vcrt.hashing import file_digest, json_digest
from vcrt.policy.backbone import Backbone, load_backbone
from vcrt.policy.scoring import self_check
from vcrt.policy.tokenizer import encode_record
from vcrt.processes import in_fresh_processes
from vcrt.progress import SILENT, Progress
from vcrt.protocol.ledger import LEDGER_FILE, Entry, Ledger
from vcrt.protocol.plan import PLAN_FILE, Plan, PlannedRun, read_plan, write_plan
from vcrt.protocol.splits import SourceSplit, source_split
from vcrt.randomness import generator
from vcrt.records.dataset import Dataset, load_items, open_dataset, require_agreement
from vcrt.storage import publish_directory
from vcrt.training.checkpoint import HEAD, METRICS
from vcrt.training.methods import method
from vcrt.training.run import (
    FinishedRun,
    checkpoint_path,
    episode_order,
    train_run,
    updates_logged,
)


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment on disk with its plan."""

    path: Path
    plan: Plan

    @property
    def ledger(self) -> Ledger:
        """The experiment's ledger."""
        return Ledger(self.path / LEDGER_FILE)

    def run_directory(self, run: PlannedRun) -> Path:
        """Where a run keeps its checkpoints."""
        return self.path / "runs" / run.name

    def final_checkpoint(self, run: PlannedRun) -> Path:
        """The checkpoint of a run's last update."""
        return checkpoint_path(self.run_directory(run), self.plan.run_config.num_updates)

    def finished_runs(self) -> dict[str, Entry]:
        """The ledger's entries of finished runs, by the run's name."""
        return {entry.body["run"]: entry for entry in self.ledger.entries("run")}


def create_experiment(plan: Plan, path: Path) -> Experiment:
    """Make a new experiment directory from a plan; raises :class:`RunError` if it exists."""

    def fill(directory: Path) -> None:
        write_plan(plan, directory / PLAN_FILE)
        Ledger(directory / LEDGER_FILE).append("plan", {"plan_hash": plan.plan_hash})

    publish_directory(path, fill, RunError)
    return Experiment(path, plan)


def open_experiment(path: Path) -> Experiment:
    """Open an experiment; raises :class:`RunError` unless its plan is the one that its ledger begins with."""
    plan = read_plan(path / PLAN_FILE)
    experiment = Experiment(path, plan)
    planned = [entry.body.get("plan_hash") for entry in experiment.ledger.entries("plan")]
    if planned != [plan.plan_hash]:
        raise RunError(
            "the plan is not the one that the ledger records",
            where=str(path / PLAN_FILE),
            found=f"hash {plan.plan_hash}",
            expected=f"hash {planned[0]}" if planned else "a plan in the ledger",
            remedy="restore the original plan, or make a new experiment with `vcrt plan`",
        )
    return experiment


def planned_dataset(plan: Plan) -> Dataset:
    """The plan's dataset, checked and with full agreement; raises if it is another one."""
    dataset = open_dataset(Path(plan.dataset))
    if dataset.manifest.root_hash != plan.root_hash:
        raise RunError(
            "the dataset is not the one that was planned",
            where=plan.dataset,
            found=f"root hash {dataset.manifest.root_hash}",
            expected=f"root hash {plan.root_hash}",
            remedy="restore the planned dataset, or make a new experiment with `vcrt plan`",
        )
    require_agreement(dataset)
    return dataset


def planned_backbone(plan: Plan) -> Backbone:
    """The plan's backbone; raises :class:`RunError` if its locked files are not those that were planned."""
    backbone = load_backbone(plan.backbone)
    if backbone.digest != plan.backbone_digest:
        raise RunError(
            "the backbone is not the one that was planned",
            where=plan.backbone,
            found=f"digest {backbone.digest}",
            expected=f"digest {plan.backbone_digest}",
            remedy="install the planned backbone, or make a new experiment with `vcrt plan`",
        )
    return backbone


def load_sources(plan: Plan, dataset: Dataset, held_out: str) -> SourceSplit:
    """The source items of a fold; the held-out environment's audit file is not opened."""
    return source_split(
        [load_items(dataset, name) for name in plan.sources(held_out)],
        plan.retention_share,
        plan.seed,
    )


@dataclass(frozen=True, slots=True)
class _TrainJob:
    path: Path
    run: PlannedRun
    resume: bool


def train(
    experiment: Experiment, *, jobs: int, resume: bool = False, progress: Progress = SILENT
) -> dict[str, str]:
    """Train every planned run that the ledger does not record as finished; returns all checkpoint digests by run.

    Raises :class:`RunError` before any training if a run was interrupted and ``resume`` is not set.
    """
    plan = experiment.plan
    planned_dataset(plan)
    planned_backbone(plan)
    finished = experiment.finished_runs()
    pending = [run for run in plan.runs if run.name not in finished]
    interrupted = [run for run in pending if experiment.run_directory(run).exists()]
    if interrupted and not resume:
        raise RunError(
            "the experiment was interrupted while it trained",
            where=str(experiment.run_directory(interrupted[0])),
            found=f"{len(interrupted)} unfinished runs",
            expected="finished runs, or none begun",
            remedy="add --resume to go on to the same result, or make a new experiment with `vcrt plan`",
        )
    total = len(pending) * plan.run_config.num_updates
    names = ", ".join(plan.methods)
    task = progress.task(f"train {names}", total, "updates")
    shown = 0

    def show_updates() -> None:
        nonlocal shown
        done = sum(updates_logged(experiment.run_directory(run)) for run in pending)
        task.advance(done - shown)
        shown = done

    arguments = [_TrainJob(experiment.path, run, resume) for run in pending]
    results = in_fresh_processes(
        _train_job, arguments, jobs=jobs, error=RunError, on_wait=show_updates
    )
    for run, digest in zip(pending, results, strict=True):
        experiment.ledger.append("run", {"run": run.name, "checkpoint": digest})
        show_updates()
    return {name: e.body["checkpoint"] for name, e in experiment.finished_runs().items()}


def _train_job(job: _TrainJob) -> str:
    # One thread: the last bits of a sum depend on how many threads share it.
    torch.set_num_threads(1)
    experiment = open_experiment(job.path)
    plan, run, config = experiment.plan, job.run, experiment.plan.run_config
    source = load_sources(plan, planned_dataset(plan), run.held_out)
    identities = [item.episode_id for item in source.training]
    order = episode_order(len(identities), config.num_updates * config.prompts_per_update, run.seed)
    planned = plan.episode_order_hashes[f"{run.held_out}/{run.seed}"]
    found = json_digest([identities[i] for i in order])
    if found != planned:
        raise RunError(
            "the run would see other episodes than were planned",
            where=run.name,
            found=f"episode order {found}",
            expected=f"episode order {planned}",
            remedy="restore the planned dataset, or make a new experiment with `vcrt plan`",
        )
    backbone = planned_backbone(plan)
    chosen = method(run.method)
    prompts = [
        encode_record(
            backbone.tokenizer,
            item.supervised.record,
            chosen.serialisation,
            generator(plan.seed, "self-check", item.supervised.record.record_id),
        )
        for item in source.training[:4]
    ]
    if config.update.backend == "tree":
        self_check(backbone.model, prompts, interface=chosen.interface)
    finished = train_run(
        config,
        chosen,
        backbone,
        [item.supervised for item in source.training],
        experiment.run_directory(run),
        seed=run.seed,
        encode_seed=plan.seed,
        resume=job.resume,
    )
    return finished.digest


def read_finished_run(experiment: Experiment, run: PlannedRun) -> FinishedRun:
    """A finished run, its checkpoint checked against the ledger; raises :class:`RunError` if it is another one."""
    checkpoint = experiment.final_checkpoint(run)
    entry = experiment.finished_runs().get(run.name)
    digest = file_digest(checkpoint / HEAD) if (checkpoint / HEAD).is_file() else "absent"
    if entry is None or entry.body["checkpoint"] != digest:
        raise RunError(
            "a run is not finished, or its checkpoint is not the one that the ledger records",
            where=str(checkpoint),
            found=f"checkpoint digest {digest}",
            expected=f"digest {entry.body['checkpoint']}"
            if entry
            else "a finished run in the ledger",
            remedy=f"run `vcrt train {experiment.path} --resume`",
        )
    metrics: Sequence[dict[str, float]] = json.loads((checkpoint / METRICS).read_bytes())
    return FinishedRun(checkpoint=checkpoint, digest=digest, metrics=tuple(metrics))
