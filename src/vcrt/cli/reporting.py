"""Write a report's files, and print its tables and sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeAlias

from rich.console import Console

from vcrt.errors import UnknownNameError
from vcrt.printable import counted
from vcrt.protocol.experiment import Experiment
from vcrt.report.analysis import analyse
from vcrt.report.assembly import SHOWN, all_tables, report_tables
from vcrt.report.gather import gather
from vcrt.report.latex import to_latex
from vcrt.report.neighbours import EXPLORER_FILE, REPORT_FILE, neighbour
from vcrt.report.page import write_report
from vcrt.report.summary import sentences
from vcrt.report.table import Table, only_aside, to_csv, to_rich, to_text, without_aside
from vcrt.report.task import task_text

Form: TypeAlias = Literal["terminal", "text", "csv", "latex"]
FORMS: Mapping[str, Callable[[Table], str]] = {"text": to_text, "csv": to_csv, "latex": to_latex}


def print_report(console: Console, experiment: Experiment, directory: Path) -> None:
    """Write the report of an evaluated experiment to ``directory`` and print its result.

    It links to an explorer that lies there.
    """
    contents = gather(experiment)
    contents = replace(contents, explorer=neighbour(directory, EXPLORER_FILE))
    analysis = analyse(contents)
    written = write_report(contents, directory, analysis)
    console.print(task_text(contents), highlight=False, markup=False)
    console.print()
    tables = all_tables(contents, analysis)
    for table in tables:
        if table.name in SHOWN:
            _print_table(console, without_aside(table))
    for sentence in sentences(contents, analysis):
        console.print(f"- {sentence}", highlight=False, markup=False)
    console.print()
    others = ", ".join(table.name for table in tables if table.name not in SHOWN)
    console.print(
        f"wrote {counted(len(written), 'file')} to {directory}; begin with {directory / REPORT_FILE}\n"
        f"further tables, each with --table NAME: {others}",
        highlight=False,
        soft_wrap=True,
    )


def print_one_table(console: Console, experiment: Experiment, name: str, form: Form) -> None:
    """Print one table of the report in one form and write nothing; raises :class:`UnknownNameError`."""
    tables = {table.name: table for table in report_tables(gather(experiment))}
    if name not in tables:
        raise UnknownNameError.of("table", name, tables)
    if form == "terminal":
        _print_table(console, tables[name])
    else:
        console.file.write(FORMS[form](tables[name]))


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
