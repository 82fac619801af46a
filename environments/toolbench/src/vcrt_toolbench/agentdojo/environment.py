"""Judge calls of AgentDojo's tools in the environments of its suites: workspace, banking, travel and slack.

A state is a suite's environment. An error of AgentDojo's runtime is a refusal. Equal states agree in all fields of the
environment except those that AgentDojo's own comparison leaves out (loaded data, and lists computed from other fields),
and in which attachments are events of the calendar. The log of web requests counts, since AgentDojo's checks read it.
Not covered: injections, and arguments that a model would choose by what it has seen.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from pydantic import ValidationError
from pydantic_core import to_json

from vcrt.environments.contract import Schema, Versions
from vcrt.environments.tool_calls import Call, CallRefused, Tool
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, sha256_hex
from vcrt_toolbench.agentdojo.suites import (
    AGENTDOJO,
    BENCHMARK,
    gold_trajectories,
    load_suites,
    suite_environment,
    suite_files,
)
from vcrt_toolbench.gold_calls import GoldCallEnvironment, Trajectory, gold_schemas

#: Fields that no tool reads, by part of the environment.
_LEFT_OUT = {
    "inbox": {"initial_emails", "received", "sent", "drafts"},
    "calendar": {"initial_events"},
    "cloud_drive": {"initial_files"},
}
#: The kinds of tools of workspace and slack, by defining module; each other suite is a kind of its own.
_FAMILIES = {
    "calendar_client": "calendar",
    "cloud_drive_client": "drive",
    "email_client": "mail",
    "slack": "channels",
    "web": "web",
}


@dataclass(frozen=True, slots=True)
class SuiteState:
    """The environment of a suite; tools change it in place."""

    suite: str
    environment: Any


class AgentDojoEnvironment(GoldCallEnvironment[SuiteState]):
    """Episodes of calls from the ground truth of AgentDojo's user tasks."""

    name: ClassVar[str] = "agentdojo"
    schemas: ClassVar[tuple[Schema, ...]] = (
        Schema(name="banking", summary="transfers and standing orders", relation="either"),
        Schema(name="calendar", summary="events of a calendar", relation="either"),
        Schema(name="channels", summary="channels and their members", relation="either"),
        Schema(name="drive", summary="files of a cloud drive", relation="either"),
        Schema(name="mail", summary="e-mails", relation="either"),
        Schema(name="travel", summary="reservations and invitations", relation="either"),
        Schema(name="web", summary="web pages, each request logged", relation="either"),
        Schema(name="reads", summary="one call sees what another did", relation="observes"),
        *gold_schemas(6),
    )
    max_tasks = 4

    def versions(self) -> Versions:
        """Return the versions of adapter and agentdojo, with the SHA-256 of its suites, tools and data.

        Raise :class:`vcrt.errors.UnavailableError` if agentdojo is missing or of another version.
        """
        load_suites()
        return Versions(
            environment=self.name,
            adapter="1",
            canonicalizer="fields/1",
            verifier=f"{AGENTDOJO.name} {AGENTDOJO.version}, suites {BENCHMARK}",
            libraries=AGENTDOJO.digests(suite_files()),
        )

    def trajectories(self) -> tuple[Trajectory, ...]:
        """Return the ground truth of the user tasks."""
        return gold_trajectories()

    def tools(self) -> Sequence[Tool]:
        """Return the tools of all suites, without declarations."""
        names = {tool for suite in load_suites().values() for tool in suite.modules}
        return [Tool(name=name) for name in sorted(names)]

    def pool(self, trajectory: Trajectory) -> str:
        """Return the suite: its tasks share one environment."""
        return str(trajectory.initial["suite"])

    def family(self, trajectory: Trajectory, call: Call) -> str:
        """Return the suite, or the part of workspace or slack that the tool belongs to."""
        suite = self.pool(trajectory)
        if suite in ("banking", "travel"):
            return suite
        return _FAMILIES[load_suites()[suite].modules[call.name]]

    def joined(self, one: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Json] | None:
        """Return the environment from which both tasks start, None if there are two."""
        return one if one == other else None

    def start(self, initial: Mapping[str, Any]) -> SuiteState:
        """Return the environment of the suite that ``suite`` names, with its ``injections`` if given."""
        name, injections = str(initial.get("suite")), initial.get("injections")
        try:
            if name not in load_suites():
                raise ValueError(f"no suite {name!r}")
            return SuiteState(name, suite_environment(name, injections))
        except (TypeError, ValueError) as error:
            raise MalformedInputError(
                "a start that no suite has",
                found=str(error),
                expected=f"suite, one of {', '.join(load_suites())}, and texts for its injections, if any",
            ) from error

    def call(self, state: SuiteState, name: str, arguments: Mapping[str, Json]) -> object:
        """Return the tool's output as JSON; an exception of AgentDojo's runtime is a refusal."""
        run = load_suites()[state.suite].run
        given = copy.deepcopy(dict(arguments))
        try:
            output, _ = run(state.environment, name, given, raise_on_error=True)
        except MemoryError:
            raise
        except ValidationError as error:
            raise CallRefused(f"ValidationError: {_flaws(error)}") from error
        except Exception as error:
            raise CallRefused(f"{type(error).__name__}: {error}") from error
        return json.loads(to_json(output))

    def canonical(self, state: SuiteState) -> bytes:
        """Return a digest of each part of the environment, and where attachments and events are the same objects."""
        environment = state.environment
        form: dict[str, Any] = {
            name: _digest(to_json(part, exclude=_LEFT_OUT.get(name))) for name, part in environment
        }
        if {"calendar", "inbox"} <= form.keys():
            events, inbox = environment.calendar.events, environment.inbox
            form["shared"] = [
                [number, place, attached.id_]
                for emails in (inbox.emails, inbox.trash)
                for number, email in emails.items()
                for place, attached in enumerate(email.attachments)
                if not isinstance(attached, str) and events.get(attached.id_) is attached
            ]
        return json.dumps([state.suite, form], sort_keys=True).encode()


def _flaws(error: ValidationError) -> str:
    """Return the flaws of the arguments, without the address of pydantic's documentation."""
    return "; ".join(
        f"{'.'.join(map(str, flaw['loc']))}: {flaw['msg']}"
        for flaw in error.errors(include_url=False)
    )


@lru_cache(maxsize=256)
def _digest(form: bytes) -> str:
    """Return the SHA-256 of JSON, whatever the order of its keys."""
    return sha256_hex(json.dumps(json.loads(form), sort_keys=True).encode())
