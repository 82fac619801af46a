"""Certify by replay which steps commute, and which calls may run at once.

All names in ``__all__`` are public. ``vcrt.certify``, ``vcrt.schedule`` and so on do the same as the commands of those
names; the other names are the types that they take and return. Importing :mod:`vcrt` is quick: each name is loaded
when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcrt.lazy import lazy

if TYPE_CHECKING:
    from vcrt.api.annotating import annotate as annotate
    from vcrt.api.certifying import certify as certify
    from vcrt.api.certifying import certify_completion as certify_completion
    from vcrt.api.certifying import certify_episode as certify_episode
    from vcrt.api.certifying import verify as verify
    from vcrt.api.certifying import verify_certificate as verify_certificate
    from vcrt.api.certifying import verify_proof as verify_proof
    from vcrt.api.certifying import verify_seal as verify_seal
    from vcrt.api.datasets import prove as prove
    from vcrt.api.datasets import seal as seal
    from vcrt.api.datasets import show as show
    from vcrt.api.doctor import doctor as doctor
    from vcrt.api.listing import list_environments as list_environments
    from vcrt.api.listing import validate_environment as validate_environment
    from vcrt.api.logs import lift_log as lift_log
    from vcrt.api.retrying import retry as retry
    from vcrt.api.reusing import reuse as reuse
    from vcrt.api.schedules import schedule as schedule
    from vcrt.certificates.episodes import CertifiedEpisode as CertifiedEpisode
    from vcrt.certificates.episodes import Exclusion as Exclusion
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
    from vcrt.environments.mcp_commands import mcp_server as mcp_server
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
    from vcrt.frameworks.given_tools import tools_environment as tools_environment
    from vcrt.frameworks.postgres_states import postgres as postgres
    from vcrt.frameworks.tool_states import folder as folder
    from vcrt.frameworks.tool_states import module_globals as module_globals
    from vcrt.frameworks.tool_states import sqlite_file as sqlite_file
    from vcrt.orders import all_orders as all_orders
    from vcrt.orders import linear_extensions as linear_extensions
    from vcrt.records.dataset import Dataset as Dataset
    from vcrt.records.dataset import Item as Item
    from vcrt.records.dataset import load_items as load_items
    from vcrt.records.dataset import open_dataset as open_dataset

__version__ = "0.1.0"

_PLACE_OF, __getattr__, __dir__ = lazy(
    __name__,
    {
        "vcrt.api.annotating": "annotate",
        "vcrt.api.certifying": "certify certify_completion certify_episode verify verify_certificate "
        "verify_proof verify_seal",
        "vcrt.api.datasets": "prove seal show",
        "vcrt.api.doctor": "doctor",
        "vcrt.api.listing": "list_environments validate_environment",
        "vcrt.api.logs": "lift_log",
        "vcrt.api.retrying": "retry",
        "vcrt.api.reusing": "reuse",
        "vcrt.api.schedules": "schedule",
        "vcrt.certificates.episodes": "CertifiedEpisode Exclusion",
        "vcrt.environments.contract": "Accepted BatchEnvironment Environment Episode Footprint Operation "
        "Provenance Rejected Schema StepEnvironment Versions",
        "vcrt.environments.mcp_commands": "mcp_server",
        "vcrt.environments.registry": "environment_names load_environment",
        "vcrt.environments.tool_calls": "CallEnvironment CallRefused call_method",
        "vcrt.environments.written": "UnreadableCompletion WrittenEnvironment WrittenStep WrittenSteps WrittenTrace",
        "vcrt.errors": "VcrtError",
        "vcrt.frameworks.given_tools": "tools_environment",
        "vcrt.frameworks.postgres_states": "postgres",
        "vcrt.frameworks.tool_states": "folder module_globals sqlite_file",
        "vcrt.orders": "all_orders linear_extensions",
        "vcrt.records.dataset": "Dataset Item load_items open_dataset",
    },
)

__all__ = sorted(_PLACE_OF)
