"""What the commands share: the console that they print to, and options of more than one of them."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from vcrt.errors import VcrtError
from vcrt.workers import TIMEOUT

DatasetPath = Annotated[Path, tyro.conf.Positional]
ExperimentPath = Annotated[Path, tyro.conf.Positional]
#: Columns of output that does not go to a terminal.
PLAIN_WIDTH = 120


def plain_console(*, quiet: bool = False, aside: bool = False) -> Console:
    """The terminal, or output of a fixed width; ``quiet`` for a process whose output another one prints.

    ``aside`` keeps the standard output for a document: what is said to people goes to the standard error.
    """
    console = Console(quiet=quiet, stderr=aside)
    return console if console.is_terminal else Console(width=PLAIN_WIDTH, quiet=quiet, stderr=aside)


def print_document(document: Mapping[str, object]) -> None:
    """What ``--json`` prints: one document on the standard output."""
    print(json.dumps(document, indent=2))


def set_verifier_timeout(seconds: float | None) -> None:
    """Limit every call of a verifier from now on, in worker processes too; raises :class:`VcrtError` for no limit."""
    if seconds is None:
        return
    if not 0 < seconds < float("inf"):
        raise VcrtError(
            "a time limit that is no number of seconds above zero",
            found=f"--verifier-timeout {seconds:g}",
        )
    os.environ[TIMEOUT] = str(seconds)


def with_named_paths(command: Callable[..., None]) -> Callable[..., None]:
    """The command, given its paths with a name: ``.`` and ``..`` have none, and what belongs beside them needs it.

    All others are passed on as they were written, links included.
    """

    @functools.wraps(command)
    def run(*args: object, **options: object) -> None:
        command(*map(_named, args), **{name: _named(value) for name, value in options.items()})

    return run


def _named(value: object) -> object:
    if isinstance(value, Path) and value.name in ("", ".."):
        return value.resolve()
    return value
