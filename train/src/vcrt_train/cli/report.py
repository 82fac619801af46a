"""Run the command report, and print what is on a page of episodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

import vcrt_train
from vcrt.cli.options import plain_console, say
from vcrt.errors import UnknownNameError, VcrtError
from vcrt.printable import counted

if TYPE_CHECKING:
    from vcrt_train.api.reporting import Report
    from vcrt_train.report.explorer.explorer_contents import ExplorerContents


def report(
    experiment: Path,
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
        say_report(console, vcrt_train.write_report(experiment, output))


def print_explored(contents: ExplorerContents, *, output: Path) -> None:
    """Print what is on a page of episodes."""
    console = plain_console()
    shown = f"{len(contents.episodes):,} of {counted(contents.num_in_dataset, 'episode')}"
    scored = f", probabilities of {counted(len(contents.runs), 'run')}" if contents.runs else ""
    say(console, f"wrote {output}: {shown}{scored}, {output.stat().st_size / 1e6:.1f} MB")
    say(console, *(f"- {note}" for note in contents.notes))


def print_report(report: Report) -> None:
    """Print the result of a report that was written, and where the rest is."""
    say_report(plain_console(), report)


def say_report(console: Console, report: Report) -> None:
    """Say the same on a console."""
    from vcrt_train.report.page import REPORT_FILE
    from vcrt_train.report.summary import summary
    from vcrt_train.report.table import to_rich
    from vcrt_train.report.tables import SHOWN, report_tables
    from vcrt_train.report.task import task_text

    directory = report.directory
    console.print(f"{task_text(report.contents)}\n", highlight=False, markup=False)
    tables = report_tables(report.analysis)
    for table in tables:
        if table.name in SHOWN:
            console.print(to_rich(table))
            console.print()
    for sentence in summary(report.analysis):
        console.print(f"- {sentence}", highlight=False, markup=False)
    others = ", ".join(table.name for table in tables if table.name not in SHOWN)
    say(
        console,
        f"\nwrote {counted(len(report.files), 'file')} to {directory}; begin with {directory / REPORT_FILE}",
        f"further tables, each with --table NAME: {others}",
    )


def _print_one_table(console: Console, experiment: Path, name: str, form: str) -> None:
    from vcrt_train.report.analysis import analyse
    from vcrt_train.report.gather import gather
    from vcrt_train.report.table import to_csv, to_latex, to_rich, to_text
    from vcrt_train.report.tables import report_tables

    contents = gather(vcrt_train.open_experiment(experiment))
    tables = {one.name: one for one in report_tables(analyse(contents))}
    if name not in tables:
        raise UnknownNameError.of("table", name, tables)
    if form == "terminal":
        console.print(to_rich(tables[name]))
    else:
        written = {"text": to_text, "csv": to_csv, "latex": to_latex}[form](tables[name])
        console.file.write(written)
