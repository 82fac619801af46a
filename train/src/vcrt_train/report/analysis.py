"""Compute the numbers of a report once from its contents: rates, differences and retention with their intervals.

The numbers by update include the backbone before training, every scored checkpoint, and the last update; held-out
passes of checkpoints are also read only after the opening. All values are fractions of 1. Not covered: conclusions
(:mod:`vcrt_train.report.summary`), wording, rounding and drawing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from vcrt_train.protocol.statistics import Interval, paired_differences
from vcrt_train.report.contents import BoolArray, ReportContents
from vcrt_train.report.estimates import (
    FROZEN,
    RATES,
    Comparison,
    Estimate,
    Scores,
    by_run,
    compare,
    resample,
)
from vcrt_train.report.wording import BASELINES, CANONICAL, OUTCOME, method_under_study, same_name

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
    """Compute the points of one method, update and kind from plain arrays: passes ``[items]`` by fold and seed.

    The macro point is the last one, if no fold of the report is missing.
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
    """Compute the points of every method at every update; empty if no checkpoint was scored."""
    if not any(run.checkpoints for run in contents.runs):
        return ()
    passes: dict[tuple[str, int, str], dict[str, dict[int, BoolArray]]] = {}
    for run in contents.runs:
        scored = {0: contents.frozen_of(run), **run.checkpoints, run.last_update: run}
        for update, score in scored.items():
            kinds = {HELD_OUT: score.held_out_passes, SOURCE: score.retention_passes}
            for kind, values in kinds.items():
                by_fold = passes.setdefault((run.method, update, kind), {})
                by_fold.setdefault(run.held_out, {})[run.seed] = values
    return tuple(
        point
        for method in contents.methods
        for (name, update, kind), by_fold in sorted(passes.items())
        if name == method
        for point in points_of(contents, method, update, kind, by_fold)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodResult:
    """One method's held-out pass rates and source retention, by fold; ``macro`` only if it has every fold."""

    method: str
    folds: Mapping[str, Estimate]
    macro: Estimate | None
    #: By fold and seed, with the interval over items.
    run_rates: Mapping[str, Mapping[int, Interval]]
    #: Pass rate on source items not trained on, minus the frozen backbone's.
    retention: Mapping[str, Estimate]
    run_retention: Mapping[str, Mapping[int, Interval]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Analysis:
    """All numbers of tables, figures and sentences, with the contents from which they are computed."""

    contents: ReportContents
    results: tuple[MethodResult, ...]
    frozen: Mapping[str, Estimate]
    frozen_macro: Estimate
    #: The method under study, if the plan has it.
    method: str | None
    #: The stronger of the matched baselines by macro, if the plan has one with every fold.
    strongest_baseline: str | None
    #: The method under study minus each other method, and minus the frozen backbone.
    comparisons: Mapping[str, Comparison]
    #: The effect of the interface alone: one matched baseline minus the other.
    interface: Comparison | None
    #: Pass rates of every scored checkpoint; empty if there is none.
    by_update: tuple[UpdatePoint, ...]

    @property
    def folds(self) -> tuple[str, ...]:
        """The held-out environments, in the order of the plan."""
        return self.contents.folds

    @property
    def headline(self) -> Comparison | None:
        """The method under study minus the strongest baseline."""
        return self.comparisons.get(self.strongest_baseline or "")

    @property
    def all_comparisons(self) -> tuple[Comparison, ...]:
        """The comparisons of the method under study, and the effect of the interface alone."""
        return (*self.comparisons.values(), *([self.interface] if self.interface else []))

    @property
    def rates(self) -> list[tuple[str, Mapping[str, Estimate], Estimate | None]]:
        """Held-out pass rates by fold and as macro: of the frozen backbone, then of each method."""
        trained = [(result.method, result.folds, result.macro) for result in self.results]
        return [(FROZEN, self.frozen, self.frozen_macro), *trained]

    def num_items(self, fold: str) -> int:
        """Return the number of held-out items of a fold."""
        return self.contents.frozen[fold].held_out_passes.size

    def num_retention_items(self, fold: str) -> int:
        """Return the number of a fold's source items that are not trained on."""
        return self.contents.frozen[fold].retention_passes.size

    def largest_decline(self, folds: Collection[str]) -> tuple[Interval, MethodResult, str, int]:
        """Find the lowest source retention of a single run on some folds: its value, method, fold and seed."""
        runs = (
            (value.estimate, index, fold, seed)
            for index, result in enumerate(self.results)
            for fold, by_seed in result.run_retention.items()
            if fold in folds
            for seed, value in by_seed.items()
        )
        _, index, fold, seed = min(runs)
        result = self.results[index]
        return result.run_retention[fold][seed], result, fold, seed


def analyse(contents: ReportContents) -> Analysis:
    """Compute all estimates of a report."""
    results = tuple(_method_result(contents, method) for method in contents.methods)
    frozen = Scores(
        by_fold={
            fold: contents.frozen[fold].held_out_passes[np.newaxis].astype(np.float64)
            for fold in contents.folds
        },
        seeds={fold: [0] for fold in contents.folds},
        sources=contents.sources,
        within=RATES,
        same_runs=True,
    )
    before = resample(contents, frozen, "pass rate", FROZEN)
    method = method_under_study(contents.methods)
    others = [] if method is None else [FROZEN, *(m for m in contents.methods if m != method)]
    return Analysis(
        contents=contents,
        results=results,
        frozen=before.means(),
        frozen_macro=before.mean(contents.folds),
        method=method,
        strongest_baseline=_strongest(results),
        comparisons={other: c for other in others if (c := _compare(contents, method, other))},
        interface=_compare(contents, _named(contents, CANONICAL), _named(contents, OUTCOME)),
        by_update=update_points(contents),
    )


def _named(contents: ReportContents, name: str) -> str | None:
    return next((m for m in contents.methods if same_name(m, name)), None)


def _compare(contents: ReportContents, first: str | None, second: str | None) -> Comparison | None:
    """Compare two methods; return None if one of them was not run, or if they share no fold."""
    found = compare(contents, first, second) if first and second else None
    return found if found and found.folds else None


def _strongest(results: tuple[MethodResult, ...]) -> str | None:
    """Return the baseline with the highest macro; if equal, the first in the plan."""
    macros = {
        r.method: r.macro.value
        for r in results
        if r.macro is not None and any(same_name(r.method, b) for b in BASELINES)
    }
    return max(macros, key=lambda name: macros[name], default=None)


def _method_result(contents: ReportContents, method: str) -> MethodResult:
    passes, changes, seeds = {}, {}, {}
    for fold in contents.folds:
        if runs := contents.runs_of(method, fold):
            seeds[fold] = list(runs)
            passes[fold] = np.array([run.held_out_passes for run in runs.values()], np.float64)
            changes[fold] = paired_differences(
                [run.retention_passes for run in runs.values()],
                [contents.frozen_of(run).retention_passes for run in runs.values()],
            )
    scores = Scores(by_fold=passes, seeds=seeds, sources=contents.sources, within=RATES)
    kept = Scores(by_fold=changes, seeds=seeds, sources=contents.retention_sources)
    rates = resample(contents, scores, "pass rate", method)
    return MethodResult(
        method=method,
        folds=rates.means(),
        macro=rates.macro(contents.folds),
        run_rates=by_run(scores),
        retention=resample(contents, kept, "retention", method).means(),
        run_retention=by_run(kept),
    )
