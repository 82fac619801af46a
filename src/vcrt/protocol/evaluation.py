"""The one evaluation: after every planned run is at its last update, the held-out folds are opened and scored.

Each item gets one greedy order and one native verdict; there is no search and no verifier feedback. The opening is
recorded before anything is read, in the experiment's ledger and in one beside the dataset. A second opening needs a
reason, which every later report shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from vcrt.errors import RunError
from vcrt.memory import naming_out_of_memory
from vcrt.orders import order_columns
from vcrt.policy.backbone import Backbone
from vcrt.policy.scoring import Backend, CausalModel, greedy_orders
from vcrt.processes import in_fresh_processes
from vcrt.progress import SILENT, Progress
from vcrt.protocol.experiment import (
    Experiment,
    device_of,
    load_sources,
    open_experiment,
    planned_backbone,
    planned_dataset,
    read_finished_run,
    require_same_code,
)
from vcrt.protocol.openings import record_opening
from vcrt.protocol.plan import Plan, PlannedRun
from vcrt.protocol.scores import (
    FROZEN_AS,
    SCORES_FILE,
    FoldPasses,
    Scores,
    keep_earlier_scores,
    view_of,
)
from vcrt.protocol.scoring_check import check_scoring
from vcrt.protocol.trained_models import trained_models
from vcrt.records.dataset import Item, load_items, open_dataset
from vcrt.storage import write_file
from vcrt.training.items import EncodedItem, encode_items
from vcrt.training.methods import Method, method

#: Prompts that are scored in one pass unless another number is asked for.
PROMPTS_AT_A_TIME = 64


@dataclass(frozen=True, slots=True)
class _ScoreJob:
    """One run to score, or the frozen backbone as ``method`` sees the records."""

    path: Path
    held_out: str
    method: str
    run: PlannedRun | None
    prompts_at_a_time: int = PROMPTS_AT_A_TIME


def evaluate(
    experiment: Experiment,
    *,
    jobs: int,
    reopen_reason: str | None = None,
    prompts_at_a_time: int = PROMPTS_AT_A_TIME,
    progress: Progress = SILENT,
) -> Scores:
    """Open the held-out folds and score every run and the frozen backbone.

    Raises :class:`RunError` if a planned run is not finished, and if the folds were opened and scored before and no
    ``reopen_reason`` is given; :class:`vcrt.errors.OutOfMemory` where fewer ``prompts_at_a_time`` would help. An
    evaluation that was interrupted is continued under its own opening.
    """
    if prompts_at_a_time < 1:
        raise RunError(
            "too few prompts at a time", found=str(prompts_at_a_time), expected="1 or more"
        )
    with experiment.sole_writer():
        return _evaluate(experiment, jobs, reopen_reason, prompts_at_a_time, progress)


def _evaluate(
    experiment: Experiment,
    jobs: int,
    reopen_reason: str | None,
    prompts_at_a_time: int,
    progress: Progress,
) -> Scores:
    plan = experiment.plan
    for run in plan.runs:
        read_finished_run(experiment, run)
    dataset = planned_dataset(plan)
    require_same_code(plan)
    views = {view_of(method(name)): name for name in (*reversed(plan.methods), FROZEN_AS)}
    if not plan.backbone.is_embedded:
        # A model that cannot be loaded or scored here is to spend no opening.
        checks = [
            _ScoreJob(experiment.path, plan.held_out[0], name, None) for name in views.values()
        ]
        list(in_fresh_processes(_check_job, checks, jobs=1, error=RunError))
    record_opening(experiment, dataset, reopen_reason)
    work = [
        _ScoreJob(experiment.path, fold, name, None, prompts_at_a_time)
        for fold in plan.held_out
        for name in views.values()
    ]
    work += [
        _ScoreJob(experiment.path, run.held_out, run.method, run, prompts_at_a_time)
        for run in plan.runs
    ]
    task = progress.task("evaluate runs and the frozen backbone", len(work), "scored")
    frozen: dict[str, dict[str, FoldPasses]] = {}
    runs: dict[str, FoldPasses] = {}
    checkpoints: dict[str, dict[int, FoldPasses]] = {}
    for job, passes in zip(
        work, in_fresh_processes(_score_job, work, jobs=jobs, error=RunError), strict=True
    ):
        if job.run is None:
            frozen.setdefault(view_of(method(job.method)), {})[job.held_out] = passes[0]
        else:
            runs[job.run.name] = passes.pop(plan.shared_config.num_updates)
            checkpoints[job.run.name] = passes
        task.advance()
    scores = Scores(frozen=frozen, runs=runs, checkpoints=checkpoints)
    keep_earlier_scores(experiment)
    write_file(experiment.path / SCORES_FILE, scores.model_dump_json(indent=1).encode() + b"\n")
    experiment.ledger.append("scores", {"digest": scores.digest})
    return scores


def _check_job(job: _ScoreJob) -> None:
    """Score some source items by the planned backend and by the naive one, without opening a fold."""
    torch.set_num_threads(1)
    plan = open_experiment(job.path).plan
    backbone = planned_backbone(plan, device=device_of(plan))
    items = load_sources(plan, planned_dataset(plan), job.held_out).retention
    _check(backbone, backbone.model, items, method(job.method), plan)


def _check(
    backbone: Backbone, model: CausalModel, items: Sequence[Item], chosen: Method, plan: Plan
) -> None:
    check_scoring(
        model,
        backbone.encode,
        items,
        chosen,
        backend=plan.shared_config.update.backend,
        seed=plan.seed,
        gradients=False,
    )


def _score_job(job: _ScoreJob) -> dict[int, FoldPasses]:
    """The passes after each scheduled update of a run, or those of the frozen backbone as update 0."""
    again = f"vcrt evaluate {job.path} --jobs 1"
    if job.prompts_at_a_time > 1:
        again += f" --prompts-at-a-time {max(job.prompts_at_a_time // 4, 1)}"
    remedy = (
        f"go on under the same opening with `{again}`, on a device with more free memory if need be"
    )
    with naming_out_of_memory(job.run.name if job.run else "the frozen backbone", remedy):
        return _scored(job)


def _scored(job: _ScoreJob) -> dict[int, FoldPasses]:
    torch.set_num_threads(1)
    experiment = open_experiment(job.path)
    plan = experiment.plan
    dataset = planned_dataset(plan)
    backbone = planned_backbone(plan, device=device_of(plan))
    chosen = method(job.method)
    opened = _held_out_items(str(dataset.path), dataset.manifest.root_hash, job.held_out)
    held_out, retention = (
        encoded(backbone, items, chosen, plan.seed)
        for items in (opened, load_sources(plan, dataset, job.held_out).retention)
    )
    backend, size = plan.shared_config.update.backend, job.prompts_at_a_time
    # Items of another environment may be longer than any that training saw.
    _check(backbone, backbone.model, opened, chosen, plan)

    def passes(model: CausalModel) -> FoldPasses:
        return FoldPasses(
            held_out=greedy_passes(model, held_out, chosen, backend=backend, batch_size=size),
            retention=greedy_passes(model, retention, chosen, backend=backend, batch_size=size),
        )

    if job.run is None:
        return {0: passes(backbone.model)}
    # Every file was checked before the folds were opened; what is scored is checked again, as it is read.
    return {one.update: passes(one.model) for one in trained_models(experiment, job.run, backbone)}


@lru_cache(maxsize=1)
def _held_out_items(path: str, root_hash: str, environment: str) -> tuple[Item, ...]:
    """The items of an opened fold; a process that scores several runs of one reads it once."""
    return tuple(load_items(open_dataset(Path(path)), environment))


def encoded(
    backbone: Backbone, items: Sequence[Item], chosen: Method, seed: int
) -> list[EncodedItem]:
    """Items as a method's policy sees them."""
    return encode_items(
        [item.supervised for item in items],
        chosen,
        seed=seed,
        encode=backbone.encode,
    )


def greedy_passes(
    model: CausalModel,
    items: Sequence[EncodedItem],
    chosen: Method,
    *,
    backend: Backend = "auto",
    batch_size: int = PROMPTS_AT_A_TIME,
) -> str:
    """One greedy order for each item, judged by its native verdict: ``1`` for a legal order, else ``0``.

    The verdict is that of the order's own replay, which the agreement gate repeated.
    """
    prompts = [item.prompt for item in items]
    answers = greedy_orders(
        model, prompts, interface=chosen.interface, backend=backend, batch_size=batch_size
    )
    passes = []
    for item, order in zip(items, answers, strict=True):
        columns = order_columns(item.prompt.num_operations)
        passes.append(order is not None and bool(item.legal[columns[order]]))
    return "".join("1" if passed else "0" for passed in passes)
