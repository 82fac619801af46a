"""Do the work on one shard of candidates in a worker process.

First the candidates are sampled, replayed (in every order or, if there are too many, in every context or a sample of
contexts), certified, and given to second opinions. Then, in another process, all certified candidates are sampled and
replayed again, in another succession, each sequence from a fresh initial state. Both steps give JSON. A verifier that
breaks again after one retry of the shard raises an error and gives no verdict. Second opinions are not repeated before
freezing (`vcrt verify` repeats them).
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from math import inf
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from vcrt import processes
from vcrt.certificates.episodes import CertifiedEpisode, Exclusion, Preset, certify_episode
from vcrt.certificates.probes import probe
from vcrt.certificates.replay_tree import EpisodeReplays, contradiction_text
from vcrt.environments.contract import CrossCheck, Environment, Episode, Guards, Schema, Versions
from vcrt.environments.guarding import make_guarded
from vcrt.environments.registry import Registered
from vcrt.errors import VcrtError, VerifierFailure
from vcrt.hashing import canonical_json, json_text, sha256_hex
from vcrt.limits import MAX_EXHAUSTIVE
from vcrt.replay.evidence import (
    CertifiedTexts,
    Evidence,
    FirstReplay,
    Repeated,
    SecondReplay,
    replays_for_second_opinions,
)
from vcrt.replay.lattice_replay import replay_lattices
from vcrt.replay.replay import replay_exhaustively

#: A function that makes an environment. Equal ones must make equal environments: each process makes and keeps one.
EnvironmentFactory: TypeAlias = Callable[[], Environment]
Result = TypeVar("Result")
_IMPORTED = os.urandom(16).hex()


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """Candidates of one schema: the given ``episodes``, or those of ``seeds``."""

    factory: EnvironmentFactory
    schema: str
    preset: Preset
    seeds: tuple[int, ...] = ()
    episodes: tuple[Episode, ...] = ()


def factory_of(
    name: str, factories: Mapping[str, EnvironmentFactory] | None = None
) -> EnvironmentFactory:
    """Return the factory of an environment: from ``factories``, else from the registry."""
    return (factories or {}).get(name, Registered(name))


@dataclass(frozen=True, slots=True)
class Kept:
    """A factory that is equal in every process that receives it, unlike a function made on the spot."""

    key: str
    factory: EnvironmentFactory = field(compare=False)

    @classmethod
    def of(cls, factory: EnvironmentFactory) -> EnvironmentFactory:
        """Return the factory itself if equal ones are equal in any process, else a kept one."""
        kind: Any = type(factory)
        is_same = isinstance(factory, type) or kind.__hash__ is not object.__hash__
        return factory if is_same else cls(os.urandom(16).hex(), factory)

    def __call__(self) -> Environment:
        """Make an environment."""
        return self.factory()


@cache
def environment_of(factory: EnvironmentFactory) -> Environment:
    """Return the environment of a factory, one for the process: some have a verifier to start."""
    return make_guarded(factory.factory if isinstance(factory, Kept) else factory)


def replay_first(shard: Shard) -> bytes:
    """Sample (or take), replay and judge the candidates of a shard; return the JSON of a :class:`FirstReplay`."""
    with _naming(shard.schema):
        environment = environment_of(shard.factory)
        before = environment.versions()
        episodes = shard.episodes or _sampled(environment, shard)
        designed = environment.schema(shard.schema) if shard.seeds else None
        outcomes = [
            _judged(item, before, designed, shard.preset)
            for item in evidence_of(environment, episodes, sampled=shard.preset.samples)
        ]
        first = FirstReplay(
            versions=(before, environment.versions()),
            outcomes=tuple(outcomes),
            process=_this_process(),
        )
        return canonical_json(first.to_json())


def replay_again(work: tuple[Shard, bytes]) -> SecondReplay:
    """Sample and replay the certified candidates again: in another process, environment and succession."""
    shard, body = work
    first = FirstReplay.from_json(json.loads(body))
    if first.process == _this_process():
        (second,) = processes.in_fresh_processes(replay_again, [work], jobs=1)
        return second
    with _naming(shard.schema):
        certified = [one for one in first.outcomes if isinstance(one, CertifiedTexts)]
        episodes = [one.evidence.episode for one in certified]
        contents = _contents(shard.episodes)
        environment, before, again = (
            _AHEAD.pop(contents) if contents in _AHEAD else _again(shard, episodes)
        )
        by_content = {replays.episode.content_hash(): replays for replays in again}
        sampled = {e.episode_id: e.content_hash() for e in _sampled(environment, shard)}
        return SecondReplay(
            versions=(*first.versions, before, environment.versions()),
            outcomes=tuple(
                one if isinstance(one, Exclusion) else _repeated(one, by_content, sampled)
                for one in first.outcomes
            ),
            of=sha256_hex(body),
        )


def _repeated(
    first: CertifiedTexts, again: Mapping[str, EpisodeReplays], sampled: Mapping[str, str]
) -> Repeated:
    """Compare the two replays of a candidate."""
    evidence = first.evidence
    content, name = evidence.episode.content_hash(), evidence.episode.episode_id
    if sampled and sampled[name] != content:
        difference: str | None = "its seed gave another episode in another process"
    else:
        difference = difference_of(evidence.replays, again[content])
    signatures = json_text([operation.signature for operation in evidence.episode.operations])
    answers = sha256_hex(f"[{signatures},{first.columns['replays']}]".encode())
    return Repeated((content, answers, name), evidence.cross_checks, difference)


def replay_ahead(shard: Shard) -> None:
    """Replay the given episodes of a shard for :func:`replay_again`, while another process replays them first."""
    with _naming(shard.schema):
        _AHEAD[_contents(shard.episodes)] = _again(shard, shard.episodes)


#: What this process has replayed ahead, by the content of the episodes.
_AHEAD: dict[tuple[str, ...], tuple[Environment, Versions, list[EpisodeReplays]]] = {}


def _again(
    shard: Shard, episodes: Sequence[Episode]
) -> tuple[Environment, Versions, list[EpisodeReplays]]:
    """Return the second replays of episodes, with the environment that made them and its versions before."""
    environment = make_guarded(shard.factory)
    before = environment.versions()
    again = replayed(environment, episodes, sampled=shard.preset.samples, backwards=True)
    return environment, before, again


def _contents(episodes: Sequence[Episode]) -> tuple[str, ...]:
    return tuple(episode.content_hash() for episode in episodes)


def only_episode(shard: Shard, episode: str) -> Shard | None:
    """Return the shard of one of its candidates alone, None if it has no such candidate or no other one."""
    seeds = tuple(seed for seed in shard.seeds if episode.endswith(f"/{shard.schema}/{seed}"))
    episodes = tuple(one for one in shard.episodes if one.episode_id == episode)
    if len(shard.seeds) + len(shard.episodes) < 2 or not (seeds or episodes):
        return None
    return replace(shard, seeds=seeds, episodes=episodes)


def only_episode_again(work: tuple[Shard, bytes], episode: str) -> tuple[Shard, bytes] | None:
    """Return the result of :func:`only_episode`, with that candidate's first replay."""
    shard = only_episode(work[0], episode)
    if shard is None:
        return None
    first = json.loads(work[1])
    own = [one for one in first["outcomes"] if one.get("columns", {}).get("episode_id") == episode]
    return shard, canonical_json({**first, "outcomes": own})


