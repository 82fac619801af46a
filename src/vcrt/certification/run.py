"""Certification from end to end: candidates in shards, through worker processes, into a store.

Every certified episode is replayed twice, the second time in another process. The result does not depend on the number
or kind of workers, nor on how often the work was interrupted: shards are cut by candidate number alone and taken in
order. Evidence lies in the store, not in memory; of each episode only digests and seeds are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vcrt.certification.config import SHARD_SIZE, CertificationConfig, Series
from vcrt.certification.episodes import CertifiedEpisode, Exclusion, certify_episode
from vcrt.certification.evidence import Evidence
from vcrt.certification.replay import replay_to_json
from vcrt.certification.shards import (
    EnvironmentFactory,
    FirstReplay,
    SecondReplay,
    Shard,
    replay_again,
    replay_first,
)
from vcrt.certification.store import ShardStore, open_store
from vcrt.environments.contract import CrossCheck, Versions
from vcrt.environments.registry import Registered
from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt.hashing import Json, json_digest
from vcrt.processes import Backend, in_fresh_processes
from vcrt.progress import SILENT, Progress, Task

#: Certification of a schema gives up when fewer than one candidate in this many is certified.
MAX_CANDIDATES_PER_EPISODE = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondOpinion:
    """One checker's comparisons over all candidates of a schema, those that were left out included."""

    episodes: int
    disagreeing_episodes: int
    checked: int
    agreed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifiedSchema:
    """What one schema gave: counts, what was left out, and where its evidence lies."""

    series: Series
    versions: Versions
    num_candidates: int
    num_episodes: int
    exclusions: tuple[Exclusion, ...]
    second_opinions: Mapping[str, SecondOpinion]
    _store: ShardStore
    _config: CertificationConfig
    _accepted: Mapping[int, frozenset[int]]

    @property
    def environment(self) -> str:
        """The environment's name."""
        return self.series.environment

    @property
    def schema(self) -> str:
        """The schema's name."""
        return self.series.schema

    def episodes(self) -> Iterator[CertifiedEpisode]:
        """The certified episodes in candidate order, read from the store one shard at a time."""
        for start, accepted in sorted(self._accepted.items()):
            first = FirstReplay.from_json(self._store.read(_first_name(self.series, start)))
            for place, outcome in enumerate(first.outcomes):
                if place in accepted:
                    assert isinstance(outcome, Evidence)
                    yield _certified(outcome, self.versions, self._config)


def certify(
    config: CertificationConfig,
    directory: Path,
    *,
    jobs: int,
    backend: Backend = "loky",
    progress: Progress = SILENT,
    factories: Mapping[str, EnvironmentFactory] | None = None,
) -> tuple[list[CertifiedSchema], ShardStore]:
    """Certify every series of the configuration, going on with what ``directory`` holds of it already.

    ``factories`` replaces registered environments by name. The caller sees to it that no other process works in
    ``directory``. Raises :class:`VerifierFailure` if a verifier breaks twice on the same shard,
    :class:`MalformedInputError` if a schema yields too few certified episodes, :class:`vcrt.errors.DatasetError` if
    the directory belongs to another certification, and whatever the environments raise for missing parts (before any
    work is done).
    """
    made = {name: (factories or {}).get(name, Registered(name)) for name in config.environments}
    environments = {name: factory() for name, factory in made.items()}
    versions = {name: environment.versions() for name, environment in environments.items()}
    for series in config.series:
        environments[series.environment].schema(series.schema)
    store = open_store(directory, config, versions)
    selections = [
        _Selection(series=series, versions=versions[series.environment], config=config)
        for series in config.series
    ]
    while pending := [selection for selection in selections if not selection.complete]:
        for selection in pending:
            selection.refuse_if_hopeless()
        _wave(pending, made, store, jobs, backend, progress)
    return [selection.result(store) for selection in selections], store


@dataclass(frozen=True, kw_only=True, slots=True)
class _Piece:
    """A shard, whose it is, and the number of its first candidate."""

    selection: _Selection
    start: int
    shard: Shard

    @property
    def num_candidates(self) -> int:
        return len(self.shard.seeds) or len(self.shard.episodes)

    @property
    def first_name(self) -> str:
        return _first_name(self.selection.series, self.start)

    @property
    def second_name(self) -> str:
        return _name(self.selection.series, self.start, "second")


