"""Give the commands what they share: the console, how they print to it, and options of more than one of them."""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal, get_type_hints

import tyro
from rich.console import Console

from vcrt.config import RunConfig
from vcrt.config_files import load_config, preset_names, to_toml
from vcrt.errors import VcrtError
from vcrt.printable import printable
from vcrt.workers import TIMEOUT

DatasetPath = Annotated[Path, tyro.conf.Positional]
ExperimentPath = Annotated[Path, tyro.conf.Positional]
Jobs = Annotated[
    int | None,
    tyro.conf.arg(
        help="Worker processes; by default as many as there are cores, or one where they would share a GPU. "
        "The result does not depend on it."
    ),
]
Backend = Annotated[
    Literal["loky", "ray", "dask"],
    tyro.conf.arg(
        help="Where the workers are: local processes, or a Ray or Dask cluster (that of RAY_ADDRESS or "
        "DASK_SCHEDULER_ADDRESS, else a local one)."
    ),
]
VerifierTimeout = Annotated[
    float | None,
    tyro.conf.arg(
        help="Seconds that one call of a verifier may take (a step, or a batch), in place of what each environment "
        "says (60, or 600 for a batch)."
    ),
]
ConfigFile = Annotated[
    Path | None,
    tyro.conf.arg(
        help="A TOML file with settings, in tables such as [objective]; options of the command line stand above it."
    ),
]
PresetName = Annotated[
    str | None,
    tyro.conf.arg(
        help=f"Settings that come with vcrt, below those of the file: {', '.join(preset_names())}."
    ),
]
PrintConfig = Annotated[
    bool,
    tyro.conf.arg(help="Print all settings as a file for --config, and do nothing."),
]
#: What every command that takes settings takes as well: the type of each option, and its default.
CONFIG_OPTIONS = {
    "config": (ConfigFile, None),
    "preset": (PresetName, None),
    "print_config": (PrintConfig, False),
}
#: All settings of a run, as options such as --objective.margin.
Settings = Annotated[RunConfig, tyro.conf.arg(name="")]
Run = Annotated[
    str | None,
    tyro.conf.arg(
        help="A run as METHOD/HELD-OUT/SEED; by default the only one, or the only one of vcrt."
    ),
]
Update = Annotated[
    int | None,
    tyro.conf.arg(help="The checkpoint after this update; the last one by default."),
]
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


def with_config(command: Callable[..., None], arguments: Sequence[str]) -> Callable[..., None]:
    """The command, if it takes settings, with --config and --preset, which are below them, and --print-config."""
    parameters = inspect.signature(command).parameters
    if "settings" not in parameters:
        return command
    path, preset = last_given(arguments, "--config"), last_given(arguments, "--preset")
    base = load_config(path, preset=preset)

    @functools.wraps(command)
    def run(*args: object, settings: RunConfig, print_config: bool, **options: object) -> None:
        if print_config:
            print(to_toml(settings.resolved()), end="")
            return
        for name in ("config", "preset"):
            del options[name]
        command(*args, settings=settings, **options)

    own = parameters["settings"].replace(default=base)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in CONFIG_OPTIONS.items()
    ]
    every = [*{**parameters, "settings": own}.values(), *added]
    run.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    run.__annotations__ = {
        **get_type_hints(command, include_extras=True),
        **{name: kind for name, (kind, _) in CONFIG_OPTIONS.items()},
    }
    # Types are asked of what is wrapped, if something is.
    del run.__wrapped__
    return run


def last_given(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option among a command's arguments, the last one if it is given again."""
    values = [b for a, b in pairwise(arguments) if a == option]
    values += [a.partition("=")[2] for a in arguments if a.startswith(f"{option}=")]
    return values[-1] if values else None


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
