"""Test whether an environment conforms and whether its episodes are certified: ``vcrt environments validate``.

Of a few operations, every order of several episodes is replayed. Of many, one episode is enough of a quick look: it is
replayed as ``vcrt certify`` would do it once, and what that took is part of the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from vcrt.certification.certificates import ExclusionKind
from vcrt.certification.episodes import (
    CertifiedEpisode,
    Exclusion,
    Preset,
    certify_episode,
    preset_named,
)
from vcrt.certification.lattice_replay import replay_lattices, replay_merged
from vcrt.certification.probes import probe
from vcrt.certification.replay import replay_exhaustively
from vcrt.environments.conformance import ANSWERS, Finding, attempted, validate
from vcrt.environments.contract import Environment, Episode, Schema
from vcrt.environments.isolation import Description
from vcrt.environments.tool_calls import comes_from_logs
from vcrt.limits import MAX_EXHAUSTIVE
from vcrt.printable import counted

_UNEXPLAINED = "see what the checks above say of this schema"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What the certification of one long episode took, by the clock on the wall, and how much it replayed."""

    subject: str
    num_operations: int
    num_sequences: int
    seconds: float
    contexts: str


def look_at(
    environment: Environment,
    seeds: Sequence[int],
    *,
    quick: bool,
    checked: Callable[[Finding], None] = lambda finding: None,
    long: bool = True,
) -> tuple[list[Finding], list[Cost]]:
    """The findings of the conformance kit and of certifying a few episodes, and what long ones cost.

    ``quick`` leaves out most sequences, all episodes but the first and the certification of long ones; without
    ``long``, these alone are left out.
    """
    if comes_from_logs(environment):
        environment.sample(
            environment.schemas[0].name, seeds[0]
        )  # raises, and says which command has the checks
    findings = validate(environment, seeds, quick=quick, checked=checked)
    # What does not answer cannot be certified.
    silent = {found.subject for found in findings if found.check == ANSWERS and not found.passed}
    costs = []
    for schema in environment.schemas:
        if f"{environment.name}/{schema.name}" in silent or (
            is_long(schema) and (quick or not long)
        ):
            continue
        finding, cost = certifies(environment, schema, seeds[:1] if quick else seeds, quick=quick)
        checked(finding)
        findings.append(finding)
        costs += [] if cost is None else [cost]
    return findings, costs


def not_looked_at(environment: Description, num_episodes: int) -> str:
    """What a quick look leaves out, in words."""
    long = ", ".join(schema.name for schema in environment.schemas if is_long(schema))
    return (
        f"A quick look: 1 of {counted(num_episodes, 'episode')} of each schema, and three orders of its steps with "
        "few prefixes; "
        "all others are known only as far as equal states are continued alike"
        + (f"; no episode of {long} was certified" if long else "")
        + ". Without --quick all of it is looked at; `vcrt certify` replays everything twice whatever was found here."
    )


def is_long(schema: Schema) -> bool:
    """Whether a schema's episodes are of many steps, or of any number."""
    return preset_named(schema.preset).is_long


def certifies(
    environment: Environment, schema: Schema, seeds: Iterable[int], *, quick: bool = False
) -> tuple[Finding, Cost | None]:
    """Whether a schema's episodes are certified with the anti-diamonds that it declares, and what a long one costs.

    With ``quick``, the orders of short episodes are put together by merged replay.
    """
    preset = preset_named(schema.preset)
    subject = f"{environment.name}/{schema.name}"
    check = f"certifies {preset.orbit_size or 'several'} legal orders"
    if preset.is_long:
        steps = "any number of" if preset.is_any else preset.num_operations
        check = f"certifies episodes of {steps} steps"
    problem, found = attempted(
        partial(_certified, environment, schema.name, preset, tuple(seeds), quick=quick)
    )
    if found is None:
        return Finding(check, subject, problem, "mend what its message says"), None
    if isinstance(found, Exclusion):
        remedies = _LONG_REMEDIES if preset.is_long else _REMEDIES
        remedy = remedies.get(found.kind, _UNEXPLAINED)
        return Finding(check, subject, f"{found.kind}: {found.detail}", remedy), None
    kinds, cost = found
    fits = schema.designed(kinds) or (preset.is_any and not kinds)
    unlike = None if fits else f"{sorted(kinds)}, not {schema.relation!r}"
    declared = "either" if len(kinds) > 1 else "".join(kinds)
    return Finding(check, subject, unlike, f"declare relation={declared!r} in the schema"), cost


