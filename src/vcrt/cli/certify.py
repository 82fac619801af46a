"""Print what a frozen dataset holds, schema by schema."""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from vcrt.cli.options import plain_console, print_document, say
from vcrt.environments.mcp_commands import McpServer

if TYPE_CHECKING:
    from vcrt.records.dataset import Dataset
    from vcrt.records.manifest import Manifest, SchemaCounts


def print_dataset(dataset: Dataset, *, json: bool = False) -> None:
    """Print the contents of a new dataset, and what to do next.

    Args:
        json: Print the root hash and all counts for machines; progress goes to the standard error.
    """
    if json:
        parts = dataset.manifest.model_dump(include={"root_hash", "counts", "conformance"})
        print_document({"dataset": str(dataset.path), **parts})
    else:
        say_dataset(plain_console(), dataset)


def say_dataset(console: Console, dataset: Dataset, environment: str | McpServer = "") -> None:
    """Print the contents of a new dataset, and what to do next, on a console.

    If the dataset is of one environment, ``environment`` is ``FILE.py:CLASS``, a registered name, or an MCP server.
    """
    from vcrt.records.sealing.statement import first_leaf

    print_counts(console, dataset.manifest)
    path = dataset.path
    say(console, f"dataset   {path}", f"root hash {dataset.manifest.root_hash}")
    option = (
        f" {environment.options}"
        if isinstance(environment, McpServer)
        else f" --environment {environment}" * (":" in environment)
    )
    say(
        console,
        f"next: vcrt verify {path}{option}",
        f"      vcrt show {first_leaf(path).episode} --dataset {path}{option}",
    )


def print_counts(console: Console, manifest: Manifest) -> None:
    """Print candidates, episodes, legal orders, relations and exclusions of each schema, and the second opinions."""
    from vcrt.words.evidence_words import evidence_sentences

    table = Table("schema", "candidates", "episodes", "legal orders", "relations", "left out")
    for environment, schemas in sorted(manifest.counts.items()):
        for name, counts in sorted(schemas.items()):
            pairs = sum(n * comb(steps, 2) for steps, n in _by_length(manifest, counts).items())
            implied = pairs - sum(counts.relations.values())
            relations = ", ".join(
                [f"{n} {kind}" for kind, n in counts.relations.items()]
                + [f"{implied} implied by others"] * bool(implied)
            )
            left_out = ", ".join(f"{n} {kind}" for kind, n in counts.exclusions.items())
            table.add_row(
                f"{environment}/{name}",
                str(counts.candidates),
                str(counts.episodes),
                _share(counts),
                relations,
                left_out or "none",
            )
    console.print(table)
    say(console, *evidence_sentences(manifest.model_dump()["counts"]))
    opinions = Table("second opinion", "episodes", "comparisons", "disagreeing", "rate")
    for environment, checkers in sorted(manifest.conformance.items()):
        for checker, found in checkers.items():
            opinions.add_row(
                f"{environment}: {checker}",
                str(found.episodes),
                str(found.checked),
                str(found.checked - found.agreed),
                f"{found.disagreement_rate:.2%}",
            )
    if opinions.row_count:
        console.print(opinions)


def _by_length(manifest: Manifest, counts: SchemaCounts) -> dict[int, int]:
    """Say how many episodes have each number of steps."""
    if manifest.num_operations is not None:
        return {manifest.num_operations: counts.episodes}
    return {int(steps): some.episodes for steps, some in (counts.lengths or {}).items()}


def _share(counts: SchemaCounts) -> str:
    if counts.legal_orders is None:
        return "not counted"
    if counts.evidence is None:
        return f"{counts.legal_orders} of {counts.orders}"
    if not counts.episodes:
        return "none"
    if counts.lengths is not None and len(counts.lengths) > 1:
        return f"{counts.legal_orders} of {counts.orders:,}"
    share = f"{counts.legal_orders / counts.orders:.2%} of {counts.orders / counts.episodes:,.0f}"
    sampled = counts.evidence.complete < counts.episodes
    return f"{share} keep the relations" if sampled else f"{share} each"
