"""Probe policy records: everything that must be at chance, and the controls that must not be, with one interval each.

A probe fits a linear classifier to features of a record (:mod:`vcrt_research.anonymity.views`,
:mod:`vcrt_research.anonymity.hidden`) and is scored on records that it was not fitted to
(:mod:`vcrt_research.anonymity.auc`). With some sixteen probes at 95% each, one would miss chance by accident in
every second dataset or so; therefore the intervals are simultaneous (Bonferroni): under chance all of them hold 0.5 in
at least 95% of datasets. ``p_value`` is that of one permutation check by itself, without this correction.

Not covered: a guesser that knows a dataset's seed, which is in its manifest, and can sample the same episodes. It can
compute every record's identity and pointers anew: a record hides its episode only from whoever does not have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vcrt.progress import SILENT, Progress
from vcrt.records.dataset import Dataset
from vcrt.records.policy_view import POINTER_POOL
from vcrt_research.anonymity.auc import Auc, cross_validated_auc
from vcrt_research.anonymity.files import file_findings
from vcrt_research.anonymity.hidden import HIDDEN_VIEWS, hidden_features
from vcrt_research.anonymity.material import ProbedRecord, read_probed_records
from vcrt_research.anonymity.result import (
    AnonymityReport,
    ProbeResult,
    Target,
    Unmeasured,
    View,
)
from vcrt_research.anonymity.tasks import CONTROLS, TARGETS, Task, make_task
from vcrt_research.anonymity.views import WORD_VIEWS, row_order_features, word_features
from vcrt_train.config import EMBEDDED_LONG_NAME, EMBEDDED_NAME
from vcrt_train.policy.backbone import Backbone, load_backbone
from vcrt_train.randomness import generator

#: The share of datasets in which, under chance, every interval holds 0.5.
LEVEL = 0.95
NUM_PERMUTATIONS = 500
#: A control only has to be far from chance.
NUM_CONTROL_PERMUTATIONS = 100
#: Chosen on planted leaks: hidden states are few and correlated, words many and sparse.
HIDDEN_PENALTY, WORD_PENALTY = 0.1, 3.0


@dataclass(frozen=True, slots=True)
class _Planned:
    """A task, or why there is none, and the views from which it is guessed."""

    target: Target
    task: Task | None
    views: tuple[View, ...]
    reason: str


def probe_dataset(
    dataset: Dataset,
    *,
    seed: int = 0,
    num_permutations: int = NUM_PERMUTATIONS,
    progress: Progress = SILENT,
) -> AnonymityReport:
    """Probe every policy record of a dataset, with the embedded backbone that reads them for hidden states."""
    records = read_probed_records(dataset)
    is_long = any(one.record.pool > POINTER_POOL for one in records)
    backbone = load_backbone(EMBEDDED_LONG_NAME if is_long else EMBEDDED_NAME)
    results, controls, unmeasured = probe_records(
        records,
        backbone,
        seed=seed,
        num_permutations=num_permutations,
        progress=progress,
    )
    return AnonymityReport(
        root_hash=dataset.manifest.root_hash,
        backbone_digest=backbone.digest,
        seed=seed,
        level=LEVEL,
        results=results,
        controls=controls,
        unmeasured=unmeasured,
        findings=file_findings(dataset),
    )


def probe_records(
    records: Sequence[ProbedRecord],
    backbone: Backbone,
    *,
    seed: int = 0,
    num_permutations: int = NUM_PERMUTATIONS,
    progress: Progress = SILENT,
) -> tuple[tuple[ProbeResult, ...], tuple[ProbeResult, ...], tuple[Unmeasured, ...]]:
    """The probes, the controls, and what could not be measured."""
    planned = _plan(records, seed)
    total = sum(len(plan.views) for plan in planned if plan.task is not None)
    shown = progress.task("probe: guess what records must not say", total, "probes")
    found: dict[bool, list[tuple[Task, View, Auc]]] = {False: [], True: []}
    unmeasured = []
    for plan in planned:
        if plan.task is None:
            view = plan.views[0] if len(plan.views) == 1 else None
            unmeasured.append(Unmeasured(target=plan.target, view=view, reason=plan.reason))
            continue
        control = plan.target in CONTROLS
        for view, features in _features(plan.task, plan.views, backbone, seed):
            auc = cross_validated_auc(
                features,
                plan.task.design,
                generator(seed, "anonymity", "permutations", plan.target, view),
                penalty=penalty(view),
                num_permutations=NUM_CONTROL_PERMUTATIONS if control else num_permutations,
            )
            found[control].append((plan.task, view, auc))
            shown.advance()
    level = 1 - (1 - LEVEL) / max(len(found[False]), 1)
    results, controls = (
        tuple(_result(task, view, auc, level) for task, view, auc in found[control])
        for control in (False, True)
    )
    return results, controls, tuple(unmeasured)


def _plan(records: Sequence[ProbedRecord], seed: int) -> list[_Planned]:
    every_view: tuple[View, ...] = (*WORD_VIEWS, *HIDDEN_VIEWS)
    unmatched = {
        "environment": "no relation types are shared by enough records of two environments",
        "schema": "no relation types are shared by enough records of two schemas",
        "relation types": "too few records differ in their relation types",
    }
    planned = [
        _Planned(
            target,
            make_task(target, records, seed),
            every_view,
            unmatched.get(target, "too few records have legal and illegal orders"),
        )
        for target in (*TARGETS, *CONTROLS)
    ]
    by_file: tuple[tuple[Target, str], ...] = (
        ("environment", "no file holds records of two environments"),
        ("schema", "no file holds enough records of two schemas"),
    )
    for target, reason in by_file:
        task = make_task(target, records, seed, by_file=True)
        planned.append(_Planned(target, task, ("row order",), reason))
    return planned


def _features(
    task: Task, views: Sequence[View], backbone: Backbone, seed: int
) -> Iterator[tuple[View, npt.NDArray[np.float64]]]:
    if "row order" in views:
        yield "row order", row_order_features(task)
    for view in WORD_VIEWS:
        if view in views:
            yield view, word_features(task, view, seed)
    if set(HIDDEN_VIEWS) & set(views):
        yield from hidden_features(task, backbone, seed).items()


def penalty(view: View) -> float:
    """The ridge penalty for the features of a view."""
    return HIDDEN_PENALTY if view in HIDDEN_VIEWS else WORD_PENALTY


def _result(task: Task, view: View, auc: Auc, level: float) -> ProbeResult:
    low, high = auc.interval(level)
    return ProbeResult(
        target=task.target,
        view=view,
        num_records=len(task.records),
        num_classes=len(task.classes),
        auc=auc.value,
        low=low,
        high=high,
        p_value=auc.p_value,
        at_chance=low <= 0.5,
    )