def certify_again(
    factory: EnvironmentFactory, episodes: Sequence[Episode], preset: Preset
) -> tuple[list[CertifiedEpisode | Exclusion], Guards]:
    """Certify given episodes anew in this process, in another succession, second opinions included.

    Return the environment's guards afterwards, too.
    """
    with _naming(episodes[0].schema if episodes else ""):
        environment, (before, after), evidence = _anew(factory, episodes, preset, backwards=True)
        guards = environment.guards()
        outcomes = [
            certify_episode(item.replays, before, preset, item.cross_checks) for item in evidence
        ]
    if after == before:
        return outcomes, guards
    detail = f"{after}, not {before}"
    return [Exclusion(e.episode_id, "version_disagreement", detail) for e in episodes], guards


def evidence_again(
    work: tuple[EnvironmentFactory, Sequence[Episode], Preset, bool],
) -> tuple[tuple[Versions, Versions], list[Evidence]]:
    """Replay given episodes anew in this process, backwards if requested, second opinions included.

    Return the versions before and after, too.
    """
    factory, episodes, preset, backwards = work
    _, versions, evidence = _anew(factory, episodes, preset, backwards=backwards)
    return versions, evidence


def _anew(
    factory: EnvironmentFactory, episodes: Sequence[Episode], preset: Preset, *, backwards: bool
) -> tuple[Environment, tuple[Versions, Versions], list[Evidence]]:
    environment = make_guarded(factory, thorough=True)
    before = environment.versions()
    evidence = evidence_of(environment, episodes, sampled=preset.samples, backwards=backwards)
    return environment, (before, environment.versions()), evidence