def _wave(
    pending: Sequence[_Selection],
    factories: Mapping[str, EnvironmentFactory],
    store: ShardStore,
    jobs: int,
    backend: Backend,
    progress: Progress,
) -> None:
    """As many candidates as each pending series still misses, replayed twice in two sets of processes."""
    pieces = [
        piece
        for selection in pending
        for piece in selection.next_pieces(factories[selection.series.environment])
    ]
    _first_stage(pieces, store, jobs, backend, progress)
    _second_stage(pieces, store, jobs, backend, progress)
    for piece in pieces:
        second = _second(store, piece)
        assert second is not None
        piece.selection.take(
            piece.start, FirstReplay.from_json(store.read(piece.first_name)), second
        )


def _first_stage(
    pieces: Sequence[_Piece], store: ShardStore, jobs: int, backend: Backend, progress: Progress
) -> None:
    missing = [piece for piece in pieces if store.read(piece.first_name) is None]
    sizes, to_do = _sizes(pieces), _sizes(missing)
    tasks: dict[str, Task] = {}
    results = in_fresh_processes(
        replay_first,
        [piece.shard for piece in missing],
        jobs=jobs,
        backend=backend,
        error=VerifierFailure,
    )
    for piece in missing:
        name = piece.selection.series.environment
        if name not in tasks:
            what = f"certify {name}: every order of each{_before(sizes[name] - to_do[name])}"
            tasks[name] = progress.task(what, to_do[name], "candidates")
        store.write(piece.first_name, next(results).to_json())
        tasks[name].advance(piece.num_candidates)


def _before(num_done: int) -> str:
    return f" ({num_done} were done before)" if num_done else ""


def _sizes(pieces: Sequence[_Piece]) -> Counter[str]:
    """Candidates by environment."""
    sizes: Counter[str] = Counter()
    for piece in pieces:
        sizes[piece.selection.series.environment] += piece.num_candidates
    return sizes


def _second_stage(
    pieces: Sequence[_Piece], store: ShardStore, jobs: int, backend: Backend, progress: Progress
) -> None:
    missing = [piece for piece in pieces if _second(store, piece) is None]
    total, to_do = _sizes(pieces).total(), _sizes(missing).total()
    what = f"replay again in fresh processes{_before(total - to_do)}"
    task = progress.task(what, to_do, "candidates")
    work = ((piece.shard, FirstReplay.from_json(store.read(piece.first_name))) for piece in missing)
    results = in_fresh_processes(
        replay_again, work, jobs=jobs, backend=backend, error=VerifierFailure
    )
    for piece, second in zip(missing, results, strict=True):
        store.write(piece.second_name, second.to_json())
        task.advance(piece.num_candidates)


def _second(store: ShardStore, piece: _Piece) -> SecondReplay | None:
    """The finished second replay of a piece, if it belongs to the first one that is there."""
    content = store.read(piece.second_name)
    if content is None or content["of"] != json_digest(store.read(piece.first_name)):
        return None
    return SecondReplay.from_json(content)


