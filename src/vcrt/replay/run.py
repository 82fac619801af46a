"""Certify from end to end: candidates in shards, through worker processes, into a store.

Every certified episode is replayed twice, the second time in another process. The result depends neither on the number
or kind of workers nor on the number of interruptions: the candidates' numbers alone determine the shards, and
candidates are taken in order, each content once, until enough are certified. Evidence lies in the store; memory holds
only digests and seeds of each episode.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vcrt import processes
from vcrt.certificates.episodes import CertifiedEpisode, Exclusion, certify_episode
from vcrt.certificates.probes import in_brief
from vcrt.environments.contract import CrossCheck, Episode, Versions
from vcrt.environments.isolation import Description, describe
from vcrt.errors import UncertifiableError
from vcrt.hashing import canonical_json, sha256_hex
from vcrt.printable import counted
from vcrt.processes import Backend
from vcrt.progress import SILENT, Progress, call_progress
from vcrt.replay.config import SHARD_SIZE, CertificationConfig, Series, shard_size
from vcrt.replay.evidence import CertifiedTexts, FirstReplay, Repeated, SecondReplay
from vcrt.replay.shards import (
    EnvironmentFactory,
    Shard,
    factory_of,
    only_episode,
    only_episode_again,
    replay_again,
    replay_ahead,
    replay_first,
)
from vcrt.replay.store import ShardStore, open_store

#: Certification of a schema fails if fewer than one candidate in this many is certified.
MAX_CANDIDATES_PER_EPISODE = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifiedSchema:
    """The result of one schema: counts, exclusions, and the place of its evidence."""

    series: Series
    versions: Versions
    num_candidates: int
    num_episodes: int
    exclusions: tuple[Exclusion, ...]
    second_opinions: Mapping[str, Counter[str]]
    _store: ShardStore
    _config: CertificationConfig
    _accepted: Mapping[str, frozenset[int]]

    @property
    def environment(self) -> str:
        """The environment's name."""
        return self.series.environment

    @property
    def schema(self) -> str:
        """The schema's name."""
        return self.series.schema

    def texts(self) -> Iterator[CertifiedTexts]:
        """Give the certified episodes in candidate order, read from the store one shard at a time."""
        for name, accepted in self._accepted.items():
            first = FirstReplay.from_json(self._store.read(name))
            for place in sorted(accepted):
                texts = first.outcomes[place]
                assert isinstance(texts, CertifiedTexts)
                yield texts

    def episodes(self) -> Iterator[CertifiedEpisode]:
        """Give the same, derived again from what was replayed."""
        for texts in self.texts():
            item = texts.evidence
            outcome = certify_episode(
                item.replays, self.versions, self._config.preset, item.cross_checks
            )
            assert isinstance(outcome, CertifiedEpisode)
            yield outcome


