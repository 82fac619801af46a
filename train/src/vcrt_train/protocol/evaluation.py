"""Evaluate once: open and score the held-out folds after every planned run is at its last update.

Each item gets one greedy order and one native verdict; items of the plan's further test sets only after the last
update. What sampled answers would come to is read from the probabilities after the last update, without a verdict. The
opening is recorded in the experiment's ledger and in one beside each dataset before any evidence is read or any result
is scored. Before the opening, the backbone's self-check reads records as the policy sees them, so that a model that
cannot be scored here spends no opening. A second opening needs a reason, which every later report shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch

from vcrt.datasets import verdicts
from vcrt.errors import RunError
from vcrt.memory import naming_out_of_memory
from vcrt.printable import counted
from vcrt.processes import in_fresh_processes
from vcrt.progress import SILENT, Progress, heard, stage, tell
from vcrt.records.dataset import Dataset, Item, load_items, read_policy_records
from vcrt.records.policy_view import PolicyRecord
from vcrt.storage import write_file
from vcrt_train.config import EVALUATED_AT_A_TIME, Backend
from vcrt_train.policy.backbone import Backbone, PromptEncoder, device_of
from vcrt_train.policy.causal_model import CausalModel
from vcrt_train.policy.kernels.switch import implementations
from vcrt_train.policy.scoring import greedy_orders
from vcrt_train.policy.self_check import self_check
from vcrt_train.protocol.experiment import (
    Experiment,
    load_sources,
    open_experiment,
    planned_backbone,
    planned_dataset,
    planned_test_sets,
    read_finished_run,
    trained_models,
)
from vcrt_train.protocol.plan import Plan, PlannedRun
from vcrt_train.protocol.same_code import (
    code_now,
    record_other_code,
    require_same_code,
    require_unchanged_code,
)
from vcrt_train.protocol.scores import (
    FROZEN_AS,
    SCORES_FILE,
    FoldPasses,
    Scores,
    Spread,
    TestSetPasses,
    keep_earlier_scores,
    record_opening,
    view_of,
)
from vcrt_train.protocol.source_validation import chance_of, is_at_chance, standing
from vcrt_train.randomness import generator
from vcrt_train.training.items import EncodedItem, encode_items
from vcrt_train.training.methods import Method, method
from vcrt_train.training.orbit_masses import orbit_spread

Result = TypeVar("Result")
#: The numbers of sampled answers of which one should pass.
PASS_AT = (1, 4, 16, 64)
#: If not all orders are scored for a greedy one anyway, sampled answers are looked at on so many items at most.
MOST_SPREAD = 64
#: The number of first records that the self-check scores.
_FIRST = 2


@dataclass(frozen=True, slots=True)
class _ScoreJob:
    """One run to score, or the frozen backbone with the view of ``method`` if ``run`` is None."""

    path: Path
    held_out: str
    method: str
    run: PlannedRun | None
    prompts_at_a_time: int = EVALUATED_AT_A_TIME
    #: The hashes of the source code of the process that makes the job, by package.
    code: dict[str, str] = field(kw_only=True, hash=False)


@dataclass(frozen=True, slots=True)
class _Scored:
    """The passes of a job by update, and those after the last update by further test set."""

    by_update: dict[int, FoldPasses]
    also_test: dict[str, str]


def evaluate(
    experiment: Experiment,
    *,
    jobs: int,
    reopen_reason: str | None = None,
    prompts_at_a_time: int = EVALUATED_AT_A_TIME,
    progress: Progress = SILENT,
    other_code: str | None = None,
) -> Scores:
    """Open the held-out folds and score every run and the frozen backbone; an interrupted evaluation continues.

    Raises :class:`RunError` if a planned run is not finished, if the folds were opened and scored before and there is
    no ``reopen_reason``, or if the source code is not the planned one and there is no ``other_code`` (the ledger keeps
    both reasons). Raises :class:`vcrt.errors.OutOfMemory`, which tells how to score with less memory.
    """
    if prompts_at_a_time < 1:
        raise RunError(
            "too few prompts at a time", found=str(prompts_at_a_time), expected="1 or more"
        )
    plan = experiment.plan
    with experiment.sole_writer():
        require_same_code(plan, reason=other_code)
        for run in plan.runs:
            read_finished_run(experiment, run)
        dataset, *others = planned_dataset(plan), *planned_test_sets(plan).values()
        verdicts.require_verifiers(dataset, plan.environments)
        for other in others:
            verdicts.require_verifiers(other, plan.held_out)
        views = {view_of(method(name)): name for name in (*reversed(plan.methods), FROZEN_AS)}
        code = code_now(plan.code)
        work = [
            _ScoreJob(experiment.path, fold, name, None, prompts_at_a_time, code=code)
            for fold in plan.held_out
            for name in views.values()
        ]
        _check_before_opening(plan, work)
        record_other_code(experiment, "evaluate", [run.name for run in plan.runs], other_code)
        record_opening(experiment, (dataset, *others), reopen_reason)
        work += [
            _ScoreJob(experiment.path, run.held_out, run.method, run, prompts_at_a_time, code=code)
            for run in plan.runs
        ]
        chances = {fold: chance_of(dataset.manifest, [fold]) for fold in plan.held_out}
        scores = _score_all(plan, work, chances, jobs, progress)
        keep_earlier_scores(experiment)
        text = scores.model_dump_json(indent=1).encode() + b"\n"
        write_file(experiment.path / SCORES_FILE, text)
        experiment.ledger.append("scores", {"digest": scores.digest, "code": code_now(plan.code)})
    return scores


def _score_all(
    plan: Plan,
    work: Sequence[_ScoreJob],
    chances: Mapping[str, float | None],
    jobs: int,
    progress: Progress,
) -> Scores:
    """Return the scores of all jobs; tell each one's share of passes, and warn of runs that are at chance."""
    scores = Scores(
        frozen={},
        runs={},
        checkpoints={},
        also_test={one.name: TestSetPasses(frozen={}, runs={}) for one in plan.also_test},
    )
    task = progress.task("evaluate runs and the frozen backbone", len(work), "scored")
    for job, found in zip(work, _heard(_score_job, work, jobs), strict=True):
        passes = found.by_update
        if job.run is None:
            view = view_of(method(job.method))
            scores.frozen.setdefault(view, {})[job.held_out] = passes[0]
            _tell(f"frozen backbone ({view}), {job.held_out}", passes[0], None)
            for name, elsewhere in found.also_test.items():
                scores.also_test[name].frozen.setdefault(view, {})[job.held_out] = elsewhere
        else:
            name = job.run.name
            scores.runs[name] = passes.pop(plan.config.schedule.updates)
            _tell(name, scores.runs[name], chances[job.held_out])
            scores.checkpoints[name] = passes
            for test_set, elsewhere in found.also_test.items():
                scores.also_test[test_set].runs[name] = elsewhere
        task.advance()
    _warn_of_chance(plan, scores.runs, chances)
    return scores


