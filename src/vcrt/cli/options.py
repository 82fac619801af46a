"""Define what commands share: the console, printing to it, and the reading of common arguments."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from vcrt.errors import VcrtError
from vcrt.printable import printable
from vcrt.processes.watching import TIMEOUT

#: Columns of output that does not go to a terminal.
PLAIN_WIDTH = 120


def plain_console(*, quiet: bool = False, aside: bool = False) -> Console:
    """Return a console for the terminal, or of a fixed width; ``quiet`` if another process prints this one's output.

    ``aside`` keeps the standard output for a document: messages for people go to the standard error.
    """
    console = Console(quiet=quiet, stderr=aside)
    return console if console.is_terminal else Console(width=PLAIN_WIDTH, quiet=quiet, stderr=aside)


def say(console: Console, *texts: str, style: str | None = None) -> None:
    """Print untrusted lines as they are: no markup, no line breaks, and no character that a terminal acts on."""
    for line in (line for text in texts for line in text.split("\n")):
        console.print(printable(line), style=style, highlight=False, markup=False, soft_wrap=True)


def print_document(document: Mapping[str, object] | Sequence[object]) -> None:
    """Print one JSON document on the standard output, for ``--json``."""
    print(json.dumps(document, indent=2))


def set_verifier_timeout(seconds: float | None) -> None:
    """Limit every verifier call from now on, in worker processes too; raises :class:`VcrtError` for a wrong limit."""
    if seconds is None:
        return
    if not 0 < seconds < float("inf"):
        raise VcrtError(
            "the time limit is not a number of seconds above zero",
            found=f"--verifier-timeout {seconds:g}",
        )
    os.environ[TIMEOUT] = str(seconds)


def last_given(arguments: Sequence[str], option: str) -> str | None:
    """Return the last value of an option among a command's arguments."""
    values = [b for a, b in pairwise(arguments) if a == option]
    values += [a.partition("=")[2] for a in arguments if a.startswith(f"{option}=")]
    return values[-1] if values else None


def named_path(value: object) -> object:
    """Resolve ``.`` and ``..``, because these paths have no name, and files beside them need it.

    Other paths, links included, and values that are no path are returned as they were written.
    """
    if isinstance(value, Path) and value.name in ("", ".."):
        return value.resolve()
    return value
