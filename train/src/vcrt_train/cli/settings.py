"""Give the commands of training what they share: paths, runs, and all settings of a run as options."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, get_type_hints

import tyro

from vcrt.cli.options import last_given
from vcrt_train.config import RunConfig
from vcrt_train.config_files import load_config, preset_names, to_toml

ExperimentPath = Annotated[Path, tyro.conf.Positional]
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
