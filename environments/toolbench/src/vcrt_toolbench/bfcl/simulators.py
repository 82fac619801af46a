"""Load the simulators of BFCL's multi-turn tasks, with fixed clock, random draws and order of sets.

The metadata of bfcl-eval requires the clients of a dozen model providers; the simulators need mpmath alone. These names
are replaced in the loaded modules: ``datetime`` (file times, a traveller's age), ``random.Random`` (identifiers,
temperatures: draws of the seed, whose state is counted), ``set`` (the fields named in a refusal), and mpmath's context
(its precision would be a setting of the whole process). Additions for long contexts are off.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

from vcrt.environments.fixed_sources import CountedRandom, SortedSet, fixed_datetime
from vcrt.environments.partial_imports import Distribution

BFCL = Distribution(name="bfcl-eval", version="2026.3.23", package="bfcl_eval")
_SOURCES = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
#: The module of each simulator, by the class that the tasks name.
_MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulator:
    """The class of a simulator, and the signatures of its tools by name."""

    kind: type[Any]
    tools: Mapping[str, inspect.Signature]

    def loaded(self, scenario: Any) -> Any:
        """Return an object of the class in its initial state; the object owns the scenario."""
        made = self.kind()
        if hasattr(made, "_load_scenario"):
            made._load_scenario(scenario)
        return made


@lru_cache(maxsize=1)
def load_simulators() -> Mapping[str, Simulator]:
    """Return the simulators by the names of their classes.

    Raise :class:`vcrt.errors.UnavailableError` if bfcl-eval is missing or of another version, or mpmath is missing.
    """
    modules = BFCL.load([f"{_SOURCES}.{module}" for module in _MODULES.values()])
    found = {}
    for name, module in _MODULES.items():
        loaded = modules[f"{_SOURCES}.{module}"]
        _fix(loaded)
        kind = getattr(loaded, name)
        functions = inspect.getmembers(kind, inspect.isfunction)
        found[name] = Simulator(
            kind=kind,
            tools={
                tool: inspect.signature(function)
                for tool, function in functions
                if not tool.startswith("_")
            },
        )
    return MappingProxyType(found)


def simulator_files() -> list[Path]:
    """Return the source files of the simulators."""
    folder = BFCL.folder().joinpath(*_SOURCES.split(".")[1:])
    return [folder / f"{module}.py" for module in _MODULES.values()]


def _fix(module: ModuleType) -> None:
    names = vars(module)
    if "datetime" in names:
        names["datetime"] = fixed_datetime(names["datetime"])
    if "random" in names:
        names["random"] = SimpleNamespace(Random=CountedRandom)
    if "mpmath" in names:
        context = names["mpmath"].MPContext()
        names["mpmath"] = SimpleNamespace(mp=context, log=context.log)
    names["set"] = SortedSet
