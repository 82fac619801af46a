"""The tables about further test sets: pass rates of every method on each, and what they differ by, with intervals.

The statistics are those of the plan's own held-out items. Not covered: retention and checkpoints, which are about the
plan's own dataset.
"""

from __future__ import annotations

from dataclasses import replace

from vcrt.protocol.test_sets import OWN
from vcrt.randomness import derive_seed
from vcrt.report.analysis import Analysis, analyse
from vcrt.report.cells import INTERVALS, MISSING, TWO_INTERVALS, difference_cells, rate_cells
from vcrt.report.comparisons import FROZEN
from vcrt.report.contents import FoldScore, ReportContents
from vcrt.report.data_words import is_sampled
from vcrt.report.estimates import Estimate
from vcrt.report.table import Cell, Table
from vcrt.report.task import chance, chance_of, steps_text
from vcrt.report.wording import counted, counted_range, label, listed, percent, points


def seen_on(contents: ReportContents, name: str) -> ReportContents:
    """The contents of a report on one further test set alone: the same runs at their last update, on its items."""
    scores = contents.also_test[name]
    return replace(
        contents,
        dataset=scores.dataset,
        frozen={
            fold: FoldScore(
                held_out_passes=passes, retention_passes=contents.frozen[fold].retention_passes
            )
            for fold, passes in scores.frozen.items()
        },
        runs=tuple(
            replace(
                run,
                held_out_passes=scores.runs[run.method, run.held_out, run.seed],
                frozen_held_out_passes=None,
                checkpoints={},
                curve=(),
            )
            for run in contents.runs
        ),
        also_test={},
        sources=scores.sources,
        seed=derive_seed(contents.seed, "test set", name),
    )


def tables_of_test_sets(contents: ReportContents, own: Analysis) -> tuple[Table, ...]:
    """Pass rates by method and test set, and differences if there is what to compare; nothing without a test set."""
    if not contents.also_test:
        return ()
    sets: list[tuple[str, ReportContents, Analysis]] = [(OWN, contents, own)]
    for name in contents.also_test:
        there = seen_on(contents, name)
        sets.append((name, there, analyse(there)))
    found = [_rates(sets)]
    if own.comparisons:
        found.append(_differences(sets))
    return tuple(found)


def _rates(sets: list[tuple[str, ReportContents, Analysis]]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, contents, analysis in sets:
        start = (name, _steps(contents))
        folds = analysis.folds
        frozen = [percent(analysis.frozen[fold].value) for fold in folds]
        by_chance = [
            MISSING if share is None else percent(share)
            for share in (*(chance_of(contents, fold) for fold in folds), chance(contents))
        ]
        rows.append((*start, "Random order", *by_chance, MISSING, MISSING))
        rows.append((*start, FROZEN, *frozen, *rate_cells(analysis.frozen_macro)))
        for result in analysis.results:
            rates = [
                percent(result.folds[f].value) if f in result.folds else MISSING for f in folds
            ]
            rows.append((*start, label(result.method), *rates, *_macro(result.macro)))
    _, contents, analysis = sets[0]
    return Table(
        name="test-sets",
        title="Pass rate (%) by test set, one greedy answer per item",
        columns=(
            "Test set",
            "Steps",
            "Method",
            *(label(fold) for fold in analysis.folds),
            "Macro",
            *INTERVALS,
        ),
        rows=tuple(rows),
        note=(
            f"The same runs, trained on {steps_text(contents.dataset)} steps, on each test set's items of the "
            f"held-out environment: {_sizes(sets)}. Nothing was trained on them; {OWN!r} is the plan's own dataset. "
            f"{TWO_INTERVALS}{_sampled(contents)}{_openings(contents)}"
        ),
    )


def _differences(sets: list[tuple[str, ReportContents, Analysis]]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            name,
            _steps(contents),
            label(minus),
            *(
                points(comparison.folds[fold].value) if fold in comparison.folds else MISSING
                for fold in analysis.folds
            ),
            *difference_cells(comparison.macro),
        )
        for name, contents, analysis in sets
        for minus, comparison in analysis.comparisons.items()
    ]
    analysis = sets[0][2]
    method = label(analysis.method or "")
    return Table(
        name="test-sets-differences",
        title=f"{method} minus each other method by test set (points)",
        columns=(
            "Test set",
            "Steps",
            "Minus",
            *(label(fold) for fold in analysis.folds),
            "Macro",
            *INTERVALS,
        ),
        rows=tuple(rows),
        note=f"Positive values favour {method}. Intervals belong to the macro difference. {TWO_INTERVALS}",
    )


def _steps(contents: ReportContents) -> Cell:
    steps = steps_text(contents.dataset)
    return int(steps) if steps.isdecimal() else steps


def _macro(estimate: Estimate | None) -> tuple[Cell, ...]:
    return (MISSING, MISSING, MISSING) if estimate is None else rate_cells(estimate)


def _sizes(sets: list[tuple[str, ReportContents, Analysis]]) -> str:
    return listed(
        [
            f"{counted_range(analysis.num_items.values(), 'item')} a fold of {name}"
            for name, _, analysis in sets
        ]
    )


def _sampled(contents: ReportContents) -> str:
    """Says of which test sets the evidence is no replay of every reachable context; nothing if of none."""
    found = [
        name for name, scores in contents.also_test.items() if is_sampled(scores.dataset["counts"])
    ]
    if not found:
        return ""
    return f" The evidence of {listed(found)} is sampled, not complete; each greedy order was replayed."


def _openings(contents: ReportContents) -> str:
    """Says which test sets other plans had opened; nothing if none."""
    opened = [
        f"{name} by {counted(scores.opened_by_others, 'other plan')}"
        for name, scores in contents.also_test.items()
        if scores.opened_by_others
    ]
    return f" Opened before: {listed(opened)}." if opened else ""
