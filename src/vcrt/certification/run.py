"""Certify from end to end: candidates in shards, through worker processes, into a store.

Every certified episode is replayed twice, the second time in another process. The result does not depend on the number
or kind of workers, nor on how often the work was interrupted: shards are cut by candidate number alone and taken in
order. Evidence lies in the store, not in memory; of each episode only digests and seeds are kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcrt.certification.config import CertificationConfig, Series
from vcrt.certification.episodes import CertifiedEpisode, Exclusion, certify_episode
from vcrt.certification.evidence import Evidence
from vcrt.certification.selection import Piece, Selection, first_name
from vcrt.certification.shard_results import FirstReplay, SecondReplay
from vcrt.certification.shards import (
    EnvironmentFactory,
    Shard,
    factory_of,
    only_episode,
    only_episode_again,
    replay_again,
    replay_ahead,
    replay_first,
)
from vcrt.certification.store import ShardStore, open_store
from vcrt.environments.contract import Versions
from vcrt.environments.isolation import Description, describe
from vcrt.errors import VerifierFailure
from vcrt.processes import Backend, in_fresh_processes, kept_now
from vcrt.progress import SILENT, Progress, call_progress


@dataclass(frozen=True, kw_only=True, slots=True)
class CertifiedSchema:
    """What one schema gave: counts, what was left out, and where its evidence lies."""

    series: Series
    versions: Versions
    num_candidates: int
    num_episodes: int
    exclusions: tuple[Exclusion, ...]
    second_opinions: Mapping[str, Counter[str]]
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
            first = FirstReplay.from_json(self._store.read(first_name(self.series, start)))
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
    :class:`vcrt.errors.UncertifiableError` if a schema yields too few certified episodes,
    :class:`vcrt.errors.DatasetError` if the directory belongs to another certification, and whatever the environments
    raise for missing parts (before any work is done).
    """
    made = {name: factory_of(name, factories) for name in config.environments}
    environments = {name: describe(factory) for name, factory in made.items()}
    versions = {name: environment.versions() for name, environment in environments.items()}
    for series in config.series:
        environments[series.environment].schema(series.schema)
    store = open_store(directory, config, versions)
    selections = [
        Selection(series=series, versions=versions[series.environment], config=config)
        for series in config.series
    ]
    while pending := [selection for selection in selections if not selection.complete]:
        for selection in pending:
            selection.refuse_if_hopeless()
        _wave(pending, made, environments, store, jobs, backend, progress)
    return [_result(selection, store) for selection in selections], store


