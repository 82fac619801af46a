"""Run the commands that show what was found: report, explore, and probe."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console

import vcrt
from vcrt.cli.options import (
    DatasetPath,
    ExperimentPath,
    plain_console,
    print_document,
    say,
)
from vcrt.cli.progress import showing_progress
from vcrt.errors import UnknownNameError, VcrtError
from vcrt.printable import counted

if TYPE_CHECKING:
    from vcrt.api.reporting import Report
    from vcrt.report.table import Table


def report(
    experiment: ExperimentPath,
    output: Path | None = None,
    table: str | None = None,
    form: Literal["terminal", "text", "csv", "latex"] = "terminal",
) -> None:
    """Write the tables and one self-contained page of an evaluated experiment.

    Example: vcrt report runs/experiment

    Args:
        experiment: An evaluated experiment.
        output: A new folder to write to; `report` in the experiment by default, where it replaces an earlier one.
        table: Print this one table and write nothing; the names are those of the report's CSV files.
        form: How `--table` is printed.
    """
    if table is not None and output is not None:
        raise VcrtError(
            "one table is printed, not written",
            found="--table and --output",
            expected="one of them",
        )
    if table is None and form != "terminal":
        raise VcrtError("which table?", found=f"--form {form}", expected="--form with --table")
    console = plain_console()
    if table is not None:
        _print_one_table(console, experiment, table, form)
    else:
        print_report(console, vcrt.write_report(experiment, output))


def explore(
    dataset: DatasetPath,
    episode: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    experiment: Path | None = None,
    run: tuple[str, ...] = (),
    output: Path = Path("explorer.html"),
    episodes: int | None = None,
) -> None:
    """Write one self-contained page to look at episodes: steps, relations, evidence, and all orders as a solid.

    With an experiment on the dataset, also the exact probability of each order before training and after every kept
    update. What a run holds out is scored only after `vcrt evaluate`.

    Example: vcrt explore runs/data --experiment runs/experiment --output runs/explorer.html

    Args:
        dataset: A dataset made by `vcrt certify`.
        episode: Episodes to show, by name; without names, the first of each schema.
        experiment: An experiment with finished runs.
        run: Runs as METHOD/HELD-OUT/SEED; by default the first seed of each method and held-out environment.
        output: The page; an earlier one is replaced.
        episodes: How many episodes of each schema; 8 by default, and as many as stay under 5 MB.
    """
    console = plain_console()
    with showing_progress(console) as progress:
        contents = vcrt.explore(
            dataset,
            output,
            experiment=experiment,
            run=run,
            episode=episode,
            episodes=episodes,
            progress=progress,
        )
    shown = f"{len(contents.episodes):,} of {counted(contents.num_in_dataset, 'episode')}"
    scored = f", probabilities of {counted(len(contents.runs), 'run')}" if contents.runs else ""
    say(console, f"wrote {output}: {shown}{scored}, {output.stat().st_size / 1e6:.1f} MB")
    say(console, *(f"- {note}" for note in contents.notes))


def probe(dataset: DatasetPath, output: Path | None = None, seed: int = 0) -> None:
    """Measure how anonymous the policy records of a dataset are: what classifiers can guess from them.

    Prompts are probed with relations by opaque names and in words, whichever a plan shows to its model.

    Example: vcrt probe runs/data --output runs/experiment/anonymity.json

    Args:
        dataset: A directory made by `vcrt certify`.
        output: Where to keep the result; the report of an experiment takes it from EXPERIMENT/anonymity.json.
        seed: Seed of the probe's subsamples and splits.
    """
    from vcrt.protocol.anonymity.result import require_anonymous
    from vcrt.report.anonymity import anonymity_sentences, anonymity_table
    from vcrt.report.table import to_rich

    console = plain_console()
    with showing_progress(console) as progress:
        found = vcrt.probe(dataset, output, seed=seed, progress=progress)
    console.print(to_rich(anonymity_table(found)))
    for sentence in anonymity_sentences(found):
        console.print(f"- {sentence}", highlight=False, markup=False)
    if output is not None:
        say(console, f"wrote {output}")
    require_anonymous(found, str(dataset))


def relations(
    dataset: DatasetPath,
    experiment: Path | None = None,
    run: tuple[str, ...] = (),
    backbone: str | None = None,
    episodes: int | None = None,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Score how well relations between steps are inferred without replaying them, against the certificates.

    From words that steps share, from what they declare to read and to write, and from what an evaluated experiment's
    policies say of the environments that they held out.

    Example: vcrt relations runs/data --experiment runs/experiment

    Args:
        dataset: A directory made by `vcrt certify`.
        experiment: An evaluated experiment on it.
        run: Runs as METHOD/HELD-OUT/SEED; by default all.
        backbone: A language model that is asked in words about each pair of steps; two prompts a pair.
        episodes: Take so many of each environment; all by default.
        seed: Seed of the resamples behind the intervals, and of which episodes are taken.
        json: Print all scores for machines; progress goes to the standard error.
    """
    from vcrt.report.relation_table import relation_table
    from vcrt.report.table import to_rich

    console = plain_console(aside=json)
    with showing_progress(console) as progress:
        found = vcrt.relations(
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


def print_report(console: Console, report: Report) -> None:
    """Print the result of a report that was written, and where the rest is."""
    from vcrt.report.page import REPORT_FILE
    from vcrt.report.summary import summary
    from vcrt.report.table import without_aside
    from vcrt.report.tables import SHOWN, report_tables
    from vcrt.report.task import task_text

    directory = report.directory
    console.print(f"{task_text(report.contents)}\n", highlight=False, markup=False)
    tables = report_tables(report.analysis)
    for table in tables:
        if table.name in SHOWN:
            _print_table(console, without_aside(table))
    for sentence in summary(report.analysis):
        console.print(f"- {sentence}", highlight=False, markup=False)
    others = ", ".join(table.name for table in tables if table.name not in SHOWN)
    say(
        console,
        f"\nwrote {counted(len(report.files), 'file')} to {directory}; begin with {directory / REPORT_FILE}",
        f"further tables, each with --table NAME: {others}",
    )


def _print_one_table(console: Console, experiment: Path, name: str, form: str) -> None:
    from vcrt.report.analysis import analyse
    from vcrt.report.gather import gather
    from vcrt.report.latex import to_latex
    from vcrt.report.table import to_csv, to_text
    from vcrt.report.tables import report_tables

    contents = gather(vcrt.open_experiment(experiment))
    tables = {one.name: one for one in report_tables(analyse(contents))}
    if name not in tables:
        raise UnknownNameError.of("table", name, tables)
    if form == "terminal":
        _print_table(console, tables[name])
    else:
        written = {"text": to_text, "csv": to_csv, "latex": to_latex}[form](tables[name])
        console.file.write(written)


def _print_table(console: Console, table: Table) -> None:
    """Print a table; one that is too wide is split into its own columns and those for orientation."""
    from vcrt.report.table import only_aside, to_rich, without_aside

    drawn = to_rich(table)
    parts = [drawn]
    unbounded = console.options.update(width=10_000)
    if table.aside and console.measure(drawn, options=unbounded).maximum > console.width:
        published = replace(
            only_aside(table), title="The published values, for orientation", note=""
        )
        parts = [to_rich(without_aside(table)), to_rich(published)]
    for part in parts:
        console.print(part)
        console.print()
