"""Make the tables about further test sets: pass rates of every method on each, and what they differ by, with intervals.

The statistics are those of the plan's own held-out items. Not covered: retention and checkpoints, which are about the
plan's own dataset.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from vcrt.printable import counted, listed
from vcrt.randomness import derive_seed
from vcrt.words.evidence_words import is_sampled
from vcrt_train.protocol.plan import OWN
from vcrt_train.report.analysis import Analysis, analyse
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.table import Cell, Table
from vcrt_train.report.task import chance, steps_text
from vcrt_train.report.wording import (
    INTERVALS,
    MISSING,
    TWO_INTERVALS,
    counted_range,
    difference_cells,
    fold_cells,
    label,
    percent,
    points,
    rate_cells,
)


def seen_on(contents: ReportContents, name: str) -> ReportContents:
    """The contents of a report on one further test set alone: the same runs at their last update, on its items."""
    scores = contents.also_test[name]
    return replace(
        contents,
        dataset=scores.dataset,
        frozen={
            fold: replace(contents.frozen[fold], held_out_passes=passes)
            for fold, passes in scores.frozen.items()
        },
        runs=tuple(
            replace(
                run,
                held_out_passes=scores.runs[run.method, run.held_out, run.seed],
                frozen=replace(
                    contents.frozen_of(run), held_out_passes=scores.frozen[run.held_out]
                ),
                checkpoints={},
                curve=(),
            )
            for run in contents.runs
        ),
        also_test={},
        sources=scores.sources,
        seed=derive_seed(contents.seed, "test set", name),
    )


def tables_of_test_sets(own: Analysis) -> tuple[Table, ...]:
    """Pass rates by method and test set, and differences if there is what to compare; nothing without a test set."""
    contents = own.contents
    if not contents.also_test:
        return ()
    sets = {OWN: own, **{name: analyse(seen_on(contents, name)) for name in contents.also_test}}
    return (_rates(sets), *([_differences(sets)] if own.comparisons else []))


def _rates(sets: Mapping[str, Analysis]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, analysis in sets.items():
        contents, folds = analysis.contents, analysis.folds
        start = (name, _steps(contents))
        shares = [chance(contents, fold) for fold in (*folds, None)]
        by_chance = [MISSING if share is None else percent(share) for share in shares]
        rows.append((*start, "Random order", *by_chance, MISSING, MISSING))
        rows += [
            (*start, label(method), *fold_cells(rates, folds, percent), *rate_cells(macro))
            for method, rates, macro in analysis.rates
        ]
    own = sets[OWN].contents
    return Table(
        name="test-sets",
        title="Pass rate (%) by test set, one greedy answer per item",
        columns=("Test set", "Steps", "Method", *map(label, own.folds), "Macro", *INTERVALS),
        rows=tuple(rows),
        note=(
            f"The same runs, trained on {steps_text(own.dataset)} steps, on each test set's items of the "
            f"held-out environment: {_sizes(sets)}. Nothing was trained on them; {OWN!r} is the plan's own dataset. "
            f"{TWO_INTERVALS}{_sampled(own)}{_openings(own)}"
        ),
    )


def _differences(sets: Mapping[str, Analysis]) -> Table:
    method = label(sets[OWN].method or "")
    return Table(
        name="test-sets-differences",
        title=f"{method} minus each other method by test set (points)",
        columns=(
            *("Test set", "Steps", "Minus", *map(label, sets[OWN].folds), "Macro"),
            *INTERVALS,
        ),
        rows=tuple(
            (
                *(name, _steps(analysis.contents), label(minus)),
                *fold_cells(comparison.folds, analysis.folds, points),
                *difference_cells(comparison.macro),
            )
            for name, analysis in sets.items()
            for minus, comparison in analysis.comparisons.items()
        ),
        note=f"Positive values favour {method}. Intervals belong to the macro difference. {TWO_INTERVALS}",
    )


def _steps(contents: ReportContents) -> Cell:
    steps = steps_text(contents.dataset)
    return int(steps) if steps.isdecimal() else steps


def _sizes(sets: Mapping[str, Analysis]) -> str:
    numbers = {name: [of.num_items(fold) for fold in of.folds] for name, of in sets.items()}
    return listed([f"{counted_range(of, 'item')} a fold of {name}" for name, of in numbers.items()])


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
