"""The one evaluation: after every planned run is at its last update, the held-out folds are opened and scored.

Each item gets one greedy order and one native verdict; there is no search and no verifier feedback. The opening is
recorded before anything is read, in the experiment's ledger and in one beside the dataset. A second opening needs a
reason, which every later report shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field

from vcrt.documents import in_a_line, read_limited
from vcrt.errors import RunError
from vcrt.hashing import Json, json_digest
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
    recorded_checkpoints,
    require_same_code,
)
from vcrt.protocol.ledger import (
    Entry,
    Ledger,
    field_of,
    openings_path,
    recorded_openings,
    untrusted,
)
from vcrt.protocol.plan import Plan, PlannedRun
from vcrt.protocol.scoring_check import check_scoring
from vcrt.records.dataset import Dataset, Item, load_items, open_dataset
from vcrt.storage import write_file
from vcrt.training.checkpoint import load_weights
from vcrt.training.items import EncodedItem, encode_items
from vcrt.training.methods import Method, method
from vcrt.training.run import start
from vcrt.training.run_directory import checkpoint_path

SCORES_FILE = "scores.json"
#: The largest file of scores that is read, in bytes; an item of a run takes one byte.
MAX_SCORES = 128 * 2**20
#: The frozen backbone's own row in a report is scored as this method sees the records.
FROZEN_AS = "canonical-grpo"


class FoldPasses(BaseModel):
    """Greedy passes, one character an item: ``1`` passed, ``0`` failed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    held_out: Annotated[str, Field(pattern="^[01]*$")]
    retention: Annotated[str, Field(pattern="^[01]*$")]


class Scores(BaseModel):
    """The passes of the frozen backbone, by view and held-out environment, and of every run by its name.

    ``runs`` are the runs at their last update; ``checkpoints`` are they at each scheduled update before it. A *view* is
    what a method's policy gets and gives: its interface and its serialisation (:func:`view_of`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    frozen: dict[str, dict[str, FoldPasses]]
    runs: dict[str, FoldPasses]
    checkpoints: dict[str, dict[int, FoldPasses]]

    @property
    def digest(self) -> str:
        """SHA-256 of the scores' canonical JSON."""
        return json_digest(self.model_dump(mode="json"))


def passes_array(text: str) -> npt.NDArray[np.bool_]:
    """``[items]``: the passes that a string of ``0`` and ``1`` says."""
    return np.array([character == "1" for character in text])


def view_of(chosen: Method) -> str:
    """The name of a method's view of the records, in which the frozen backbone is its matched reference."""
    return f"{chosen.interface}, {chosen.serialisation}"


@dataclass(frozen=True, slots=True)
class _ScoreJob:
    """One run to score, or the frozen backbone as ``method`` sees the records."""

    path: Path
    held_out: str
    method: str
    run: PlannedRun | None


def evaluate(
    experiment: Experiment,
    *,
    jobs: int,
    reopen_reason: str | None = None,
    progress: Progress = SILENT,
) -> Scores:
    """Open the held-out folds and score every run and the frozen backbone.

    Raises :class:`RunError` if a planned run is not finished, and if the folds were opened and scored before and no
    ``reopen_reason`` is given. An evaluation that was interrupted is continued under its own opening.
    """
    with experiment.sole_writer():
        return _evaluate(experiment, jobs, reopen_reason, progress)


