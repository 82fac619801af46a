"""Train the planned runs: each in a worker process, or one after another by the processes of a launcher.

A training run opens the files of its source environments, but none of the environment that it holds out. Not covered: a
single run (:mod:`vcrt_train.training.run`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from vcrt.errors import RunError
from vcrt.hashing import Json
from vcrt.memory import naming_out_of_memory
from vcrt.processes import in_fresh_processes
from vcrt.progress import SILENT, Progress, Task, heard
from vcrt_train.config import MemoryConfig
from vcrt_train.policy.backbone import device_of
from vcrt_train.policy.causal_model import CausalModel
from vcrt_train.protocol.evaluation import check_scoring
from vcrt_train.protocol.experiment import (
    Experiment,
    load_sources,
    open_experiment,
    planned_backbone,
    planned_dataset,
    unused_environments,
)
from vcrt_train.protocol.plan import PlannedRun
from vcrt_train.protocol.same_code import (
    code_now,
    record_other_code,
    require_same_code,
    require_unchanged_code,
)
from vcrt_train.protocol.source_validation import Course, SourceValidation, chance_of
from vcrt_train.protocol.splits import hash_of_order
from vcrt_train.training.methods import method
from vcrt_train.training.process_group import ALONE, ProcessGroup
from vcrt_train.training.run import train_run
from vcrt_train.training.run_directory import latest_checkpoint, updates_kept, updates_logged
from vcrt_train.training.tracking import require_trackers, tracking
from vcrt_train.training.update import UpdateMetrics


@dataclass(frozen=True, slots=True)
class _TrainJob:
    path: Path
    run: PlannedRun
    #: Replaces the plan's settings.
    memory: MemoryConfig | None = None
    trackers: tuple[str, ...] = ()
    #: The hashes of the source code of the process that makes the job, by package.
    code: dict[str, str] = field(kw_only=True, hash=False)


def train(
    experiment: Experiment,
    *,
    jobs: int,
    progress: Progress = SILENT,
    group: ProcessGroup = ALONE,
    trackers: tuple[str, ...] = (),
    memory: MemoryConfig | None = None,
    other_code: str | None = None,
) -> dict[str, str]:
    """Train every planned run that the ledger does not record as finished; return each run's last checkpoint's digest.

    An interrupted run continues from its last checkpoint, with the same bits as without the interruption. All processes
    of a ``group`` of several call this together and train one run after another; otherwise each run has its own worker
    process, ``jobs`` at a time. ``memory`` replaces the plan's settings, and the ledger keeps ``other_code``, the
    reason to train with other source code than the planned one. Raises :class:`RunError` before any training if the
    dataset, the backbone or the code is not the planned one, :class:`vcrt.errors.UnavailableError` for a tracker of
    accelerate that is not installed, and :class:`vcrt.errors.OutOfMemory`, which tells how to use less memory.
    """
    require_trackers(trackers)
    plan, is_first = experiment.plan, group.rank == 0
    with experiment.sole_writer() if is_first else nullcontext():
        # All processes read the ledger after the first one has locked it, and before that one writes to it.
        group.wait()
        planned_dataset(plan, without=unused_environments(plan))
        planned_backbone(plan)
        require_same_code(plan, reason=other_code)
        finished = experiment.finished_runs()
        pending = [run for run in plan.runs if run.name not in finished]
        group.wait()
        if pending:
            if is_first:
                record_other_code(experiment, "train", [run.name for run in pending], other_code)
            code, told = code_now(plan.code), trackers if is_first else ()
            work = [_TrainJob(experiment.path, run, memory, told, code=code) for run in pending]
            shown = _Shown.of(experiment, pending, progress)
            if group.size > 1:
                _train_together(experiment, work, group, shown)
            else:
                _train_apart(experiment, work, jobs, shown)
        last = str(plan.config.schedule.updates)
        ended = experiment.finished_runs()
        return {name: entry.body["checkpoints"][last] for name, entry in ended.items()}


def _train_apart(
    experiment: Experiment, work: Sequence[_TrainJob], jobs: int, shown: _Shown
) -> None:
    """Train each run in its own process."""
    with heard(_train_job) as heard_job:

        def look() -> None:
            shown.show()
            heard_job.again()

        results = in_fresh_processes(heard_job, work, jobs=jobs, error=RunError, on_wait=look)
        for job, finished in zip(work, results, strict=True):
            experiment.ledger.append("run", {"run": job.run.name, **finished})
            look()


def _train_together(
    experiment: Experiment, work: Sequence[_TrainJob], group: ProcessGroup, shown: _Shown
) -> None:
    """Train one run after another, each by all processes; the first process records them."""
    for job in work:
        finished = _train_job(job, group, shown.show if group.rank == 0 else _nothing)
        if group.rank == 0:
            experiment.ledger.append("run", {"run": job.run.name, **finished})
            shown.show()
        group.wait()


@dataclass(kw_only=True, slots=True)
class _Shown:
    """A display of the updates of pending runs, without updates that were done before."""

    folders: list[Path]
    task: Task
    done: int

    @classmethod
    def of(cls, experiment: Experiment, pending: list[PlannedRun], progress: Progress) -> _Shown:
        """Make a new task, which starts at the runs' last checkpoints."""
        plan = experiment.plan
        folders = [experiment.run_directory(run) for run in pending]
        resumed = filter(None, map(latest_checkpoint, folders))
        done = sum(map(updates_kept, resumed))
        total = len(pending) * plan.config.schedule.updates - done
        task = progress.task(f"train {', '.join(plan.methods)}", total, "updates")
        return cls(folders=folders, task=task, done=done)

    def show(self) -> None:
        """Advance the display by the new updates in the logs."""
        done = sum(map(updates_logged, self.folders))
        if done > self.done:
            self.task.advance(done - self.done)
            self.done = done


