"""Print methods, the settings that a search chose, and plans, and add options of settings to commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console
from rich.table import Table

import vcrt
import vcrt_train
from vcrt.cli.options import last_given, plain_console, print_document, say
from vcrt.printable import counted
from vcrt_train.config import DEFAULTS, RunConfig
from vcrt_train.config_files import load_config, settings_names, to_toml

if TYPE_CHECKING:
    from vcrt_train.protocol.experiment import Experiment
    from vcrt_train.protocol.search import Search
    from vcrt_train.training.methods import Method

ConfigFile = Annotated[
    Path | None,
    tyro.conf.arg(
        name="config",
        help="A TOML file with settings, in tables such as [objective]; options on the command line override it.",
    ),
]
SettingsName = Annotated[
    str | None,
    tyro.conf.arg(
        name="settings",
        help=f"Settings that come with vcrt; those of the file override them: {', '.join(settings_names())}.",
    ),
]
PrintConfig = Annotated[
    bool,
    tyro.conf.arg(help="Print all settings as a file for --config, and do nothing else."),
]
#: Further options of every command that takes settings: the type of each option, and its default.
CONFIG_OPTIONS = {
    "config_file": (ConfigFile, None),
    "named_settings": (SettingsName, None),
    "print_config": (PrintConfig, False),
}


def print_found(found: Search, *, dataset: Path, output: Path, config: RunConfig) -> None:
    """Print the settings that a search chose, and what to do next."""
    console = plain_console()
    print_search(console, found)
    same = "" if config == DEFAULTS else ", with the settings of this search"
    say(console, f"next: vcrt plan {dataset} --output EXPERIMENT --search {output}{same}")


def print_plan(experiment: Experiment, *, dataset: Path, json: bool = False) -> None:
    """Print the planned runs.

    Args:
        json: Print the plan's hash, the names of its runs and its warnings for machines.
    """
    made, console = experiment.plan, plain_console()
    if json:
        print_document(
            {
                "experiment": str(experiment.path),
                "plan_hash": made.plan_hash,
                "runs": [run.name for run in made.runs],
                "warnings": list(made.warnings),
                "remarks": list(made.remarks),
            }
        )
        return
    methods, folds = counted(len(made.methods), "method"), counted(len(made.held_out), "fold")
    each = counted(len(made.runs) // (len(made.methods) * len(made.held_out)), "run")
    updates = counted(made.config.schedule.updates, "update")
    say(
        console,
        f"plan      {experiment.path}",
        f"plan hash {made.plan_hash}",
        f"runs      {len(made.runs)}: {methods} x {folds} x {each}, {updates} each",
        *(f"also on   {one.name}: {one.dataset}" for one in made.also_test),
    )
    free, episodes = vcrt.open_dataset(dataset).manifest.num_all_legal(made.environments)
    if free:
        say(
            console,
            f"note      every order of {free} of {counted(episodes, 'episode')} is legal: they are trained on and "
            "scored, but only the constraints act on them",
        )
    named = [made.backbone.name, made.backbone_revision, made.provenance.in_words()]
    say(console, f"backbone  {', '.join(filter(None, named))}{made.backbone.shown}")
    say(console, *(f"WARNING: {line}" for line in made.warnings))
    say(console, *(f"note: {line}" for line in made.remarks), f"next: vcrt train {experiment.path}")


def print_search(console: Console, search: Search) -> None:
    """Print the chosen settings, and their results on source items."""
    from vcrt_train.protocol.search import RANGES

    methods = vcrt_train.methods()
    table = Table(title=f"best of {counted(search.num_trials, 'trial')}, on source items alone")
    for name in ("method", "held out", "rate", "alpha", "margin", "mu", "pass", "orbit mass"):
        table.add_column(name)
    for name in search.methods:
        for fold in search.held_out:
            trial = search.best(name, fold)
            values = [
                f"{trial.settings[setting]:.3g}" if setting in methods[name].settings else "-"
                for setting in RANGES
            ]
            scores = (f"{100 * trial.pass_rate:.2f}%", f"{trial.orbit_mass:.4f}")
            table.add_row(name, fold, *values, *scores)
    console.print(table)


def print_methods(methods: Mapping[str, Method], *, json: bool = False) -> None:
    """Print the method table, one row a method.

    Args:
        json: Print the table for machines.
    """
    if json:
        print_document({name: row.definition() for name, row in methods.items()})
        return
    table = Table()
    for name in ("method", "answers", "records", "ratio", "margin", "terms"):
        table.add_column(name)
    table.add_column("in words", ratio=1)
    for row in methods.values():
        margin = row.margin if "anti_diamond_loss" in row.terms else "no"
        ratio = row.ratio.replace("_", " ") if "policy_loss" in row.terms else "none"
        cells = (row.interface, row.serialisation, ratio, margin, ", ".join(row.terms))
        table.add_row(row.name, *cells, row.summary)
    plain_console().print(table)


def with_config(command: Callable[..., None], arguments: Sequence[str]) -> Callable[..., None]:
    """Add --config and --settings, which options of single settings override, and --print-config to a command."""
    path, named = last_given(arguments, "--config"), last_given(arguments, "--settings")
    parameters = inspect.signature(command).parameters
    own: RunConfig = parameters["config"].default
    base = own if path is None and named is None else load_config(path, settings=named)

    def run(*, config: RunConfig, print_config: bool, **options: object) -> None:
        if print_config:
            print(to_toml(config.resolved()), end="")
            return
        for name in ("config_file", "named_settings"):
            del options[name]
        command(config=config, **options)

    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in CONFIG_OPTIONS.items()
    ]
    every = {**parameters, "config": parameters["config"].replace(default=base)}
    run.__signature__ = inspect.Signature([*every.values(), *added])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in [*every.values(), *added]}
    run.__doc__ = command.__doc__
    return run