def _wave(
    pending: Sequence[Selection],
    factories: Mapping[str, EnvironmentFactory],
    environments: Mapping[str, Description],
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
    _first_stage(pieces, environments, store, jobs, backend, progress)
    _second_stage(pieces, environments, store, jobs, backend, progress)


def _first_stage(
    pieces: Sequence[Piece],
    environments: Mapping[str, Description],
    store: ShardStore,
    jobs: int,
    backend: Backend,
    progress: Progress,
) -> None:
    missing = [piece for piece in pieces if not _is_first_done(store, piece)]
    sizes, to_do = _sizes(pieces), _sizes(missing)
    known: set[str] = set()
    kept = kept_now()
    is_alone = backend == "loky" and jobs > 1 and len(missing) == 1
    if kept and is_alone and missing[0].shard.episodes:
        kept.again.begin(replay_ahead, missing[0].shard)
    with call_progress() as calls:
        results = in_fresh_processes(
            calls.counted(replay_first),
            [piece.shard for piece in missing],
            jobs=jobs,
            backend=backend,
            error=VerifierFailure,
            on_wait=calls.show,
            narrow=only_episode,
            kept=kept.first if kept else None,
        )
        for piece in missing:
            name = piece.selection.series.environment
            if name not in known:
                known.add(name)
                orders = "sequences" if piece.shard.preset.is_long else "every order"
                what = f"certify {name}: {orders} of each{_before(sizes[name] - to_do[name])}"
                task = progress.task(what, to_do[name], "candidates")
                once, again = (
                    environments[name].calls_for_all_orders(
                        piece.shard.preset.num_operations, sharing=sharing
                    )
                    for sharing in (True, False)
                )
                more = (
                    f"; then about {to_do[name] * again:,} again" if again else "; then all again"
                )
                calls.expect(name, task, to_do[name], once, f"{more}, {_elsewhere(missing)}")
            first = calls.done(name, piece.num_candidates, next(results))
            store.write(piece.first_name, first.to_json())


def _elsewhere(missing: Sequence[Piece]) -> str:
    """Where they are replayed again: a process that is kept has answered questions about the environment before."""
    return "in another process" if kept_now() and len(missing) == 1 else "in fresh processes"


def _before(num_done: int) -> str:
    return f" ({num_done} were done before)" if num_done else ""


def _sizes(pieces: Sequence[Piece]) -> Counter[str]:
    """Candidates by environment."""
    sizes: Counter[str] = Counter()
    for piece in pieces:
        sizes[piece.selection.series.environment] += piece.num_candidates
    return sizes


def _second_stage(
    pieces: Sequence[Piece],
    environments: Mapping[str, Description],
    store: ShardStore,
    jobs: int,
    backend: Backend,
    progress: Progress,
) -> None:
    """Replay what is certified again, and have each selection take its pieces in their order."""
    done = [_second(store, piece) for piece in pieces]
    missing = [piece for piece, second in zip(pieces, done, strict=True) if second is None]
    total, to_do = _sizes(pieces).total(), _sizes(missing).total()
    what = f"replay again {_elsewhere(missing)}{_before(total - to_do)}"
    task = progress.task(what, to_do, "candidates")
    kept = kept_now()
    #: First replays of the pieces that are handed out.
    at_work: deque[FirstReplay] = deque()

    def work() -> Iterator[tuple[Shard, FirstReplay]]:
        for piece in missing:
            at_work.append(_first(store, piece))
            yield piece.shard, at_work[-1]

    with call_progress() as calls:
        for name, number in _sizes(missing).items():
            n = missing[0].shard.preset.num_operations
            expected = environments[name].calls_for_all_orders(n, sharing=False)
            calls.expect(name, task, number, expected)
        results = in_fresh_processes(
            calls.counted(replay_again),
            work(),
            jobs=jobs,
            backend=backend,
            error=VerifierFailure,
            on_wait=calls.show,
            narrow=only_episode_again,
            kept=kept.again if kept else None,
        )
        for piece, second in zip(pieces, done, strict=True):
            if second is None:
                name = piece.selection.series.environment
                second = calls.done(name, piece.num_candidates, next(results))
                store.write(piece.second_name, second.to_json())
                first = at_work.popleft()
            else:
                first = _first(store, piece)
            piece.selection.take(piece.start, first, second)


def _is_first_done(store: ShardStore, piece: Piece) -> bool:
    """Whether the first replay of a piece is finished, and of as many candidates."""
    content = store.read(piece.first_name)
    outcomes = content.get("outcomes") if isinstance(content, dict) else None
    other = isinstance(outcomes, list) and len(outcomes) != piece.num_candidates
    return content is not None and not other


def _first(store: ShardStore, piece: Piece) -> FirstReplay:
    return FirstReplay.from_json(store.read(piece.first_name))


def _second(store: ShardStore, piece: Piece) -> SecondReplay | None:
    """The finished second replay of a piece, if it belongs to the first one that is there."""
    content = store.read(piece.second_name)
    if content is None or content["of"] != store.digest(piece.first_name):
        return None
    return SecondReplay.from_json(content)


def _certified(
    evidence: Evidence, versions: Versions, config: CertificationConfig
) -> CertifiedEpisode:
    outcome = certify_episode(evidence.replays, versions, config.preset, evidence.cross_checks)
    assert isinstance(outcome, CertifiedEpisode)
    return outcome


def _result(selection: Selection, store: ShardStore) -> CertifiedSchema:
    return CertifiedSchema(
        series=selection.series,
        versions=selection.versions,
        num_candidates=selection.num_candidates,
        num_episodes=selection.num_episodes,
        exclusions=tuple(selection.exclusions),
        second_opinions=dict(sorted(selection.opinions.items())),
        _store=store,
        _config=selection.config,
        _accepted=dict(selection.accepted),
    )