def _nothing() -> None:
    """Show nothing, because another process does."""


def _train_job(
    job: _TrainJob, group: ProcessGroup = ALONE, show: Callable[[], None] = _nothing
) -> dict[str, Json]:
    """Train one run, and return its record for the ledger."""
    began = time.process_time()
    require_unchanged_code(job.code)
    # One thread, because the last bits of a sum depend on the number of threads.
    torch.set_num_threads(1)
    experiment = open_experiment(job.path)
    plan, run = experiment.plan, job.run
    config = plan.config_of(run)
    config = replace(config, memory=job.memory or config.memory)
    dataset = planned_dataset(plan, without=(run.held_out,))
    source = load_sources(plan, dataset, run.held_out)
    planned = plan.episode_order_hashes[f"{run.held_out}/{run.seed}"]
    found = hash_of_order(source, config, plan.run_seed(run.seed))
    if found != planned:
        raise RunError(
            "the run would see other episodes than were planned",
            where=run.name,
            found=f"episode order {found}",
            expected=f"episode order {planned}",
            remedy="restore the planned dataset, or make a new experiment with `vcrt plan`",
        )
    # Several processes place the model themselves, each on its own device.
    backbone = planned_backbone(plan, device=device_of(plan.backbone) if group.size == 1 else "cpu")
    chosen, less_memory = method(run.method), _less_memory(experiment, config.memory, group)

    def check(model: CausalModel) -> None:
        with naming_out_of_memory(f"{run.name}, self-check", less_memory):
            check_scoring(
                model,
                backbone.encode,
                [item.supervised.record for item in source.training],
                chosen,
                backend=config.model.scoring,
                seed=plan.seed,
            )

    validation = SourceValidation.of(
        source.retention, chosen, backbone, config, seed=plan.seed, group=group
    )
    settings = {"plan": plan.plan_hash, "method": run.method, "held_out": run.held_out}
    place, latest = experiment.path / "tracking", latest_checkpoint(experiment.run_directory(run))
    began_at = f"after update {updates_kept(latest)}" if latest else "at its first update"
    with (
        tracking(job.trackers, place, run.name, {**settings, "seed": run.seed}) as track,
        naming_out_of_memory(f"{run.name}, which began {began_at}", less_memory),
    ):
        course = Course(
            run=run.name,
            num_updates=config.schedule.updates,
            num_items=len(source.training),
            prompts=config.sampling.prompts_per_update,
            chance=chance_of(dataset.manifest, plan.sources(run.held_out)),
            num_validated=len(validation.items),
        )

        def on_update(metrics: UpdateMetrics, num_tokens: int) -> None:
            track(metrics, num_tokens)
            if group.rank == 0:
                course.note(metrics)
            show()

        finished = train_run(
            config,
            chosen,
            backbone,
            [item.supervised for item in source.training],
            experiment.run_directory(run),
            seed=plan.run_seed(run.seed),
            encode_seed=plan.seed,
            identity=plan.identity(run),
            group=group,
            check=check,
            on_update=on_update,
            validation=validation if config.schedule.validate_every else None,
        )
    cpu_seconds = round(time.process_time() - began, 1)
    if group.size == 1 and not config.schedule.validate_every:
        course.tell_pass_rate(config.schedule.updates, validation.pass_rate(backbone.model))
    shared: dict[str, Json] = {"processes": group.size} if group.size > 1 else {}
    return {
        "checkpoints": {str(update): digest for update, digest in finished.digests.items()},
        "code": job.code,
        "cpu_seconds": cpu_seconds,
        **validation.record(finished.metrics),
        **shared,
        **config.memory.record,
    }


def _less_memory(experiment: Experiment, memory: MemoryConfig, group: ProcessGroup) -> str:
    """Return the remedy for a run that is out of memory."""
    ways = []
    if memory.prompts_at_a_time != 1:
        ways.append("--prompts-at-a-time 1")
    if not memory.gradient_checkpointing:
        ways.append("--gradient-checkpointing")
    if group.size == 1:
        ways.append("fewer --jobs, or --sharded in two processes of torchrun")
    else:
        ways.append("more processes, --sharded")
    return (
        f"go on from the run's last checkpoint with `vcrt train {experiment.path}` and one or more of: "
        + "; ".join(ways)
    )
