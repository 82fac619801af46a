"""The conformance kit: what any environment must pass before its verdicts are worth certifying.

Each check either passes or says what was found and how to mend it. The kit runs the environment's own verifier on a
few sampled episodes of each schema. Not covered: whether the verifier is right, which is what second opinions are for,
and what only differs between processes, which certification finds by replaying in fresh ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vcrt.environments.conformance_checks import (
    CHECKS,
    REMEDIES,
    SAMPLING,
    STABLE,
    Sample,
    sequences,
)
from vcrt.environments.contract import Environment, Replay, ReplayRequest
from vcrt.errors import VerifierFailure


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check on one schema (or on the environment).

    ``problem`` says what was found, None if the check passed; ``remedy`` says how such a problem is mended.
    """

    check: str
    subject: str
    problem: str | None
    remedy: str

    @property
    def passed(self) -> bool:
        """Whether the check passed."""
        return self.problem is None


def validate(environment: Environment, seeds: Iterable[int] = range(3)) -> list[Finding]:
    """Run every check on every schema; raises what the environment raises if a part of it is missing or breaks."""
    seeds = tuple(seeds)
    findings = [Finding(STABLE, environment.name, _stable(environment), REMEDIES[STABLE])]
    for schema in environment.schemas:
        subject = f"{environment.name}/{schema.name}"
        problem = _sampling(environment, schema.name, seeds)
        findings.append(Finding(SAMPLING, subject, problem, REMEDIES[SAMPLING]))
        sample = take_sample(environment, schema.name, seeds)
        findings += [
            Finding(name, subject, check(environment, sample), REMEDIES[name])
            for name, check in CHECKS.items()
        ]
    return findings


def take_sample(environment: Environment, schema: str, seeds: Sequence[int]) -> Sample:
    """Sample episodes and replay all of their sequences in one go."""
    episodes = tuple(environment.sample(schema, seed) for seed in seeds)
    requests = [ReplayRequest(e, s) for e in episodes for s in sequences(e.num_operations)]
    answers: list[Replay] = []
    for start in range(0, len(requests), environment.preferred_batch):
        answers += environment.replay(requests[start : start + environment.preferred_batch])
    if [answer.sequence for answer in answers] != [request.sequence for request in requests]:
        raise VerifierFailure(
            "the environment did not answer each replay request in turn",
            where=f"environment {environment.name!r}, schema {schema!r}",
            found=f"{len(answers)} answers",
            expected=f"{len(requests)} answers, one for each request and in its order",
        )
    remaining = iter(answers)
    replays = tuple(
        {sequence: next(remaining) for sequence in sequences(e.num_operations)} for e in episodes
    )
    return Sample(schema, episodes, replays)


def _stable(environment: Environment) -> str | None:
    one, other = environment.versions(), environment.versions()
    return None if one == other else f"{one}, then {other}"


def _sampling(environment: Environment, schema: str, seeds: Sequence[int]) -> str | None:
    contents = set()
    for seed in seeds:
        one, other = environment.sample(schema, seed), environment.sample(schema, seed)
        if one != other:
            return f"seed {seed} gave two different episodes"
        if one.provenance.seed != seed:
            return f"the episode of seed {seed} names seed {one.provenance.seed} in its provenance"
        try:
            contents.add(one.content_hash())
        except (TypeError, ValueError):
            return None  # not JSON: a check of its own says so
    if len(contents) < len(seeds):
        return f"{len(seeds)} seeds gave {len(contents)} distinct episodes"
    return None