@dataclass(kw_only=True, slots=True)
class _Selection:
    """Takes outcomes in candidate order until enough are certified; later candidates count for nothing."""

    series: Series
    versions: Versions
    config: CertificationConfig
    num_seen: int = 0
    num_candidates: int = 0
    num_episodes: int = 0
    accepted: dict[int, frozenset[int]] = field(default_factory=dict)
    exclusions: list[Exclusion] = field(default_factory=list)
    contents: set[str] = field(default_factory=set)
    opinions: dict[str, SecondOpinion] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        if self.series.wanted is None:
            return self.num_seen == len(self.series.episodes)
        return self.num_episodes == self.series.wanted

    def refuse_if_hopeless(self) -> None:
        wanted = self.series.wanted
        if wanted is None or self.num_candidates < max(
            SHARD_SIZE, MAX_CANDIDATES_PER_EPISODE * wanted
        ):
            return
        raise MalformedInputError(
            "a schema gives too few episodes that can be certified",
            where=self.series.name,
            found=f"{self.num_episodes} of {self.num_candidates} candidates; "
            f"the last was left out as {self.exclusions[-1].kind}: {self.exclusions[-1].detail}",
            expected=f"{wanted} certified episodes",
            remedy=f"`vcrt environments validate {self.series.environment}` says what is wrong with the schema; "
            "if only some candidates fail, ask for fewer episodes",
        )

    def next_pieces(self, factory: EnvironmentFactory) -> list[_Piece]:
        """Whole shards, for at least as many candidates as there are episodes missing."""
        if self.series.wanted is None:
            numbers = range(len(self.series.episodes))
        else:
            num_shards = -(-(self.series.wanted - self.num_episodes) // SHARD_SIZE)
            numbers = range(self.num_seen, self.num_seen + SHARD_SIZE * num_shards)
        return [
            _Piece(
                selection=self,
                start=numbers[start],
                shard=self._shard(factory, numbers[start : start + SHARD_SIZE]),
            )
            for start in range(0, len(numbers), SHARD_SIZE)
        ]

    def _shard(self, factory: EnvironmentFactory, numbers: Sequence[int]) -> Shard:
        given = self.series.wanted is None
        return Shard(
            factory=factory,
            schema=self.series.schema,
            preset=self.config.preset,
            episodes=tuple(self.series.episodes[n] for n in numbers) if given else (),
            seeds=()
            if given
            else tuple(self.config.candidate_seed(self.series, number) for number in numbers),
        )

    def result(self, store: ShardStore) -> CertifiedSchema:
        return CertifiedSchema(
            series=self.series,
            versions=self.versions,
            num_candidates=self.num_candidates,
            num_episodes=self.num_episodes,
            exclusions=tuple(self.exclusions),
            second_opinions=dict(sorted(self.opinions.items())),
            _store=store,
            _config=self.config,
            _accepted=dict(self.accepted),
        )

    def take(self, start: int, first: FirstReplay, second: SecondReplay) -> None:
        differences = iter(second.differences)
        accepted = set()
        for place, outcome in enumerate(first.outcomes):
            self.num_seen += 1
            difference = next(differences) if isinstance(outcome, Evidence) else None
            if self.complete and self.series.wanted is not None:
                continue
            self.num_candidates += 1
            self._count(outcome.cross_checks)
            refused = self._refusal(outcome, (*first.versions, *second.versions), difference)
            if refused is None:
                accepted.add(place)
                self.num_episodes += 1
            else:
                self.exclusions.append(refused)
        if accepted:
            self.accepted[start] = frozenset(accepted)

    def _count(self, checks: Sequence[CrossCheck]) -> None:
        for check in checks:
            before = self.opinions.get(
                check.checker,
                SecondOpinion(episodes=0, disagreeing_episodes=0, checked=0, agreed=0),
            )
            self.opinions[check.checker] = SecondOpinion(
                episodes=before.episodes + 1,
                disagreeing_episodes=before.disagreeing_episodes + (check.agreed != check.checked),
                checked=before.checked + check.checked,
                agreed=before.agreed + check.agreed,
            )

    def _refusal(
        self,
        outcome: Evidence | Exclusion,
        versions: Sequence[Versions],
        difference: str | None,
    ) -> Exclusion | None:
        if isinstance(outcome, Exclusion):
            return outcome
        identity = outcome.episode.episode_id
        foreign = [found for found in versions if found != self.versions]
        if foreign:
            detail = f"{foreign[0]}, not {self.versions}"
            return Exclusion(identity, "version_disagreement", detail, outcome.cross_checks)
        if difference is not None:
            return Exclusion(identity, "nondeterministic", difference, outcome.cross_checks)
        # The same text, the same states and verdicts under other words, or another episode under the same name.
        marks = (outcome.episode.content_hash(), _behaviour(outcome), identity)
        known = [mark for mark in marks if mark in self.contents]
        if known:
            return Exclusion(identity, "duplicate", f"content {known[0]}", outcome.cross_checks)
        self.contents.update(marks)
        return None


def _behaviour(evidence: Evidence) -> str:
    """A digest of what the verifier said of every order, and of the steps' names."""
    signatures: list[Json] = [operation.signature for operation in evidence.episode.operations]
    return json_digest([signatures, [replay_to_json(r) for r in evidence.replays.replays]])


def _certified(
    evidence: Evidence, versions: Versions, config: CertificationConfig
) -> CertifiedEpisode:
    outcome = certify_episode(evidence.replays, versions, config.preset, evidence.cross_checks)
    assert isinstance(outcome, CertifiedEpisode)
    return outcome


def _first_name(series: Series, start: int) -> str:
    return _name(series, start, "first")


def _name(series: Series, start: int, stage: str) -> str:
    return f"{series.environment}/{series.schema}/{start:08d}.{stage}.json"
