"""Make the tables that set an experiment's numbers beside those that the paper prints.

Not covered: the signs themselves (:mod:`vcrt_research.paper.signs`).
"""

from __future__ import annotations

from collections.abc import Iterator

from vcrt.printable import listed
from vcrt_research.paper import printed
from vcrt_research.paper.signs import Agreement, ablation_signs, sign_rows
from vcrt_train.report.analysis import Analysis
from vcrt_train.report.estimates import FROZEN, differences
from vcrt_train.report.provenance import clock_table, fold_table
from vcrt_train.report.table import Cell, Table
from vcrt_train.report.wording import (
    INTERVALS,
    METHOD,
    MISSING,
    OUTCOME,
    TWO_INTERVALS,
    difference_cells,
    fold_cells,
    interval_text,
    label,
    points,
    rate_cells,
    same_name,
)


def paper_tables(analysis: Analysis) -> tuple[Table, ...]:
    """All tables beside the paper; those of differences are left out when there is nothing to compare."""
    of_differences = (
        (backbone_table(analysis), sign_table(analysis)) if analysis.comparisons else ()
    )
    return (rate_table(analysis), *of_differences, text_table(analysis), scale_table(analysis))


def rate_table(analysis: Analysis) -> Table:
    """Held-out pass rates of each method that the paper has, by fold and as macro where the folds are the paper's."""
    rows: list[tuple[Cell, ...]] = []
    for method, folds, macro in analysis.rates:
        published = printed.published_scores(method)
        if published is None:
            continue
        rows += [
            (label(method), label(fold), *rate_cells(estimate), value)
            for fold, estimate in folds.items()
            if (value := printed.in_fold(published.folds, fold)) is not None
        ]
        if printed.same_folds(analysis.folds):
            rows.append((label(method), "Macro", *rate_cells(macro), published.macro))
    return Table(
        name="rates",
        title="Held-out pass rate (%) beside the paper's",
        columns=("Method", "Held out", "Here", *INTERVALS, "Paper"),
        rows=tuple(rows),
        note=(
            f"The paper's are for {printed.BACKBONE}: another backbone and another scale, not comparable in size. "
            f"{TWO_INTERVALS}"
        ),
    )


def scale_table(analysis: Analysis) -> Table:
    """How much data each fold was trained on, and what training took."""
    rows: list[tuple[Cell, ...]] = []
    for fold, _, episodes, replays, _ in fold_table(analysis.contents).rows:
        rows += [
            (f"Source episodes, {fold} held out", episodes, printed.SOURCE_EPISODES),
            (f"Replays, {fold} held out", replays, printed.SOURCE_REPLAYS),
        ]
    clocks = {row[0]: row[1] for row in clock_table(analysis.contents).rows}
    training = "Training of all runs"
    rows.append((training, clocks[training], f"{printed.GPU_HOURS:.2f} GPU hours"))
    return Table(
        name="scale",
        title="Data and compute",
        columns=("Quantity", "Here", "Paper"),
        rows=tuple(rows),
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
            f"The paper prints intervals only where shown; differences from {OUTCOME} are "
            f"those of its means. Verdicts: {listed([str(kind) for kind in Agreement])}."
        ),
    )


def backbone_table(analysis: Analysis) -> Table:
    """Gains over the matched canonical baseline, of this backbone and of the paper's two."""
    # Name and digest; what more is known of it stands at the head of the page.
    ours = analysis.contents.backbone.partition(", ")[0]
    rows: list[tuple[Cell, ...]] = [
        (
            ours,
            label(minus),
            *fold_cells(comparison.folds, analysis.folds, points),
            *difference_cells(comparison.macro),
        )
        for minus, comparison in analysis.comparisons.items()
        if minus == FROZEN or same_name(minus, printed.HEADLINE.minus)
    ]
    for row in (printed.HEADLINE, printed.REPLICATION):
        *values, macro = _published_cells(row, analysis.folds)
        value, _, interval = macro.partition(" ")
        name = f"{row.backbone} (paper)"
        rows.append((name, row.minus, *values, value, MISSING, interval or MISSING))
    return Table(
        name="backbones",
        title=f"Held-out gains of {METHOD} over the matched canonical baseline (points)",
        columns=("Backbone", "Minus", *map(label, analysis.folds), "Macro", *INTERVALS),
        rows=tuple(rows),
        note=(
            "Rows compare with each other only where the baseline is the same, and in direction only: backbones and "
            f"scales differ. {TWO_INTERVALS}"
        ),
    )


