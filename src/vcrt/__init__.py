"""Certify by replay which steps commute, and train policies on whole orbits of equivalent orders.

What stands here is public: ``vcrt.certify``, ``vcrt.train`` and so on do what the commands of those names do, and
everything else named in ``__all__`` is what one needs beside them. Importing :mod:`vcrt` is quick: each name is loaded
when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcrt.api.certifying import certify, certify_episode, verify
    from vcrt.api.experimenting import (
        decide,
        evaluate,
        plan,
        train,
        trained_policy,
        write_explorer,
        write_report,
    )
    from vcrt.certification.episodes import CertifiedEpisode, Exclusion
    from vcrt.environments.contract import (
        Accepted,
        BatchEnvironment,
        Environment,
        Episode,
        Operation,
        Provenance,
        Rejected,
        Schema,
        StepEnvironment,
        Versions,
    )
    from vcrt.environments.registry import environment_names, load_environment
    from vcrt.errors import VcrtError
    from vcrt.objective.orbit_mass import orbit_log_mass
    from vcrt.orders import all_orders, linear_extensions
    from vcrt.policy.backbone import load_backbone
    from vcrt.policy.scoring import greedy_orders, score_orders
    from vcrt.protocol.experiment import Experiment, open_experiment
    from vcrt.protocol.model_options import ModelOptions
    from vcrt.records.dataset import Dataset, Item, load_items, open_dataset
    from vcrt.records.record_form import RecordForm
    from vcrt.training.frugality import Frugality

__version__ = "0.1.0"

#: Where each public name lives.
_PLACES = {
    "vcrt.api.certifying": ("certify", "certify_episode", "verify"),
    "vcrt.api.experimenting": (
        "decide",
        "evaluate",
        "plan",
        "train",
        "trained_policy",
        "write_explorer",
        "write_report",
    ),
    "vcrt.certification.episodes": ("CertifiedEpisode", "Exclusion"),
    "vcrt.environments.contract": (
        "Accepted",
        "BatchEnvironment",
        "Environment",
        "Episode",
        "Operation",
        "Provenance",
        "Rejected",
        "Schema",
        "StepEnvironment",
        "Versions",
    ),
    "vcrt.environments.registry": ("environment_names", "load_environment"),
    "vcrt.errors": ("VcrtError",),
    "vcrt.objective.orbit_mass": ("orbit_log_mass",),
    "vcrt.orders": ("all_orders", "linear_extensions"),
    "vcrt.policy.backbone": ("load_backbone",),
    "vcrt.policy.scoring": ("greedy_orders", "score_orders"),
    "vcrt.protocol.experiment": ("Experiment", "open_experiment"),
    "vcrt.protocol.model_options": ("ModelOptions",),
    "vcrt.records.dataset": ("Dataset", "Item", "load_items", "open_dataset"),
    "vcrt.records.record_form": ("RecordForm",),
    "vcrt.training.frugality": ("Frugality",),
}
_PLACE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "Accepted",
    "BatchEnvironment",
    "CertifiedEpisode",
    "Dataset",
    "Environment",
    "Episode",
    "Exclusion",
    "Experiment",
    "Frugality",
    "Item",
    "ModelOptions",
    "Operation",
    "Provenance",
    "RecordForm",
    "Rejected",
    "Schema",
    "StepEnvironment",
    "VcrtError",
    "Versions",
    "all_orders",
    "certify",
    "certify_episode",
    "decide",
    "environment_names",
    "evaluate",
    "greedy_orders",
    "linear_extensions",
    "load_backbone",
    "load_environment",
    "load_items",
    "open_dataset",
    "open_experiment",
    "orbit_log_mass",
    "plan",
    "score_orders",
    "train",
    "trained_policy",
    "verify",
    "write_explorer",
    "write_report",
]


def __getattr__(name: str) -> object:
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'vcrt' has no attribute {name!r}")
    found: object = getattr(import_module(_PLACE_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
