"""The numbers of a report: rates, differences and retention with their intervals, computed once from the contents.

Not covered: conclusions (:mod:`vcrt.report.judgement`), wording, rounding and drawing. Everything is a fraction of 1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from vcrt.protocol.statistics import Interval, paired_differences
from vcrt.report import paper
from vcrt.report.by_update import UpdatePoint, update_points
from vcrt.report.comparisons import FROZEN, Comparison, compare
from vcrt.report.contents import ReportContents
from vcrt.report.estimates import RATES, Estimate, Scores, by_run, resample
from vcrt.report.task import is_papers_task


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
    """Everything that tables, figures and sentences quote."""

    folds: tuple[str, ...]
    #: Held-out items and retention items of each fold.
    num_items: Mapping[str, int]
    num_retention_items: Mapping[str, int]
    results: tuple[MethodResult, ...]
    frozen: Mapping[str, Estimate]
    frozen_macro: Estimate
    #: Whether an item asks what the paper's do; if not, signs are not compared with the paper's.
    same_task: bool
    #: The method under study, if the plan has it.
    method: str | None
    #: The stronger of the matched baselines by macro, if the plan has one with every fold.
    strongest_baseline: str | None
    #: The method under study minus each other method, and minus the frozen backbone.
    comparisons: Mapping[str, Comparison]
    #: What the interface alone gives: the one matched baseline minus the other.
    interface: Comparison | None
    #: Pass rates of every scored checkpoint; empty if there is none.
    by_update: tuple[UpdatePoint, ...]

    @property
    def headline(self) -> Comparison | None:
        """The method under study minus the strongest baseline."""
        if self.strongest_baseline is None:
            return None
        return self.comparisons.get(self.strongest_baseline)

    def largest_decline(self, folds: Collection[str]) -> tuple[Interval, MethodResult, str, int]:
        """The lowest source retention of a single run on some folds: its value, method, fold and seed."""
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
    """All estimates of a report."""
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
    method = _named(contents, paper.METHOD)
    comparisons = {}
    if method is not None:
        others = [FROZEN, *(m for m in contents.methods if m != method)]
        comparisons = {other: compare(contents, method, other) for other in others}
    return Analysis(
        folds=contents.folds,
        num_items={f: contents.frozen[f].held_out_passes.size for f in contents.folds},
        num_retention_items={f: contents.frozen[f].retention_passes.size for f in contents.folds},
        results=results,
        frozen=before.by_fold(),
        frozen_macro=before.mean(contents.folds),
        same_task=is_papers_task(contents),
        method=method,
        strongest_baseline=_strongest(results),
        comparisons={name: c for name, c in comparisons.items() if c.folds},
        interface=_interface(contents),
        by_update=update_points(contents),
    )


def _named(contents: ReportContents, name: str) -> str | None:
    return next((m for m in contents.methods if paper.same_name(m, name)), None)


def _strongest(results: tuple[MethodResult, ...]) -> str | None:
    """The baseline with the highest macro; of equal ones the first in the plan."""
    macros = {
        r.method: r.macro.value
        for r in results
        if r.macro is not None and any(paper.same_name(r.method, b) for b in paper.BASELINES)
    }
    return max(macros, key=lambda name: macros[name]) if macros else None


def _interface(contents: ReportContents) -> Comparison | None:
    first, second = (
        _named(contents, name) for name in (paper.INTERFACE.method, paper.INTERFACE.minus)
    )
    if first is None or second is None:
        return None
    found = compare(contents, first, second)
    return found if found.folds else None


def _method_result(contents: ReportContents, method: str) -> MethodResult:
    passes, changes, seeds = {}, {}, {}
    for fold in contents.folds:
        runs = contents.runs_of(method, fold)
        if not runs:
            continue
        seeds[fold] = list(runs)
        passes[fold] = np.array([run.held_out_passes for run in runs.values()], dtype=np.float64)
        changes[fold] = paired_differences(
            [run.retention_passes for run in runs.values()],
            [contents.frozen_retention(run) for run in runs.values()],
        )
    scores = Scores(by_fold=passes, seeds=seeds, sources=contents.sources, within=RATES)
    kept = Scores(by_fold=changes, seeds=seeds, sources=contents.retention_sources)
    rates = resample(contents, scores, "pass rate", method)
    return MethodResult(
        method=method,
        folds=rates.by_fold(),
        macro=rates.macro(contents.folds),
        run_rates=by_run(scores),
        retention=resample(contents, kept, "retention", method).by_fold(),
        run_retention=by_run(kept),
    )
