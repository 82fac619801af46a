"""What ``vcrt search`` and ``vcrt methods`` print."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from vcrt.hashing import Json
from vcrt.objective.terms import constrained
from vcrt.printable import counted
from vcrt.protocol.search import RANGES, Search
from vcrt.training.methods import METHODS, Method, method


def print_search(console: Console, search: Search) -> None:
    """The settings that were chosen, and how they fared on source items."""
    table = Table(title=f"best of {counted(search.num_trials, 'trial')}, on source items alone")
    for name in ("method", "held out", "rate", "alpha", "margin", "mu", "pass", "orbit mass"):
        table.add_column(name)
    for name in search.methods:
        for fold in search.held_out:
            trial = search.best(name, fold)
            values = [
                f"{getattr(trial.settings, setting):.3g}"
                if setting in method(name).settings
                else "-"
                for setting in RANGES
            ]
            scores = (f"{100 * trial.pass_rate:.2f}%", f"{trial.orbit_mass:.4f}")
            table.add_row(name, fold, *values, *scores)
    console.print(table)


def methods_document() -> dict[str, Json]:
    """The method table, by name."""
    return {name: row.definition() for name, row in METHODS.items()}


def print_methods(console: Console) -> None:
    """The method table, one row a method."""
    table = Table()
    for name in ("method", "answers", "records", "ratio", "margin", "constraints", "contrast"):
        table.add_column(name)
    table.add_column("in words", ratio=1)
    for row in METHODS.values():
        constraints = "yes" if {*constrained()} & {*row.terms} else "no"
        contrast = "yes" if "contrastive_loss" in row.terms else "no"
        margin = row.margin if "anti_diamond_loss" in row.terms else "no"
        cells = (row.interface, row.serialisation, _ratio(row), margin, constraints, contrast)
        table.add_row(row.name, *cells, row.summary)
    console.print(table)


def _ratio(row: Method) -> str:
    return row.ratio.replace("_", " ") if "policy_loss" in row.terms else "none"
