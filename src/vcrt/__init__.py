"""Certify by replay which steps commute, and train policies on whole orbits of equivalent orders.

What stands here is public: ``vcrt.certify``, ``vcrt.train`` and so on do what the commands of those names do, and
everything else named in ``__all__`` is what one needs beside them. Importing :mod:`vcrt` is quick: each name is loaded
when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vcrt.api.annotating import annotate as annotate
    from vcrt.api.certifying import certify as certify
    from vcrt.api.certifying import certify_completion as certify_completion
    from vcrt.api.certifying import certify_episode as certify_episode
    from vcrt.api.certifying import verify as verify
    from vcrt.api.certifying import verify_certificate as verify_certificate
    from vcrt.api.certifying import verify_proof as verify_proof
    from vcrt.api.certifying import verify_seal as verify_seal
    from vcrt.api.datasets import export as export
    from vcrt.api.datasets import prove as prove
    from vcrt.api.datasets import seal as seal
    from vcrt.api.datasets import show as show
    from vcrt.api.doctor import doctor as doctor
    from vcrt.api.experimenting import decide as decide
    from vcrt.api.experimenting import evaluate as evaluate
    from vcrt.api.experimenting import plan as plan
    from vcrt.api.experimenting import search as search
    from vcrt.api.experimenting import train as train
    from vcrt.api.experimenting import trained_policy as trained_policy
    from vcrt.api.lifting import lift_clrs as lift_clrs
    from vcrt.api.lifting import lift_django as lift_django
    from vcrt.api.lifting import lift_lean as lift_lean
    from vcrt.api.lifting import lift_proofwriter as lift_proofwriter
    from vcrt.api.lifting import lift_rocq as lift_rocq
    from vcrt.api.listing import list_environments as list_environments
    from vcrt.api.listing import methods as methods
    from vcrt.api.listing import validate_environment as validate_environment
    from vcrt.api.logs import lift_log as lift_log
    from vcrt.api.models import check_backbone as check_backbone
    from vcrt.api.models import export_model as export_model
    from vcrt.api.models import fetch_backbone as fetch_backbone
    from vcrt.api.models import import_backbone as import_backbone
    from vcrt.api.models import lock_backbone as lock_backbone
    from vcrt.api.models import pretrain_backbone as pretrain_backbone
    from vcrt.api.relations import relations as relations
    from vcrt.api.reporting import explore as explore
    from vcrt.api.reporting import probe as probe
    from vcrt.api.reporting import write_report as write_report
    from vcrt.api.reproducing import demo as demo
    from vcrt.api.reproducing import reproduce as reproduce
    from vcrt.api.schedules import schedule as schedule
    from vcrt.certification.episodes import CertifiedEpisode as CertifiedEpisode
    from vcrt.certification.episodes import Exclusion as Exclusion
    from vcrt.config import RunConfig as RunConfig
    from vcrt.config_files import load_config as load_config
    from vcrt.environments.contract import Accepted as Accepted
    from vcrt.environments.contract import BatchEnvironment as BatchEnvironment
    from vcrt.environments.contract import Environment as Environment
    from vcrt.environments.contract import Episode as Episode
    from vcrt.environments.contract import Footprint as Footprint
    from vcrt.environments.contract import Operation as Operation
    from vcrt.environments.contract import Provenance as Provenance
    from vcrt.environments.contract import Rejected as Rejected
    from vcrt.environments.contract import Schema as Schema
    from vcrt.environments.contract import StepEnvironment as StepEnvironment
    from vcrt.environments.contract import Versions as Versions
    from vcrt.environments.proofwriter.answers import theories as theories
    from vcrt.environments.registry import environment_names as environment_names
    from vcrt.environments.registry import load_environment as load_environment
    from vcrt.environments.tool_calls import CallEnvironment as CallEnvironment
    from vcrt.environments.tool_calls import CallRefused as CallRefused
    from vcrt.environments.tool_calls import call_method as call_method
    from vcrt.environments.written import UnreadableCompletion as UnreadableCompletion
    from vcrt.environments.written import WrittenEnvironment as WrittenEnvironment
    from vcrt.environments.written import WrittenStep as WrittenStep
    from vcrt.environments.written import WrittenSteps as WrittenSteps
    from vcrt.environments.written import WrittenTrace as WrittenTrace
    from vcrt.errors import VcrtError as VcrtError
    from vcrt.objective.orbit_mass import orbit_log_mass as orbit_log_mass
    from vcrt.orders import all_orders as all_orders
    from vcrt.orders import linear_extensions as linear_extensions
    from vcrt.policy.backbone import load_backbone as load_backbone
    from vcrt.policy.scoring import greedy_orders as greedy_orders
    from vcrt.policy.scoring import score_orders as score_orders
    from vcrt.protocol.experiment import Experiment as Experiment
    from vcrt.protocol.experiment import open_experiment as open_experiment
    from vcrt.records.dataset import Dataset as Dataset
    from vcrt.records.dataset import Item as Item
    from vcrt.records.dataset import load_items as load_items
    from vcrt.records.dataset import open_dataset as open_dataset

__version__ = "0.1.0"

#: Where each public name lives.
_PLACES = {
    "vcrt.api.annotating": "annotate",
    "vcrt.api.certifying": "certify certify_completion certify_episode verify verify_certificate verify_proof "
    "verify_seal",
    "vcrt.api.datasets": "export prove seal show",
    "vcrt.api.doctor": "doctor",
    "vcrt.api.listing": "list_environments methods validate_environment",
    "vcrt.api.experimenting": "decide evaluate plan search train trained_policy",
    "vcrt.api.lifting": "lift_clrs lift_django lift_lean lift_proofwriter lift_rocq",
    "vcrt.api.logs": "lift_log",
    "vcrt.api.schedules": "schedule",
    "vcrt.api.models": "check_backbone export_model fetch_backbone import_backbone lock_backbone "
    "pretrain_backbone",
    "vcrt.api.relations": "relations",
    "vcrt.api.reporting": "explore probe write_report",
    "vcrt.api.reproducing": "demo reproduce",
    "vcrt.certification.episodes": "CertifiedEpisode Exclusion",
    "vcrt.config": "RunConfig",
    "vcrt.config_files": "load_config",
    "vcrt.environments.contract": "Accepted BatchEnvironment Environment Episode Footprint Operation "
    "Provenance Rejected Schema StepEnvironment Versions",
    "vcrt.environments.proofwriter.answers": "theories",
    "vcrt.environments.registry": "environment_names load_environment",
    "vcrt.environments.tool_calls": "CallEnvironment CallRefused call_method",
    "vcrt.environments.written": "UnreadableCompletion WrittenEnvironment WrittenStep WrittenSteps WrittenTrace",
    "vcrt.errors": "VcrtError",
    "vcrt.objective.orbit_mass": "orbit_log_mass",
    "vcrt.orders": "all_orders linear_extensions",
    "vcrt.policy.backbone": "load_backbone",
    "vcrt.policy.scoring": "greedy_orders score_orders",
    "vcrt.protocol.experiment": "Experiment open_experiment",
    "vcrt.records.dataset": "Dataset Item load_items open_dataset",
}
_PLACE_OF = {name: module for module, names in _PLACES.items() for name in names.split()}

__all__ = sorted(_PLACE_OF)


def __getattr__(name: str) -> object:
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'vcrt' has no attribute {name!r}")
    found: object = getattr(import_module(_PLACE_OF[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