def _evaluate(
    experiment: Experiment, jobs: int, reopen_reason: str | None, progress: Progress
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
    _record_opening(experiment, dataset, reopen_reason)
    work = [
        _ScoreJob(experiment.path, fold, name, None)
        for fold in plan.held_out
        for name in views.values()
    ]
    work += [_ScoreJob(experiment.path, run.held_out, run.method, run) for run in plan.runs]
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
    _keep_earlier_scores(experiment)
    write_file(experiment.path / SCORES_FILE, scores.model_dump_json(indent=1).encode() + b"\n")
    experiment.ledger.append("scores", {"digest": scores.digest})
    return scores


def read_scores(experiment: Experiment) -> Scores:
    """The scores; raises :class:`RunError` if there are none or if they are not those that the ledger records."""
    path = experiment.path / SCORES_FILE
    ledger = experiment.ledger
    recorded = [field_of(entry, "digest", str, ledger.path) for entry in ledger.entries("scores")]
    if not path.is_file() or not recorded:
        raise RunError(
            "the experiment was not evaluated",
            where=str(path),
            remedy=f"run `vcrt evaluate {experiment.path}` first",
        )
    try:
        scores = Scores.model_validate_json(read_limited(path, MAX_SCORES))
        found = scores.digest
        if set(scores.runs) != {run.name for run in experiment.plan.runs}:
            raise ValueError("other runs than were planned")
    except ValueError as error:
        found, scores = in_a_line(error), None
    if scores is None or found != recorded[-1]:
        raise RunError(
            "the scores were changed after they were recorded",
            where=str(path),
            found=found,
            expected=f"digest {recorded[-1]}",
            remedy="restore the original file",
        )
    return scores


def is_evaluated(experiment: Experiment) -> bool:
    """Whether the ledger records an opening of the held-out folds and the scores that came of it."""
    kinds = [entry.kind for entry in experiment.ledger.entries()]
    return "opening" in kinds and "scores" in kinds[kinds.index("opening") :]


def openings(experiment: Experiment) -> list[dict[str, Any]]:
    """Every opening of the held-out folds, as the ledger records it."""
    return [_opening(entry, experiment.ledger) for entry in experiment.ledger.entries("opening")]


def other_openings(experiment: Experiment, dataset: Dataset) -> list[dict[str, Any]]:
    """The openings of this dataset's held-out folds by other plans, as the ledger beside the dataset records them.

    Whoever has seen one plan's scores may have made the next plan with them in mind. A copy of the dataset begins a
    ledger of its own.
    """
    ledger = openings_of_dataset(dataset)
    return [
        _opening(entry, ledger)
        for entry in recorded_openings(dataset.path)
        if field_of(entry, "plan_hash", str, ledger.path) != experiment.plan.plan_hash
    ]


@dataclass(frozen=True, slots=True)
class UnsharedOpenings:
    """How many openings of one plan only the experiment's ledger records, and how many only the dataset's."""

    here_alone: int
    beside_dataset_alone: int


def unshared_openings(experiment: Experiment, dataset: Dataset) -> UnsharedOpenings:
    """The openings of the experiment's plan that one of the two ledgers does not record.

    Beside the dataset alone: a copy of the experiment was opened, or rows were taken out of its ledger. Here alone: the
    ledger beside the dataset was removed or replaced, or the dataset is a copy.
    """
    ledger = openings_of_dataset(dataset)
    beside = Counter(
        _identity(_opening(entry, ledger))
        for entry in recorded_openings(dataset.path)
        if entry.body.get("plan_hash") == experiment.plan.plan_hash
    )
    here = Counter(map(_identity, openings(experiment)))
    return UnsharedOpenings((here - beside).total(), (beside - here).total())


def _identity(opening: dict[str, Any]) -> tuple[str, str | None, str | None]:
    """What tells two openings of a plan apart, in two ledgers; their clocks alone may agree, or be set to."""
    return opening["at"], opening["reason"], opening.get("nonce")


def _opening(entry: Entry, ledger: Ledger) -> dict[str, Any]:
    field_of(entry, "at", str, ledger.path)
    if entry.body.get("reason") is not None:
        field_of(entry, "reason", str, ledger.path)
    return {"reason": None, **entry.body}


def openings_of_dataset(dataset: Dataset) -> Ledger:
    """The ledger beside a dataset: every opening of its folds, by whatever plan."""
    return Ledger(openings_path(dataset.path))


def _record_opening(experiment: Experiment, dataset: Dataset, reason: str | None) -> None:
    entries = experiment.ledger.entries()
    kinds = [entry.kind for entry in entries if entry.kind in ("opening", "scores")]
    if not kinds and (experiment.path / SCORES_FILE).exists():
        raise untrusted(
            "there are scores, but the ledger records no opening",
            where=str(experiment.path),
            found=f"{SCORES_FILE} and a ledger of {len(entries)} rows",
            expected="an opening in the ledger",
        )
    if kinds and kinds[-1] == "opening":
        _record_beside(experiment, dataset, openings(experiment)[-1])
        return
    if kinds and not reason:
        raise RunError(
            "the held-out folds were opened before",
            where=str(experiment.path),
            found=f"opened at {openings(experiment)[-1]['at']} and scored",
            expected="one opening",
            remedy="read the scores with `vcrt report`; a second opening needs --reopen with a reason, "
            "which every later report shows",
        )
    at = datetime.now(UTC).isoformat(timespec="seconds")
    body: dict[str, Json] = {"at": at, "reason": reason, "nonce": token_hex(8)}
    _record_beside(experiment, dataset, experiment.ledger.append("opening", body).body)


def _record_beside(experiment: Experiment, dataset: Dataset, opening: dict[str, Any]) -> None:
    """Record an opening beside the dataset too, unless a call that was interrupted after it has done so."""
    body = {"plan_hash": experiment.plan.plan_hash, **opening}
    ledger = openings_of_dataset(dataset)
    if body not in [entry.body for entry in recorded_openings(dataset.path)]:
        ledger.append("opening", body)


def _keep_earlier_scores(experiment: Experiment) -> None:
    """Keep the recorded scores of an earlier opening beside those that replace them."""
    path = experiment.path / SCORES_FILE
    number = len(experiment.ledger.entries("scores"))
    kept = path.with_name(f"scores-of-opening-{number}.json")
    # If it is kept already, an interrupted evaluation wrote the file that is there now and recorded nothing.
    if number and path.exists() and not kept.exists():
        path.replace(kept)


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
    backend = plan.shared_config.update.backend
    # Items of another environment may be longer than any that training saw.
    _check(backbone, backbone.model, opened, chosen, plan)

    def passes(model: CausalModel) -> FoldPasses:
        return FoldPasses(
            held_out=greedy_passes(model, held_out, chosen, backend=backend),
            retention=greedy_passes(model, retention, chosen, backend=backend),
        )

    if job.run is None:
        return {0: passes(backbone.model)}
    model = start(plan.config_of(job.run), backbone, seed=plan.run_seed(job.run.seed)).model
    directory = experiment.run_directory(job.run)
    by_update = {}
    # Every file was checked before the folds were opened; what is scored is checked again, as it is read.
    for update, digest in sorted(recorded_checkpoints(experiment, job.run).items()):
        path = checkpoint_path(directory, update)
        load_weights(model, path, identity=plan.identity(job.run), expected_digest=digest)
        by_update[update] = passes(model)
    return by_update


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
    model: CausalModel, items: Sequence[EncodedItem], chosen: Method, *, backend: Backend = "auto"
) -> str:
    """One greedy order for each item, judged by its native verdict: ``1`` for a legal order, else ``0``.

    The verdict is that of the order's own replay, which the agreement gate repeated.
    """
    prompts = [item.prompt for item in items]
    answers = greedy_orders(model, prompts, interface=chosen.interface, backend=backend)
    passes = []
    for item, order in zip(items, answers, strict=True):
        columns = order_columns(item.prompt.num_operations)
        passes.append(order is not None and bool(item.legal[columns[order]]))
    return "".join("1" if passed else "0" for passed in passes)


def read_metrics(experiment: Experiment, run: PlannedRun) -> list[dict[str, float]]:
    """The metrics of every update of a finished run."""
    return [
        {name: float(value) for name, value in line.items()}  # type: ignore[arg-type]
        for line in read_finished_run(experiment, run).metrics
    ]
