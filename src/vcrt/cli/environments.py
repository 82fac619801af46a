"""What ``vcrt environments`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from vcrt.cli.certifies import Cost
from vcrt.cli.progress import PATIENCE, showing_progress
from vcrt.cli.validating import look_in_a_process, not_looked_at
from vcrt.environments.conformance import Finding
from vcrt.environments.isolation import describe
from vcrt.environments.registry import Registered, environment_names
from vcrt.errors import VcrtError
from vcrt.hashing import Json
from vcrt.printable import counted


def list_environments(console: Console) -> None:
    """The registered environments with their schemas, and the versions or what is missing."""
    table = Table("environment", "schema", "anti-diamond", "what it is")
    versions = []
    for name in environment_names():
        try:
            environment = describe(Registered(name))
            for schema in environment.schemas:
                remarks = [f"--preset {schema.preset}"] * (schema.preset != "paper")
                remarks += ["not by default"] * (not schema.default)
                summary = f"{schema.summary} ({', '.join(remarks)})" if remarks else schema.summary
                table.add_row(name, schema.name, schema.relation, summary)
            versions.append(f"{name}: {environment.versions().verifier}")
            guards = environment.guards
            for what, parts in (("protected", guards.in_force), ("not protected", guards.absent)):
                if parts:
                    listed = "; ".join(f"{part} ({means})" for part, means in parts.items())
                    versions.append(f"  {what}: {listed}")
        except VcrtError as error:
            versions.append(f"{name}: not available\n{error}")
    console.print(table)
    for line in versions:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def environments_document() -> dict[str, Json]:
    """The registered environments with their schemas and verifiers, or what is missing."""
    found: dict[str, Json] = {}
    for name in environment_names():
        try:
            environment = describe(Registered(name))
            versions, guards = environment.versions(), environment.guards
        except VcrtError as error:
            found[name] = {"available": False, "error": str(error)}
            continue
        found[name] = {
            "available": True,
            "verifier": versions.verifier,
            "schemas": [asdict(schema) for schema in environment.schemas],
            "in_force": dict(guards.in_force),
            "absent": dict(guards.absent),
        }
    return found


def validate_environment(
    console: Console, name: str, num_episodes: int = 3, *, quick: bool = False
) -> None:
    """Run the conformance kit, then certify a few episodes of each schema; raises if anything failed.

    The table says what passed, a second one what a long episode cost and whether its evidence is complete; below them,
    each failure says what was found and how to mend it. ``quick`` looks at a part of it, and says at which.
    """
    factory = Registered(name)
    environment = describe(factory)
    named = None if environment.name == name else f"its class says {environment.name!r}"
    findings = [Finding("registered under its own name", name, named, "give both the same name")]
    with showing_progress(console, after=PATIENCE) as progress:
        more, costs = look_in_a_process(factory, range(num_episodes), progress, quick=quick)
    findings += more
    console.print(_table_of(findings))
    if costs:
        console.print(_table_of_costs(costs))
    if quick:
        left_out = not_looked_at(environment, num_episodes)
        console.print(left_out, highlight=False, markup=False, soft_wrap=True)
    failed = [finding for finding in findings if not finding.passed]
    for finding in failed:
        console.print(
            f"\n{finding.check} ({finding.subject})\n"
            f"  found: {finding.problem}\n  to mend: {finding.remedy}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if failed:
        raise VcrtError(
            f"environment {name!r} does not conform",
            found=f"{len(failed)} of {counted(len(findings), 'check')} failed",
            remedy="start with the first failure above; it often explains the others",
        )


def _table_of(findings: Sequence[Finding]) -> Table:
    table = Table("check", "passed", "failed on")
    for check in dict.fromkeys(finding.check for finding in findings):
        outcomes = [finding for finding in findings if finding.check == check]
        failed = [finding.subject for finding in outcomes if not finding.passed]
        passed = f"{len(outcomes) - len(failed)} of {len(outcomes)}"
        table.add_row(check, passed, ", ".join(failed))
    return table


def _table_of_costs(costs: Sequence[Cost]) -> Table:
    table = Table("long episode", "steps", "sequences replayed", "pairs compared in", "seconds")
    for cost in costs:
        table.add_row(
            *(cost.subject, str(cost.num_operations), f"{cost.num_sequences:,}", cost.contexts),
            f"{cost.seconds:.3g}",
        )
    return table
