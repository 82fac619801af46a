"""Compare the signs of an experiment's differences with those of the paper's, in sentences.

Signs only, since sizes are not comparable between backbones. Ours counts as a sign only if the interval over runs and
items excludes zero, the paper's only if its printed interval does; where the paper prints no interval its value's sign
counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from vcrt.printable import counted, listed
from vcrt.records.record_form import RecordForm
from vcrt_research.paper import printed
from vcrt_train.protocol.statistics import ZERO
from vcrt_train.report.analysis import Analysis
from vcrt_train.report.contents import ReportContents
from vcrt_train.report.estimates import Comparison, Estimate
from vcrt_train.report.wording import decisive_text, label, points

OTHER_TASK = (
    "An item asks something else here than in the paper: its values are shown for orientation, and signs are not "
    "compared."
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
        return printed.in_points(self.published, self.published_interval)


def is_papers_task(contents: ReportContents) -> bool:
    """Whether an item asks what the paper's items do: four steps, 12 legal orders, all relations stated plainly."""
    asked = (contents.dataset["num_operations"], contents.dataset["orbit_size"])
    form = RecordForm.model_validate(contents.dataset.get("record_form", {}))
    return asked == (4, printed.LEGAL_ORDERS_PER_EPISODE) and not form.is_text and not form.text


def sign_rows(analysis: Analysis) -> tuple[SignRow, ...]:
    """Every difference that the paper has too: by fold, and the macro where the folds are the paper's.

    None if the task is another than the paper's.
    """
    if not is_papers_task(analysis.contents):
        return ()
    return tuple(row for comparison in analysis.all_comparisons for row in _rows(comparison))


def _rows(comparison: Comparison) -> Iterator[SignRow]:
    """The rows of one comparison; none if the paper does not have it."""
    published = printed.published_difference(comparison.method, comparison.minus)
    if published is None:
        return
    estimates: dict[str | None, Estimate] = dict(comparison.folds.items())
    if comparison.macro is not None and printed.same_folds(tuple(comparison.folds)):
        estimates[None] = comparison.macro
    for fold, estimate in estimates.items():
        value = published.macro if fold is None else printed.in_fold(published.folds, fold)
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
    published = printed.published_difference(comparison.method, comparison.minus)
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


def _macro_clause(macro: Sequence[SignRow], published: printed.PublishedDifference) -> str:
    if not macro:
        return (
            f"The published macro is over {listed(printed.ENVIRONMENTS)}: "
            "the sign of the macro difference is not compared"
        )
    source = ", by subtraction of its means" if published.of_means else ""
    clause = _CLAUSES[macro[0].agreement].removesuffix(",")
    value, _, interval = macro[0].published_text.partition(" ")
    return (
        f"The sign of the macro difference {clause} (the paper: {f'{value} points {interval}'.strip()} on "
        f"{published.backbone}{source}, not comparable in size)"
    )


def ablation_signs(analysis: Analysis) -> dict[str, int]:
    """The determined sign of the method under study minus each of the paper's ablations that has every fold."""
    return {
        name: comparison.macro.sign
        for name, comparison in analysis.comparisons.items()
        if comparison.macro is not None and printed.is_ablation(name)
    }


def comparison_sentences(analysis: Analysis) -> list[str]:
    """The signs of the headline, the criterion on ablations, and all signs together."""
    lines = []
    if not is_papers_task(analysis.contents):
        lines.append(OTHER_TASK)
    elif analysis.headline is not None and analysis.headline.macro is not None:
        lines += against_paper(analysis.headline)
    return [*lines, *_criterion(analysis), *sign_sentences(analysis)]


def _criterion(analysis: Analysis) -> list[str]:
    """The paper's prespecified criterion on its ablations, where all of them were run."""
    signs = ablation_signs(analysis)
    if len(signs) < len(printed.MECHANISM_TABLE):
        return []
    words = {1: "it is lower for", -1: "higher for", 0: "not determined for"}
    found = {wanted: [label(m) for m, sign in signs.items() if sign == wanted] for wanted in words}
    parts = [f"{words[wanted]} {listed(names)}" for wanted, names in found.items() if names]
    met = "met" if len(found[1]) == len(signs) else "not met"
    return [
        f"The paper's criterion that every ablation decreases the macro is {met} here ({', '.join(parts)}); "
        "in the paper it is not met."
    ]


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
