"""Run the trials of a search in worker processes, each on source items of its fold alone.

A trial trains on a part of the items that the fold's runs will train on, and is scored on the rest; it uses no
retention items. The folder ``OUTPUT.trials`` holds finished trials until the search is whole, so that an interrupted
search continues to the same result. Not covered: the choice of settings (:mod:`vcrt_train.protocol.search`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from secrets import randbits
from tempfile import TemporaryDirectory

import numpy as np
import torch

from vcrt.documents import read_limited
from vcrt.errors import DivergedError, RunError, VcrtError
from vcrt.hashing import json_digest
from vcrt.printable import counted
from vcrt.processes import in_fresh_processes
from vcrt.progress import SILENT, Progress
from vcrt.randomness import derive_seed
from vcrt.records.dataset import Dataset, Item, open_dataset, require_agreement
from vcrt.storage import (
    make_directory,
    remove_unfinished_files,
    require_new,
    sole_user,
    write_file,
)
from vcrt_train.config import ResolvedConfig, RunConfig
from vcrt_train.config_files import checked
from vcrt_train.policy.backbone import device_of, load_backbone
from vcrt_train.policy.causal_model import CausalModel
from vcrt_train.policy.reference import BackboneReference
from vcrt_train.protocol.evaluation import check_scoring, encoded, greedy_passes
from vcrt_train.protocol.plan import require_names
from vcrt_train.protocol.same_code import code_of, require_unchanged_code, versions_of_training
from vcrt_train.protocol.search import (
    FORMAT,
    LEARNING_RATE,
    MAX_TRIALS,
    RANGES,
    Search,
    SearchCheck,
    Trial,
    of_length,
    read_search,
    require_not_given,
    settings_of_trial,
    shared_settings,
    write_search,
)
from vcrt_train.protocol.splits import source_split, split_sources
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.run import require_trainable, train_run

LOCK_FILE = "lock"
#: The names that :func:`_file_name` gives.
_TRIAL = re.compile(r"[^/]+-[0-9]+-[0-9a-f]{16}\.json")


@dataclass(frozen=True, slots=True)
class _TrialJob:
    dataset: Path
    root_hash: str
    backbone: BackboneReference
    backbone_digest: str
    method: str
    held_out: str
    number: int
    config: ResolvedConfig
    #: The learning rate of trial 0.
    base_rate: float
    seed: int
    #: The hashes of the source code of the process that makes the job, by package.
    code: dict[str, str] = field(kw_only=True, hash=False)


def run_search(
    dataset: Dataset,
    output: Path,
    *,
    backbone: BackboneReference,
    methods: tuple[str, ...],
    held_out: tuple[str, ...],
    num_trials: int,
    config: RunConfig,
    jobs: int,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Search:
    """Try ``num_trials`` settings for each method and fold, and write the search to ``output``.

    Raises :class:`RunError` if ``output`` exists, or if there is nothing or too much to try.
    """
    unfinished = _unfinished_path(output)
    discard_trials_of_finished(output)
    require_new(output, RunError)
    require_agreement(dataset)
    if not 1 <= num_trials <= MAX_TRIALS or not methods or not held_out:
        raise RunError(
            "nothing to search" if num_trials <= MAX_TRIALS else "too much to search",
            found=f"{counted(num_trials, 'trial')}, {counted(len(methods), 'method')}, "
            f"{counted(len(held_out), 'fold')}",
            expected=f"at least one of each, and at most {MAX_TRIALS} trials",
        )
    require_names(dataset, methods, held_out)
    require_not_given(config, [name for name in RANGES if name != LEARNING_RATE])
    planned = backbone.resolved(checked(config))
    digest = require_trainable(backbone, planned).digest
    planned = planned.override(of_length(planned.schedule.updates))
    search = Search(
        format=FORMAT,
        root_hash=dataset.manifest.root_hash,
        backbone=backbone.without_places,
        backbone_digest=digest,
        methods=methods,
        definitions={name: method(name).definition() for name in methods},
        held_out=held_out,
        num_trials=num_trials,
        seed=seed,
        learning_rate=planned.optimiser.learning_rate,
        config=shared_settings(planned),
        code=code_of(dataset.environments),
        trials=(),
    )
    asked = [
        (name, fold, number)
        for fold in held_out
        for name in methods
        for number in range(num_trials)
    ]
    work = _work(search, dataset, backbone, planned, asked)
    make_directory(unfinished)
    with sole_user(unfinished / LOCK_FILE, "this search", RunError):
        require_new(output, RunError)
        trials = _run_all(work, unfinished, jobs, progress)
        search = search.model_copy(update={"trials": trials})
        write_search(search, output)
        _remove_trials(unfinished)
    return search


def check_search(
    search: Search,
    dataset: Dataset,
    *,
    backbone: BackboneReference,
    config: ResolvedConfig,
    number: int,
    jobs: int,
    progress: Progress = SILENT,
) -> SearchCheck:
    """Run up to ``number`` of a search's trials again, about half of them chosen ones if there are enough of both.

    The sample is drawn so that an author of the file cannot foresee it. ``config`` is the plan's. Raises
    :class:`RunError` for the first trial with another result; and, before any trial, if the backbone runs on a GPU,
    because trials repeat bit for bit only on one kind of processor.
    """
    if device_of(backbone) != "cpu":
        raise RunError(
            "trials of a search cannot be checked on a GPU",
            where=f"the backbone {backbone.name}",
            found="a GPU, which may add in another order each time",
            expected="a processor, on which trials repeat bit for bit",
            remedy="search and plan with CUDA_VISIBLE_DEVICES= (empty) before both commands, or plan without "
            "--check-search: the search is then called unverified",
        )
    search.require_same_training(config, search.methods)
    chosen = [search.best(name, fold) for name in search.methods for fold in search.held_out]
    draw = np.random.default_rng(randbits(128))
    drawn = [search.trials[i] for i in draw.permutation(len(search.trials))]
    best = [trial for trial in drawn if trial in chosen]
    others = [trial for trial in drawn if trial not in chosen]
    half = max(-(-number // 2), number - len(others))
    sample = [*best[:half], *others[: max(number - half, 0)]]
    config = config.override(of_length(search.num_updates))
    asked = [(trial.method, trial.held_out, trial.number) for trial in sample]
    work = _work(search, dataset, backbone, config, asked)
    task = progress.task("run trials of the search again", len(work), "trials")
    results = in_fresh_processes(_run_trial, _checked_once(work), jobs=jobs, error=RunError)
    for trial, again in zip(sample, results, strict=True):
        task.advance()
        if again != trial:
            raise RunError(
                "a trial of the search came out otherwise when it was run again",
                where=f"{trial.method} with {trial.held_out} held out, trial {trial.number}",
                found=f"pass rate {again.pass_rate:g}, orbit mass {again.orbit_mass:g}",
                expected=f"pass rate {trial.pass_rate:g}, orbit mass {trial.orbit_mass:g}, as the file says",
                remedy="search again with `vcrt search`, with these libraries and on this kind of processor",
            )
    return SearchCheck(trials=len(sample), chosen=sum(trial in chosen for trial in sample))


def _work(
    search: Search,
    dataset: Dataset,
    backbone: BackboneReference,
    config: ResolvedConfig,
    asked: Sequence[tuple[str, str, int]],
) -> list[_TrialJob]:
    """Make the jobs of trials, given by method, fold and number, with the hashes of the present code."""
    code, rate = code_of(dataset.environments), search.learning_rate
    return [
        _TrialJob(
            dataset=dataset.path.resolve(),
            root_hash=search.root_hash,
            backbone=backbone,
            backbone_digest=search.backbone_digest,
            method=name,
            held_out=fold,
            number=number,
            config=config.override(settings_of_trial(search.seed, number, rate)),
            base_rate=rate,
            seed=search.seed,
            code=code,
        )
        for name, fold, number in asked
    ]


def discard_trials_of_finished(output: Path) -> None:
    """Remove the single trials beside a finished search, which remain if the call was killed at its end.

    Files that are no search or no trial are left as they are.
    """
    unfinished = _unfinished_path(output)
    if not output.is_file() or not unfinished.is_dir():
        return
    with suppress(VcrtError):
        read_search(output)
        with sole_user(unfinished / LOCK_FILE, "this search", RunError):
            _remove_trials(unfinished)


def _remove_trials(unfinished: Path) -> None:
    """Remove trials and the lock, and the folder unless it holds other files."""
    remove_unfinished_files(unfinished, "*")
    for path in unfinished.iterdir():
        if path.name == LOCK_FILE or _TRIAL.fullmatch(path.name):
            path.unlink()
    with suppress(OSError):
        unfinished.rmdir()


def _unfinished_path(output: Path) -> Path:
    return output.with_name(f"{output.name}.trials")


def _run_all(
    work: Sequence[_TrialJob], unfinished: Path, jobs: int, progress: Progress
) -> tuple[Trial, ...]:
    """Return all trials in the order of ``work``; do not repeat those in the folder ``unfinished``."""
    task = progress.task("search on source items", len(work), "trials")
    done = {job: _read_trial(unfinished / _file_name(job), job) for job in work}
    missing = [job for job, trial in done.items() if trial is None]
    task.advance(len(work) - len(missing))
    results = in_fresh_processes(_run_trial, _checked_once(missing), jobs=jobs, error=RunError)
    for job, trial in zip(missing, results, strict=True):
        done[job] = trial
        write_file(unfinished / _file_name(job), trial.model_dump_json().encode())
        task.advance()
    return tuple(trial for trial in done.values() if trial is not None)


def _checked_once(work: Sequence[_TrialJob]) -> list[tuple[_TrialJob, bool]]:
    """Mark the first trial of each method and fold to check scoring; the others begin with equal model and records."""
    first = {(job.method, job.held_out): job for job in reversed(work)}
    return [(job, first[job.method, job.held_out] is job) for job in work]


def _file_name(job: _TrialJob) -> str:
    """Return a name with a hash of everything on which the trial depends, so that no other search's trial has it."""
    identity = {
        **asdict(job),
        "dataset": job.root_hash,
        "backbone": job.backbone.identity,
        "definition": method(job.method).definition(),
        "versions": versions_of_training(),
    }
    return f"{job.method}-{job.held_out}-{job.number}-{json_digest(identity)[:16]}.json"


