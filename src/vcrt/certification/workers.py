"""Certification in worker processes: sampling and replaying shards, and the second replay in fresh processes.

The result does not depend on the number of workers: shards are cut by candidate number alone and taken in order.
A verifier that breaks stops the whole certification with its error after one retry of the shard; nothing of it
becomes a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, TypeVar

from vcrt.certification.episodes import (
    PAPER_PRESET,
    CertifiedEpisode,
    Exclusion,
    Preset,
    certify_episode,
)
from vcrt.certification.replay import replay_exhaustively
from vcrt.environments.contract import Environment, Episode, Replay, Versions
from vcrt.environments.registry import load_environment
from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt.processes import in_fresh_processes
from vcrt.progress import SILENT, Progress
from vcrt.randomness import derive_seed

EnvironmentFactory: TypeAlias = Callable[[], Environment]
Result = TypeVar("Result")

#: Candidates in one shard. It belongs to the result (refills come in whole shards), so it is not tunable.
SHARD_SIZE = 10
#: Certification of a schema gives up when fewer than one candidate in this many is certified.
MAX_CANDIDATES_PER_EPISODE = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class CertificationConfig:
    """What to certify. Equal configurations under equal versions give equal datasets."""

    schemas: Mapping[str, tuple[str, ...]]
    """The schemas of each environment, by environment name."""
    episodes_per_schema: Mapping[str, int]
    """How many certified episodes each schema must give, by environment name."""
    seed: int = 0
    """The seed from which every candidate's seed is derived by name."""
    preset: Preset = PAPER_PRESET
    """What an episode must look like to be frozen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifiedSchema:
    """The certified episodes of one schema, and what was left out among the candidates up to the last of them."""

    environment: str
    schema: str
    versions: Versions
    num_candidates: int
    episodes: tuple[CertifiedEpisode, ...]
    exclusions: tuple[Exclusion, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Shard:
    factory: EnvironmentFactory
    schema: str
    seeds: tuple[int, ...]
    preset: Preset


@dataclass(frozen=True, kw_only=True, slots=True)
class _ReplayShard:
    factory: EnvironmentFactory
    episodes: tuple[Episode, ...]


def certify(
    config: CertificationConfig,
    *,
    jobs: int,
    progress: Progress = SILENT,
    factories: Mapping[str, EnvironmentFactory] | None = None,
) -> list[CertifiedSchema]:
    """Certify every schema of the configuration; each episode is replayed twice, the second time in a fresh process.

    ``factories`` replaces registered environments by name. Raises :class:`VerifierFailure` if a verifier breaks twice
    on the same shard, :class:`MalformedInputError` if a schema yields too few certified episodes, and whatever the
    environments raise for missing parts (before any work is done).
    """
    made = {
        name: (factories or {}).get(name, partial(load_environment, name))
        for name in config.schemas
    }
    environments = {name: factory() for name, factory in made.items()}
    for name, schemas in config.schemas.items():
        environments[name].versions()
        for schema in schemas:
            environments[name].schema(schema)
    ledgers = [
        _SchemaLedger(
            environment=name,
            schema=schema,
            versions=environments[name].versions(),
            wanted=config.episodes_per_schema[name],
        )
        for name, schemas in config.schemas.items()
        for schema in schemas
    ]
    while pending := [ledger for ledger in ledgers if not ledger.complete]:
        for ledger in pending:
            ledger.refuse_if_hopeless()
        _certify_wave(config, pending, made, jobs, progress)
    return [ledger.result() for ledger in ledgers]


def _certify_wave(
    config: CertificationConfig,
    pending: Sequence[_SchemaLedger],
    factories: Mapping[str, EnvironmentFactory],
    jobs: int,
    progress: Progress,
) -> None:
    """As many candidates as each pending schema still misses, replayed twice in two sets of processes."""
    work = [
        (
            ledger,
            _Shard(
                factory=factories[ledger.environment],
                schema=ledger.schema,
                seeds=seeds,
                preset=config.preset,
            ),
        )
        for ledger in pending
        for seeds in ledger.next_shards(config.seed)
    ]
    sizes: dict[str, int] = {}
    for ledger, shard in work:
        sizes[ledger.environment] = sizes.get(ledger.environment, 0) + len(shard.seeds)
    tasks = {
        name: progress.task(f"certify {name}: every order of each", size, "candidates")
        for name, size in sizes.items()
    }
    firsts = []
    shards = [shard for _, shard in work]
    for (ledger, shard), first in zip(
        work,
        in_fresh_processes(_certify_shard, shards, jobs=jobs, error=VerifierFailure),
        strict=True,
    ):
        firsts.append(first)
        tasks[ledger.environment].advance(len(shard.seeds))

    again = [
        _ReplayShard(
            factory=shard.factory,
            episodes=tuple(o.episode for o in outcomes if isinstance(o, CertifiedEpisode)),
        )
        for shard, (_, outcomes) in zip(shards, firsts, strict=True)
    ]
    task = progress.task("replay again in fresh processes", sum(sizes.values()), "candidates")
    seconds = in_fresh_processes(_replay_shard, again, jobs=jobs, error=VerifierFailure)
    for (ledger, shard), (versions, outcomes), (versions_again, replays_again) in zip(
        work, firsts, seconds, strict=True
    ):
        ledger.take(outcomes, (versions, versions_again), replays_again)
        task.advance(len(shard.seeds))


@dataclass(kw_only=True, slots=True)
class _SchemaLedger:
    """Takes outcomes in candidate order until enough are certified; later candidates count for nothing."""

    environment: str
    schema: str
    versions: Versions
    wanted: int
    episodes: list[CertifiedEpisode] = field(default_factory=list)
    exclusions: list[Exclusion] = field(default_factory=list)
    num_candidates: int = 0
    num_seen: int = 0
    contents: set[str] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        return len(self.episodes) == self.wanted

    def refuse_if_hopeless(self) -> None:
        if self.num_candidates < max(SHARD_SIZE, MAX_CANDIDATES_PER_EPISODE * self.wanted):
            return
        raise MalformedInputError(
            "a schema gives too few episodes that can be certified",
            where=f"{self.environment}/{self.schema}",
            found=f"{len(self.episodes)} of {self.num_candidates} candidates; "
            f"the last was left out as {self.exclusions[-1].kind}: {self.exclusions[-1].detail}",
            expected=f"{self.wanted} certified episodes",
            remedy=f"`vcrt environments validate {self.environment}` says what is wrong with the schema; "
            "if only some candidates fail, ask for fewer episodes",
        )

    def next_shards(self, seed: int) -> list[tuple[int, ...]]:
        """Seeds of whole shards, for at least as many candidates as there are episodes missing."""
        num_shards = -(-(self.wanted - len(self.episodes)) // SHARD_SIZE)
        numbers = range(self.num_seen, self.num_seen + SHARD_SIZE * num_shards)
        seeds = tuple(
            derive_seed(seed, self.environment, self.schema, number) % 2**31 for number in numbers
        )
        return [seeds[start : start + SHARD_SIZE] for start in range(0, len(seeds), SHARD_SIZE)]

    def result(self) -> CertifiedSchema:
        return CertifiedSchema(
            environment=self.environment,
            schema=self.schema,
            versions=self.versions,
            num_candidates=self.num_candidates,
            episodes=tuple(self.episodes),
            exclusions=tuple(self.exclusions),
        )

    def take(
        self,
        outcomes: Sequence[CertifiedEpisode | Exclusion],
        versions: tuple[Versions, Versions],
        replays_again: Sequence[tuple[Replay, ...]],
    ) -> None:
        second = iter(replays_again)
        for outcome in outcomes:
            self.num_seen += 1
            replays = next(second) if isinstance(outcome, CertifiedEpisode) else ()
            if self.complete:
                continue
            self.num_candidates += 1
            judged = self._judge(outcome, versions, replays)
            if isinstance(judged, Exclusion):
                self.exclusions.append(judged)
            else:
                self.episodes.append(judged)

    def _judge(
        self,
        outcome: CertifiedEpisode | Exclusion,
        versions: tuple[Versions, Versions],
        replays_again: tuple[Replay, ...],
    ) -> CertifiedEpisode | Exclusion:
        if isinstance(outcome, Exclusion):
            return outcome
        identity = outcome.episode.episode_id
        if any(found != self.versions for found in versions):
            return Exclusion(identity, "version_disagreement", f"{versions}, not {self.versions}")
        for one, other in zip(outcome.replays, replays_again, strict=True):
            if one != other:
                return Exclusion(identity, "nondeterministic", f"{one}, then {other}")
        content = outcome.episode.content_hash()
        if content in self.contents:
            return Exclusion(identity, "duplicate", f"content {content}")
        self.contents.add(content)
        return outcome


def _certify_shard(
    shard: _Shard,
) -> tuple[Versions, list[CertifiedEpisode | Exclusion]]:
    environment = shard.factory()
    versions = environment.versions()
    episodes = [environment.sample(shard.schema, seed) for seed in shard.seeds]
    evidence = _retried_once(lambda: replay_exhaustively(environment, episodes))
    outcomes = [
        certify_episode(item, versions, shard.preset, environment.cross_check(item.episode))
        for item in evidence
    ]
    return environment.versions(), outcomes


def _replay_shard(shard: _ReplayShard) -> tuple[Versions, list[tuple[Replay, ...]]]:
    environment = shard.factory()
    evidence = _retried_once(lambda: replay_exhaustively(environment, shard.episodes))
    return environment.versions(), [item.replays for item in evidence]


def recertify_shard(
    factory: EnvironmentFactory, episodes: Sequence[Episode], preset: Preset
) -> list[CertifiedEpisode | Exclusion]:
    """Certify given episodes anew in this process, second opinions included."""
    environment = factory()
    versions = environment.versions()
    return [
        certify_episode(item, versions, preset, environment.cross_check(item.episode))
        for item in _retried_once(lambda: replay_exhaustively(environment, episodes))
    ]


def _retried_once(work: Callable[[], Result]) -> Result:
    try:
        return work()
    except VerifierFailure:
        return work()
