"""Say, from the counts of a manifest, what was replayed when not every order was replayed by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from vcrt.printable import counted

#: A manifest's counts by environment and schema, or by environment and second checker.
Counts: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]


def inner_values(counts: Counts) -> list[Mapping[str, Any]]:
    """Give the counts of each schema or checker of every environment."""
    return [some for of_environment in counts.values() for some in of_environment.values()]


def is_sampled(counts: Counts) -> bool:
    """Tell whether the contexts of any episode were sampled; ``counts`` come from a manifest."""
    return any(
        "evidence" in schema and schema["evidence"]["complete"] < schema["episodes"]
        for schema in inner_values(counts)
    )


def evidence_sentences(counts: Counts) -> list[str]:
    """Say what was replayed if not every order was replayed by itself; empty for episodes of few steps.

    ``counts`` come from a manifest, by environment and schema.
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
