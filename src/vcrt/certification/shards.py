"""The work on one shard of candidates, as it is done in a worker process.

First the candidates are sampled, replayed in every order, certified and shown to the second opinions; then, in another
process, everything that was certified is replayed again. Both give JSON. A verifier that breaks raises after one retry
of the shard; nothing of it becomes a verdict.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, TypeVar, cast

from vcrt.certification.episodes import (
    CertifiedEpisode,
    Exclusion,
    ExclusionKind,
    Preset,
    certify_episode,
)
from vcrt.certification.evidence import (
    Evidence,
    cross_checks_from_json,
    cross_checks_to_json,
    evidence_from_json,
)
from vcrt.certification.replay import EpisodeReplays, replay_exhaustively
from vcrt.environments.contract import Environment, Episode, Versions
from vcrt.errors import VerifierFailure
from vcrt.hashing import Json
from vcrt.processes import in_fresh_processes

#: Makes an environment. Equal ones must make equal environments: one is made in a process and kept.
EnvironmentFactory: TypeAlias = Callable[[], Environment]
Result = TypeVar("Result")
_IMPORTED = uuid.uuid4().hex


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """Candidates of one schema: the given ``episodes``, or those that ``seeds`` give."""

    factory: EnvironmentFactory
    schema: str
    preset: Preset
    seeds: tuple[int, ...] = ()
    episodes: tuple[Episode, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstReplay:
    """What a shard's candidates gave; ``process`` names the process in which they were replayed."""

    versions: tuple[Versions, ...]
    outcomes: tuple[Evidence | Exclusion, ...]
    process: str

    def to_json(self) -> Json:
        """The JSON form."""
        return {
            "versions": [versions.to_json() for versions in self.versions],
            "outcomes": [
                _exclusion_to_json(outcome) if isinstance(outcome, Exclusion) else outcome.to_json()
                for outcome in self.outcomes
            ],
            "process": self.process,
        }

    @classmethod
    def from_json(cls, value: Any) -> FirstReplay:
        """Read the JSON form."""
        return cls(
            versions=tuple(Versions(**versions) for versions in value["versions"]),
            outcomes=tuple(
                _exclusion_from_json(outcome)
                if "exclusion" in outcome
                else evidence_from_json(outcome)
                for outcome in value["outcomes"]
            ),
            process=value["process"],
        )

    def evidence(self) -> tuple[Evidence, ...]:
        """The evidence of the candidates that were certified."""
        return tuple(outcome for outcome in self.outcomes if isinstance(outcome, Evidence))


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondReplay:
    """How the second replay of each certified candidate differs from the first, None where it does not."""

    versions: tuple[Versions, ...]
    differences: tuple[str | None, ...]

    def to_json(self) -> Json:
        """The JSON form."""
        return {
            "versions": [versions.to_json() for versions in self.versions],
            "differences": list(self.differences),
        }

    @classmethod
    def from_json(cls, value: Any) -> SecondReplay:
        """Read the JSON form."""
        return cls(
            versions=tuple(Versions(**versions) for versions in value["versions"]),
            differences=tuple(value["differences"]),
        )


@cache
def _environment(factory: EnvironmentFactory) -> Environment:
    """One environment a process: some have a verifier to start."""
    return factory()


def replay_first(shard: Shard) -> FirstReplay:
    """Sample (or take), replay and judge the candidates of a shard."""
    environment = _environment(shard.factory)
    before = environment.versions()
    episodes = shard.episodes or [environment.sample(shard.schema, seed) for seed in shard.seeds]
    outcomes = _judged(environment, episodes, before, shard.preset)
    return FirstReplay(
        versions=(before, environment.versions()),
        outcomes=tuple(
            outcome
            if isinstance(outcome, Exclusion)
            else Evidence(
                EpisodeReplays(outcome.episode, outcome.replays),
                outcome.cross_checks,
            )
            for outcome in outcomes
        ),
        process=_this_process(),
    )


def replay_again(work: tuple[EnvironmentFactory, FirstReplay]) -> SecondReplay:
    """Replay what was certified once more, in another process than the first time."""
    factory, first = work
    if first.process == _this_process():
        (second,) = in_fresh_processes(replay_again, [work], jobs=1, error=VerifierFailure)
        return second
    environment = _environment(factory)
    evidence = first.evidence()
    before = environment.versions()
    again = _retried_once(lambda: replay_exhaustively(environment, [e.episode for e in evidence]))
    return SecondReplay(
        versions=(before, environment.versions()),
        differences=tuple(
            next(
                (
                    f"{one}, then {other}"
                    for one, other in zip(item.replays.replays, repeated.replays, strict=True)
                    if one != other
                ),
                None,
            )
            for item, repeated in zip(evidence, again, strict=True)
        ),
    )


def certify_again(
    factory: EnvironmentFactory, episodes: Sequence[Episode], preset: Preset
) -> list[CertifiedEpisode | Exclusion]:
    """Certify given episodes anew in this process, second opinions included."""
    environment = _environment(factory)
    return _judged(environment, episodes, environment.versions(), preset)


def evidence_again(
    work: tuple[EnvironmentFactory, Sequence[Episode]],
) -> tuple[Versions, list[Evidence]]:
    """Replay given episodes anew in this process, second opinions included, and say which versions answered."""
    factory, episodes = work
    environment = factory()
    return environment.versions(), _evidence(environment, episodes)


def _judged(
    environment: Environment, episodes: Sequence[Episode], versions: Versions, preset: Preset
) -> list[CertifiedEpisode | Exclusion]:
    return [
        certify_episode(item.replays, versions, preset, item.cross_checks)
        for item in _evidence(environment, episodes)
    ]


def _evidence(environment: Environment, episodes: Sequence[Episode]) -> list[Evidence]:
    found = _retried_once(lambda: replay_exhaustively(environment, episodes))
    replays = [item.replays for item in found]
    opinions = _retried_once(lambda: environment.cross_check_all(episodes, replays))
    return [Evidence(item, checks) for item, checks in zip(found, opinions, strict=True)]


def _retried_once(work: Callable[[], Result]) -> Result:
    try:
        return work()
    except VerifierFailure:
        return work()


def _this_process() -> str:
    # A forked child has its parent's imports, but not its number.
    return f"{_IMPORTED}-{os.getpid()}"


def _exclusion_to_json(exclusion: Exclusion) -> dict[str, Json]:
    return {
        "exclusion": exclusion.kind,
        "episode_id": exclusion.episode_id,
        "detail": exclusion.detail,
        "cross_checks": cross_checks_to_json(exclusion.cross_checks),
    }


def _exclusion_from_json(value: Any) -> Exclusion:
    return Exclusion(
        value["episode_id"],
        cast(ExclusionKind, value["exclusion"]),
        value["detail"],
        cross_checks_from_json(value["cross_checks"]),
    )
