"""Print which environments can be used here, and whether they behave as they should."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

import vcrt
from vcrt.cli.options import plain_console, print_document, say
from vcrt.errors import UnavailableError, VcrtError
from vcrt.hashing import Json
from vcrt.printable import counted

if TYPE_CHECKING:
    from vcrt.api.doctor import Finding as Diagnosed
    from vcrt.api.listing import Validation
    from vcrt.environments.conformance import Finding
    from vcrt.environments.isolation import Description
    from vcrt.replay.validation import Cost

#: How the status of a finding is shown.
MARKS = {"ok": "ok", "absent": "-", "broken": "broken"}


def print_findings(findings: Sequence[Diagnosed], *, json: bool = False) -> None:
    """Print the diagnosis; raises :class:`UnavailableError` if something that vcrt needs cannot be used.

    Args:
        json: Print the findings for machines.
    """
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


def print_environments(found: Mapping[str, Description | VcrtError], *, json: bool = False) -> None:
    """Print the schemas of available environments, then their versions or what is missing.

    Args:
        json: Print the list for machines.
    """
    if json:
        return print_document({name: _document(one) for name, one in found.items()})
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
    console = plain_console()
    console.print(table)
    say(console, *lines)
    return None


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


def print_validation(found: Validation, *, name: str) -> None:
    """Print the findings about an environment; raises :class:`VcrtError` if any check failed."""
    say_validation(plain_console(), name, found)


def say_validation(console: Console, name: str, found: Validation) -> None:
    """Print what passed, the cost of long episodes, and each failure with its remedy; raises if any check failed."""
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