def _heard(
    function: Callable[[_ScoreJob], Result], work: Sequence[_ScoreJob], jobs: int
) -> Iterator[Result]:
    """Yield the function's result for each job, from worker processes whose messages are passed on here."""
    with heard(function) as one:
        yield from in_fresh_processes(one, work, jobs=jobs, error=RunError, on_wait=one.again)


def _tell(name: str, passes: FoldPasses, chance: float | None) -> None:
    """Tell the share of items that pass, and whether this is chance."""
    shares = {"held-out items": passes.held_out, "source items": passes.retention}
    texts = [
        standing(f"{what} that pass", text.count("1") / len(text), len(text), chance)
        for what, text in shares.items()
        if text
    ]
    tell(f"{name}: {'; '.join(texts)}")


def _warn_of_chance(
    plan: Plan, runs: Mapping[str, FoldPasses], chances: Mapping[str, float | None]
) -> None:
    found = []
    for run in plan.runs:
        passes = runs[run.name].held_out
        if is_at_chance(passes.count("1") / len(passes), len(passes), chances[run.held_out]):
            found.append(run.name)
    if found:
        tell(
            f"warning: {len(found)} of {counted(len(plan.runs), 'run')} not to be told from chance on what they hold "
            f"out: {', '.join(found)}. docs/train.md says what to expect at which size."
        )