@contextmanager
def _naming(schema: str) -> Iterator[None]:
    """Turn an error of an environment's own code into a failure of the verifier that names the schema."""
    try:
        yield
    except VcrtError:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise VerifierFailure(
            "an environment broke while it sampled or replayed",
            where=f"schema {schema!r}; {last.filename}:{last.lineno}, in {last.name}",
            found=f"{type(error).__name__}: {str(error)[:300]}",
            remedy="`vcrt environments validate NAME` runs the environment's checks",
        ) from error


def _sampled(environment: Environment, shard: Shard) -> list[Episode]:
    episodes = [environment.sample(shard.schema, seed) for seed in shard.seeds]
    for seed, episode in zip(shard.seeds, episodes, strict=True):
        asked = (environment.name, shard.schema, seed)
        found = (episode.environment, episode.schema, episode.provenance.seed)
        if found != asked:
            raise VerifierFailure(
                "the environment sampled another episode than it was asked for",
                where=f"environment {environment.name!r}",
                found=f"environment, schema and seed {found}",
                expected=f"{asked}",
            )
    return episodes


def difference_of(first: EpisodeReplays, second: EpisodeReplays) -> str | None:
    """Return where two replays of an episode differ, in words; None if they are equal."""
    ours, theirs = first.tree.answers, second.tree.answers
    for sequence in dict.fromkeys((*ours, *theirs)):
        one, other = ours.get(sequence), theirs.get(sequence)
        if one != other:
            return contradiction_text(sequence, one, other)
    return second.tree.contradiction


def _judged(
    evidence: Evidence, versions: Versions, designed: Schema | None, preset: Preset
) -> CertifiedTexts | Exclusion:
    """Certify an episode or leave it out, as outside its schema where its anti-diamonds are of another kind."""
    outcome = certify_episode(evidence.replays, versions, preset, evidence.cross_checks)
    if isinstance(outcome, Exclusion):
        return outcome
    kinds = outcome.kinds
    if designed is None or designed.designed(kinds) or (preset.is_any and not kinds):
        return CertifiedTexts.of(outcome, preset)
    found = " and ".join(sorted(kinds))
    detail = f"the anti-diamond {found}, where the schema is for {designed.relation}"
    return Exclusion(evidence.episode.episode_id, "outside_schema", detail, evidence.cross_checks)


