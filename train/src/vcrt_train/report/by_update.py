"""Estimate pass rates by update: the backbone before training, every checkpoint that was scored, and the last update.

The held-out passes of checkpoints are read after the opening, with everything else. Not covered: how they were scored,
and how they are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from vcrt_train.protocol.statistics import Interval
from vcrt_train.report.contents import BoolArray, ReportContents
from vcrt_train.report.estimates import RATES, Scores

HELD_OUT, SOURCE = "held-out", "source"


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdatePoint:
    """The pass rate of a method's runs after ``update`` updates, with its interval over runs and items.

    ``kind`` is ``held-out`` or ``source``; ``fold`` is None for the macro mean.
    """

    method: str
    fold: str | None
    update: int
    kind: str
    interval: Interval


def points_of(
    contents: ReportContents,
    method: str,
    update: int,
    kind: str,
    passes: Mapping[str, Mapping[int, BoolArray]],
) -> list[UpdatePoint]:
    """The points of one method, update and kind from plain arrays: passes ``[items]`` by fold and seed.

    The macro point stands last, if no fold of the report is missing.
    """
    scores = Scores(
        by_fold={f: np.array([*runs.values()], dtype=np.float64) for f, runs in passes.items()},
        seeds={fold: list(runs) for fold, runs in passes.items()},
        sources=contents.sources if kind == HELD_OUT else contents.retention_sources,
        within=RATES,
        # Each source environment is a source of all folds but one.
        shared_items=kind == SOURCE,
    )
    groups: dict[str | None, list[str]] = {fold: [fold] for fold in passes}
    if set(passes) == set(contents.folds):
        groups[None] = list(passes)
    return [
        UpdatePoint(
            method=method,
            fold=fold,
            update=update,
            kind=kind,
            interval=scores.interval({name: scores.by_fold[name] for name in folds}),
        )
        for fold, folds in groups.items()
    ]


def update_points(contents: ReportContents) -> tuple[UpdatePoint, ...]:
    """Every method at every update; empty if no checkpoint was scored."""
    if not any(run.checkpoints for run in contents.runs):
        return ()
    passes: dict[tuple[str, int, str], dict[str, dict[int, BoolArray]]] = {}
    for run in contents.runs:
        scored = {0: contents.frozen_of(run), **run.checkpoints, run.last_update: run}
        for update, score in scored.items():
            for kind, values in (
                (HELD_OUT, score.held_out_passes),
                (SOURCE, score.retention_passes),
            ):
                by_fold = passes.setdefault((run.method, update, kind), {})
                by_fold.setdefault(run.held_out, {})[run.seed] = values
    return tuple(
        point
        for method in contents.methods
        for (name, update, kind), by_fold in sorted(passes.items())
        if name == method
        for point in points_of(contents, method, update, kind, by_fold)
    )
