"""Judge calls of BFCL's simulators: file system, messages, tickets, trading, travel, posts, vehicle and mathematics.

A state has the simulators of a task, after its initial configuration and the calls before. ``{"error": ...}`` in an
output is a refusal, and so is an exception, which BFCL's own executor turns into an error. Equal states agree in all
attributes of the simulators but the constant ones, in the number of random draws so far, and in the order of what tools
list. Not covered: turns of a user between the calls, and arguments that a model would choose by what it has seen.
"""

from __future__ import annotations

import copy
import decimal
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from vcrt.environments.contract import Schema, Versions
from vcrt.environments.states.object_states import canonical_objects
from vcrt.environments.tool_calls import Call, CallRefused, Tool
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json
from vcrt_toolbench.bfcl.simulators import BFCL, load_simulators, simulator_files
from vcrt_toolbench.bfcl.tasks import gold_trajectories, task_files
from vcrt_toolbench.gold_calls import GoldCallEnvironment, Trajectory, gold_schemas

State = dict[str, Any]

#: The kind of each simulator's tools.
_FAMILIES = {
    "GorillaFileSystem": "files",
    "MathAPI": "mathematics",
    "MessageAPI": "messages",
    "TicketAPI": "tickets",
    "TradingBot": "trading",
    "TravelAPI": "travel",
    "TwitterAPI": "posts",
    "VehicleControlAPI": "vehicle",
}
#: Attributes that never change, or are compared otherwise.
_CONSTANT = frozenset({"_api_description", "_last_modified", "long_context", "_random"})


class BfclEnvironment(GoldCallEnvironment[State]):
    """Episodes of calls from the possible answers of BFCL's multi-turn tasks."""

    name: ClassVar[str] = "bfcl"
    schemas: ClassVar[tuple[Schema, ...]] = (
        Schema(name="files", summary="a file system with a working directory", relation="either"),
        Schema(name="messages", summary="messages between users", relation="either"),
        Schema(name="posts", summary="posts, comments and shares", relation="either"),
        Schema(name="tickets", summary="tickets of a support desk", relation="either"),
        Schema(name="trading", summary="orders and a watch list of stocks", relation="either"),
        Schema(name="travel", summary="flights, invoices and budgets", relation="either"),
        Schema(name="vehicle", summary="engine, brakes, doors, fuel", relation="either"),
        Schema(name="reads", summary="one call sees what another did", relation="observes"),
        *gold_schemas(6, 8),
    )

    def versions(self) -> Versions:
        """Return the versions of adapter and bfcl-eval, with the SHA-256 of its simulators and tasks.

        Raise :class:`vcrt.errors.UnavailableError` if bfcl-eval is missing or of another version.
        """
        load_simulators()
        return Versions(
            environment=self.name,
            adapter="1",
            canonicalizer="objects/1",
            verifier=f"{BFCL.name} {BFCL.version}",
            libraries=BFCL.digests([*simulator_files(), *task_files()]),
        )

    def trajectories(self) -> tuple[Trajectory, ...]:
        """Return the possible answers of the tasks."""
        return gold_trajectories()

    def tools(self) -> Sequence[Tool]:
        """Return the tools of all simulators, without declarations."""
        names = {tool for simulator in load_simulators().values() for tool in simulator.tools}
        return [Tool(name=name) for name in sorted(names)]

    def family(self, trajectory: Trajectory, call: Call) -> str:
        """Return the kind of the simulator that has the tool."""
        simulators = load_simulators()
        return next(_FAMILIES[name] for name in _FAMILIES if call.name in simulators[name].tools)

    def joined(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Json] | None:
        """Return the simulators of both tasks, if they have none in common."""
        names = [*one["involved_classes"], *other["involved_classes"]]
        if len(set(names)) < len(names):
            return None
        configurations = {**_read(one["initial_config"]), **_read(other["initial_config"])}
        return {"involved_classes": names, "initial_config": json.dumps(configurations)}

    def start(self, initial: Mapping[str, Any]) -> State:
        """Return the simulators named in ``involved_classes``, each with its part of ``initial_config``.

        The latter is JSON text, whose order of keys is the order of files in a folder, or a mapping, which is sorted.
        """
        simulators, state = load_simulators(), State()
        try:
            configuration = _read(initial["initial_config"])
            for name in initial["involved_classes"]:
                state[name] = simulators[name].loaded(configuration.get(name, {}))
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            raise MalformedInputError(
                "a start that the simulators do not load",
                found=f"{type(error).__name__}: {error}",
                expected=f"involved_classes, some of {', '.join(simulators)}, and their initial_config",
            ) from error
        return state

    def call(self, state: State, name: str, arguments: Mapping[str, Json]) -> object:
        """Return the output of the last simulator that has this tool; an error in it, or an exception, is a refusal."""
        simulators = load_simulators()
        having = [kind for kind in state if name in simulators[kind].tools]
        if not having:
            raise CallRefused(f"no tool {name!r} here")
        try:
            # A tool for square roots sets the precision of the whole thread.
            with decimal.localcontext():
                output = getattr(state[having[-1]], name)(**copy.deepcopy(dict(arguments)))
        except MemoryError:
            raise
        except Exception as error:
            raise CallRefused(f"Error during execution: {error}") from error
        for part in output if isinstance(output, list) else [output]:
            if isinstance(part, dict) and "error" in part:
                raise CallRefused(str(part["error"]))
        return json.loads(json.dumps(output, default=str))

    def canonical(self, state: State) -> bytes:
        """Return the simulators' attributes, the random draws made so far, and the order of what tools list."""
        draws = {
            name: (simulator._random.start, simulator._random.words)
            for name, simulator in state.items()
            if hasattr(simulator, "_random")
        }
        return canonical_objects((state, draws, _listed(state)), ignored=_CONSTANT)


def _read(configuration: Any) -> dict[str, Any]:
    """Return the configurations of simulators, made anew."""
    if not isinstance(configuration, str):
        configuration = json.dumps(configuration, sort_keys=True)
    read: dict[str, Any] = json.loads(configuration)
    return read


def _listed(state: State) -> list[list[str]]:
    """Return the keys that tools list in order: users, and the contents of each directory, from the root on."""
    found = []
    if "MessageAPI" in state:
        found.append(list(state["MessageAPI"].user_map))
    if "GorillaFileSystem" in state:
        waiting = [state["GorillaFileSystem"].root]
        for directory in waiting:
            found.append(list(directory.contents))
            waiting += [
                item for _, item in sorted(directory.contents.items()) if hasattr(item, "contents")
            ]
    return found
