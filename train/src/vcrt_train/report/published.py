"""Compare our numbers with the paper's: the signs of differences, its backbones, and the numbers of its text.

Signs only, since sizes are not comparable between backbones. Ours counts as a sign only if the interval over runs and
items excludes zero, the paper's only if its printed interval does; where the paper prints no interval its value's sign
counts. Not covered: our own verdicts (:mod:`vcrt_train.report.summary`), and compute (the table of clocks).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from vcrt.printable import counted, listed
from vcrt_train.protocol.statistics import ZERO
from vcrt_train.report import paper
from vcrt_train.report.analysis import Analysis
from vcrt_train.report.cells import (
    INTERVALS,
    MISSING,
    TWO_INTERVALS,
    difference_cells,
    fold_cells,
    published_differences,
    rate_cells,
)
from vcrt_train.report.conclusions import ablation_signs
from vcrt_train.report.estimates import FROZEN, Comparison, Estimate
from vcrt_train.report.table import Cell, Table
from vcrt_train.report.task import is_papers_task
from vcrt_train.report.wording import (
    decisive_text,
    interval_text,
    label,
    points,
    published_text,
    signed,
)


class Agreement(StrEnum):
    """How the sign of one of our differences stands to the paper's; the values are what a table shows."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    WITH = "same side, but our interval includes zero"
    AGAINST = "opposite side, but our interval includes zero"
    ZERO = "our estimate is zero"
    ONE_RUN = "a single run determines no sign"
    OPEN = "the paper's is not determined"


