"""The tables of differences: the headline, each ablation, each fold and run, the paper's backbones, and the signs.

Everything is in percentage points. Not covered: sentences (:mod:`vcrt.report.summary`).
"""

from __future__ import annotations

from collections.abc import Iterator

from vcrt.report import paper
from vcrt.report.agreement import Agreement, sign_rows
from vcrt.report.analysis import Analysis
from vcrt.report.cells import (
    INTERVALS,
    MISSING,
    OVER_ITEMS,
    TWO_INTERVALS,
    difference_cells,
    paper_note,
    published_differences,
    published_macro,
)
from vcrt.report.comparisons import FROZEN, Comparison
from vcrt.report.contents import ReportContents
from vcrt.report.table import Table
from vcrt.report.wording import bracketed, interval_text, label, listed, points, signed


def difference_table(comparison: Comparison, folds: tuple[str, ...]) -> Table:
    """One paired difference by fold and macro, with both intervals and the paper's value."""
    published = paper.published_difference(comparison.method, comparison.minus)
    values = published_differences(published, folds)
    rows = [
        (label(fold), *difference_cells(comparison.folds.get(fold)), value)
        for fold, value in zip(folds, values, strict=True)
    ]
    rows.append(("Macro", *difference_cells(comparison.macro), published_macro(published, folds)))
    method, minus = label(comparison.method), label(comparison.minus)
    negative = f"{comparison.num_negative} of {comparison.num_comparisons}"
    theirs = " of ".join(map(str, paper.NEGATIVE_COMPARISONS))
    beside = f" (the paper: {theirs})" if paper.has_any(folds) else ""
    return Table(
        name="difference",
        title=f"{method} minus {minus}, the strongest baseline (points)",
        columns=("Held out", "Difference", *INTERVALS, "Difference (paper)"),
        rows=tuple(rows),
        note=(
            f"{negative} fold-by-run comparisons are negative{beside}. {TWO_INTERVALS} "
            f"{paper_note(folds)}"
        ),
        aside=frozenset({"Difference (paper)"}),
    )


def mechanism_table(analysis: Analysis) -> Table:
    """The method under study minus everything else: fold differences, macro and both intervals."""
    rows = []
    for name, comparison in analysis.comparisons.items():
        published = paper.published_difference(comparison.method, name)
        rows.append(
            (
                label(name),
                *(
                    points(comparison.folds[f].value) if f in comparison.folds else MISSING
                    for f in analysis.folds
                ),
                *difference_cells(comparison.macro),
                f"{comparison.num_negative} of {comparison.num_comparisons}",
                *published_differences(published, analysis.folds),
                published_macro(published, analysis.folds),
            )
        )
    method = label(analysis.method or "")
    folds = [label(fold) for fold in analysis.folds]
    aside = (*(f"{fold} (paper)" for fold in folds), "Macro (paper)")
    return Table(
        name="mechanism",
        title=f"{method} minus each other method (points); positive values favour {method}",
        columns=("Minus", *folds, "Macro", *INTERVALS, "Negative", *aside),
        rows=tuple(rows),
        note=(
            "Intervals belong to the macro difference; those of the folds are in the table of differences by fold. "
            f"Negative: fold-by-run comparisons below zero. {TWO_INTERVALS} {paper_note(analysis.folds)}"
        ),
        aside=frozenset(aside),
    )


def by_fold_table(analysis: Analysis) -> Table:
    """Every comparison on every fold with both intervals."""
    rows = tuple(
        (label(c.method), label(c.minus), label(fold), *difference_cells(estimate))
        for c in _comparisons(analysis)
        for fold, estimate in c.folds.items()
    )
    return Table(
        name="differences-by-fold",
        title="Differences by fold (points)",
        columns=("Method", "Minus", "Held out", "Difference", *INTERVALS),
        rows=rows,
        note=TWO_INTERVALS,
    )


def by_run_table(analysis: Analysis) -> Table:
    """The macro difference of every seed: how runs differ."""
    rows = tuple(
        (label(c.method), label(c.minus), seed, points(value.estimate), interval_text(value))
        for c in _comparisons(analysis)
        for seed, value in c.run_macros.items()
    )
    return Table(
        name="differences-by-run",
        title="Macro differences by run (points)",
        columns=("Method", "Minus", "Seed", "Macro", OVER_ITEMS),
        rows=rows,
        note="How runs differ. Intervals are over items, for exactly this pair of runs.",
    )


def backbone_table(contents: ReportContents, analysis: Analysis) -> Table:
    """Gains over the matched canonical baseline, of this backbone and of the paper's two."""
    folds = analysis.folds
    rows = [
        (
            contents.backbone,
            label(name),
            *(
                points(comparison.folds[f].value) if f in comparison.folds else MISSING
                for f in folds
            ),
            *difference_cells(comparison.macro),
        )
        for name, comparison in analysis.comparisons.items()
        if name == FROZEN or paper.same_name(name, paper.HEADLINE.minus)
    ]
    for row in (paper.HEADLINE, paper.REPLICATION):
        macro, interval = MISSING, MISSING
        if paper.same_folds(folds) and row.interval is not None:
            macro, interval = signed(row.macro), bracketed(row.interval)
        values = published_differences(row, folds)
        rows.append((f"{row.backbone} (paper)", row.minus, *values, macro, MISSING, interval))
    return Table(
        name="backbones",
        title=f"Held-out gains of {paper.METHOD} over the matched canonical baseline (points)",
        columns=("Backbone", "Minus", *(label(fold) for fold in folds), "Macro", *INTERVALS),
        rows=tuple(rows),
        note=(
            "Rows compare with each other only where the baseline is the same, and in direction only: backbones and "
            f"scales differ. {TWO_INTERVALS}"
        ),
    )


def sign_table(analysis: Analysis) -> Table:
    """Every difference that the paper has too, and how the signs stand to each other."""
    rows = tuple(
        (
            label(row.method),
            label(row.minus),
            "Macro" if row.fold is None else label(row.fold),
            row.ours_text,
            row.published_text,
            str(row.agreement),
        )
        for row in sign_rows(analysis)
    )
    return Table(
        name="signs",
        title="Signs of differences beside the paper's",
        columns=("Method", "Minus", "Held out", "Difference", "Difference (paper)", "Sign"),
        rows=rows,
        note=(
            "In points, with the interval over runs and items, which decides our sign; a single run determines none. "
            f"The paper prints intervals only where shown; differences from {paper.INTERFACE.minus} are "
            f"those of its means. Verdicts: {listed([str(kind) for kind in Agreement])}."
        ),
        aside=frozenset({"Difference (paper)"}),
    )


def _comparisons(analysis: Analysis) -> Iterator[Comparison]:
    yield from analysis.comparisons.values()
    if analysis.interface is not None:
        yield analysis.interface
