"""Say how the source pass rate of each run stood on untrained items while it trained, and which runs are flagged.

All of it is read from the logs in the runs' checkpoints. Not covered: the curves
(:mod:`vcrt_train.report.curve_figures`), and the source pass rate of a result, which is on all items that are set
aside.
"""

from __future__ import annotations

from collections.abc import Sequence

from vcrt.printable import counted
from vcrt_train.protocol.source_validation import (
    IN_A_ROW,
    RULE,
    TOO_FEW,
    Validated,
    flagged_at,
    validations,
)
from vcrt_train.report.contents import ReportContents, RunReport
from vcrt_train.report.table import Table
from vcrt_train.report.wording import label, percent

#: The most runs that a sentence names.
MOST_NAMED = 3


def flag_sentences(runs: Sequence[RunReport]) -> tuple[str, ...]:
    """Which runs are flagged, at which update, and their rates beside the frozen backbone's; empty if none is."""
    found = [(run, one) for run in runs if (one := flagged_at(run.curve))]
    if not found:
        return ()
    named = "; ".join(f"{run.name} {one.in_words()}" for run, one in found[:MOST_NAMED])
    more = f"; {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    are = "is" if len(found) == 1 else "are"
    return (f"{len(found)} of {counted(len(runs), 'run')} {are} flagged: {named}{more}. {RULE}",)


def validation_table(contents: ReportContents) -> Table | None:
    """The source pass rate of each run while it trained, beside the frozen backbone's; None if none was validated."""
    rows = [
        (label(run.method), label(run.held_out), run.seed, *_cells(found), _flag(found))
        for run in contents.runs
        if (found := validations(run.curve))
    ]
    if not rows:
        return None
    return Table(
        name="source-validation",
        title="Source pass rate (%) on untrained items while runs trained",
        columns=(
            *("Method", "Held out", "Seed", "Frozen", "Lowest", "At update"),
            *("Last", "Last, 95% interval", "Flagged"),
        ),
        rows=tuple(rows),
        note=f"Greedy orders; exact intervals over items. {RULE}",
    )


def _cells(found: Sequence[Validated]) -> tuple[float, float, int, float, str]:
    last, lowest = found[-1], min(found, key=lambda one: one.rate)
    ends = f"[{percent(last.low):.2f}, {percent(last.high):.2f}]"
    return percent(last.frozen), percent(lowest.rate), lowest.update, percent(last.rate), ends


def _flag(found: Sequence[Validated]) -> str:
    flag = next((one for one in found if one.flagged), None)
    if flag is not None:
        return f"at update {flag.update}"
    return TOO_FEW if len(found) < IN_A_ROW else ""
