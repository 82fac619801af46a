"""Say how the data came about, in sentences: what was excluded, and how often second opinions disagreed.

The tables are in :mod:`vcrt.report.provenance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from vcrt.printable import printable
from vcrt.report.wording import counted, listed

if TYPE_CHECKING:  # what certifies has no use for a report's contents, nor for PyTorch
    from vcrt.report.contents import ReportContents

#: A manifest's counts by environment and schema, or by environment and second checker.
Counts: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]


def inner_values(counts: Counts) -> list[Mapping[str, Any]]:
    """What is counted of each schema or checker of any environment."""
    return [some for of_environment in counts.values() for some in of_environment.values()]


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


def is_sampled(counts: Counts) -> bool:
    """Whether some episode's contexts were sampled; ``counts`` are a manifest's."""
    return any(
        "evidence" in schema and schema["evidence"]["complete"] < schema["episodes"]
        for schema in inner_values(counts)
    )


def evidence_sentences(counts: Counts) -> list[str]:
    """What was replayed, where that is not every order by itself; empty for episodes of few steps.

    ``counts`` are a manifest's, by environment and schema.
    """
    schemas = inner_values(counts)
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