def _check_before_opening(plan: Plan, checks: Sequence[_ScoreJob]) -> None:
    """Run the jobs' self-checks, so that a model that cannot be loaded or scored here spends no opening."""
    if not plan.backbone.is_embedded:
        # A process of its own frees its device memory at its end.
        list(_heard(_check_job, checks, 1))
        return
    threads = torch.get_num_threads()
    try:
        for check in checks:
            _check_job(check)
    finally:
        torch.set_num_threads(threads)


def _check_job(job: _ScoreJob) -> None:
    """Compare the planned backend with the naive one on some source and held-out records, without any verdict."""
    require_unchanged_code(job.code)
    torch.set_num_threads(1)
    plan = open_experiment(job.path).plan
    backbone = planned_backbone(plan, device=device_of(plan.backbone))
    dataset = planned_dataset(plan)
    sources = load_sources(plan, dataset, job.held_out).retention
    # Held-out records may be longer than all training records.
    held_out = [
        list(read_policy_records(one, job.held_out).values())
        for one in (dataset, *planned_test_sets(plan).values())
    ]
    remedy = "give the same command again on a device with more free memory; nothing was opened"
    for records in ([item.supervised.record for item in sources], *held_out):
        with naming_out_of_memory("the self-check before the opening", remedy):
            check_scoring(
                backbone.model,
                backbone.encode,
                records,
                method(job.method),
                backend=plan.config.model.scoring,
                seed=plan.seed,
                gradients=False,
            )


def _score_job(job: _ScoreJob) -> _Scored:
    """Return the passes after each scheduled update of a run, or those of the frozen backbone as update 0."""
    again = f"vcrt evaluate {job.path} --jobs 1"
    if job.prompts_at_a_time > 1:
        again += f" --prompts-at-a-time {max(job.prompts_at_a_time // 4, 1)}"
    remedy = (
        f"go on under the same opening with `{again}`, on a device with more free memory if need be"
    )
    with naming_out_of_memory(job.run.name if job.run else "the frozen backbone", remedy):
        return _scored(job)


def _scored(job: _ScoreJob) -> _Scored:
    require_unchanged_code(job.code)
    torch.set_num_threads(1)
    experiment = open_experiment(job.path)
    plan = experiment.plan
    dataset = planned_dataset(plan)
    backbone = planned_backbone(plan, device=device_of(plan.backbone))
    chosen = method(job.method)

    def shown(items: Sequence[Item]) -> tuple[Sequence[Item], list[EncodedItem]]:
        return items, encoded(backbone, items, chosen, plan.seed)

    set_aside = shown(load_sources(plan, dataset, job.held_out).retention)
    own = shown(_held_out_items(dataset, job.held_out))
    others = {
        name: shown(_held_out_items(other, job.held_out))
        for name, other in planned_test_sets(plan).items()
    }

    def passes(model: CausalModel, of: tuple[Sequence[Item], list[EncodedItem]]) -> str:
        backend, size = plan.config.model.scoring, job.prompts_at_a_time
        return greedy_passes(model, *of, chosen, backend=backend, batch_size=size)

    def scored(model: CausalModel, is_last: bool) -> FoldPasses:
        spread = spread_of(model, *own, chosen, plan, job.prompts_at_a_time) if is_last else None
        return FoldPasses(
            held_out=passes(model, own), retention=passes(model, set_aside), spread=spread
        )

    def scored_elsewhere(model: CausalModel) -> dict[str, str]:
        return {name: passes(model, of) for name, of in others.items()}

    if job.run is None:
        return _Scored({0: scored(backbone.model, True)}, scored_elsewhere(backbone.model))
    # Every file was checked before the folds were opened; each is checked again when it is read here.
    by_update, also_test = {}, {}
    for one in trained_models(experiment, job.run, backbone):
        is_last = one.update == plan.config.schedule.updates
        by_update[one.update] = scored(one.model, is_last)
        if is_last:
            also_test = scored_elsewhere(one.model)
    return _Scored(by_update, also_test)


#: The opened folds of the environment that this process read last, by dataset and environment.
_OPENED: dict[tuple[str, str, str], tuple[Item, ...]] = {}


