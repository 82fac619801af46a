"""Run the commands doctor and environments: what can be used here, and whether it does what it should."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

import vcrt
from vcrt.cli.options import (
    VerifierTimeout,
    plain_console,
    print_document,
    say,
    set_verifier_timeout,
)
from vcrt.cli.progress import PATIENCE, showing_progress
from vcrt.errors import UnavailableError, VcrtError
from vcrt.hashing import Json
from vcrt.printable import counted

if TYPE_CHECKING:
    from vcrt.api.listing import Validation
    from vcrt.certification.validation import Cost
    from vcrt.environments.conformance import Finding
    from vcrt.environments.isolation import Description

#: How the status of a finding is shown.
MARKS = {"ok": "ok", "absent": "-", "broken": "broken"}


def doctor(json: bool = False) -> None:
    """Say what is installed here, which Lean, which device, what is missing, and the command that mends it.

    The exit status is that of an error if something that vcrt needs cannot be used; extras that are not installed are
    named and count for nothing.

    Example: vcrt doctor

    Args:
        json: Print the findings for machines.
    """
    findings = vcrt.doctor()
    if json:
        print_document(
            {"vcrt": vcrt.__version__, "findings": [asdict(finding) for finding in findings]}
        )
    else:
        console, width = plain_console(), max(len(finding.subject) for finding in findings)
        for finding in findings:
            say(console, f"{MARKS[finding.status]:<7}{finding.subject:<{width}}  {finding.found}")
            if finding.remedy:
                say(console, f"{'':<{width + 9}}to mend: {finding.remedy}")
    broken = [finding.subject for finding in findings if finding.status == "broken"]
    if broken:
        raise UnavailableError(
            "something that vcrt needs cannot be used",
            found=", ".join(broken),
            remedy="see the lines above that say how",
        )


def environments(
    action: Annotated[Literal["list", "validate"], tyro.conf.Positional] = "list",
    name: Annotated[str | None, tyro.conf.Positional] = None,
    quick: bool = False,
    json: bool = False,
    verifier_timeout: VerifierTimeout = None,
) -> None:
    """List the registered environments, or run the conformance kit on one.

    Example: vcrt environments validate clrs

    Args:
        action: What to do.
        name: The environment to validate: a registered name, or FILE.py:CLASS.
        quick: Look at one episode of each schema and a few of its orders: for slow verifiers, and at first.
        json: Print the list for machines.
    """
    set_verifier_timeout(verifier_timeout)
    if quick and action == "list":
        raise VcrtError("only validation has a quick form", found="--quick with list")
    if json and action != "list":
        raise VcrtError("only the list has a form for machines", found=f"--json with {action}")
    console = plain_console()
    if action == "list" and json:
        print_document({name: _document(one) for name, one in vcrt.list_environments().items()})
    elif action == "list":
        _print_environments(console, vcrt.list_environments())
    elif name is None:
        raise VcrtError(
            "which environment?",
            expected="a name, or FILE.py:CLASS",
            remedy="vcrt environments validate NAME",
        )
    else:
        with showing_progress(console, after=PATIENCE) as progress:
            found = vcrt.validate_environment(name, quick=quick, progress=progress)
        print_validation(console, name, found)


def _print_environments(console: Console, found: Mapping[str, Description | VcrtError]) -> None:
    """The schemas of those that are available, then the versions or what is missing."""
    table = Table("environment", "schema", "anti-diamond", "what it is")
    lines = []
    for name, environment in found.items():
        if isinstance(environment, VcrtError):
            lines.append(f"{name}: not available\n{environment}")
            continue
        for schema in environment.schemas:
            remarks = [f"--preset {schema.preset}"] * (schema.preset != "paper")
            remarks += ["not by default"] * (not schema.default)
            summary = f"{schema.summary} ({', '.join(remarks)})" if remarks else schema.summary
            table.add_row(name, schema.name, schema.relation, summary)
        lines.append(f"{name}: {environment.versions().verifier}")
        guards = environment.guards
        for what, parts in (("protected", guards.in_force), ("not protected", guards.absent)):
            if parts:
                listed = "; ".join(f"{part} ({means})" for part, means in parts.items())
                lines.append(f"  {what}: {listed}")
    console.print(table)
    say(console, *lines)


def _document(environment: Description | VcrtError) -> dict[str, Json]:
    if isinstance(environment, VcrtError):
        return {"available": False, "error": str(environment)}
    return {
        "available": True,
        "verifier": environment.versions().verifier,
        "schemas": [asdict(schema) for schema in environment.schemas],
        "in_force": dict(environment.guards.in_force),
        "absent": dict(environment.guards.absent),
    }


def print_validation(console: Console, name: str, found: Validation) -> None:
    """Print what passed, what long episodes cost, and each failure with how to mend it; raises if anything failed."""
    console.print(_table_of(found.findings))
    if found.costs:
        console.print(_table_of_costs(found.costs))
    if found.left_out is not None:
        say(console, found.left_out)
    failed = [finding for finding in found.findings if not finding.passed]
    for finding in failed:
        say(
            console,
            f"\n{finding.check} ({finding.subject})",
            f"  found: {finding.problem}",
            f"  to mend: {finding.remedy}",
        )
    if failed:
        raise VcrtError(
            f"environment {name!r} does not conform",
            found=f"{len(failed)} of {counted(len(found.findings), 'check')} failed",
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
