"""Where the signs of our differences agree with the paper's, and in words where they do not.

Signs only, since sizes are not comparable between backbones. Ours counts as a sign only if the interval over runs and
items excludes zero, the paper's only if its printed interval does; where the paper prints no interval its value's sign
counts. Not covered: our own verdicts (:mod:`vcrt.report.summary`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from vcrt.protocol.statistics import ZERO as NOTHING
from vcrt.report import paper
from vcrt.report.analysis import Analysis
from vcrt.report.comparisons import Comparison
from vcrt.report.estimates import Estimate
from vcrt.report.wording import bracketed, counted, decisive_text, label, listed, points, signed


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
        if abs(self.estimate.value) <= NOTHING:
            return Agreement.ZERO
        return Agreement.WITH if self.estimate.value * theirs > 0 else Agreement.AGAINST

    @property
    def ours_text(self) -> str:
        """Our difference with its deciding interval."""
        return f"{points(self.estimate.value)} {decisive_text(self.estimate.runs_and_items)}"

    @property
    def published_text(self) -> str:
        """The paper's difference, with its interval where it prints one."""
        if self.published_interval is None:
            return signed(self.published)
        return f"{signed(self.published)} {bracketed(self.published_interval)}"


def sign_rows(analysis: Analysis) -> tuple[SignRow, ...]:
    """Every difference that the paper has too: by fold, and the macro where the folds are the paper's.

    None if the task is another than the paper's.
    """
    if not analysis.same_task:
        return ()
    comparisons = [*analysis.comparisons.values()]
    if analysis.interface is not None:
        comparisons.append(analysis.interface)
    return tuple(row for comparison in comparisons for row in rows_of(comparison))


def rows_of(comparison: Comparison) -> Iterator[SignRow]:
    """The rows of one comparison; none if the paper does not have it."""
    published = paper.published_difference(comparison.method, comparison.minus)
    if published is None:
        return
    for fold, estimate in comparison.folds.items():
        value = paper.in_fold(published.folds, fold)
        if value is not None:
            yield SignRow(
                method=comparison.method,
                minus=comparison.minus,
                fold=fold,
                estimate=estimate,
                published=value,
                published_interval=None,
            )
    if comparison.macro is not None and paper.same_folds(tuple(comparison.folds)):
        yield SignRow(
            method=comparison.method,
            minus=comparison.minus,
            fold=None,
            estimate=comparison.macro,
            published=published.macro,
            published_interval=published.interval,
        )


def against_paper(comparison: Comparison) -> list[str]:
    """Where the signs of one comparison agree with the paper's, macro first and then by fold."""
    published = paper.published_difference(comparison.method, comparison.minus)
    if published is None or comparison.macro is None:
        return [f"The paper has no difference from {label(comparison.minus)} to compare with."]
    rows = list(rows_of(comparison))
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
    return (
        f"The sign of the macro difference {clause} (the paper: {published_points(macro[0])} on "
        f"{published.backbone}{source}, not comparable in size)"
    )


def published_points(row: SignRow) -> str:
    """``+13.06 points [+12.58, +13.54]``."""
    value, _, interval = row.published_text.partition(" ")
    return f"{value} points {interval}".strip()


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