def _held_out_items(dataset: Dataset, environment: str) -> tuple[Item, ...]:
    """Load the items of an opened fold; a process that scores several runs of the fold reads it once."""
    key = (str(dataset.path), dataset.manifest.root_hash, environment)
    if key not in _OPENED:
        if any(other != environment for _, _, other in _OPENED):
            _OPENED.clear()
        _OPENED[key] = tuple(load_items(dataset, environment))
    return _OPENED[key]


def encoded(
    backbone: Backbone, items: Sequence[Item], chosen: Method, seed: int
) -> list[EncodedItem]:
    """Encode items as a method's policy sees them."""
    return encode_items(
        [item.supervised for item in items],
        chosen,
        seed=seed,
        encode=backbone.encode,
    )


def greedy_passes(
    model: CausalModel,
    items: Sequence[Item],
    ready: Sequence[EncodedItem],
    chosen: Method,
    *,
    backend: Backend = "auto",
    batch_size: int = EVALUATED_AT_A_TIME,
) -> str:
    """Judge one greedy order for each item by its native verdict: ``1`` for a legal order, else ``0``.

    ``ready`` are the items from :func:`encoded`. Raises as :func:`vcrt.datasets.verdicts.passes`.
    """
    prompts = [one.prompt for one in ready]
    answers = greedy_orders(
        model, prompts, interface=chosen.interface, backend=backend, batch_size=batch_size
    )
    return verdicts.passes(items, ready, answers)


def spread_of(
    model: CausalModel,
    items: Sequence[Item],
    ready: Sequence[EncodedItem],
    chosen: Method,
    plan: Plan,
    batch_size: int,
) -> Spread | None:
    """Return what sampled answers to the items would come to; ``ready`` are the items from :func:`encoded`.

    Of long records it is read on ``MOST_SPREAD`` of them, spread evenly over all. Return None if the evidence of an
    item is a sample: its orbit is then no verdict on an order.
    """
    if any(item.unreplayed is not None for item in items):
        return None
    some = list(ready)
    if any(one.listed is None for one in some):
        some = some[:: -(-len(some) // MOST_SPREAD)]
    found = orbit_spread(
        model,
        some,
        interface=chosen.interface,
        config=plan.config.estimator,
        seed=plan.seed,
        backend=plan.config.model.scoring,
        batch_size=batch_size,
    )
    evenness = found.evenness
    return Spread(
        items=len(some),
        pass_at={k: round(found.pass_at(k), 6) for k in PASS_AT},
        evenness=None if evenness is None else round(evenness, 6),
    )


def check_scoring(
    model: CausalModel,
    encode: PromptEncoder,
    records: Sequence[PolicyRecord],
    chosen: Method,
    *,
    backend: Backend,
    seed: int,
    gradients: bool = True,
) -> None:
    """Compare the backend's scores of the first records and of the longest record with the naive scores.

    The longest record is checked by itself unless one of the first is as long: a model may not see all of a long
    record, or another backend may be chosen for it. ``gradients`` also compares gradients of the trainable parameters.
    Raises :class:`vcrt.errors.BackboneError` if they differ. The check uses no information on which orders are legal.
    """
    longest = max(records, key=lambda record: (record.num_operations, len(record.relations)))
    *prompts, last = (
        encode(record, chosen.serialisation, generator(seed, "self-check", record.record_id))
        for record in (*records[:_FIRST], longest)
    )
    counts = dict.fromkeys(prompt.num_operations for prompt in prompts)
    by = [f"{name} by {package}" for name, package in implementations(model).items()]
    how = ", ".join([chosen.interface, *by])
    with stage(f"self-check of the model's scores ({how}) against naive ones"):
        # All records of a batch have the same number of operations; batches come in the order of the records.
        for number, count in enumerate(counts):
            self_check(
                model,
                [prompt for prompt in prompts if prompt.num_operations == count],
                interface=chosen.interface,
                backend=backend,
                gradients=gradients and number == 0,
            )
        if not any(
            prompt.num_operations == last.num_operations
            and len(prompt.token_ids) >= len(last.token_ids)
            for prompt in prompts
        ):
            self_check(model, [last], interface=chosen.interface, backend=backend, gradients=False)
