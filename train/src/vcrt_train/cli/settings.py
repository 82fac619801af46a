"""Give the commands of training all settings of a run as options, below them a file's and those that have a name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import tyro

from vcrt.cli.options import last_given
from vcrt_train.config import RunConfig
from vcrt_train.config_files import load_config, settings_names, to_toml

ConfigFile = Annotated[
    Path | None,
    tyro.conf.arg(
        name="config",
        help="A TOML file with settings, in tables such as [objective]; options of the command line stand above it.",
    ),
]
SettingsName = Annotated[
    str | None,
    tyro.conf.arg(
        name="settings",
        help=f"Settings that come with vcrt, below those of the file: {', '.join(settings_names())}.",
    ),
]
PrintConfig = Annotated[
    bool,
    tyro.conf.arg(help="Print all settings as a file for --config, and do nothing."),
]
#: What every command that takes settings takes as well: the type of each option, and its default.
CONFIG_OPTIONS = {
    "config_file": (ConfigFile, None),
    "named_settings": (SettingsName, None),
    "print_config": (PrintConfig, False),
}


def with_config(command: Callable[..., None], arguments: Sequence[str]) -> Callable[..., None]:
    """The command, with --config and --settings, which stand below single settings, and --print-config."""
    path, named = last_given(arguments, "--config"), last_given(arguments, "--settings")
    base = load_config(path, settings=named)

    def run(*, config: RunConfig, print_config: bool, **options: object) -> None:
        if print_config:
            print(to_toml(config.resolved()), end="")
            return
        for name in ("config_file", "named_settings"):
            del options[name]
        command(config=config, **options)

    parameters = inspect.signature(command).parameters
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in CONFIG_OPTIONS.items()
    ]
    every = {**parameters, "config": parameters["config"].replace(default=base)}
    run.__signature__ = inspect.Signature([*every.values(), *added])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in [*every.values(), *added]}
    run.__doc__ = command.__doc__
    return run