def evidence_of(
    environment: Environment,
    episodes: Sequence[Episode],
    *,
    sampled: bool = False,
    backwards: bool = False,
    settle: Callable[[Environment, Episode], EpisodeReplays] | None = None,
    within: float | None = None,
    probing: bool = True,
) -> list[Evidence]:
    """Return the verifier's answers about episodes, second opinions included; retry once if it breaks.

    ``settle`` replays an episode in another way than :func:`replays_of` does; probes end ``within`` so many seconds,
    or are left out (:func:`probes_of`).
    """
    if settle is None:
        found = replayed(environment, episodes, sampled=sampled, backwards=backwards)
    else:
        with unchanged(*episodes):
            found = [retried_once(partial(settle, environment, each)) for each in episodes]
    replays = [replays_for_second_opinions(item) for item in found]
    opinions = retried_once(lambda: environment.cross_check_all(episodes, replays))
    if not isinstance(opinions, list) or len(opinions) != len(episodes):
        raise _bad_opinion(environment, opinions, f"a list of {len(episodes)}")
    for check in chain.from_iterable(opinions):
        if not _is_counted(check):
            raise _bad_opinion(environment, check, "CrossCheck with 0 <= agreed <= checked")
    return [
        Evidence(item, (*checks, *(probes_of(environment, item, within) if probing else ())))
        for item, checks in zip(found, opinions, strict=True)
    ]


def probes_of(
    environment: Environment, replays: EpisodeReplays, within: float | None = None
) -> tuple[CrossCheck, ...]:
    """Return what probes show, ``within`` so many seconds; retry once if the verifier breaks."""
    return retried_once(partial(probe, environment, replays, is_late=late_after(within)))


def late_after(within: float | None) -> Callable[[], bool]:
    """Return what tells whether so many seconds have passed from now."""
    until = inf if within is None else monotonic() + within
    return lambda: monotonic() > until


def replayed(
    environment: Environment, episodes: Sequence[Episode], *, sampled: bool, backwards: bool
) -> list[EpisodeReplays]:
    """Return the replays of episodes; retry once if the verifier breaks, then raise :class:`VerifierFailure`."""
    with unchanged(*episodes):
        return retried_once(
            lambda: replays_of(environment, episodes, sampled=sampled, backwards=backwards)
        )


@contextmanager
def unchanged(*episodes: Episode) -> Iterator[None]:
    """Raise :class:`VerifierFailure` if the environment changes these episodes inside the context."""
    before = [episode.content_hash() for episode in episodes]
    yield
    for episode, content in zip(episodes, before, strict=True):
        if episode.content_hash() != content:
            raise VerifierFailure(
                "the environment changed the episode that it replayed",
                where=episode.episode_id,
                remedy="let step and initial_state (reset and call) copy what they change",
            )


def replays_of(
    environment: Environment,
    episodes: Sequence[Episode],
    *,
    sampled: bool = False,
    backwards: bool = False,
) -> list[EpisodeReplays]:
    """Replay every order of each episode or, if there are too many, its lattice; backwards, each sequence afresh."""
    long = [episode for episode in episodes if episode.num_operations > MAX_EXHAUSTIVE]
    short = [episode for episode in episodes if episode.num_operations <= MAX_EXHAUSTIVE]
    lattices, orders = list[EpisodeReplays](), list[EpisodeReplays]()
    if long:
        lattices = replay_lattices(environment, long, sampled=sampled, backwards=backwards)
    if short:
        sharing = not backwards
        orders = replay_exhaustively(environment, short, backwards=backwards, sharing=sharing)
    found = {True: iter(lattices), False: iter(orders)}
    return [next(found[episode.num_operations > MAX_EXHAUSTIVE]) for episode in episodes]


def _is_counted(check: CrossCheck) -> bool:
    counts = (check.agreed, check.checked) if isinstance(check, CrossCheck) else ()
    whole = all(isinstance(count, int) and not isinstance(count, bool) for count in counts)
    return bool(counts) and whole and 0 <= check.agreed <= check.checked


def _bad_opinion(environment: Environment, found: object, expected: str) -> VerifierFailure:
    return VerifierFailure(
        "a second opinion that is not in due form",
        where=f"environment {environment.name!r}",
        found=repr(found)[:160],
        expected=expected,
    )


def retried_once(work: Callable[[], Result]) -> Result:
    """Return the result of work that replays; if the verifier breaks, do it once more."""
    try:
        return work()
    except VerifierFailure:
        return work()


def _this_process() -> str:
    # A forked child has its parent's imports, but not its number.
    return f"{_IMPORTED}-{os.getpid()}"
