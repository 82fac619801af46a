"""Make and open an experiment's directory: the plan, the ledger, the runs and, after the opening, the scores.

    plan.json                        all planned runs and their settings, hashed
    search.json                      the trials of the search, if the plan was made with one
    ledger.sqlite                    plan, finished runs, opening and scores, chained by hash
    runs/METHOD/HELD-OUT/SEED/       checkpoints
    scores.json                      greedy passes of every run and of the frozen backbone

A training run opens the files of its source environments, but none of the environment that it holds out. Functions that
need PyTorch import it when they are called, so that an experiment opens quickly.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vcrt.errors import RunError
from vcrt.hashing import Json
from vcrt.records.dataset import Dataset, open_dataset, require_agreement
from vcrt.records.ledger import LEDGER_FILE, Entry, Ledger, field_of, untrusted
from vcrt.storage import publish_directory, sole_user
from vcrt_train.policy.reference import where_it_is
from vcrt_train.protocol.plan import (
    PLAN_FILE,
    Plan,
    PlannedRun,
    read_plan,
    write_plan,
)
from vcrt_train.protocol.search import SEARCH_FILE, Search, read_search, write_search

if TYPE_CHECKING:
    from vcrt_train.policy.backbone import Backbone
    from vcrt_train.policy.causal_model import CausalModel
    from vcrt_train.protocol.splits import SourceSplit
    from vcrt_train.training.run import FinishedRun

LOCK_FILE = "lock"
_UPDATE = re.compile("[0-9]{1,6}", re.ASCII)


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
        """Return the folder of a run's checkpoints."""
        return self.path / "runs" / run.name

    @contextmanager
    def sole_writer(self) -> Iterator[None]:
        """Hold the experiment's lock; raises :class:`RunError` if another process holds it."""
        with sole_user(self.path / LOCK_FILE, "this experiment", RunError):
            yield

    def finished_runs(self) -> dict[str, Entry]:
        """Return the ledger's entries of finished runs, by the run's name.

        Raises an error if a run was finished twice, or after the held-out folds were opened: a run that was made after
        scores were seen could otherwise be scored under the same opening.
        """
        ledger = self.ledger
        finished: dict[str, Entry] = {}
        is_opened = False
        for entry in ledger.entries():
            is_opened = is_opened or entry.kind == "opening"
            if entry.kind != "run":
                continue
            digests = field_of(entry, "checkpoints", dict, ledger.path)
            whole = all(_UPDATE.fullmatch(k) and isinstance(v, str) for k, v in digests.items())
            if not whole or str(self.plan.config.schedule.updates) not in digests:
                raise untrusted(
                    "the ledger's row of a finished run does not have the documented form",
                    where=str(ledger.path),
                    found=f"{digests!r:.200}",
                    expected="a digest by update, the last one included",
                )
            name = field_of(entry, "run", str, ledger.path)
            if is_opened or name in finished:
                raise untrusted(
                    "the ledger says that a run was finished again, or after the held-out folds were opened",
                    where=str(ledger.path),
                    found=f"run {name}, {'after the opening' if is_opened else 'twice'}",
                    expected="every run once, before the opening",
                )
            finished[name] = entry
        return finished


def create_experiment(plan: Plan, path: Path, *, search: Search | None = None) -> Experiment:
    """Make a new experiment directory from a plan and the search that it was made with, if any.

    Raises :class:`RunError` if the directory exists, or if the plan was made with another search.
    """
    if (None if search is None else search.digest) != plan.search:
        raise RunError(
            "the plan was made with another search",
            found="none" if search is None else f"digest {search.digest}",
            expected="none" if plan.search is None else f"digest {plan.search}",
        )

    def fill(directory: Path) -> None:
        write_plan(plan, directory / PLAN_FILE)
        if search is not None:
            write_search(search, directory / SEARCH_FILE)
        Ledger(directory / LEDGER_FILE).append("plan", {"plan_hash": plan.plan_hash})

    publish_directory(path, fill, RunError)
    return Experiment(path, plan)


def open_experiment(path: str | Path) -> Experiment:
    """Open an experiment; raises :class:`RunError` unless its ledger has exactly one plan, the experiment's own."""
    path = Path(path)
    plan = read_plan(path / PLAN_FILE)
    # An experiment may be copied alone, or moved together with the files beside it.
    places = {
        "dataset": where_it_is(plan.dataset, path),
        "backbone": plan.backbone.moved_with(path),
        "also_test": tuple(
            one.model_copy(update={"dataset": where_it_is(one.dataset, path)})
            for one in plan.also_test
        ),
    }
    plan = plan.model_copy(update=places)
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


def planned_dataset(plan: Plan, *, without: Collection[str] = ()) -> Dataset:
    """Open and check the plan's dataset and its agreement; raises :class:`RunError` if it is gone or another one.

    The files of the environments ``without`` are not opened, not even to hash them.
    """
    return _as_planned(plan.dataset, plan.root_hash, "the plan's dataset", without)


def planned_test_sets(plan: Plan) -> dict[str, Dataset]:
    """Return the plan's further test sets by name, each checked as in :func:`planned_dataset`."""
    return {
        one.name: _as_planned(one.dataset, one.root_hash, f"the test set {one.name}")
        for one in plan.also_test
    }


