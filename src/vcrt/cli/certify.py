"""Run the command certify, and print what a frozen dataset holds, schema by schema."""

from __future__ import annotations

from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console
from rich.table import Table

import vcrt
from vcrt.cli.options import (
    Backend,
    Jobs,
    VerifierTimeout,
    plain_console,
    print_document,
    say,
    set_verifier_timeout,
)
from vcrt.cli.progress import showing_progress
from vcrt.hashing import Json

if TYPE_CHECKING:
    from vcrt.records.dataset import Dataset
    from vcrt.records.manifest import Manifest, SchemaCounts


def certify(
    output: Path,
    schemas: tuple[str, ...] = (),
    episodes: int = 500,
    seed: int = 0,
    jobs: Jobs = None,
    backend: Backend = "loky",
    preset: str = "paper",
    sampled: bool = False,
    view: Literal["relations", "steps", "footprints"] = "relations",
    relations: Literal["all", "reduced"] = "all",
    commutations: Literal["shown", "omitted"] | None = None,
    distractors: int = 0,
    pool: Literal["usual", "large"] | None = None,
    json: bool = False,
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """Replay every order of sampled episodes (or what stands for all) and freeze the certified ones as a new dataset.

    Without options it is the paper's: 500 episodes of each of five schemas in each of the three environments. The
    run's unfinished work lies in OUTPUT.shards until the dataset is whole; a call that was interrupted goes on from
    there when it is given again.

    Example: vcrt certify --output runs/data --schemas clrs lean/cite --episodes 100

    Args:
        output: The new dataset's directory.
        schemas: Environments, or single schemas as environment/schema, separated by spaces; all that come
            with vcrt if none is given.
        episodes: Certified episodes for each schema.
        seed: Seed of everything.
        preset: What an episode looks like: `paper` (one anti-diamond and 12 of 24 legal orders), `several` (several
            anti-diamonds and 2 to 8 legal orders), `posetsN` (N steps, 3 to 64, with an anti-diamond at least, two
            of three or four steps, and two legal orders at least), or `any`: whatever certifies, of 2 to 64 steps,
            of several lengths in one dataset. Of 6 steps and more every reachable context is replayed, and beyond
            10 a sample of them. Each has schemas of its own, but `any` takes those of every preset; those that come
            with vcrt have 4, 6, 8, 12 and 16 steps.
        sampled: Replay a sample of the contexts even where all could be, from 6 steps on.
        view: What a policy is shown: the certified relations, or the native steps as text, or what each step declares
            to read and to write. Text needs a language model, which has to find the dependencies itself.
        relations: Whether a policy record states all directed relations, or only those that do not follow from
            others.
        commutations: Whether it states which pairs commute; by default only of up to four steps, and not with `any`.
        distractors: How many relations among operations that do not occur stand beside them.
        pool: Whether records of up to four steps draw their pointers from 8, or from the 32 of longer ones, so that
            both look alike; by default from 8, with `any` from 32.
        json: Print the root hash and all counts for machines; progress goes to the standard error.
    """
    set_verifier_timeout(verifier_timeout)
    console = plain_console(aside=json)
    with showing_progress(console) as progress:
        dataset = vcrt.certify(
            output,
            schemas=schemas,
            episodes=episodes,
            seed=seed,
            preset=preset,
            sampled=sampled,
            view=view,
            relations=relations,
            commutations=commutations,
            distractors=distractors,
            pool=pool,
            jobs=jobs,
            backend=backend,
            progress=progress,
        )
    if json:
        print_document(dataset_document(dataset))
        return
    print_dataset(console, dataset)


def dataset_document(dataset: Dataset) -> dict[str, Json]:
    """A dataset's place, root hash and counts, as its manifest has them."""
    manifest = dataset.manifest
    parts = manifest.model_dump(include={"root_hash", "counts", "conformance"})
    return {"dataset": str(dataset.path), **parts}


def print_dataset(console: Console, dataset: Dataset, environment: str = "") -> None:
    """Print what a dataset that was just frozen holds, and what to do next.

    ``environment`` is ``FILE.py:CLASS``, or a registered one's name, if it is of one environment alone.
    """
    from vcrt.records.sealing.leaves import first_leaf

    print_counts(console, dataset.manifest)
    path = dataset.path
    say(console, f"dataset   {path}", f"root hash {dataset.manifest.root_hash}")
    option = f" --environment {environment}" * (":" in environment)
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