def certify(
    config: CertificationConfig,
    directory: Path,
    *,
    jobs: int,
    backend: Backend = "local",
    progress: Progress = SILENT,
    factories: Mapping[str, EnvironmentFactory] | None = None,
) -> list[CertifiedSchema]:
    """Certify every series of the configuration; continue with the pieces that ``directory`` already holds.

    ``factories`` replaces registered environments by name. The caller must ensure that no other process works in
    ``directory``. Raise :class:`vcrt.errors.VerifierFailure` if a verifier breaks twice on the same shard,
    :class:`vcrt.errors.UncertifiableError` if a schema yields too few certified episodes,
    :class:`vcrt.errors.DatasetError` if the directory belongs to another certification, and the environments' errors
    about missing parts (before any work is done).
    """
    made = {name: factory_of(name, factories) for name in config.environments}
    environments = {name: describe(factory) for name, factory in made.items()}
    versions = {name: environment.versions() for name, environment in environments.items()}
    for series in config.series:
        environments[series.environment].schema(series.schema)
    store = open_store(directory, config, versions)
    work = _Work(
        environments=environments, store=store, jobs=jobs, backend=backend, progress=progress
    )
    selections = [
        Selection(series=series, versions=versions[series.environment], config=config)
        for series in config.series
    ]
    while pending := [selection for selection in selections if not selection.complete]:
        for selection in pending:
            selection.refuse_if_hopeless()
        # As many candidates as each of them still lacks.
        pieces = [
            piece
            for selection in pending
            for piece in selection.next_pieces(made[selection.series.environment])
        ]
        work.replay_first(pieces)
        work.replay_again(pieces)
    return [selection.result(store) for selection in selections]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Work:
    """The workers that replay candidates, the store of the results, and the progress shown."""

    environments: Mapping[str, Description]
    store: ShardStore
    jobs: int
    backend: Backend
    progress: Progress

    def replay_first(self, pieces: Sequence[Piece]) -> None:
        """Replay the pieces whose first replay is missing."""
        missing = [one for one in pieces if self.store.body(one.name("first")) is None]
        sizes, to_do = _sizes(pieces), _sizes(missing)
        known: set[str] = set()
        kept = processes.kept_now()
        is_alone = self.backend == "local" and self.jobs > 1 and len(missing) == 1
        if kept and is_alone and missing[0].shard.episodes:
            kept.again.begin(replay_ahead, missing[0].shard)
        with call_progress() as calls:
            results = processes.in_fresh_processes(
                calls.counted(replay_first),
                [piece.shard for piece in missing],
                jobs=self.jobs,
                backend=self.backend,
                on_wait=calls.show,
                narrow=only_episode,
                kept=kept.first if kept else None,
            )
            for piece in missing:
                name = piece.environment
                if name not in known:
                    known.add(name)
                    orders = "sequences" if piece.shard.preset.is_long else "every order"
                    before = _before(sizes[name] - to_do[name])
                    what = f"certify {name}: {orders} of each{before}"
                    task = self.progress.task(what, to_do[name], "candidates")
                    again = self._calls(piece, sharing=False)
                    more = f"about {to_do[name] * again:,}" if again else "all"
                    note = f"; then {more} again, {_elsewhere(missing)}"
                    once = self._calls(piece, sharing=True)
                    calls.expect(name, task, to_do[name], once, note)
                body = calls.done(name, piece.num_candidates, next(results))
                self.store.write(piece.name("first"), body)

    def replay_again(self, pieces: Sequence[Piece]) -> None:
        """Replay the certified candidates again, and let each selection take its pieces in order."""
        done = [self._second(piece) for piece in pieces]
        missing = [piece for piece, second in zip(pieces, done, strict=True) if second is None]
        to_do = _sizes(missing)
        before = _before(_sizes(pieces).total() - to_do.total())
        what = f"replay again {_elsewhere(missing)}{before}"
        task = self.progress.task(what, to_do.total(), "candidates")
        kept = processes.kept_now()
        # Read as they are handed out; what is no longer there is not in due form.
        work = ((one.shard, self.store.body(one.name("first")) or b"null") for one in missing)
        with call_progress() as calls:
            for name, number in to_do.items():
                n = missing[0].shard.preset.num_operations
                expected = self.environments[name].calls_for_all_orders(n, sharing=False)
                calls.expect(name, task, number, expected)
            results = processes.in_fresh_processes(
                calls.counted(replay_again),
                work,
                jobs=self.jobs,
                backend=self.backend,
                on_wait=calls.show,
                narrow=only_episode_again,
                kept=kept.again if kept else None,
            )
            for piece, second in zip(pieces, done, strict=True):
                if second is None:
                    second = calls.done(piece.environment, piece.num_candidates, next(results))
                    self.store.write(piece.name("second"), canonical_json(second.to_json()))
                piece.selection.take(piece.name("first"), second)

    def _calls(self, piece: Piece, *, sharing: bool) -> int | None:
        number = piece.shard.preset.num_operations
        description = self.environments[piece.environment]
        return description.calls_for_all_orders(number, sharing=sharing)

    def _second(self, piece: Piece) -> SecondReplay | None:
        """Return the finished second replay of a piece, if it belongs to the first one in the store."""
        content = self.store.read(piece.name("second"))
        first = self.store.body(piece.name("first")) or b""
        if content is None or content["of"] != sha256_hex(first):
            return None
        return SecondReplay.from_json(content)


def _elsewhere(missing: Sequence[Piece]) -> str:
    """Return where the second replay happens; a kept process has answered questions about the environment before."""
    return (
        "in another process" if processes.kept_now() and len(missing) == 1 else "in fresh processes"
    )


def _before(num_done: int) -> str:
    return f" ({num_done} were done before)" if num_done else ""


