"""Choose settings, plan, train, evaluate once, report, and ask what was trained."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from vcrt.errors import MalformedInputError, RunError, VcrtError
from vcrt.hashing import Json
from vcrt.jobs import num_jobs
from vcrt.progress import SILENT, Progress
from vcrt.records.dataset import Dataset, open_dataset
from vcrt.records.relation_records import RelationRecord, read_relation_record
from vcrt.storage import require_new
from vcrt_train.config import DEFAULTS, MemoryConfig, RunConfig
from vcrt_train.policy.backbone import device_of
from vcrt_train.policy.reference import BackboneReference
from vcrt_train.protocol import decision, evaluation, planned_training
from vcrt_train.protocol.decision import Decision, Policy, chosen_run, frozen_policy, load_policy
from vcrt_train.protocol.evaluation import PROMPTS_AT_A_TIME
from vcrt_train.protocol.experiment import Experiment, create_experiment, open_experiment
from vcrt_train.protocol.planning import chosen_reference, frozen_plan
from vcrt_train.protocol.scores import Scores
from vcrt_train.protocol.search import LEARNING_RATE, RANGES, Search, read_search, require_not_given
from vcrt_train.protocol.trials import run_search
from vcrt_train.training.distributed import launched_group
from vcrt_train.training.methods import METHODS, Method


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
    """Search for hyper-parameters on source items alone, and keep what was found in a new file: ``vcrt search``.

    Each of ``methods`` gets so many ``trials`` on each fold; the first are the library's defaults. ``held_out`` are the
    environments to hold out in turn, by default all. No file of the environment that a fold holds out is opened for it.
    A search that was interrupted goes on when it is given again. Raises :class:`vcrt.errors.VcrtError` if ``output``
    exists or the dataset was not verified.
    """
    held_out = names_of(held_out)
    if not isinstance(dataset, Dataset):
        # The environment of a single fold is nobody's source; with more folds, each is one of another's.
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
    """Freeze what will be run on a verified dataset, before anything is trained: ``vcrt plan``.

    ``methods`` are names that ``vcrt methods`` lists (by default those of ``search``, or Canonical-GRPO and VCRT),
    ``held_out`` the environments to hold out in turn (by default those of ``search``, or all), ``runs`` the independent
    runs of each method and fold, ``config`` their settings (:func:`vcrt_train.load_config` reads a file). ``also_test``
    are further verified datasets, such as of longer records, on whose held-out environments finished runs are scored
    too. ``check_search`` trials of the search are run again first, every other one of them a chosen one; without it the
    plan and every report call the search unverified. ``experiment.plan.warnings`` says what makes a held-out
    environment less than held out. Raises :class:`vcrt.errors.VcrtError` if ``output`` exists, a dataset was not
    verified, or a trial comes out otherwise.
    """
    found = None if search is None else read_search(Path(search))
    if found is not None:
        # The learning rate that a search started from, as that of a preset, is the same in the plan.
        started = config.value(LEARNING_RATE) == found.learning_rate
        require_not_given(config, [n for n in RANGES if n != LEARNING_RATE or not started])
    if check_search < 0 or (check_search and found is None):
        raise VcrtError(
            "there is no search to check" if found is None else "too few trials to check",
            found=f"{check_search} trials to run again",
            expected="a search, and a number of trials",
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
    """Train every planned run that is not finished: ``vcrt train``; returns the last checkpoints' digests by run.

    A run that was interrupted goes on from its last checkpoint; ``resume`` says so too and changes nothing.
    ``jobs`` runs at a time, each in a process of its own: by default as many as there are cores, or one on a GPU.
    ``prompts_at_a_time`` and ``gradient_checkpointing``, each where it is given, take the place of the plan's settings
    of memory; the result is the same but for rounding. In processes of `torchrun` or `accelerate launch`, all share
    each update. ``other_code`` is the reason to train with other source code of vcrt than was planned, which every
    report shows.
    Raises :class:`vcrt.errors.RunError` if dataset, backbone or code is not the planned one, and
    :class:`vcrt.errors.OutOfMemory`, with what would need less.
    """
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
    prompts_at_a_time: int = PROMPTS_AT_A_TIME,
    progress: Progress = SILENT,
    other_code: str | None = None,
) -> Scores:
    """Open the held-out folds, once, and score every run and the frozen backbone: ``vcrt evaluate``.

    The opening is recorded; a second one needs a ``reopen_reason``, which every later report shows, as it does the
    reason ``other_code`` to score with other source code of vcrt than was planned. Raises
    :class:`vcrt.errors.RunError` if a run is not finished or the folds were opened before.
    """
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
    """The policy of a finished run, to be asked by :func:`decide`; ``frozen`` for the backbone as it was before.

    ``run`` is METHOD/HELD-OUT/SEED; without one it is the only run, or the only one of ``vcrt``. ``update`` chooses a
    checkpoint; the last one by default. Nothing is recorded: asking about held-out episodes before :func:`evaluate`
    makes its result less blind, and no report can show it. Raises :class:`vcrt.errors.RunError` and
    :class:`vcrt.errors.UnknownNameError`.
    """
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

    ``record`` is ``{"operations": ["a", "b"], "relations": [["a", "b", "precedes"]]}``, or what ``vcrt show --json``
    and ``vcrt lift lean --json`` print, of whose theorems ``theorem`` is one. Orders in the answer are places in
    ``operations``. Raises :class:`vcrt.errors.MalformedInputError` for a record of another form.
    """
    if not isinstance(record, RelationRecord):
        try:
            text = json.dumps(dict(record) if isinstance(record, Mapping) else record)
        except (TypeError, ValueError) as error:
            raise MalformedInputError("the record is no JSON", found=str(error)) from error
        record = read_relation_record(text.encode(), "the record", theorem=theorem)
    return decision.decide(policy, record, seed=seed)


def names_of(given: Sequence[str] | str | None) -> tuple[str, ...]:
    """A single name is a sequence of one, not of letters."""
    return (given,) if isinstance(given, str) else tuple(given or ())


def as_experiment(experiment: Experiment | str | Path) -> Experiment:
    """The experiment, opened if it was not."""
    return experiment if isinstance(experiment, Experiment) else open_experiment(Path(experiment))


def jobs_on_device(backbone: BackboneReference, jobs: int | None) -> int:
    """As many worker processes as there are cores by default, but one where they would share a GPU."""
    return num_jobs(1 if jobs is None and device_of(backbone) != "cpu" else jobs)


def methods() -> dict[str, Method]:
    """List the methods: what each one trains on, and what it leaves out.

    Example: vcrt methods

    Examples:
        >>> methods()["canonical-grpo"].terms
        ('policy_loss',)
    """
    return dict(METHODS)