def _as_planned(place: str, root_hash: str, what: str, without: Collection[str] = ()) -> Dataset:
    if not Path(place).exists():
        raise RunError(
            f"{what} is not where it was",
            where=place,
            expected=f"the dataset with root hash {root_hash}",
            remedy="move it back with the ledger of openings beside it, or put a link to it there",
        )
    dataset = open_dataset(Path(place), without=without)
    if dataset.manifest.root_hash != root_hash:
        raise RunError(
            "the dataset is not the one that was planned",
            where=place,
            found=f"root hash {dataset.manifest.root_hash}",
            expected=f"root hash {root_hash}",
            remedy="restore the planned dataset, or make a new experiment with `vcrt plan`",
        )
    require_agreement(dataset)
    return dataset


def unused_environments(plan: Plan) -> tuple[str, ...]:
    """Return the environments that no planned run trains on; training opens no file of these."""
    used = {name for fold in plan.held_out for name in plan.sources(fold)}
    return tuple(name for name in plan.environments if name not in used)


def planned_search(experiment: Experiment) -> Search | None:
    """Return the search of the plan, if it has one; raises :class:`RunError` if the file is gone or another one."""
    if experiment.plan.search is None:
        return None
    path = experiment.path / SEARCH_FILE
    search = read_search(path)
    if search.digest != experiment.plan.search:
        raise RunError(
            "the search is not the one that the plan was made with",
            where=str(path),
            found=f"digest {search.digest}",
            expected=f"digest {experiment.plan.search}",
            remedy="restore the original",
        )
    return search


def planned_backbone(plan: Plan, *, device: str = "cpu") -> Backbone:
    """Load the plan's backbone on a device; raises :class:`RunError` if its locked files are not the planned ones."""
    from vcrt_train.policy.backbone import load_backbone

    backbone = load_backbone(plan.backbone)
    both = ((backbone.digest, backbone.revision), (plan.backbone_digest, plan.backbone_revision))
    found, planned = (
        f"digest {digest}" + ("" if revision is None else f", revision {revision}")
        for digest, revision in both
    )
    if found != planned:
        raise RunError(
            "the backbone is not the one that was planned",
            where=plan.backbone.name,
            found=found,
            expected=planned,
            remedy="restore the planned backbone and its lock, or make a new experiment with `vcrt plan`",
        )
    if backbone.provenance != plan.provenance:
        raise RunError(
            "the plan says that the backbone was trained otherwise than its files do",
            where=plan.backbone.name,
            found=plan.provenance.in_words(),
            expected=backbone.provenance.in_words(),
            remedy="make a new experiment with `vcrt plan`",
        )
    backbone.model.to(device)
    return backbone


def load_sources(plan: Plan, dataset: Dataset, held_out: str) -> SourceSplit:
    """Load the source items of a fold; no file of the held-out environment is opened."""
    from vcrt_train.protocol.splits import split_sources

    return split_sources(dataset, held_out, plan.config.data.retention_share, plan.seed)


def recorded_checkpoints(experiment: Experiment, run: PlannedRun) -> dict[int, str]:
    """Return the digests of a finished run's checkpoints by update, from the ledger; no checkpoint is opened.

    Raises :class:`RunError` if the run is not finished.
    """
    entry = experiment.finished_runs().get(run.name)
    if entry is None:
        raise RunError(
            "a run is not finished",
            where=str(experiment.run_directory(run)),
            expected="a finished run in the ledger",
            remedy=f"run `vcrt train {experiment.path}`",
        )
    return {int(update): digest for update, digest in entry.body["checkpoints"].items()}


def read_finished_run(experiment: Experiment, run: PlannedRun) -> FinishedRun:
    """Read a finished run and check every file of its checkpoints; raises :class:`RunError` if one was changed."""
    from vcrt_train.training.checkpoint import read_metrics
    from vcrt_train.training.run import FinishedRun
    from vcrt_train.training.run_directory import checkpoint_path

    directory = experiment.run_directory(run)
    digests = recorded_checkpoints(experiment, run)
    identity = experiment.plan.identity(run)
    metrics: list[dict[str, Json]] = []
    for update, digest in sorted(digests.items()):
        checkpoint = checkpoint_path(directory, update)
        metrics = read_metrics(checkpoint, identity=identity, expected_digest=digest)
    return FinishedRun(directory=directory, digests=digests, metrics=tuple(metrics))


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedModel:
    """A run's model after ``update``, with the digest of its checkpoint."""

    update: int
    digest: str
    model: CausalModel


def trained_models(
    experiment: Experiment,
    run: PlannedRun,
    backbone: Backbone,
    *,
    updates: Sequence[int] | None = None,
) -> Iterator[TrainedModel]:
    """Yield the run's model after each of ``updates``, by default after all kept updates in their order.

    ``backbone`` and its one model are changed in place, so use each model before you take the next. Only the heads and
    weights of these checkpoints are read. Raises :class:`vcrt.errors.RunError` if the run is not finished or a file
    differs from its record, and ``KeyError`` for an update that was not kept.
    """
    from vcrt_train.training.checkpoint import load_weights
    from vcrt_train.training.run import start
    from vcrt_train.training.run_directory import checkpoint_path

    plan = experiment.plan
    digests = recorded_checkpoints(experiment, run)
    directory = experiment.run_directory(run)
    model = start(plan.config_of(run), backbone, seed=plan.run_seed(run.seed)).model
    for update in sorted(digests) if updates is None else updates:
        path, digest = checkpoint_path(directory, update), digests[update]
        load_weights(model, path, identity=plan.identity(run), expected_digest=digest)
        yield TrainedModel(update=update, digest=digest, model=model)
