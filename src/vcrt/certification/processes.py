"""Certification in worker processes: sampling and replaying shards, and the second replay in fresh processes.

The result does not depend on the number of workers: shards are cut by candidate number alone and taken in order.
A verifier that breaks stops the whole certification with its error after one retry of the shard; nothing of it
becomes a verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias, TypeVar

from joblib.externals.loky import ProcessPoolExecutor

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
from vcrt.progress import SILENT, Progress
from vcrt.randomness import derive_seed

EnvironmentFactory: TypeAlias = Callable[[], Environment]
Argument = TypeVar("Argument")
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
    episodes_per_schema: int
    """How many certified episodes each schema must give."""
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
    return [
        _certify_schema(config, environments[name], made[name], schema, jobs, progress)
        for name, schemas in config.schemas.items()
        for schema in schemas
    ]


def _certify_schema(
    config: CertificationConfig,
    environment: Environment,
    factory: EnvironmentFactory,
    schema: str,
    jobs: int,
    progress: Progress,
) -> CertifiedSchema:
    wanted = config.episodes_per_schema
    task = progress.task(f"certify {environment.name}/{schema}", 2 * wanted, "episodes")
    ledger = _SchemaLedger(versions=environment.versions(), wanted=wanted)
    while not ledger.complete:
        if ledger.num_candidates >= max(SHARD_SIZE, MAX_CANDIDATES_PER_EPISODE * wanted):
            raise MalformedInputError(
                "a schema gives too few episodes that can be certified",
                where=f"{environment.name}/{schema}",
                found=f"{len(ledger.episodes)} of {ledger.num_candidates} candidates; "
                f"the last exclusion: {ledger.exclusions[-1] if ledger.exclusions else 'none'}",
                expected=f"{wanted} certified episodes",
                remedy="ask for fewer episodes, or look at the schema's generator with "
                f"`vcrt environments validate {environment.name}`",
            )
        missing = wanted - len(ledger.episodes)
        first = ledger.num_seen
        numbers = range(first, first + SHARD_SIZE * -(-missing // SHARD_SIZE))
        seeds = [
            derive_seed(config.seed, environment.name, schema, number) % 2**31 for number in numbers
        ]
        shards = [
            _Shard(
                factory=factory,
                schema=schema,
                seeds=tuple(seeds[start : start + SHARD_SIZE]),
                preset=config.preset,
            )
            for start in range(0, len(seeds), SHARD_SIZE)
        ]
        firsts = []
        for versions, outcomes in in_fresh_processes(_certify_shard, shards, jobs):
            firsts.append((versions, outcomes))
            task.advance(min(SHARD_SIZE, len(outcomes)))
        again = [
            _ReplayShard(
                factory=factory,
                episodes=tuple(o.episode for o in outcomes if isinstance(o, CertifiedEpisode)),
            )
            for _, outcomes in firsts
        ]
        seconds = in_fresh_processes(_replay_shard, again, jobs)
        for (versions, outcomes), (versions_again, replays_again) in zip(
            firsts, seconds, strict=True
        ):
            ledger.take(outcomes, (versions, versions_again), replays_again)
            task.advance(len(outcomes))
    return CertifiedSchema(
        environment=environment.name,
        schema=schema,
        versions=ledger.versions,
        num_candidates=ledger.num_candidates,
        episodes=tuple(ledger.episodes),
        exclusions=tuple(ledger.exclusions),
    )


@dataclass(kw_only=True, slots=True)
class _SchemaLedger:
    """Takes outcomes in candidate order until enough are certified; later candidates count for nothing."""

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


def in_fresh_processes(
    function: Callable[[Argument], Result], arguments: Iterable[Argument], jobs: int
) -> Iterator[Result]:
    """Apply ``function`` to each argument in ``jobs`` new worker processes; results come in the order of arguments."""
    executor = ProcessPoolExecutor(max_workers=jobs)
    try:
        yield from executor.map(function, arguments)
    except BaseException:
        executor.shutdown(wait=False, kill_workers=True)
        raise
    executor.shutdown(wait=True)