def _certified(
    environment: Environment, schema: str, preset: Preset, seeds: Sequence[int], *, quick: bool
) -> Exclusion | tuple[set[str], Cost | None]:
    """The kinds of anti-diamond in all short episodes and one long one, with its cost; or why one is not certified."""
    episodes = [environment.sample(schema, seed) for seed in seeds]
    short = [each for each in episodes if each.num_operations <= MAX_EXHAUSTIVE]
    kinds: set[str] = set()
    replayed = (
        [merged.evidence for merged in replay_merged(environment, short)]
        if quick
        else replay_exhaustively(environment, short, sharing=True)
    )
    for evidence in replayed:
        probes = () if quick else probe(environment, evidence)
        checks = (*environment.cross_check(evidence.episode), *probes)
        outcome = certify_episode(evidence, environment.versions(), preset, checks)
        if isinstance(outcome, Exclusion):
            return outcome
        kinds |= outcome.kinds
    if len(short) == len(episodes):
        return kinds, None
    found = _one_long(environment, preset, [each for each in episodes if each not in short])
    return found if isinstance(found, Exclusion) else (kinds | found[0], found[1])


def _one_long(
    environment: Environment, preset: Preset, episodes: Sequence[Episode]
) -> Exclusion | tuple[set[str], Cost]:
    """The kinds in the first episode that is certified and its cost, or why the last one is not."""
    excluded: Exclusion | None = None
    for episode in episodes:
        start = time.perf_counter()
        (evidence,) = replay_lattices(environment, [episode])
        probes = probe(environment, evidence)
        outcome = certify_episode(evidence, environment.versions(), preset, probes)
        seconds = time.perf_counter() - start
        if isinstance(outcome, Exclusion):
            excluded = outcome
            continue
        cost = Cost(
            subject=f"{environment.name}/{episode.schema}",
            num_operations=episode.num_operations,
            num_sequences=len(evidence.tree),
            seconds=seconds,
            contexts=_contexts(outcome),
        )
        return outcome.kinds, cost
    assert excluded is not None, "no episode was given"
    return excluded


def _contexts(episode: CertifiedEpisode) -> str:
    if episode.complete:
        return "every reachable context"
    counts = [(pair.replayed, pair.contexts) for pair in episode.pairs]
    replayed, among = sum(done for done, _ in counts), [total for _, total in counts]
    known = [total for total in among if total is not None]
    of = f" of {sum(known):,}" if len(known) == len(among) else ""
    return f"a sample: {replayed:,}{of} contexts"


#: How the exclusions are mended that no check of the conformance kit explains.
_REMEDIES: dict[ExclusionKind, str] = {
    "outside_schema": "let one pair of four operations depend on each other and the other five pairs commute, or give "
    'the schema preset="any", which takes any relations and 2 to 64 operations',
    "unequal_futures": "canonical leaves out something that a later step can tell, or the verifier's answer depends "
    "on more than the state",
    "context_dependent": "take operations whose relation does not depend on what ran before them",
}
_LONG_REMEDIES: dict[ExclusionKind, str] = {
    **_REMEDIES,
    "outside_schema": "let some pairs depend on each other and others commute, the same in whatever context, and let "
    "the reference order be legal",
    "too_large": "let more steps commute, or take shorter episodes",
}
