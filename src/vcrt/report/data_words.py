"""How the data came about, in sentences: what was excluded, and how often second opinions disagreed.

The tables are in :mod:`vcrt.report.provenance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

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
        *evidence_sentences(contents.dataset["counts"]),
        _disagreement(contents),
    ]


def is_sampled(counts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> bool:
    """Whether some episode's contexts were sampled; ``counts`` are a manifest's."""
    schemas = [some for by_schema in counts.values() for some in by_schema.values()]
    return any(
        "evidence" in schema and schema["evidence"]["complete"] < schema["episodes"]
        for schema in schemas
    )


def evidence_sentences(counts: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[str]:
    """What was replayed, where that is not every order by itself; empty for episodes of few steps.

    ``counts`` are a manifest's, by environment and schema.
    """
    schemas = [some for by_schema in counts.values() for some in by_schema.values()]
    found = [schema["evidence"] for schema in schemas if "evidence" in schema]
    if not found:
        return []
    episodes = sum(schema["episodes"] for schema in schemas)
    complete, sequences, replayed, classes = (
        sum(evidence[name] for evidence in found)
        for name in ("complete", "sequences", "replayed", "classes")
    )
    # Beside long episodes there may be schemas of short ones, of which every order was replayed.
    short = [schema for schema in schemas if "evidence" not in schema]
    complete += sum(schema["episodes"] for schema in short)
    sequences += sum(schema["orders"] for schema in short)
    first = f"In place of every order, {sequences:,} sequences of steps were replayed"
    if complete == episodes:
        return [f"{first}: every step in every reachable context."]
    contexts = [evidence["contexts"] for evidence in found if evidence["contexts"] is not None]
    of_all = f"of {sum(contexts):,}" if len(contexts) == len(found) else "of an unknown number of"
    return [
        f"{first}. This evidence is sampled, not complete: pairs of steps were compared in {replayed:,} {of_all} "
        f"contexts, and one representative of each of {counted(classes, 'class', 'classes')} of orders was replayed as "
        "a whole."
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