def _read_trial(path: Path, job: _TrialJob) -> Trial | None:
    """Read a finished trial; return None, so that it is run again, if it is missing or cannot be read."""
    try:
        trial = Trial.model_validate_json(read_limited(path, 2**20))
    except (OSError, ValueError):
        return None
    same = (trial.method, trial.held_out, trial.number) == (job.method, job.held_out, job.number)
    return trial if same else None


def _run_trial(asked: tuple[_TrialJob, bool]) -> Trial:
    """Run one trial, after a check of its model's scores if the flag says so."""
    job, checks = asked
    require_unchanged_code(job.code)
    torch.set_num_threads(1)
    dataset = open_dataset(job.dataset, without=(job.held_out,))
    backbone = load_backbone(job.backbone)
    backbone.model.to(device_of(job.backbone))
    for what, found, expected in (
        ("dataset", dataset.manifest.root_hash, job.root_hash),
        ("backbone", backbone.digest, job.backbone_digest),
    ):
        if found != expected:
            raise RunError(
                f"the {what} changed during the search",
                found=found,
                expected=expected,
                remedy="restore it, and give the same command again",
            )
    training, validation = _split(dataset, job)
    chosen, backend = method(job.method), job.config.model.scoring

    def check(model: CausalModel) -> None:
        if checks:
            records = [item.supervised.record for item in training]
            check_scoring(model, backbone.encode, records, chosen, backend=backend, seed=job.seed)

    trial = partial(
        Trial,
        method=job.method,
        held_out=job.held_out,
        number=job.number,
        settings=settings_of_trial(job.seed, job.number, job.base_rate),
    )
    try:
        with TemporaryDirectory() as directory:
            train_run(
                job.config,
                chosen,
                backbone,
                [item.supervised for item in training],
                Path(directory) / "run",
                seed=derive_seed(job.seed, "search run"),
                encode_seed=job.seed,
                check=check,
            )
    except DivergedError:
        return trial(pass_rate=0.0, orbit_mass=0.0, diverged=True)
    items = encoded(backbone, validation, chosen, job.seed)
    passes = greedy_passes(backbone.model, validation, items, chosen, backend=backend)
    masses = orbit_log_masses(
        backbone.model,
        items,
        interface=chosen.interface,
        config=job.config.estimator,
        seed=job.seed,
        backend=backend,
    ).exp()
    return trial(
        pass_rate=passes.count("1") / len(passes),
        orbit_mass=round(float(masses.double().mean()), 6),
    )


def _split(dataset: Dataset, job: _TrialJob) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Split the fold's training items by source into those to train on and those to score."""
    data = job.config.data
    names = [name for name in dataset.environments if name != job.held_out]
    training = split_sources(dataset, job.held_out, data.retention_share, job.seed).training
    by_environment = [[i for i in training if i.environment == name] for name in names]
    parted = source_split(
        by_environment, data.validation_share, derive_seed(job.seed, "validation")
    )
    parted.require_both(job.held_out, "search on", "to score")
    return parted.training, parted.retention