#: As a clause after "the sign" or "it".
_CLAUSES = {
    Agreement.AGREES: "is the paper's",
    Agreement.DISAGREES: "is not the paper's",
    Agreement.WITH: "is not determined here",
    Agreement.AGAINST: "is not determined here, with an estimate on the other side,",
    Agreement.ZERO: "is not determined here, with an estimate of zero,",
    Agreement.ONE_RUN: "is not determined here, by a single run,",
    Agreement.OPEN: "is not determined in the paper",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class SignRow:
    """One of our differences beside the paper's, in points; ``fold`` is None for the macro difference."""

    method: str
    minus: str
    fold: str | None
    estimate: Estimate
    published: float
    published_interval: tuple[float, float] | None

    @property
    def agreement(self) -> Agreement:
        """How the signs stand to each other."""
        low, high = self.published_interval or (self.published, self.published)
        theirs = (low > 0) - (high < 0)
        ours = self.estimate.sign
        if theirs == 0:
            return Agreement.OPEN
        if ours:
            return Agreement.AGREES if ours == theirs else Agreement.DISAGREES
        if not self.estimate.runs_and_items.over_runs:
            return Agreement.ONE_RUN
        if abs(self.estimate.value) <= ZERO:
            return Agreement.ZERO
        return Agreement.WITH if self.estimate.value * theirs > 0 else Agreement.AGAINST

    @property
    def ours_text(self) -> str:
        """Our difference with its deciding interval."""
        return f"{points(self.estimate.value)} {decisive_text(self.estimate.runs_and_items)}"

    @property
    def published_text(self) -> str:
        """The paper's difference, with its interval where it prints one."""
        return published_text(self.published, self.published_interval)


def sign_rows(analysis: Analysis) -> tuple[SignRow, ...]:
    """Every difference that the paper has too: by fold, and the macro where the folds are the paper's.

    None if the task is another than the paper's.
    """
    if not is_papers_task(analysis.contents):
        return ()
    return tuple(row for comparison in analysis.all_comparisons for row in _rows(comparison))


def _rows(comparison: Comparison) -> Iterator[SignRow]:
    """The rows of one comparison; none if the paper does not have it."""
    published = paper.published_difference(comparison.method, comparison.minus)
    if published is None:
        return
    estimates: dict[str | None, Estimate] = dict(comparison.folds.items())
    if comparison.macro is not None and paper.same_folds(tuple(comparison.folds)):
        estimates[None] = comparison.macro
    for fold, estimate in estimates.items():
        value = published.macro if fold is None else paper.in_fold(published.folds, fold)
        if value is not None:
            yield SignRow(
                method=comparison.method,
                minus=comparison.minus,
                fold=fold,
                estimate=estimate,
                published=value,
                published_interval=published.interval if fold is None else None,
            )


def against_paper(comparison: Comparison) -> list[str]:
    """Where the signs of one comparison agree with the paper's, macro first and then by fold."""
    published = paper.published_difference(comparison.method, comparison.minus)
    if published is None or comparison.macro is None:
        return [f"The paper has no difference from {label(comparison.minus)} to compare with."]
    rows = list(_rows(comparison))
    parts = [_macro_clause([row for row in rows if row.fold is None], published)]
    kinds: dict[Agreement, list[str]] = {kind: [] for kind in Agreement}
    for row in rows:
        if row.fold is not None:
            kinds[row.agreement].append(label(row.fold))
    clauses = [f"{_CLAUSES[kind]} on {listed(folds)}" for kind, folds in kinds.items() if folds]
    parts += [f"by fold it {listed(clauses)}"] if clauses else []
    return [f"{'; '.join(parts)}."]


def _macro_clause(macro: Sequence[SignRow], published: paper.PublishedDifference) -> str:
    if not macro:
        return (
            f"The published macro is over {listed(paper.ENVIRONMENTS)}: "
            "the sign of the macro difference is not compared"
        )
    source = ", by subtraction of its means" if published.of_means else ""
    clause = _CLAUSES[macro[0].agreement].removesuffix(",")
    value, _, interval = macro[0].published_text.partition(" ")
    return (
        f"The sign of the macro difference {clause} (the paper: {f'{value} points {interval}'.strip()} on "
        f"{published.backbone}{source}, not comparable in size)"
    )


def sign_sentences(analysis: Analysis) -> list[str]:
    """How many signs agree with the paper's, and every one that does not, by name and with its interval."""
    rows = sign_rows(analysis)
    if not rows:
        return []
    kinds = {kind: [row for row in rows if row.agreement is kind] for kind in Agreement}
    disagree, against = kinds[Agreement.DISAGREES], kinds[Agreement.AGAINST]
    undetermined = sum(
        len(kinds[kind])
        for kind in (Agreement.WITH, Agreement.AGAINST, Agreement.ZERO, Agreement.ONE_RUN)
    )
    why = "the interval includes zero or there is a single run"
    if not kinds[Agreement.ONE_RUN]:
        why = "the interval includes zero"
    lines = [
        f"Of {counted(len(rows), 'difference')} that the paper has too, by fold and macro, the sign is the paper's in "
        f"{len(kinds[Agreement.AGREES])}, the opposite in {len(disagree)}, not determined here in {undetermined}, "
        f"where {why}, and not determined in the paper in {len(kinds[Agreement.OPEN])}."
    ]
    if disagree:
        lines.append(f"Ours disagrees in sign with the paper: {_named(disagree)}.")
    if against:
        lines.append(
            "Our estimate is on the other side of zero than the paper's, but its interval includes zero: "
            f"{_named(against)}."
        )
    return lines


def _named(rows: Sequence[SignRow]) -> str:
    return "; ".join(
        f"{label(row.method)} minus {label(row.minus)} "
        f"{'as macro' if row.fold is None else f'on {label(row.fold)}'}, {row.ours_text} here and "
        f"{row.published_text} in the paper"
        for row in rows
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
        if minus == FROZEN or paper.same_name(minus, paper.HEADLINE.minus)
    ]
    for row in (paper.HEADLINE, paper.REPLICATION):
        *values, macro = published_differences(row, analysis.folds)
        value, _, interval = macro.partition(" ")
        name = f"{row.backbone} (paper)"
        rows.append((name, row.minus, *values, value, MISSING, interval or MISSING))
    return Table(
        name="backbones",
        title=f"Held-out gains of {paper.METHOD} over the matched canonical baseline (points)",
        columns=("Backbone", "Minus", *map(label, analysis.folds), "Macro", *INTERVALS),
        rows=tuple(rows),
        note=(
            "Rows compare with each other only where the baseline is the same, and in direction only: backbones and "
            f"scales differ. {TWO_INTERVALS}"
        ),
    )


def text_table(analysis: Analysis) -> Table:
    """The numbers of the paper's running text beside ours; what has no interval is a count or was not recorded."""
    theirs = ""
    if paper.has_any(analysis.folds):
        theirs = f"The paper's are for {paper.BACKBONE} unless another backbone is named: not comparable in size. "
    return Table(
        name="running-text",
        title="Numbers of the running text",
        columns=("Quantity", "Here", *INTERVALS, "Paper"),
        rows=(*_headline_rows(analysis), *_other_rows(analysis), _lowest_run(analysis)),
        note=(
            f"{theirs}A share is a fold's difference over the sum of all folds', where that sum is determined to "
            "differ from zero. Counts have no interval; that of the lowest run is over items, and no bootstrap. "
            f"{TWO_INTERVALS}"
        ),
        aside=frozenset({"Paper"}),
    )


def _count(what: str, number: int, total: int, theirs: str) -> tuple[Cell, ...]:
    return what, f"{number} of {total}", MISSING, MISSING, theirs


def _headline_rows(analysis: Analysis) -> Iterator[tuple[Cell, ...]]:
    """Shares of the gain, and in how many runs it is there."""
    headline = analysis.headline
    if headline is None:
        return
    minus = label(headline.minus)
    same = paper.same_name(headline.minus, paper.HEADLINE.minus)
    comparable = same and paper.same_folds(analysis.folds)
    largest, percentage = paper.LARGEST_SHARE
    for fold in headline.folds:
        yield (
            f"Share of {label(fold)} in the macro difference from {minus} (%)",
            *rate_cells(headline.shares.get(fold)),
            f"{percentage:.0f}" if comparable and paper.same_name(fold, largest) else MISSING,
        )
    if headline.mean_of_others is not None:
        others = [label(fold) for fold in analysis.folds if not paper.same_name(fold, largest)]
        yield (
            f"Mean difference from {minus} on {listed(others)} (points)",
            *difference_cells(headline.mean_of_others),
            signed(paper.MEAN_OF_OTHERS) if comparable else MISSING,
        )
    yield _count(
        f"Fold-by-run comparisons with {minus} that are negative",
        *(headline.num_negative, headline.num_comparisons),
        " of ".join(map(str, paper.NEGATIVE_COMPARISONS)) if same else MISSING,
    )
    if headline.run_macros:
        yield _count(
            f"Runs whose macro difference from {minus} is positive",
            sum(value.estimate > 0 for value in headline.run_macros.values()),
            len(headline.run_macros),
            paper.POSITIVE_RUNS if same else MISSING,
        )


def _other_rows(analysis: Analysis) -> Iterator[tuple[Cell, ...]]:
    """What the interface gives by itself, the ablations, and the difference from the frozen backbone."""
    if analysis.interface is not None:
        *by_fold, _ = published_differences(paper.INTERFACE, tuple(analysis.interface.folds))
        name = f"{label(analysis.interface.method)} minus {label(analysis.interface.minus)}"
        for (fold, estimate), theirs in zip(analysis.interface.folds.items(), by_fold, strict=True):
            yield (f"{name} on {label(fold)} (points)", *difference_cells(estimate), theirs)
        if analysis.interface.macro is not None:
            *_, theirs = published_differences(paper.INTERFACE, analysis.folds)
            yield (f"{name}, macro (points)", *difference_cells(analysis.interface.macro), theirs)
    if signs := ablation_signs(analysis):
        what = "Ablations whose macro is established to be lower"
        yield _count(
            what, sum(sign > 0 for sign in signs.values()), len(signs), paper.LOWER_ABLATIONS
        )
    frozen = analysis.comparisons.get(FROZEN)
    if frozen is not None and frozen.macro is not None:
        *_, theirs = published_differences(paper.REPLICATION, analysis.folds)
        yield (
            f"{label(frozen.method)} minus the frozen backbone, macro (points)",
            *difference_cells(frozen.macro),
            theirs if theirs == MISSING else f"{theirs} ({paper.REPLICATION.backbone})",
        )


def _lowest_run(analysis: Analysis) -> tuple[Cell, ...]:
    change, result, fold, seed = analysis.largest_decline(analysis.folds)
    return (
        f"Lowest source retention of a run (points): {label(result.method)}, {label(fold)} held out, seed {seed}",
        *(points(change.estimate), MISSING, interval_text(change)),
        signed(-paper.LARGEST_SOURCE_DECLINE),
    )
