"""Report what a probe could guess of the policy records, as a table and as sentences.

Not covered: how it was measured (:mod:`vcrt_research.anonymity.probe`).
"""

from __future__ import annotations

from vcrt.printable import counted, listed
from vcrt_research.anonymity.result import IN_WORDS, AnonymityReport, ProbeResult
from vcrt_train.report.table import Table


def anonymity_table(report: AnonymityReport) -> Table:
    """One row for each probe, then one for each control."""
    rows = [_row(result, "chance" if result.at_chance else "leak") for result in report.results]
    rows += [
        _row(control, "control: blind" if control in report.blind else "control: seen")
        for control in report.controls
    ]
    return Table(
        name="anonymity",
        title="What can be guessed from policy records",
        columns=("Guessed", "From", "Records", "Classes", "AUC", "Interval", "p", "Verdict"),
        rows=tuple(rows),
        note=(
            "AUC of a linear classifier by cross-validation in five folds that share no source, among records with "
            "equal relations up to renaming (row order: of the same file); 0.5 is chance. "
            f"The intervals are simultaneous: all {len(report.results)} hold at once in {100 * report.level:.0f}% of "
            "cases; a leak is an interval above 0.5. p is the share of permutations of the labels that give as much, "
            "for that row alone. Controls are guesses that must succeed; elsewhere the legal order is asked about "
            "without the relations."
        ),
    )


def _row(result: ProbeResult, verdict: str) -> tuple[str | int, ...]:
    return (
        result.target,
        result.view,
        result.num_records,
        result.num_classes,
        f"{result.auc:.3f}",
        f"[{result.low:.3f}, {result.high:.3f}]",
        f"{result.p_value:.3f}",
        verdict,
    )


def anonymity_sentences(report: AnonymityReport) -> list[str]:
    """The verdict, and what could not be measured."""
    probes = counted(len(report.results), "probe")
    summary = f"{probes} of the policy records' anonymity, none above chance."
    if not report.results:
        summary = (
            "Nothing is known about the policy records' anonymity: no probe has enough records."
        )
    elif report.leaks:
        found = listed([f"{r.target} from {r.view} (AUC {r.auc:.3f})" for r in report.leaks])
        summary = f"The policy records are not anonymous: of {probes}, these guess: {found}."
    sentences = [summary]
    if views := {result.view for result in report.results if result.view.startswith("prompt")}:
        names = "both with opaque names of relations and in words"
        if not views & set(IN_WORDS):
            names = "with opaque names of relations, not in words"
        sentences.append(f"Prompts were probed {names}.")
    if report.blind:
        found = listed([f"{c.target} from {c.view}" for c in report.blind])
        sentences.append(f"Controls that should guess and do not: {found}.")
    sentences += [f"{finding[0].upper()}{finding[1:]}." for finding in report.findings]
    for unmeasured in report.unmeasured:
        view = "" if unmeasured.view is None else f" from {unmeasured.view}"
        sentences.append(f"Not measured: {unmeasured.target}{view}, because {unmeasured.reason}.")
    return sentences
