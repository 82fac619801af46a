"""Write a report's files, and print its tables and sentences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rich.console import Console

from vcrt.protocol.experiment import Experiment
from vcrt.report.analysis import analyse
from vcrt.report.gather import gather
from vcrt.report.page import write_report
from vcrt.report.summary import sentences
from vcrt.report.table import Table, only_aside, to_rich, without_aside
from vcrt.report.tables import result_tables
from vcrt.report.task import task_text

NOT_MEASURED = (
    "Language models: all figures come from the embedded backbone of about 150,000 parameters.",
    "Whether the relations could be read from raw text: the policy is given the certified relations.",
)


def print_report(console: Console, experiment: Experiment, directory: Path) -> None:
    """Write the report of an evaluated experiment to ``directory`` and print its result."""
    contents = gather(experiment, not_measured=NOT_MEASURED)
    written = write_report(contents, directory)
    analysis = analyse(contents)
    console.print(task_text(contents), highlight=False, markup=False)
    console.print()
    for table in result_tables(contents, analysis):
        _print_table(console, table)
    for sentence in sentences(contents, analysis):
        console.print(f"- {sentence}", highlight=False, markup=False)
    console.print()
    console.print(f"wrote {len(written)} files to {directory}", highlight=False, soft_wrap=True)


def _print_table(console: Console, table: Table) -> None:
    """Print a table; one that is too wide is split into its own columns and those for orientation."""
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
