"""How the data came about, in sentences: what was excluded, and how often second opinions disagreed.

The tables are in :mod:`vcrt.report.provenance`.
"""

from __future__ import annotations

from collections import Counter

from vcrt.printable import printable
from vcrt.report.contents import ReportContents
from vcrt.report.wording import counted, listed


def data_sentences(contents: ReportContents) -> list[str]:
    """Frozen and excluded candidates by kind, and disagreements of checkers and of the second replay."""
    schemas = [s for by_schema in contents.dataset["counts"].values() for s in by_schema.values()]
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
        _disagreement(contents),
    ]


def _disagreement(contents: ReportContents) -> str:
    checks = [
        counts
        for by_checker in contents.dataset["conformance"].values()
        for counts in by_checker.values()
    ]
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
