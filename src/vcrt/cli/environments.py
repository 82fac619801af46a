"""What ``vcrt environments`` prints."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from vcrt.certification.episodes import PAPER_PRESET, CertifiedEpisode, certify_episode
from vcrt.certification.replay import replay_exhaustively
from vcrt.environments.conformance import validate
from vcrt.environments.registry import environment_names, load_environment
from vcrt.errors import VcrtError


def list_environments(console: Console) -> None:
    """The registered environments with their schemas, and the versions or what is missing."""
    table = Table("environment", "schema", "anti-diamond", "what it is")
    versions = []
    for name in environment_names():
        try:
            environment = load_environment(name)
            for schema in environment.schemas:
                table.add_row(name, schema.name, schema.relation, schema.summary)
            versions.append(f"{name}: {environment.versions().verifier}")
        except VcrtError as error:
            versions.append(f"{name}: not available\n{error}")
    console.print(table)
    for line in versions:
        console.print(line, highlight=False, markup=False)


def validate_environment(console: Console, name: str, num_episodes: int = 3) -> None:
    """Run the conformance kit, then certify a few episodes of each schema; raises if anything failed."""
    environment = load_environment(name)
    findings = validate(environment, range(num_episodes))
    table = Table("check", "on", "outcome")
    for finding in findings:
        table.add_row(finding.check, finding.subject, finding.problem or "passed")
    failed = sum(not finding.passed for finding in findings)
    for schema in environment.schemas:
        episodes = [environment.sample(schema.name, seed) for seed in range(num_episodes)]
        outcomes = [
            certify_episode(
                evidence,
                environment.versions(),
                PAPER_PRESET,
                environment.cross_check(evidence.episode),
            )
            for evidence in replay_exhaustively(environment, episodes)
        ]
        kinds = {
            relation.kind
            for outcome in outcomes
            if isinstance(outcome, CertifiedEpisode)
            for relation in outcome.relations
        } - {"commutes"}
        excluded = [o for o in outcomes if not isinstance(o, CertifiedEpisode)]
        if excluded:
            outcome_text = f"{excluded[0].kind}: {excluded[0].detail}"
        elif kinds != {schema.relation}:
            outcome_text = f"certified {sorted(kinds)}, declared {schema.relation}"
        else:
            outcome_text = "passed"
        failed += outcome_text != "passed"
        table.add_row(
            f"certifies {PAPER_PRESET.orbit_size} legal orders",
            f"{name}/{schema.name}",
            outcome_text,
        )
    console.print(table)
    if failed:
        raise VcrtError(
            f"environment {name!r} does not conform",
            found=f"{failed} failed checks",
            remedy="each line of the table above says what was found",
        )
