"""What the commands share: the console that they print to, and options of more than one of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from vcrt.errors import VcrtError

DatasetPath = Annotated[Path, tyro.conf.Positional]
ExperimentPath = Annotated[Path, tyro.conf.Positional]
#: Columns of output that does not go to a terminal.
PLAIN_WIDTH = 120


def plain_console(*, quiet: bool = False) -> Console:
    """The terminal, or output of a fixed width; ``quiet`` for a process whose output another one prints."""
    console = Console(quiet=quiet)
    return console if console.is_terminal else Console(width=PLAIN_WIDTH, quiet=quiet)


def num_jobs(jobs: int | None) -> int:
    """How many worker processes: as many as there are cores by default; raises :class:`VcrtError` for less than one."""
    if jobs is not None and jobs < 1:
        raise VcrtError("too few jobs", found=f"--jobs {jobs}", expected="at least 1")
    return jobs if jobs is not None else len(os.sched_getaffinity(0))
