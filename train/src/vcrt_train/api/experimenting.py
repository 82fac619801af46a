"""Choose settings, plan, train, evaluate once, and ask a trained policy.

Commands take their options from these signatures. A function imports what needs PyTorch when it is called.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vcrt.errors import MalformedInputError, RunError, VcrtError
from vcrt.hashing import Json
from vcrt.processes import num_jobs
from vcrt.progress import SILENT, Progress
from vcrt.records.dataset import Dataset, open_dataset
from vcrt.storage import require_new
from vcrt_train.config import DEFAULTS, EVALUATED_AT_A_TIME, MemoryConfig, RunConfig
from vcrt_train.protocol.relation_records import RelationRecord, read_relation_record

if TYPE_CHECKING:
    from vcrt_train.policy.reference import BackboneReference
    from vcrt_train.protocol.decision import Decision, Policy
    from vcrt_train.protocol.experiment import Experiment
    from vcrt_train.protocol.scores import Scores
    from vcrt_train.protocol.search import Search
    from vcrt_train.training.methods import Method


def search(
    dataset: Dataset | str | Path,
    output: str | Path,
    *,
    methods: Sequence[str] | str = ("canonical-grpo", "vcrt"),
    held_out: Sequence[str] | str = (),
    trials: int = 8,
    config: RunConfig = DEFAULTS,
    seed: int = 0,
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> Search:
    """Search for hyper-parameters on source items only, with equal effort for every method and fold.

    A fold's trials train on a part of its source items and are scored on the rest; they open no file of the held-out
    environment. The folder OUTPUT.trials holds finished trials until the search is whole; repeat an interrupted
    command to continue from there.

    Example: vcrt search runs/data --output runs/search.json --methods canonical-grpo vcrt

    Args:
        dataset: A verified dataset.
        output: The new file, for `vcrt plan --search`.
        methods: Methods, by the names that `vcrt methods` lists.
        held_out: Environments to hold out in turn; by default all environments of the dataset.
        trials: Number of settings tried for each method and fold; the first are the library's defaults.
        config: All settings of a run; the plan must have the same settings, but may have more updates.
        seed: Seed of everything; the plan must have the same seed.

    Raises:
        VcrtError: `output` exists, or the dataset was not verified.
    """
    from vcrt_train.protocol.planning import chosen_reference
    from vcrt_train.protocol.trials import run_search

    held_out = names_of(held_out)
    if not isinstance(dataset, Dataset):
        # The environment of a single fold is no source; with more folds, each environment is a source of another fold.
        dataset = open_dataset(dataset, without=held_out if len(held_out) == 1 else ())
    backbone = chosen_reference(config)
    return run_search(
        dataset,
        Path(output),
        backbone=backbone,
        methods=names_of(methods),
        held_out=held_out or dataset.environments,
        num_trials=trials,
        config=config,
        jobs=jobs_on_device(backbone, jobs),
        seed=seed,
        progress=progress,
    )


def plan(
    dataset: Dataset | str | Path,
    output: str | Path,
    *,
    methods: Sequence[str] | None = None,
    held_out: Sequence[str] | None = None,
    runs: int = 3,
    config: RunConfig = DEFAULTS,
    search: str | Path | None = None,
    seed: int = 0,
    also_test: Sequence[str | Path] | str | Path = (),
    check_search: int = 0,
    jobs: int | None = None,
    progress: Progress = SILENT,
) -> Experiment:
    """Freeze the plan of an experiment on a dataset, before anything is trained.

    Example: vcrt plan runs/data --output runs/experiment --methods canonical-grpo vcrt no-anti

    Args:
        dataset: A verified dataset.
        output: The new experiment's directory.
        methods: Methods, by the names that `vcrt methods` lists; by default the search's, or canonical-grpo and vcrt.
        held_out: Environments to hold out in turn; by default the search's, or all environments of the dataset.
        runs: Independent runs of each method and fold.
        config: All settings of a run; in Python, :func:`vcrt_train.load_config` reads a file.
        search: A file made by `vcrt search`; each method and fold gets the settings that the search chose.
        seed: Seed of everything.
        also_test: Further verified datasets, such as of longer episodes; runs are also scored on their held-out parts.
        check_search: Run this many of the search's trials again, about half of them trials that it chose; refuse the
            search if one has another result. Without this, the plan calls the search unverified. A search on a GPU
            cannot be checked, because trials do not repeat bit for bit there.

    Returns:
        The experiment; its ``plan.warnings`` say why a held-out environment may not be new to the model.

    Raises:
        VcrtError: `output` exists, a dataset was not verified, or a repeated trial has another result.
    """
    from vcrt_train.protocol.experiment import create_experiment
    from vcrt_train.protocol.planning import frozen_plan
    from vcrt_train.protocol.search import LEARNING_RATE, RANGES, read_search, require_not_given

    found = None if search is None else read_search(Path(search))
    if found is not None:
        # A plan may state the learning rate from which the search started, such as that of a preset.
        started = config.value(LEARNING_RATE) == found.learning_rate
        require_not_given(config, [n for n in RANGES if n != LEARNING_RATE or not started])
    if check_search < 0 or (check_search and found is None):
        raise VcrtError(
            "there is no search to check" if found is None else "too few trials to check",
            found=f"{check_search} trials to run again",
            expected="a search, and 0 or more trials",
        )
    also_test = (also_test,) if isinstance(also_test, (str, Path)) else also_test
    path = Path(output)
    require_new(path, RunError)
    made = frozen_plan(
        dataset.path if isinstance(dataset, Dataset) else Path(dataset),
        methods=names_of(methods) or (found.methods if found else ("canonical-grpo", "vcrt")),
        held_out=names_of(held_out) or (found.held_out if found else ()),
        runs=runs,
        config=config,
        seed=seed,
        search=found,
        also_test=[Path(one) for one in also_test],
        check_search=check_search,
        jobs=num_jobs(jobs) if found is None else jobs_on_device(found.backbone, jobs),
        progress=progress,
    )
    return create_experiment(made, path, search=found)


def train(
    experiment: Experiment | str | Path,
    *,
    resume: bool = False,
    jobs: int | None = None,
    prompts_at_a_time: int | None = None,
    gradient_checkpointing: bool = False,
    trackers: Sequence[str] = (),
    progress: Progress = SILENT,
    other_code: str | None = None,
) -> dict[str, str]:
    """Train every unfinished run of the plan; return the digest of each run's last checkpoint: ``vcrt train``.

    An interrupted run continues from its last checkpoint; ``resume`` changes nothing. ``jobs`` is the number of worker
    processes, with one run each: by default the number of cores, or one on a GPU. ``prompts_at_a_time`` and
    ``gradient_checkpointing`` override the plan's memory settings; the result differs only by rounding. Processes of
    `torchrun` or `accelerate launch` share each update. ``other_code`` is your reason for training with other source
    code of vcrt than the plan's; every report shows it.

    Raises :class:`vcrt.errors.RunError` if dataset, backbone or code is not the planned one, and
    :class:`vcrt.errors.OutOfMemory`, which says what needs less memory.
    """
    from vcrt_train.protocol import planned_training
    from vcrt_train.training.process_group import launched_group

    opened = as_experiment(experiment)
    planned = opened.plan.config.memory
    memory = MemoryConfig(
        prompts_at_a_time=planned.prompts_at_a_time
        if prompts_at_a_time is None
        else prompts_at_a_time,
        gradient_checkpointing=gradient_checkpointing or planned.gradient_checkpointing,
    )
    return planned_training.train(
        opened,
        jobs=jobs_on_device(opened.plan.backbone, jobs),
        progress=progress,
        group=launched_group(),
        trackers=tuple(trackers),
        memory=memory,
        other_code=other_code,
    )


def evaluate(
    experiment: Experiment | str | Path,
    *,
    reopen_reason: str | None = None,
    jobs: int | None = None,
    prompts_at_a_time: int = EVALUATED_AT_A_TIME,
    progress: Progress = SILENT,
    other_code: str | None = None,
) -> Scores:
    """Open the held-out folds and score every run, once.

    Example: vcrt evaluate runs/experiment

    Args:
        experiment: An experiment whose runs are all trained.
        reopen_reason: Your reason for opening the folds again.
        jobs: Worker processes; by default as many as there are cores, or one on a GPU.
        prompts_at_a_time: Score this many prompts in one pass; fewer need less memory.
        other_code: Your reason for scoring with other source code of vcrt than the plan's; every later report shows it.

    Raises:
        RunError: A run is not finished, or the folds were opened before and no reason is given.
    """
    from vcrt_train.protocol import evaluation

    opened = as_experiment(experiment)
    return evaluation.evaluate(
        opened,
        jobs=jobs_on_device(opened.plan.backbone, jobs),
        reopen_reason=reopen_reason,
        prompts_at_a_time=prompts_at_a_time,
        progress=progress,
        other_code=other_code,
    )


def trained_policy(
    experiment: Experiment | str | Path,
    run: str | None = None,
    *,
    update: int | None = None,
    frozen: bool = False,
) -> Policy:
    """Return the policy of a finished run for :func:`decide`; with ``frozen``, the backbone as it was before training.

    ``run`` is METHOD/HELD-OUT/SEED; by default the only run, or the only run of the method ``vcrt``. ``update`` chooses
    a checkpoint; the last one by default. Nothing is recorded. If you ask about held-out episodes before
    :func:`evaluate`, its result is less blind, and no report can show that. Raises :class:`vcrt.errors.RunError` and
    :class:`vcrt.errors.UnknownNameError`.
    """
    from vcrt_train.protocol.decision import chosen_run, frozen_policy, load_policy

    opened = as_experiment(experiment)
    if frozen and update is not None:
        raise VcrtError(
            "the frozen backbone has no updates",
            found=f"frozen and update {update}",
            expected="one of them",
        )
    if frozen:
        return frozen_policy(opened, None if run is None else chosen_run(opened.plan, run))
    return load_policy(opened, chosen_run(opened.plan, run), update=update)


def decide(
    policy: Policy,
    record: Mapping[str, Json] | Sequence[Json] | RelationRecord,
    *,
    theorem: str | None = None,
    seed: int = 0,
) -> Decision:
    """Ask a policy for an order of a record's operations, with its probability and the orbit mass: ``vcrt decide``.

    ``record`` is ``{"operations": ["a", "b"], "relations": [["a", "b", "precedes"]]}``, or the output of ``vcrt show
    --json`` or of ``vcrt lift lean --json``, from which ``theorem`` chooses a theorem. An order in the answer lists
    indices into ``operations``. Raises :class:`vcrt.errors.MalformedInputError` for a record of another form.
    """
    from vcrt_train.protocol import decision

    if not isinstance(record, RelationRecord):
        try:
            text = json.dumps(dict(record) if isinstance(record, Mapping) else record)
        except (TypeError, ValueError) as error:
            raise MalformedInputError("the record is no JSON", found=str(error)) from error
        record = read_relation_record(text.encode(), "the record", theorem=theorem)
    return decision.decide(policy, record, seed=seed)


def names_of(given: Sequence[str] | str | None) -> tuple[str, ...]:
    """Return the names as a tuple; a string is one name."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def as_experiment(experiment: Experiment | str | Path) -> Experiment:
    """Return the experiment; open it if a path is given."""
    from vcrt_train.protocol.experiment import open_experiment

    return open_experiment(Path(experiment)) if isinstance(experiment, (str, Path)) else experiment


def jobs_on_device(backbone: BackboneReference, jobs: int | None) -> int:
    """Return the number of worker processes: by default the number of cores, or 1 if they would share a GPU."""
    from vcrt_train.policy.backbone import device_of

    return num_jobs(1 if jobs is None and device_of(backbone) != "cpu" else jobs)


def methods() -> dict[str, Method]:
    """List the methods: what each one trains on, and what it leaves out.

    Example: vcrt methods

    Examples:
        >>> methods()["canonical-grpo"].terms
        ('policy_loss',)
    """
    from vcrt_train.training.methods import METHODS

    return dict(METHODS)
