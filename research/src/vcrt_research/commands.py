"""Run the commands of research: probe, relations and pretrain."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import vcrt_research
from vcrt.cli.commands import Command
from vcrt.cli.contents import Chapters
from vcrt.cli.options import plain_console, print_document, say
from vcrt.cli.progress import showing_progress
from vcrt.printable import counted


def probe(dataset: Path, output: Path | None = None, seed: int = 0) -> None:
    """Measure how anonymous the policy records of a dataset are: what classifiers can guess from them.

    Prompts are probed in both forms that a plan may show to its model: relations with opaque names, and in words.

    Example: vcrt probe runs/data --output runs/anonymity.json

    Args:
        dataset: A directory made by `vcrt certify`.
        output: Where to keep the result.
        seed: Seed of the probe's subsamples and splits.
    """
    from vcrt_research.anonymity.result import require_anonymous
    from vcrt_research.anonymity.words import anonymity_sentences, anonymity_table
    from vcrt_train.report.table import to_rich

    console = plain_console()
    with showing_progress(console) as progress:
        found = vcrt_research.probe(dataset, output, seed=seed, progress=progress)
    console.print(to_rich(anonymity_table(found)))
    for sentence in anonymity_sentences(found):
        console.print(f"- {sentence}", highlight=False, markup=False)
    if output is not None:
        say(console, f"wrote {output}")
    require_anonymous(found, str(dataset))


def relations(
    dataset: Path,
    experiment: Path | None = None,
    run: tuple[str, ...] = (),
    backbone: str | None = None,
    episodes: int | None = None,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Score relations between steps that are inferred without replay, by comparing them with the certificates.

    They are inferred from words that steps share, from what steps declare to read and to write, and from what the
    policies of an evaluated experiment say about the environments that they held out.

    Example: vcrt relations runs/data --experiment runs/experiment

    Args:
        dataset: A directory made by `vcrt certify`.
        experiment: An evaluated experiment on this dataset.
        run: Runs as METHOD/HELD-OUT/SEED; by default all.
        backbone: A language model that is asked in words about each pair of steps, with two prompts a pair.
        episodes: Take this many episodes of each environment; all by default.
        seed: Seed that draws the episodes, and the resamples behind the intervals.
        json: Print all scores for machines; progress goes to the standard error.
    """
    from vcrt_research.relation_table import relation_table
    from vcrt_train.report.table import to_rich

    console = plain_console(aside=json)
    with showing_progress(console) as progress:
        found = vcrt_research.relations(
            dataset,
            experiment=experiment,
            run=run,
            backbone=backbone,
            episodes=episodes,
            seed=seed,
            progress=progress,
        )
    if json:
        print_document(asdict(found))
        return
    rows = [(row.environment, row.predictor, row.runs, row.scores) for row in found.rows]
    console.print(to_rich(relation_table(rows)))
    for name, implied in found.implied.items():
        if implied:
            pairs = counted(implied, "pair")
            say(console, f"{name}: {pairs} left out, whose order others imply")


def pretrain(
    output: Path,
    name: str = "embedded",
    seed: int | None = None,
    steps: int | None = None,
) -> None:
    """Pretrain an embedded backbone anew, and say whether it equals the shipped one bit for bit.

    Example: vcrt pretrain embedded-long --output DIRECTORY

    Args:
        output: The new folder of the backbone.
        name: `embedded` or `embedded-long`.
        seed: Seed of the pretraining; the shipped backbone's by default.
        steps: Steps of the pretraining; the shipped backbone's by default.
    """
    console = plain_console()
    with showing_progress(console) as progress:
        digest, is_shipped = vcrt_research.pretrain(
            output, name, seed=seed, steps=steps, progress=progress
        )
    same = "the shipped one" if is_shipped else "not the shipped one"
    say(console, f"{output}", f"digest {digest}: {same}")


CHAPTERS: Chapters = {
    "research": {
        "probe": Command(
            function="vcrt_research.commands:probe",
            summary="how anonymous the policy's records are",
        ),
        "relations": Command(
            function="vcrt_research.commands:relations",
            summary="how well relations are inferred without replay",
        ),
        "pretrain": Command(
            function="vcrt_research.commands:pretrain",
            summary="pretrain an embedded backbone anew",
            positional=("name",),
        ),
    }
}
