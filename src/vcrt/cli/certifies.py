"""Whether the episodes of a schema are certified, as ``vcrt environments validate`` looks at it.

Of a few operations, every order of several episodes is replayed. Of many, one episode is enough of a quick look: it is
replayed as ``vcrt certify`` would do it once, and what that took is part of the answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from vcrt.certification.episodes import (
    CertifiedEpisode,
    Exclusion,
    ExclusionKind,
    Preset,
    certify_episode,
    preset_named,
)
from vcrt.certification.lattice_replay import replay_lattices, replay_merged
from vcrt.certification.replay import replay_exhaustively
from vcrt.environments.conformance import Finding, attempted
from vcrt.environments.contract import Environment, Schema
from vcrt.limits import MAX_EXHAUSTIVE

_Look: TypeAlias = Callable[
    [Environment, str, Preset, Sequence[int]], "Exclusion | tuple[set[str], Cost | None]"
]
_UNEXPLAINED = "see what the checks above say of this schema"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """What the certification of one long episode took, by the clock on the wall, and how much it replayed."""

    subject: str
    num_operations: int
    num_sequences: int
    seconds: float
    contexts: str


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
    short: _Look = partial(_every_order, quick=quick)
    look = short
    if preset.is_long:
        look = partial(_any_length, short=short) if preset.is_any else _one_long
    problem, found = attempted(partial(look, environment, schema.name, preset, tuple(seeds)))
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


def _any_length(
    environment: Environment,
    schema: str,
    preset: Preset,
    seeds: Sequence[int],
    *,
    short: _Look,
) -> Exclusion | tuple[set[str], Cost | None]:
    """The same of short episodes, and of one long one if there are such among them."""
    few = [s for s in seeds if environment.sample(schema, s).num_operations <= MAX_EXHAUSTIVE]
    kinds, cost = set[str](), None
    if few:
        found = short(environment, schema, preset, few)
        if isinstance(found, Exclusion):
            return found
        kinds, _ = found
    if long := [seed for seed in seeds if seed not in few]:
        looked = _one_long(environment, schema, preset, long)
        if isinstance(looked, Exclusion):
            return looked
        more, cost = looked
        kinds = kinds | more
    return kinds, cost


def _every_order(
    environment: Environment, schema: str, preset: Preset, seeds: Sequence[int], *, quick: bool
) -> Exclusion | tuple[set[str], None]:
    """The kinds of anti-diamond in a schema's episodes, or why the first that is not certified is not."""
    episodes = [environment.sample(schema, seed) for seed in seeds]
    kinds: set[str] = set()
    found = (
        [merged.evidence for merged in replay_merged(environment, episodes)]
        if quick
        else replay_exhaustively(environment, episodes, sharing=True)
    )
    for evidence in found:
        checks = environment.cross_check(evidence.episode)
        outcome = certify_episode(evidence, environment.versions(), preset, checks)
        if isinstance(outcome, Exclusion):
            return outcome
        kinds |= _kinds(outcome)
    return kinds, None


def _one_long(
    environment: Environment, schema: str, preset: Preset, seeds: Sequence[int]
) -> Exclusion | tuple[set[str], Cost]:
    """The kinds in the first episode that is certified and its cost, or why the last one is not."""
    excluded: Exclusion | None = None
    for seed in seeds:
        episode = environment.sample(schema, seed)
        start = time.perf_counter()
        (evidence,) = replay_lattices(environment, [episode])
        outcome = certify_episode(evidence, environment.versions(), preset)
        seconds = time.perf_counter() - start
        if isinstance(outcome, Exclusion):
            excluded = outcome
            continue
        cost = Cost(
            subject=f"{environment.name}/{schema}",
            num_operations=episode.num_operations,
            num_sequences=len(evidence.tree),
            seconds=seconds,
            contexts=_contexts(outcome),
        )
        return _kinds(outcome), cost
    assert excluded is not None, "no seed was given"
    return excluded


def _contexts(episode: CertifiedEpisode) -> str:
    if episode.complete:
        return "every reachable context"
    counts = [(pair.replayed, pair.contexts) for pair in episode.pairs]
    replayed, among = sum(done for done, _ in counts), [total for _, total in counts]
    known = [total for total in among if total is not None]
    of = f" of {sum(known):,}" if len(known) == len(among) else ""
    return f"a sample: {replayed:,}{of} contexts"


def _kinds(episode: CertifiedEpisode) -> set[str]:
    return {str(relation.kind) for relation in episode.relations} - {"commutes"}


#: How the exclusions are mended that no check of the conformance kit explains.
_REMEDIES: dict[ExclusionKind, str] = {
    "outside_schema": "let one pair of four operations depend on each other and the other five pairs commute",
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
