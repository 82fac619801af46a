"""List the contents: every command of ``vcrt`` in its place, with one line on it.

Packages add commands (entry-point group ``vcrt.commands``, :mod:`vcrt.plugins`). They are loaded for the page, and for
a command that is none of the certifier's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from vcrt.cli.annotate import annotate
from vcrt.cli.certify import certify
from vcrt.cli.environments import doctor, environments
from vcrt.cli.lift import lift, with_lifters
from vcrt.cli.schedule import schedule
from vcrt.cli.show import show
from vcrt.cli.verify import prove, seal, verify
from vcrt.errors import UnknownNameError, VcrtError
from vcrt.plugins import COMMANDS, known_names, load, not_installed, plugins

Function: TypeAlias = Callable[..., None]


def as_it_is(function: Function, arguments: Sequence[str]) -> Function:
    """The function of a command whose options do not depend on what is given."""
    return function


@dataclass(frozen=True, slots=True)
class Command:
    """A function whose options are the command's, and what it does in at most 62 characters.

    ``functions`` are the names in Python of what does the same, if it is not the command's own name: where that is a
    room's (``vcrt.environments``), or one command is several functions. ``prepare`` gives the function for the
    arguments of one call. ``kept`` is what an interrupted command leaves beside its output: the folder's ending, and
    what is in it. ``interrupted`` says what the same command does then.
    """

    run: Function
    summary: str
    functions: str | None = None
    prepare: Callable[[Function, Sequence[str]], Function] = as_it_is
    kept: tuple[str, str] | None = None
    interrupted: str | None = None


Chapters: TypeAlias = dict[str, dict[str, Command]]

_SHARDS = (".shards", "what was certified is kept")
CHAPTERS: Chapters = {
    "certify": {
        "schedule": Command(schedule, "which calls or steps may run at once, and why"),
        "annotate": Command(annotate, "what calls show of each tool and pair of tools"),
        "environments": Command(
            environments, "what can be certified here", "list_environments validate_environment"
        ),
        "certify": Command(
            certify, "replay all orders of episodes, freeze a dataset", kept=_SHARDS
        ),
        "lift": Command(
            lift,
            "episodes from your logs, migrations, proofs",
            "lift_log",
            prepare=with_lifters,
            kept=_SHARDS,
        ),
        "verify": Command(
            verify,
            "replay a dataset or one certificate again",
            "verify verify_seal verify_certificate verify_proof",
        ),
        "show": Command(show, "one episode: its steps, relations and evidence"),
        "doctor": Command(doctor, "what is installed, what is missing, what mends it"),
    },
    "hand over": {
        "seal": Command(seal, "sign a dataset"),
        "prove": Command(prove, "that a certificate is in a dataset"),
    },
}


def chapters() -> Chapters:
    """The certifier's chapters, with those that installed packages add; what cannot be loaded is left out."""
    every = {chapter: dict(commands) for chapter, commands in CHAPTERS.items()}
    for point in plugins(COMMANDS).values():
        try:
            added = cast(Chapters, load(point))
        except VcrtError:
            continue
        for chapter, commands in added.items():
            every.setdefault(chapter, {}).update(commands)
    return every


def command_named(name: str) -> Command:
    """The command of that name.

    Raises :class:`UnknownNameError`, and :class:`vcrt.errors.UnavailableError` for a command of a package that is not
    installed or cannot be loaded.
    """
    own = {name: command for commands in CHAPTERS.values() for name, command in commands.items()}
    if name in own:
        return own[name]
    every = {name: one for commands in chapters().values() for name, one in commands.items()}
    if name in every:
        return every[name]
    for point in plugins(COMMANDS).values():
        load(point)
    if name in known_names(COMMANDS):
        raise not_installed(COMMANDS, name, "the command")
    raise UnknownNameError.of("command", name, sorted({*every, *known_names(COMMANDS)}))


def contents() -> str:
    """The page that ``vcrt --help`` prints; it fits a terminal of 80 columns."""
    lines = [
        "Certify by replay which steps commute, and which calls may run at once.",
        "",
    ]
    for chapter, commands in chapters().items():
        for place, (name, command) in enumerate(commands.items()):
            lines.append(f"{chapter if place == 0 else '':<15}{name:<14}{command.summary}")
    return "\n".join(
        [
            *lines,
            "",
            "vcrt COMMAND --help   its options, and an example        vcrt --version",
            "vcrt --tyro-print-completion bash|zsh   completion for your shell",
        ]
    )
