"""Say how the data came about, in sentences: what was excluded, and how often second opinions disagreed.

The tables are in :mod:`vcrt_train.report.provenance`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from vcrt.printable import counted, listed, printable
from vcrt.words.evidence_words import evidence_sentences, inner_values

if TYPE_CHECKING:  # what certifies has no use for a report's contents, nor for PyTorch
    from vcrt_train.report.contents import ReportContents


def data_sentences(contents: ReportContents) -> list[str]:
    """Frozen and excluded candidates by kind, and disagreements of checkers and of the second replay."""
    schemas = inner_values(contents.dataset["counts"])
    candidates = sum(schema["candidates"] for schema in schemas)
    episodes = sum(schema["episodes"] for schema in schemas)
    kinds: Counter[str] = Counter()
    for schema in schemas:
        kinds.update(schema["exclusions"])
    excluded = kinds.total()
    if excluded:
        parts = [f"{number:,} {printable(kind)}" for kind, number in kinds.most_common()]
        share = f"{100 * excluded / candidates:.2f}%"
        fate = f"{counted(excluded, 'was', 'were')} excluded ({share}): {listed(parts)}"
    else:
        fate = "none was excluded"
    return [
        f"Of {counted(candidates, 'candidate')}, {counted(episodes, 'was', 'were')} frozen; {fate}.",
        *evidence_sentences(contents.dataset["counts"]),
        _disagreement(contents),
    ]


def _disagreement(contents: ReportContents) -> str:
    checks = inner_values(contents.dataset["conformance"])
    checked = sum(counts["checked"] for counts in checks)
    disagreed = checked - sum(counts["agreed"] for counts in checks)
    again = contents.agreement["replays"] - contents.agreement["agreed"]
    replayed = f"{again:,} of {counted(contents.agreement['replays'], 'replay')} in fresh processes"
    if not checked:
        return f"No second checker was asked; {replayed} disagreed."
    return (
        f"Second checkers disagreed in {disagreed:,} of {counted(checked, 'comparison')} "
        f"({100 * disagreed / checked:.4f}%); {replayed} disagreed."
    )
