"""What ``vcrt environments`` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial

from rich.console import Console
from rich.table import Table

from vcrt.certification.episodes import (
    Exclusion,
    ExclusionKind,
    Preset,
    certify_episode,
    preset_named,
)
from vcrt.certification.replay import replay_exhaustively
from vcrt.environments.conformance import ANSWERS, Finding, attempted, validate
from vcrt.environments.contract import Environment, Schema
from vcrt.environments.registry import environment_names, load_environment
from vcrt.errors import VcrtError
from vcrt.hashing import Json


def list_environments(console: Console) -> None:
    """The registered environments with their schemas, and the versions or what is missing."""
    table = Table("environment", "schema", "anti-diamond", "what it is")
    versions = []
    for name in environment_names():
        try:
            environment = load_environment(name)
            for schema in environment.schemas:
                remarks = [f"--preset {schema.preset}"] * (schema.preset != "paper")
                remarks += ["not by default"] * (not schema.default)
                summary = f"{schema.summary} ({', '.join(remarks)})" if remarks else schema.summary
                table.add_row(name, schema.name, schema.relation, summary)
            versions.append(f"{name}: {environment.versions().verifier}")
            guards = environment.guards()
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
            environment = load_environment(name)
            versions, guards = environment.versions(), environment.guards()
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


def validate_environment(console: Console, name: str, num_episodes: int = 3) -> None:
    """Run the conformance kit, then certify a few episodes of each schema; raises if anything failed.

    The table says what passed; below it, each failure says what was found and how to mend it.
    """
    environment = load_environment(name)
    named = None if environment.name == name else f"its class says {environment.name!r}"
    findings = [
        Finding("registered under its own name", name, named, "give both the same name"),
        *validate(environment, range(num_episodes)),
    ]
    # What does not answer cannot be certified.
    silent = {found.subject for found in findings if found.check == ANSWERS and not found.passed}
    findings += [
        _certification(environment, schema, range(num_episodes))
        for schema in environment.schemas
        if _subject(environment, schema) not in silent
    ]
    console.print(_table_of(findings))
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
            found=f"{len(failed)} of {len(findings)} checks failed",
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


def _subject(environment: Environment, schema: Schema) -> str:
    return f"{environment.name}/{schema.name}"


def _certification(environment: Environment, schema: Schema, seeds: Iterable[int]) -> Finding:
    """Whether a schema's episodes are certified, with the anti-diamonds that the schema declares."""
    preset = preset_named(schema.preset)
    check, subject = (
        f"certifies {preset.orbit_size or 'several'} legal orders",
        _subject(environment, schema),
    )
    problem, found = attempted(partial(_certified, environment, schema.name, preset, seeds))
    if found is None:
        return Finding(check, subject, problem, "mend what its message says")
    if isinstance(found, Exclusion):
        remedy = _REMEDIES.get(found.kind, "see what the checks above say of this schema")
        return Finding(check, subject, f"{found.kind}: {found.detail}", remedy)
    unlike = None if schema.designed(found) else f"{sorted(found)}, not {schema.relation!r}"
    declared = "either" if len(found) > 1 else "".join(found)
    return Finding(check, subject, unlike, f"declare relation={declared!r} in the schema")


def _certified(
    environment: Environment, schema: str, preset: Preset, seeds: Iterable[int]
) -> Exclusion | set[str]:
    """The kinds of anti-diamond in a schema's episodes, or why the first that is not certified is not."""
    episodes = [environment.sample(schema, seed) for seed in seeds]
    kinds: set[str] = set()
    for evidence in replay_exhaustively(environment, episodes):
        checks = environment.cross_check(evidence.episode)
        outcome = certify_episode(evidence, environment.versions(), preset, checks)
        if isinstance(outcome, Exclusion):
            return outcome
        kinds |= {relation.kind for relation in outcome.relations} - {"commutes"}
    return kinds


#: How the exclusions are mended that no check of the conformance kit explains.
_REMEDIES: dict[ExclusionKind, str] = {
    "outside_schema": "let one pair of four operations depend on each other and the other five pairs commute",
    "unequal_futures": "canonical leaves out something that a later step can tell, or the verifier's answer depends "
    "on more than the state",
    "context_dependent": "take operations whose relation does not depend on what ran before them",
}
