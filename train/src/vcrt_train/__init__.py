"""Train policies on whole orbits of equivalent orders, and measure what transfers.

The names here are public: ``vcrt_train.train``, ``vcrt_train.plan`` and so on do what the commands of those names do.
The import of :mod:`vcrt_train` is quick, because each name is loaded at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcrt.lazy import lazy

if TYPE_CHECKING:
    from vcrt_train.api.experimenting import decide as decide
    from vcrt_train.api.experimenting import evaluate as evaluate
    from vcrt_train.api.experimenting import methods as methods
    from vcrt_train.api.experimenting import plan as plan
    from vcrt_train.api.experimenting import search as search
    from vcrt_train.api.experimenting import train as train
    from vcrt_train.api.experimenting import trained_policy as trained_policy
    from vcrt_train.api.models import check_backbone as check_backbone
    from vcrt_train.api.models import export_model as export_model
    from vcrt_train.api.models import fetch_backbone as fetch_backbone
    from vcrt_train.api.models import import_backbone as import_backbone
    from vcrt_train.api.models import lock_backbone as lock_backbone
    from vcrt_train.api.reporting import explore as explore
    from vcrt_train.api.reporting import export as export
    from vcrt_train.api.reporting import write_report as write_report
    from vcrt_train.api.reproducing import demo as demo
    from vcrt_train.api.reproducing import reproduce as reproduce
    from vcrt_train.config import RunConfig as RunConfig
    from vcrt_train.config_files import load_config as load_config
    from vcrt_train.objective.orbit_mass import orbit_log_mass as orbit_log_mass
    from vcrt_train.policy.backbone import load_backbone as load_backbone
    from vcrt_train.policy.scoring import greedy_orders as greedy_orders
    from vcrt_train.policy.scoring import score_orders as score_orders
    from vcrt_train.protocol.experiment import Experiment as Experiment
    from vcrt_train.protocol.experiment import open_experiment as open_experiment

_PLACE_OF, __getattr__, __dir__ = lazy(
    __name__,
    {
        "vcrt_train.api.experimenting": "decide evaluate methods plan search train trained_policy",
        "vcrt_train.api.models": "check_backbone export_model fetch_backbone import_backbone "
        "lock_backbone",
        "vcrt_train.api.reporting": "explore export write_report",
        "vcrt_train.api.reproducing": "demo reproduce",
        "vcrt_train.config": "RunConfig",
        "vcrt_train.config_files": "load_config",
        "vcrt_train.objective.orbit_mass": "orbit_log_mass",
        "vcrt_train.policy.backbone": "load_backbone",
        "vcrt_train.policy.scoring": "greedy_orders score_orders",
        "vcrt_train.protocol.experiment": "Experiment open_experiment",
    },
)

__all__ = sorted(_PLACE_OF)
