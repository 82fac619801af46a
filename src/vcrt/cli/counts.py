"""What a freshly frozen dataset holds, schema by schema."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from vcrt.hashing import Json
from vcrt.records.dataset import Dataset
from vcrt.records.manifest import Manifest


def dataset_document(dataset: Dataset) -> dict[str, Json]:
    """A dataset's place, root hash and counts, as its manifest has them."""
    manifest = dataset.manifest
    parts = manifest.model_dump(include={"root_hash", "counts", "conformance"})
    return {"dataset": str(dataset.path), **parts}


def print_counts(console: Console, manifest: Manifest) -> None:
    """Print candidates, episodes, legal orders, relations and exclusions of each schema, and the second opinions."""
    table = Table("schema", "candidates", "episodes", "legal orders", "relations", "left out")
    for environment, schemas in sorted(manifest.counts.items()):
        for name, counts in sorted(schemas.items()):
            relations = ", ".join(f"{n} {kind}" for kind, n in counts.relations.items())
            left_out = ", ".join(f"{n} {kind}" for kind, n in counts.exclusions.items())
            table.add_row(
                f"{environment}/{name}",
                str(counts.candidates),
                str(counts.episodes),
                f"{counts.legal_orders} of {counts.orders}",
                relations,
                left_out or "none",
            )
    console.print(table)
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
