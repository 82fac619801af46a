"""Entry point of the ``vcrt`` command: parse, run, and turn every named error into one message and its exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence

import tyro
from rich.console import Console

from vcrt import __version__
from vcrt.cli.contents import CHAPTERS, contents
from vcrt.cli.launched import Launcher, interrupt_once
from vcrt.cli.options import with_named_paths
from vcrt.cli.system_errors import named_error
from vcrt.errors import UnknownNameError, VcrtError
from vcrt.memory import is_out_of_memory, out_of_memory
from vcrt.printable import printable

COMMANDS: dict[str, Callable[..., None]] = {
    name: with_named_paths(command.run)
    for chapter in CHAPTERS.values()
    for name, command in chapter.items()
}

NOTHING = "nothing was written"
KEPT = "what was certified is kept in OUTPUT.shards; the same command goes on from there"
#: What to do after a command was interrupted.
AFTER_INTERRUPTION = {
    "certify": KEPT,
    "search": "finished trials are kept in OUTPUT.trials; the same command goes on from there",
    "reproduce": "what was finished is kept; the same command goes on from there",
    "train": "go on from the last checkpoints with `vcrt train EXPERIMENT --resume`",
    "evaluate": "nothing was scored; the same command goes on under the same opening",
    "report": "the report may be incomplete; the same command writes all of it again",
    "demo": "what the demo had published stays in its folder; the next demo makes a new one",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; exits with the error's code after a named error and with 130 after an interruption.

    A process of `vcrt train --num-processes` leaves it to its launcher to say so.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    launcher = Launcher.of_this_process()
    # A termination is an interruption: workers are ended and nothing half-done is left.
    if threading.current_thread() is threading.main_thread():
        signal.signal(
            signal.SIGTERM, signal.default_int_handler if launcher is None else interrupt_once
        )
    if given in (["--version"], ["--help"], ["-h"]):
        print(f"vcrt {__version__}" if given == ["--version"] else contents())
        return
    if not given:
        print(contents(), file=sys.stderr)
        sys.exit(VcrtError.exit_code)
    errors = Console(stderr=True)
    try:
        try:
            named = _run(given)
        except Exception:
            # An interruption may come at any point of this too.
            if launcher is None:
                raise
            launcher.leave_with_traceback()
        if named is None:
            return
        if launcher is not None:
            launcher.leave(named)
        errors.print(f"[bold red]error:[/] {_escape(str(named))}", highlight=False, soft_wrap=True)
        sys.exit(named.exit_code)
    except KeyboardInterrupt:
        if launcher is None:
            errors.print(
                f"interrupted; {after_interruption(given)}", highlight=False, soft_wrap=True
            )
        sys.exit(130)


def _run(arguments: Sequence[str]) -> VcrtError | None:
    """Run one command; the named error that it ended with, if any."""
    try:
        if not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
            raise UnknownNameError.of("command", arguments[0], COMMANDS)
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="vcrt",
            args=arguments,
        )
    except VcrtError as error:
        return error
    except BrokenPipeError:
        # Whoever read the output has enough of it, as `head` does: what Python still holds goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        return named_error(error)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return out_of_memory(error)
    return None


def after_interruption(arguments: Sequence[str]) -> str:
    """What an interrupted command has left, and how to go on."""
    command = arguments[0] if arguments else ""
    if command == "lift" and any(a.split("=")[0] == "--output" for a in arguments):
        return KEPT
    experiment = next((a for a in arguments[1:2] if not a.startswith("-")), "EXPERIMENT")
    return AFTER_INTERRUPTION.get(command, NOTHING).replace("EXPERIMENT", experiment)


def _escape(text: str) -> str:
    # A message may quote a file that anyone wrote: no terminal is to act on it.
    return "\n".join(map(printable, text.split("\n"))).replace("[", r"\[")