def text_table(analysis: Analysis) -> Table:
    """The numbers of the paper's running text beside ours; what has no interval is a count or was not recorded."""
    return Table(
        name="running-text",
        title="Numbers of the running text",
        columns=("Quantity", "Here", *INTERVALS, "Paper"),
        rows=(*_headline_rows(analysis), *_other_rows(analysis), _lowest_run(analysis)),
        note=(
            f"The paper's are for {printed.BACKBONE} unless another backbone is named: not comparable in size. "
            "A share is a fold's difference over the sum of all folds', where that sum is determined to differ from "
            "zero. Counts have no interval; that of the lowest run is over items, and no bootstrap. "
            f"{TWO_INTERVALS}"
        ),
    )


def _count(what: str, number: int, total: int, theirs: str) -> tuple[Cell, ...]:
    return what, f"{number} of {total}", MISSING, MISSING, theirs


def _headline_rows(analysis: Analysis) -> Iterator[tuple[Cell, ...]]:
    """Shares of the gain, and in how many runs it is there."""
    headline = analysis.headline
    if headline is None:
        return
    minus = label(headline.minus)
    same = same_name(headline.minus, printed.HEADLINE.minus)
    comparable = same and printed.same_folds(analysis.folds)
    largest, percentage = printed.LARGEST_SHARE
    for fold in headline.folds:
        yield (
            f"Share of {label(fold)} in the macro difference from {minus} (%)",
            *rate_cells(headline.shares.get(fold)),
            f"{percentage:.0f}" if comparable and same_name(fold, largest) else MISSING,
        )
    if printed.same_folds(tuple(headline.folds)):
        others = [fold for fold in analysis.folds if not same_name(fold, largest)]
        paired = differences(analysis.contents, headline.method, headline.minus)
        yield (
            f"Mean difference from {minus} on {listed([label(fold) for fold in others])} (points)",
            *difference_cells(paired.mean(others)),
            printed.in_points(printed.MEAN_OF_OTHERS) if comparable else MISSING,
        )
    yield _count(
        f"Fold-by-run comparisons with {minus} that are negative",
        *(headline.num_negative, headline.num_comparisons),
        " of ".join(map(str, printed.NEGATIVE_COMPARISONS)) if same else MISSING,
    )
    if headline.run_macros:
        yield _count(
            f"Runs whose macro difference from {minus} is positive",
            sum(value.estimate > 0 for value in headline.run_macros.values()),
            len(headline.run_macros),
            printed.POSITIVE_RUNS if same else MISSING,
        )


def _other_rows(analysis: Analysis) -> Iterator[tuple[Cell, ...]]:
    """What the interface gives by itself, the ablations, and the difference from the frozen backbone."""
    if analysis.interface is not None:
        *by_fold, _ = _published_cells(printed.INTERFACE, tuple(analysis.interface.folds))
        name = f"{label(analysis.interface.method)} minus {label(analysis.interface.minus)}"
        for (fold, estimate), theirs in zip(analysis.interface.folds.items(), by_fold, strict=True):
            yield (f"{name} on {label(fold)} (points)", *difference_cells(estimate), theirs)
        if analysis.interface.macro is not None:
            *_, theirs = _published_cells(printed.INTERFACE, analysis.folds)
            yield (f"{name}, macro (points)", *difference_cells(analysis.interface.macro), theirs)
    if signs := ablation_signs(analysis):
        what = "Ablations whose macro is established to be lower"
        yield _count(
            what, sum(sign > 0 for sign in signs.values()), len(signs), printed.LOWER_ABLATIONS
        )
    frozen = analysis.comparisons.get(FROZEN)
    if frozen is not None and frozen.macro is not None:
        *_, theirs = _published_cells(printed.REPLICATION, analysis.folds)
        yield (
            f"{label(frozen.method)} minus the frozen backbone, macro (points)",
            *difference_cells(frozen.macro),
            theirs if theirs == MISSING else f"{theirs} ({printed.REPLICATION.backbone})",
        )


def _lowest_run(analysis: Analysis) -> tuple[Cell, ...]:
    change, result, fold, seed = analysis.largest_decline(analysis.folds)
    return (
        f"Lowest source retention of a run (points): {label(result.method)}, {label(fold)} held out, seed {seed}",
        *(points(change.estimate), MISSING, interval_text(change)),
        printed.in_points(-printed.LARGEST_SOURCE_DECLINE),
    )


def _published_cells(published: printed.PublishedDifference, folds: tuple[str, ...]) -> list[str]:
    """The paper's difference on each fold, and its macro with its interval if it is over these folds."""
    found = [printed.in_fold(published.folds, fold) for fold in folds]
    macro = printed.in_points(published.macro, published.interval)
    return [
        *(MISSING if value is None else printed.in_points(value) for value in found),
        macro if printed.same_folds(folds) else MISSING,
    ]