def _sizes(pieces: Sequence[Piece]) -> Counter[str]:
    """Return the number of candidates of each environment."""
    sizes: Counter[str] = Counter()
    for piece in pieces:
        sizes[piece.environment] += piece.num_candidates
    return sizes


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A shard, its selection, and the number of its first candidate."""

    selection: Selection
    start: int
    shard: Shard

    @property
    def environment(self) -> str:
        """The name of its environment."""
        return self.selection.series.environment

    @property
    def num_candidates(self) -> int:
        """The number of its candidates."""
        return len(self.shard.seeds) or len(self.shard.episodes)

    def name(self, stage: str) -> str:
        """Return the path of its ``first`` or ``second`` replay in a store: by its first candidate and their number."""
        return f"{self.selection.series.name}/{self.start:08d}-{self.num_candidates}.{stage}.json"


@dataclass(kw_only=True, slots=True)
class Selection:
    """The outcomes taken in candidate order until enough are certified; later candidates do not count."""

    series: Series
    versions: Versions
    config: CertificationConfig
    num_seen: int = 0
    num_candidates: int = 0
    num_episodes: int = 0
    #: By the names of their first replays, the places of the candidates that are certified.
    accepted: dict[str, frozenset[int]] = field(default_factory=dict)
    exclusions: list[Exclusion] = field(default_factory=list)
    contents: set[str] = field(default_factory=set)
    #: By checker, comparisons with the verifier over all candidates, excluded ones too.
    opinions: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @property
    def complete(self) -> bool:
        """Whether no more candidates are needed."""
        if self.series.wanted is None:
            return self.num_seen == len(self.series.episodes)
        return self.num_episodes == self.series.wanted

    def refuse_if_hopeless(self) -> None:
        """Raise :class:`UncertifiableError` if too few of the candidates so far were certified."""
        wanted = self.series.wanted
        if wanted is None or self.num_candidates < self._most:
            return
        raise UncertifiableError(
            "a schema gives too few episodes that can be certified",
            where=self.series.name,
            found=f"{self.num_episodes} of {counted(self.num_candidates, 'candidate')}; "
            f"the last was left out as {self.exclusions[-1].kind}: {self.exclusions[-1].detail}",
            expected=f"{wanted} certified episodes",
            remedy=f"`vcrt environments validate {self.series.environment}` says what is wrong with the schema; "
            "if only some candidates fail, ask for fewer episodes",
        )

    @property
    def _most(self) -> int:
        """The most candidates to try, whatever the size of shards."""
        return max(SHARD_SIZE, MAX_CANDIDATES_PER_EPISODE * (self.series.wanted or 0))

    def next_pieces(self, factory: EnvironmentFactory) -> list[Piece]:
        """Return whole shards with at least as many candidates as episodes are missing, up to the most to try."""
        if self.series.wanted is None:
            size = shard_size(len(self.series.episodes))
            numbers = range(len(self.series.episodes))
        else:
            size = shard_size(self.series.wanted)
            num_shards = -(-(self.series.wanted - self.num_episodes) // size)
            numbers = range(self.num_seen, min(self.num_seen + size * num_shards, self._most))
        return [
            Piece(
                selection=self,
                start=numbers[start],
                shard=self._shard(factory, numbers[start : start + size]),
            )
            for start in range(0, len(numbers), size)
        ]

    def _shard(self, factory: EnvironmentFactory, numbers: Sequence[int]) -> Shard:
        episodes: tuple[Episode, ...] = ()
        seeds: tuple[int, ...] = ()
        if self.series.wanted is None:
            episodes = tuple(self.series.episodes[number] for number in numbers)
        else:
            seeds = tuple(self.config.candidate_seed(self.series, number) for number in numbers)
        return Shard(
            factory=factory,
            schema=self.series.schema,
            preset=self.config.preset,
            episodes=episodes,
            seeds=seeds,
        )

    def take(self, name: str, second: SecondReplay) -> None:
        """Take the outcomes of the shard whose first replay has this ``name``."""
        accepted = set()
        for place, outcome in enumerate(second.outcomes):
            self.num_seen += 1
            if self.complete and self.series.wanted is not None:
                continue
            self.num_candidates += 1
            self._count(outcome.cross_checks)
            refused = self._refusal(outcome, second)
            if refused is None:
                accepted.add(place)
                self.num_episodes += 1
            else:
                self.exclusions.append(refused)
        if accepted:
            self.accepted[name] = frozenset(accepted)

    def _count(self, checks: Sequence[CrossCheck]) -> None:
        for check in in_brief(checks):
            self.opinions[check.checker].update(
                episodes=1,
                disagreeing_episodes=int(check.agreed != check.checked),
                checked=check.checked,
                agreed=check.agreed,
            )

    def _refusal(self, outcome: Repeated | Exclusion, second: SecondReplay) -> Exclusion | None:
        if isinstance(outcome, Exclusion):
            return outcome
        identity = outcome.marks[-1]
        foreign = [found for found in second.versions if found != self.versions]
        if foreign:
            detail = f"{foreign[0]}, not {self.versions}"
            return Exclusion(identity, "version_disagreement", detail, outcome.cross_checks)
        if outcome.difference is not None:
            return Exclusion(identity, "nondeterministic", outcome.difference, outcome.cross_checks)
        # A duplicate has the same text, the same states and verdicts under other words, or the name of another episode.
        known = [mark for mark in outcome.marks if mark in self.contents]
        if known:
            return Exclusion(identity, "duplicate", f"content {known[0]}", outcome.cross_checks)
        self.contents.update(outcome.marks)
        return None

    def result(self, store: ShardStore) -> CertifiedSchema:
        """Return the result, with the store of its evidence."""
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
