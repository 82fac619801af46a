"""Run the command report, and print the results of demos, pages of episodes and exports."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import vcrt_train
from vcrt.cli.certify import print_counts
from vcrt.cli.options import plain_console, say
from vcrt.errors import UnknownNameError, VcrtError
from vcrt.printable import counted

if TYPE_CHECKING:
    from vcrt_train.api.models import ExportedModel
    from vcrt_train.api.reporting import Exported, Report
    from vcrt_train.api.reproducing import Demo
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
        output: A new folder to write to; by default `report` in the experiment, where an earlier report is replaced.
        table: Print this one table and write nothing; the names are those of the report's CSV files.
        form: How `--table` is printed.
    """
    if table is not None and output is not None:
        raise VcrtError(
            "--table prints one table and writes nothing",
            found="--table and --output",
            expected="one of them",
        )
    if table is None and form != "terminal":
        raise VcrtError("which table?", found=f"--form {form}", expected="--form with --table")
    if table is not None:
        _print_one_table(experiment, table, form)
    else:
        print_report(vcrt_train.write_report(experiment, output))


def print_explored(contents: ExplorerContents, *, output: Path) -> None:
    """Print a summary of a page of episodes."""
    console = plain_console()
    shown = f"{len(contents.episodes):,} of {counted(contents.num_in_dataset, 'episode')}"
    scored = f", probabilities of {counted(len(contents.runs), 'run')}" if contents.runs else ""
    say(console, f"wrote {output}: {shown}{scored}, {output.stat().st_size / 1e6:.1f} MB")
    say(console, *(f"- {note}" for note in contents.notes))


def print_report(report: Report) -> None:
    """Print the main results of a written report, and where the rest is."""
    from vcrt_train.report.page import REPORT_FILE
    from vcrt_train.report.summary import summary
    from vcrt_train.report.table import to_rich
    from vcrt_train.report.tables import SHOWN, report_tables
    from vcrt_train.report.task import task_text

    console, directory = plain_console(), report.directory
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


def _print_one_table(experiment: Path, name: str, form: str) -> None:
    from vcrt_train.report.analysis import analyse
    from vcrt_train.report.gather import gather
    from vcrt_train.report.table import to_csv, to_latex, to_rich, to_text
    from vcrt_train.report.tables import report_tables

    contents = gather(vcrt_train.open_experiment(experiment))
    tables = {one.name: one for one in report_tables(analyse(contents))}
    if name not in tables:
        raise UnknownNameError.of("table", name, tables)
    console = plain_console()
    if form == "terminal":
        console.print(to_rich(tables[name]))
    else:
        console.file.write({"text": to_text, "csv": to_csv, "latex": to_latex}[form](tables[name]))


def print_demo(made: Demo) -> None:
    """Print the results of a demo, and what to try next."""
    console = plain_console()
    print_counts(console, made.dataset.manifest)
    print_report(made.report)
    agreement, dataset, vcrt_command = made.agreement, made.dataset.path, _command()
    say(
        console,
        f"{agreement.episodes} episodes, {agreement.agreed} of {agreement.replays} replays agree; "
        f"{made.seconds:.0f} s in all",
        f"root hash  {made.dataset.manifest.root_hash}",
        f"dataset    {dataset}",
        f"experiment {made.experiment.path}",
        f"report     {made.report.files['report.html']}",
        f"explorer   {made.explorer}",
        "",
        "try next:",
        f"  {vcrt_command} verify {dataset}",
        f"  {vcrt_command} environments validate clrs",
        f"  {vcrt_command} plan {dataset} --output {made.folder / 'ablation'} --methods vcrt no-orbit no-anti",
    )


def _command() -> str:
    """Return how the shell calls this command: by its name if the shell finds it, otherwise by its path."""
    called = Path(sys.argv[0])
    return called.name if shutil.which(called.name) else str(called)


def print_exported(exported: Exported, *, output: Path) -> None:
    """Print how many records were written, and how to load them."""
    say(
        plain_console(),
        f"{counted(exported.num_records, 'record')}  {output}",
        f"root hash {exported.root_hash}",
        f'next: datasets.Dataset.from_parquet("{output}")',
    )


def print_model(made: ExportedModel, *, output: Path) -> None:
    """Print which run's model was written, and how to load it."""
    how = f'AutoModelForCausalLM.from_pretrained("{made.base if made.is_adapter else output}")'
    if made.is_adapter:
        how = f'peft.PeftModel.from_pretrained({how}, "{output}")'
    say(
        plain_console(),
        f"run {made.policy.run} after update {made.policy.update}  {output}",
        f"provenance: {made.provenance.in_words()}",
        f"next: {how}",
    )
