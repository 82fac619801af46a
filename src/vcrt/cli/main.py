"""Entry point of the ``vcrt`` command: parse, run, and turn every named error into one message and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import tyro
from rich.console import Console

from vcrt.cli import commands
from vcrt.errors import VcrtError

COMMANDS: dict[str, Callable[..., None]] = {
    "demo": commands.demo,
    "certify": commands.certify,
    "verify": commands.verify,
    "plan": commands.plan,
    "train": commands.train,
    "evaluate": commands.evaluate,
    "report": commands.report,
    "environments": commands.environments,
    "theories": commands.theories,
    "backbone": commands.backbone,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; exits with 2 after a named error and with 130 after an interruption."""
    errors = Console(stderr=True)
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="vcrt",
            description="Certify by replay which steps commute, and train on whole orbits of orders.",
            args=arguments,
        )
    except VcrtError as error:
        errors.print(f"[bold red]error:[/] {_escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        message = f"{error.strerror or error}{where}"
        errors.print(f"[bold red]error:[/] {_escape(message)}", highlight=False, soft_wrap=True)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("interrupted; what was finished is kept", highlight=False)
        sys.exit(130)


def _escape(text: str) -> str:
    return text.replace("[", r"\[")
