"""Give the commands what they share: the console, how they print to it, and what they read of their arguments."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from vcrt.call_record import TIMEOUT
from vcrt.errors import VcrtError
from vcrt.printable import printable

#: Columns of output that does not go to a terminal.
PLAIN_WIDTH = 120


def plain_console(*, quiet: bool = False, aside: bool = False) -> Console:
    """The terminal, or output of a fixed width; ``quiet`` for a process whose output another one prints.

    ``aside`` keeps the standard output for a document: what is said to people goes to the standard error.
    """
    console = Console(quiet=quiet, stderr=aside)
    return console if console.is_terminal else Console(width=PLAIN_WIDTH, quiet=quiet, stderr=aside)


def say(console: Console, *texts: str, style: str | None = None) -> None:
    """Print lines as they are, whoever wrote them: no markup, no breaks, and no character that a terminal acts on."""
    for line in (line for text in texts for line in text.split("\n")):
        console.print(printable(line), style=style, highlight=False, markup=False, soft_wrap=True)


def print_document(document: Mapping[str, object] | Sequence[object]) -> None:
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


def last_given(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option among a command's arguments, the last one if it is given again."""
    values = [b for a, b in pairwise(arguments) if a == option]
    values += [a.partition("=")[2] for a in arguments if a.startswith(f"{option}=")]
    return values[-1] if values else None


def named_path(value: object) -> object:
    """A path with a name: ``.`` and ``..`` have none, and what belongs beside them needs it.

    All others, and whatever is no path, are as they were written, links included.
    """
    if isinstance(value, Path) and value.name in ("", ".."):
        return value.resolve()
    return value
