"""The numbers of the paper's running text beside ours: shares of the gain, runs and retention.

Not covered: what stands in the paper's tables, which have tables of their own, and compute (the table of clocks).
"""

from __future__ import annotations

from collections.abc import Iterator

from vcrt.report import paper
from vcrt.report.analysis import Analysis
from vcrt.report.cells import (
    INTERVALS,
    MISSING,
    TWO_INTERVALS,
    difference_cells,
    rate_cells,
)
from vcrt.report.comparisons import FROZEN, Comparison
from vcrt.report.judgement import ablation_signs
from vcrt.report.table import Cell, Table
from vcrt.report.wording import interval_text, label, listed, points, signed

Row = tuple[Cell, ...]


def text_table(analysis: Analysis) -> Table:
    """One row for each number; what has no interval is a count or was not recorded."""
    rows = [
        *_shares(analysis),
        *_by_runs(analysis),
        *_interface(analysis),
        *_ablations(analysis),
        _frozen(analysis),
        _decline(analysis),
    ]
    theirs = ""
    if paper.has_any(analysis.folds):
        theirs = f"The paper's are for {paper.BACKBONE} unless another backbone is named: not comparable in size. "
    return Table(
        name="running-text",
        title="Numbers of the running text",
        columns=("Quantity", "Here", *INTERVALS, "Paper"),
        rows=tuple(row for row in rows if row is not None),
        note=(
            f"{theirs}A share is a fold's difference over the sum of all folds', where that sum is determined to "
            "differ from zero. Counts have no interval; that of the lowest run is over items, and no bootstrap. "
            f"{TWO_INTERVALS}"
        ),
        aside=frozenset({"Paper"}),
    )


def _shares(analysis: Analysis) -> Iterator[Row]:
    headline = analysis.headline
    if headline is None:
        return
    minus = label(headline.minus)
    comparable = paper.same_folds(analysis.folds) and paper.same_name(
        headline.minus, paper.HEADLINE.minus
    )
    for fold in headline.folds:
        name, value = paper.LARGEST_SHARE
        theirs = f"{value:.0f}" if comparable and paper.same_name(fold, name) else MISSING
        what = f"Share of {label(fold)} in the macro difference from {minus} (%)"
        share = headline.shares.get(fold)
        cells = (MISSING,) * 3 if share is None else rate_cells(share)
        yield (what, *cells, theirs)
    if headline.mean_of_others is not None:
        others = [f for f in analysis.folds if not paper.same_name(f, paper.LARGEST_SHARE[0])]
        what = f"Mean difference from {minus} on {listed([label(f) for f in others])} (points)"
        theirs = signed(paper.MEAN_OF_OTHERS) if comparable else MISSING
        yield (what, *difference_cells(headline.mean_of_others), theirs)


def _by_runs(analysis: Analysis) -> Iterator[Row]:
    headline = analysis.headline
    if headline is None:
        return
    minus = label(headline.minus)
    same = paper.same_name(headline.minus, paper.HEADLINE.minus)
    yield (
        f"Fold-by-run comparisons with {minus} that are negative",
        f"{headline.num_negative} of {headline.num_comparisons}",
        MISSING,
        MISSING,
        " of ".join(map(str, paper.NEGATIVE_COMPARISONS)) if same else MISSING,
    )
    if headline.run_macros:
        positive = sum(value.estimate > 0 for value in headline.run_macros.values())
        yield (
            f"Runs whose macro difference from {minus} is positive",
            f"{positive} of {len(headline.run_macros)}",
            MISSING,
            MISSING,
            paper.POSITIVE_RUNS if same else MISSING,
        )


def _interface(analysis: Analysis) -> Iterator[Row]:
    comparison: Comparison | None = analysis.interface
    if comparison is None:
        return
    name = f"{label(comparison.method)} minus {label(comparison.minus)}"
    for fold, estimate in comparison.folds.items():
        value = paper.in_fold(paper.INTERFACE.folds, fold)
        theirs = MISSING if value is None else signed(value)
        yield (f"{name} on {label(fold)} (points)", *difference_cells(estimate), theirs)
    if comparison.macro is not None:
        theirs = signed(paper.INTERFACE.macro) if paper.same_folds(analysis.folds) else MISSING
        yield (f"{name}, macro (points)", *difference_cells(comparison.macro), theirs)


def _ablations(analysis: Analysis) -> Iterator[Row]:
    signs = ablation_signs(analysis)
    if signs:
        yield (
            "Ablations whose macro is established to be lower",
            f"{sum(sign > 0 for sign in signs.values())} of {len(signs)}",
            MISSING,
            MISSING,
            paper.LOWER_ABLATIONS,
        )


def _frozen(analysis: Analysis) -> Row | None:
    comparison = analysis.comparisons.get(FROZEN)
    if comparison is None or comparison.macro is None:
        return None
    what = f"{label(comparison.method)} minus the frozen backbone, macro (points)"
    low, high = paper.REPLICATION.interval or (paper.REPLICATION.macro,) * 2
    theirs = (
        f"{paper.REPLICATION.macro:+.2f} [{low:+.2f}, {high:+.2f}] ({paper.REPLICATION.backbone})"
    )
    if not paper.same_folds(analysis.folds):
        theirs = MISSING
    return (what, *difference_cells(comparison.macro), theirs)


def _decline(analysis: Analysis) -> Row:
    change, result, fold, seed = analysis.largest_decline(analysis.folds)
    what = f"Lowest source retention of a run (points): {label(result.method)}, {label(fold)} held out, seed {seed}"
    theirs = signed(-paper.LARGEST_SOURCE_DECLINE)
    return (
        what,
        points(change.estimate),
        MISSING,
        interval_text(change),
        theirs,
    )
