"""Choose which candidates of a series are certified: in candidate order, until there are enough, each content once.

Pure bookkeeping: what comes in was replayed elsewhere, and the same outcomes always give the same selection.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from vcrt.certification.probes import PROBES, is_probes
from vcrt.certification.config import SHARD_SIZE, CertificationConfig, Series, shard_size
from vcrt.certification.episodes import Exclusion
from vcrt.certification.evidence import Evidence, replays_to_json
from vcrt.certification.shard_results import FirstReplay, SecondReplay
from vcrt.certification.shards import EnvironmentFactory, Shard
from vcrt.environments.contract import CrossCheck, Versions
from vcrt.errors import UncertifiableError
from vcrt.hashing import Json, json_digest
from vcrt.printable import counted

#: Certification of a schema gives up when fewer than one candidate in this many is certified.
MAX_CANDIDATES_PER_EPISODE = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A shard, whose it is, and the number of its first candidate."""

    selection: Selection
    start: int
    shard: Shard

    @property
    def num_candidates(self) -> int:
        """How many candidates it holds."""
        return len(self.shard.seeds) or len(self.shard.episodes)

    @property
    def first_name(self) -> str:
        """Where its first replay lies in a store."""
        return first_name(self.selection.series, self.start)

    @property
    def second_name(self) -> str:
        """Where its second replay lies in a store."""
        return _name(self.selection.series, self.start, "second")


@dataclass(kw_only=True, slots=True)
class Selection:
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
    #: By checker, comparisons with the verifier over all candidates, those that were left out included.
    opinions: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @property
    def complete(self) -> bool:
        """Whether nothing more is to be looked at."""
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
        """How many candidates are looked at, whatever the size of shards."""
        return max(SHARD_SIZE, MAX_CANDIDATES_PER_EPISODE * (self.series.wanted or 0))

    def next_pieces(self, factory: EnvironmentFactory) -> list[Piece]:
        """Whole shards, for at least as many candidates as there are episodes missing, as far as any are looked at."""
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

    def take(self, start: int, first: FirstReplay, second: SecondReplay) -> None:
        """Take the outcomes of the shard whose first candidate has the number ``start``."""
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
            self.opinions[PROBES if is_probes(check) else check.checker].update(
                episodes=1,
                disagreeing_episodes=int(check.agreed != check.checked),
                checked=check.checked,
                agreed=check.agreed,
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
        marks = (outcome.episode.content_hash(), _answers_digest(outcome), identity)
        known = [mark for mark in marks if mark in self.contents]
        if known:
            return Exclusion(identity, "duplicate", f"content {known[0]}", outcome.cross_checks)
        self.contents.update(marks)
        return None


def _answers_digest(evidence: Evidence) -> str:
    """A digest of what the verifier said of every order that was replayed, and of the steps' names."""
    signatures: list[Json] = [operation.signature for operation in evidence.episode.operations]
    return json_digest([signatures, replays_to_json(evidence.replays)])


def first_name(series: Series, start: int) -> str:
    """Where the first replay of a shard lies in a store, by its first candidate's number."""
    return _name(series, start, "first")


def _name(series: Series, start: int, stage: str) -> str:
    return f"{series.environment}/{series.schema}/{start:08d}.{stage}.json"
