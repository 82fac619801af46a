"""The numbers of a report: rates, differences and retention with their intervals, computed once from the contents.

Each interval has its own named generator, so that it does not depend on which other intervals are computed. Not
covered: conclusions (:mod:`vcrt.report.judgement`), wording, rounding and drawing. Everything is a fraction of 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from vcrt.protocol.statistics import (
    FloatArray,
    Interval,
    hierarchical_bootstrap,
    negative_comparisons,
    paired_bootstrap,
    paired_differences,
)
from vcrt.randomness import generator
from vcrt.report import paper
from vcrt.report.contents import ReportContents

#: The name under which rows show the backbone before training.
FROZEN = "Frozen backbone"


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """One estimate with both intervals: items resampled (the paper's), and runs and items resampled."""

    items: Interval
    runs_and_items: Interval

    @property
    def value(self) -> float:
        """The estimate itself, the same for both intervals."""
        return self.items.estimate


@dataclass(frozen=True, kw_only=True, slots=True)
class MethodResult:
    """One method's held-out pass rates and source retention, by fold; ``macro`` only if it has every fold."""

    method: str
    folds: Mapping[str, Estimate]
    macro: Estimate | None
    #: By fold and seed.
    run_rates: Mapping[str, Mapping[int, float]]
    #: Pass rate on source items not trained on, minus the frozen backbone's.
    retention: Mapping[str, Estimate]
    run_retention: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """``method`` minus ``minus``, paired by item and by seed; ``macro`` only if both have every fold."""

    method: str
    minus: str
    folds: Mapping[str, Estimate]
    macro: Estimate | None
    #: How many pairs of runs each fold has.
    num_runs: Mapping[str, int]
    num_negative: int
    num_comparisons: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Analysis:
    """Everything that tables, figures and sentences quote."""

    folds: tuple[str, ...]
    #: Held-out items and retention items of each fold.
    num_items: Mapping[str, int]
    num_retention_items: Mapping[str, int]
    results: tuple[MethodResult, ...]
    frozen: Mapping[str, Estimate]
    frozen_macro: Estimate
    #: The method under study, if the plan has it.
    method: str | None
    #: The stronger of the matched baselines by macro, if the plan has one with every fold.
    strongest_baseline: str | None
    #: The method under study minus each other method, and minus the frozen backbone.
    comparisons: Mapping[str, Comparison]

    @property
    def headline(self) -> Comparison | None:
        """The method under study minus the strongest baseline."""
        if self.strongest_baseline is None:
            return None
        return self.comparisons.get(self.strongest_baseline)

    def largest_decline(self, folds: Collection[str]) -> tuple[float, MethodResult, str, int]:
        """The lowest source retention of a single run on some folds: its value, method, fold and seed."""
        runs = (
            (value, index, fold, seed)
            for index, result in enumerate(self.results)
            for fold, by_seed in result.run_retention.items()
            if fold in folds
            for seed, value in by_seed.items()
        )
        value, index, fold, seed = min(runs)
        return value, self.results[index], fold, seed


def analyse(contents: ReportContents) -> Analysis:
    """All estimates of a report."""
    results = tuple(_method_result(contents, method) for method in contents.methods)
    frozen = {
        fold: contents.frozen[fold].held_out_passes[np.newaxis].astype(np.float64)
        for fold in contents.folds
    }
    method = next((m for m in contents.methods if paper.same_name(m, paper.METHOD)), None)
    comparisons = {}
    if method is not None:
        others = [FROZEN, *(m for m in contents.methods if m != method)]
        comparisons = {other: _comparison(contents, method, other) for other in others}
    return Analysis(
        folds=contents.folds,
        num_items={f: contents.frozen[f].held_out_passes.size for f in contents.folds},
        num_retention_items={f: contents.frozen[f].retention_passes.size for f in contents.folds},
        results=results,
        frozen=_by_fold(contents, frozen, "pass rate", FROZEN),
        frozen_macro=_estimate(contents, frozen, "pass rate", FROZEN, "macro"),
        method=method,
        strongest_baseline=_strongest(results),
        comparisons={name: c for name, c in comparisons.items() if c.folds},
    )


def _strongest(results: tuple[MethodResult, ...]) -> str | None:
    """The baseline with the highest macro; of equal ones the first in the plan."""
    macros = {
        r.method: r.macro.value
        for r in results
        if r.macro is not None and any(paper.same_name(r.method, b) for b in paper.BASELINES)
    }
    return max(macros, key=lambda name: macros[name]) if macros else None


def _method_result(contents: ReportContents, method: str) -> MethodResult:
    passes, changes, run_rates, run_retention = {}, {}, {}, {}
    for fold in contents.folds:
        runs = contents.runs_of(method, fold)
        if not runs:
            continue
        passes[fold] = np.array([run.held_out_passes for run in runs.values()], dtype=np.float64)
        changes[fold] = paired_differences(
            [run.retention_passes for run in runs.values()],
            [contents.frozen_retention(run) for run in runs.values()],
        )
        run_rates[fold] = dict(zip(runs, passes[fold].mean(axis=1).tolist(), strict=True))
        run_retention[fold] = dict(zip(runs, changes[fold].mean(axis=1).tolist(), strict=True))
    rates, macro = _estimates(contents, passes, "pass rate", method)
    return MethodResult(
        method=method,
        folds=rates,
        macro=macro,
        run_rates=run_rates,
        retention=_by_fold(contents, changes, "retention", method),
        run_retention=run_retention,
    )


def _comparison(contents: ReportContents, method: str, other: str) -> Comparison:
    differences = {}
    for fold in contents.folds:
        first = contents.runs_of(method, fold)
        second = contents.runs_of(other, fold)
        seeds = [seed for seed in first if other == FROZEN or seed in second]
        if seeds:
            baseline = [
                contents.frozen[fold].held_out_passes
                if other == FROZEN
                else second[seed].held_out_passes
                for seed in seeds
            ]
            differences[fold] = paired_differences(
                [first[seed].held_out_passes for seed in seeds], baseline
            )
    folds, macro = _estimates(contents, differences, "difference", f"{method}-{other}")
    num_negative, num_comparisons = negative_comparisons(differences)
    return Comparison(
        method=method,
        minus=other,
        folds=folds,
        macro=macro,
        num_runs={fold: len(values) for fold, values in differences.items()},
        num_negative=num_negative,
        num_comparisons=num_comparisons,
    )


def _estimates(
    contents: ReportContents, scores: Mapping[str, FloatArray], *names: str
) -> tuple[dict[str, Estimate], Estimate | None]:
    """Each fold's estimate, and the macro estimate if no fold of the report is missing."""
    complete = set(scores) == set(contents.folds)
    folds = _by_fold(contents, scores, *names)
    return folds, _estimate(contents, scores, *names, "macro") if complete else None


def _by_fold(
    contents: ReportContents, scores: Mapping[str, FloatArray], *names: str
) -> dict[str, Estimate]:
    return {
        fold: _estimate(contents, {fold: values}, *names, fold) for fold, values in scores.items()
    }


def _estimate(contents: ReportContents, scores: Mapping[str, FloatArray], *names: str) -> Estimate:
    return Estimate(
        items=paired_bootstrap(
            scores, generator(contents.seed, "report", "items", *names), contents.num_resamples
        ),
        runs_and_items=hierarchical_bootstrap(
            scores, generator(contents.seed, "report", "runs", *names), contents.num_resamples
        ),
    )
