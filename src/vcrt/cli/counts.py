"""What a freshly frozen dataset holds, schema by schema."""

from __future__ import annotations

from math import comb

from rich.console import Console
from rich.table import Table

from vcrt.hashing import Json
from vcrt.records.dataset import Dataset
from vcrt.records.manifest import Manifest, SchemaCounts
from vcrt.report.data_words import evidence_sentences


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
    for line in evidence_sentences(manifest.model_dump()["counts"]):
        console.print(line, highlight=False, soft_wrap=True)
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
    """How many episodes have how many steps."""
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
