"""What ``vcrt explore`` does: write the page, and say what is on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from vcrt.cli.orders_view import PLAIN
from vcrt.cli.progress import showing_progress
from vcrt.protocol.experiment import open_experiment
from vcrt.records.dataset import open_dataset
from vcrt.report.explorer import write_explorer
from vcrt.report.neighbours import REPORT_FILE, neighbour
from vcrt.report.wording import counted


def explore_dataset(
    console: Console,
    dataset: Path,
    output: Path,
    *,
    experiment: Path | None,
    runs: Sequence[str],
    episodes: Sequence[str],
    per_schema: int | None,
) -> None:
    """Write the page to ``output``, with a link to the report if one lies beside it."""
    opened = None if experiment is None else open_experiment(experiment)
    with showing_progress(console) as progress:
        contents = write_explorer(
            open_dataset(dataset),
            output,
            experiment=opened,
            runs=runs,
            episodes=episodes,
            per_schema=per_schema,
            report=neighbour(output.parent, REPORT_FILE),
            progress=progress,
        )
    shown = f"{len(contents.episodes):,} of {counted(contents.num_in_dataset, 'episode')}"
    scored = f", probabilities of {counted(len(contents.runs), 'run')}" if contents.runs else ""
    console.print(f"wrote {output}: {shown}{scored}, {output.stat().st_size / 1e6:.1f} MB", **PLAIN)
    for note in contents.notes:
        console.print(f"- {note}", **PLAIN)
