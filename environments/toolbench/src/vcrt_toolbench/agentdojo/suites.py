"""Load AgentDojo's suites with their environments, tools and user tasks, with a fixed clock and order of sets.

The metadata of agentdojo requires the clients of model providers; suites need only PyYAML, pydantic with
email-validator, and docstring-parser. The pipelines are left out, and so is deepdiff, with which AgentDojo checks an
agent's actions. Two names are replaced in the loaded modules: ``datetime`` (times of e-mails and files) and ``set``
(the order of an event's participants).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic_core import to_json

from vcrt.environments.fixed_sources import SortedSet, fixed_datetime
from vcrt.environments.partial_imports import Distribution
from vcrt.environments.states.object_copies import copied
from vcrt.environments.tool_calls import Call
from vcrt_toolbench.gold_calls import Trajectory

AGENTDOJO = Distribution(name="agentdojo", version="0.1.35", package="agentdojo")
#: The version of the benchmark; the package holds several.
BENCHMARK = "v1.2.1"
_TOOLS = "agentdojo.default_suites.v1.tools"
_FIXED = [f"{_TOOLS}.{name}" for name in ("calendar_client", "cloud_drive_client", "email_client")]
_RUNTIME = "agentdojo.functions_runtime"
_SUITES = "agentdojo.task_suite.load_suites"


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """A suite; ``run`` calls a tool by name in an environment, as AgentDojo's runtime does."""

    suite: Any
    run: Callable[..., tuple[Any, str | None]]
    #: The last part of the name of each tool's module.
    modules: Mapping[str, str]


@lru_cache(maxsize=1)
def load_suites() -> Mapping[str, Suite]:
    """Return the suites of :data:`BENCHMARK` by name.

    Raise :class:`vcrt.errors.UnavailableError` if agentdojo is missing or of another version, or a dependency is
    missing.
    """
    modules = AGENTDOJO.load(
        [_SUITES, _RUNTIME, *_FIXED],
        bare=["agentdojo", "agentdojo.agent_pipeline", "agentdojo.task_suite"],
        stand_ins={
            "agentdojo.agent_pipeline.ground_truth_pipeline": {"GroundTruthPipeline": None},
            "deepdiff": {},
            "deepdiff.diff": {"DeepDiff": _no_deepdiff},
        },
    )
    for name in _FIXED:
        names = vars(modules[name])
        names.update(datetime=fixed_datetime(names["datetime"]), set=SortedSet)
    runtime = modules[_RUNTIME]
    # Its annotations name types of its module, which can no longer be found by name.
    runtime.FunctionCall.model_rebuild(_types_namespace=vars(runtime))
    return MappingProxyType(
        {
            name: Suite(
                suite=suite,
                run=runtime.FunctionsRuntime(suite.tools).run_function,
                modules={tool.name: tool.run.__module__.rpartition(".")[2] for tool in suite.tools},
            )
            for name, suite in modules[_SUITES].get_suites(BENCHMARK).items()
        }
    )


def _no_deepdiff(*_: object, **__: object) -> None:
    raise RuntimeError("AgentDojo's checks of results need deepdiff")


def suite_files() -> list[Path]:
    """Return the source files of suites and tools, and their data."""
    folder = AGENTDOJO.folder()
    parts = [folder / "default_suites", folder / "data" / "suites", folder / "task_suite"]
    found = [path for part in parts for path in part.rglob("*") if path.suffix in (".py", ".yaml")]
    return [*found, folder / "functions_runtime.py", folder / "yaml_loader.py"]


def suite_environment(name: str, injections: Mapping[str, str] | None = None) -> Any:
    """Return a new environment of a suite with these texts for its injections; the others have their defaults."""
    return copied(_environment(name, json.dumps(dict(injections or {}))), by_attributes=True)


@lru_cache(maxsize=64)
def _environment(name: str, injections: str) -> Any:
    suite = load_suites()[name].suite
    return suite.load_and_inject_default_environment(json.loads(injections))


@lru_cache(maxsize=1)
def gold_trajectories() -> tuple[Trajectory, ...]:
    """Return the ground truth of every user task, suite by suite.

    Raise :class:`vcrt.errors.UnavailableError` if agentdojo is missing.
    """
    return tuple(
        _trajectory(name, task, user_task)
        for name, suite in load_suites().items()
        for task, user_task in suite.suite.user_tasks.items()
    )


def _trajectory(suite: str, task: str, user_task: Any) -> Trajectory:
    found = user_task.ground_truth(user_task.init_environment(suite_environment(suite)))
    calls = tuple(Call(each.function, json.loads(to_json(each.args))) for each in found)
    return Trajectory(task=f"{suite}/{task}", initial={"suite": suite}, calls=calls)
