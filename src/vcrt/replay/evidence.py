"""Write and read a verifier's answers about one episode, as JSON, and the results of the two passes over a shard.

Evidence is complete: certificates, relations and orbit are derived from it alone. The worker that replays an episode
first derives them; a dataset takes over its texts (:mod:`vcrt.records.audit` has the other columns).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from functools import cached_property
from typing import Any, Self

from vcrt.certificates.certificates import OperationRelation
from vcrt.certificates.episodes import CertifiedEpisode, Exclusion, Preset
from vcrt.certificates.replay_tree import EpisodeReplays, tree_from_json
from vcrt.environments.contract import (
    CrossCheck,
    Episode,
    Operation,
    Provenance,
    Replay,
    Versions,
    operation_to_json,
)
from vcrt.errors import DatasetError
from vcrt.hashing import Json, canonical_json, json_digest, json_text
from vcrt.partial_orders import num_contexts_of_pairs
from vcrt.randomness import generator
from vcrt.replay.replay import replay_from_json, replay_to_json


@dataclass(frozen=True, slots=True)
class Evidence:
    """The replays of an episode (every order, or a tree of sequences) and the second opinions on it."""

    replays: EpisodeReplays
    cross_checks: tuple[CrossCheck, ...] = ()

    @property
    def episode(self) -> Episode:
        """The episode that was replayed."""
        return self.replays.episode

    def to_json(self) -> dict[str, Json]:
        """Return the JSON form; :func:`evidence_from_json` reads it."""
        return {
            "episode": episode_to_json(self.episode),
            "replays": replays_to_json(self.replays),
            "cross_checks": cross_checks_to_json(self.cross_checks),
        }


def evidence_from_json(value: Mapping[str, Any]) -> Evidence:
    """Read evidence; raise :class:`vcrt.errors.MalformedInputError` for a replay of another form."""
    return Evidence(
        replays_from_json(episode_from_json(value["episode"]), value["replays"]),
        cross_checks_from_json(value["cross_checks"]),
    )


def replays_to_json(replays: EpisodeReplays) -> Json:
    """Return a list of the replays of all orders, or the object of a tree of sequences."""
    if not replays.exhaustive:
        return replays.tree.to_json()
    return [replay_to_json(replay) for replay in replays.replays]


def replays_from_json(episode: Episode, value: Any) -> EpisodeReplays:
    """Read the output of :func:`replays_to_json`; raise :class:`vcrt.errors.MalformedInputError` for another form."""
    if isinstance(value, Mapping):
        return EpisodeReplays(episode, tree_from_json(value))
    return EpisodeReplays.of_every_order(episode, [replay_from_json(each) for each in value])


def num_replayed(replays: Any) -> int:
    """Return the number of replayed sequences from the JSON form: orders, or the nodes of a tree with its root."""
    return 1 + len(replays["nodes"]) if isinstance(replays, Mapping) else len(replays)


#: The most sequences for a second opinion, if not every order was replayed.
MAX_SHOWN = 24


def replays_for_second_opinions(replays: EpisodeReplays) -> Sequence[Replay]:
    """Return the replays for second opinions: all orders, or some sequences of a tree, drawn by its episode.

    Those of a tree include the reference order; the others are complete orders or refused sequences.
    """
    if replays.exhaustive:
        return replays.replays
    tree = replays.tree
    reference = tree.replay(tuple(range(tree.num_operations)))
    others = [replay for replay in tree.whole() if replay.sequence != reference.sequence]
    draw = generator(0, "shown to others", replays.episode.content_hash())
    places = sorted(draw.permutation(len(others))[: MAX_SHOWN - 1])
    return [reference, *(others[place] for place in places)]


def cross_checks_to_json(checks: tuple[CrossCheck, ...]) -> list[Json]:
    """Return each second opinion as ``[checker, checked, agreed]``."""
    return [list(astuple(check)) for check in checks]


def cross_checks_from_json(value: Any) -> tuple[CrossCheck, ...]:
    """Read second opinions."""
    return tuple(CrossCheck(*fields) for fields in value)


def episode_to_json(episode: Episode) -> dict[str, Json]:
    """Return the JSON form of an episode, from which it can be replayed."""
    return {
        "environment": episode.environment,
        "schema": episode.schema,
        "initial": episode.initial,
        "operations": [operation_to_json(operation) for operation in episode.operations],
        "provenance": asdict(episode.provenance),
    }


def episode_from_json(value: Mapping[str, Any]) -> Episode:
    """Read an episode; the environment checks its native parts when it replays them."""
    return Episode(
        environment=value["environment"],
        schema=value["schema"],
        initial=value["initial"],
        operations=tuple(Operation(**operation) for operation in value["operations"]),
        provenance=Provenance(**value["provenance"]),
    )


def certified_documents(certified: CertifiedEpisode) -> dict[str, Json]:
    """Return the executed replays and what they certify, by audit column, without the link to the policy record."""
    context: dict[str, Json] = {
        "episode": certified.episode.content_hash(),
        "provenance": asdict(certified.episode.provenance),
        "versions": json_digest(certified.versions.to_json()),
    }
    # Each certificate names episode and versions by digest; the row holds both in full.
    certificates: Json = [
        {**certificate.to_json(), **context} for certificate in certified.certificates
    ]
    orbit: Json = [list(order) for order in certified.orbit]
    if not certified.exhaustive:
        certificates = {
            "complete": certified.complete,
            "classes": certified.classes,
            "pairs": [pair.to_json(context) for pair in certified.pairs],
        }
        orbit = {
            "pairs": [list(pair) for pair in certified.order.pairs],
            "linear_extensions": certified.num_legal,
        }
    return {
        "episode": episode_to_json(certified.episode),
        "versions": certified.versions.to_json(),
        "replays": replays_to_json(certified.evidence),
        "certificates": certificates,
        "relations": [relation.to_json() for relation in certified.relations],
        "orbit": orbit,
        "cross_checks": cross_checks_to_json(certified.cross_checks),
    }


def own_columns(certified: CertifiedEpisode) -> dict[str, str]:
    """Return the columns of an episode's audit row, without those that link it to the policy record."""
    documents = certified_documents(certified)
    return {
        "episode_id": certified.episode.episode_id,
        "schema": certified.episode.schema,
        "source": certified.episode.provenance.source,
        "content_hash": certified.episode.content_hash(),
        **{name: canonical_json(value).decode() for name, value in documents.items()},
    }


def _counts_of(certified: CertifiedEpisode) -> dict[str, int | None]:
    if certified.exhaustive:
        # Every order of a short episode, among long ones: nothing is left out.
        contexts = sum(num_contexts_of_pairs(certified.order).values())
        return {
            "sequences": len(certified.replays),
            "complete": 1,
            "replayed": contexts,
            "contexts": contexts,
            "classes": 0,
        }
    return {
        "sequences": len(certified.tree),
        "complete": int(certified.complete),
        "replayed": sum(pair.replayed for pair in certified.pairs),
        "contexts": total([pair.contexts for pair in certified.pairs]),
        "classes": certified.classes or 0,
    }


@contextmanager
def _in_due_form() -> Iterator[None]:
    """Raise :class:`DatasetError` for a piece of another form: a valid digest does not show where it comes from."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DatasetError(
            "a piece of an unfinished certification does not have the documented form",
            found=f"{type(error).__name__}: {str(error)[:300]}",
            remedy="remove the folder of unfinished work (the output with .shards after its name) and certify again",
        ) from error


@dataclass(frozen=True)
class CertifiedTexts:
    """The part of a certified candidate that a dataset takes over: its :func:`own_columns`, and counts.

    ``num_legal`` orders are legal, None if they are not counted. ``replayed`` counts what was replayed, as
    :class:`vcrt.records.manifest.EvidenceCounts` does; None under a preset whose every order is replayed.
    """

    columns: Mapping[str, str]
    num_legal: int | None
    replayed: Mapping[str, int | None] | None

    @classmethod
    def of(cls, certified: CertifiedEpisode, preset: Preset) -> CertifiedTexts:
        """Write a certified episode as it is read again: its keys may be numbers, which sort otherwise as texts."""
        episode = episode_from_json(json.loads(json_text(episode_to_json(certified.episode))))
        read = replace(certified, evidence=replace(certified.evidence, episode=episode))
        counts = _counts_of(read) if preset.is_long else None
        return cls(own_columns(read), read.num_legal, counts)

    @cached_property
    @_in_due_form()
    def episode(self) -> Episode:
        """The episode, read from its column."""
        return episode_from_json(json.loads(self.columns["episode"]))

    @property
    @_in_due_form()
    def relations(self) -> list[OperationRelation]:
        """The relations, read from their column."""
        return [OperationRelation(*each) for each in json.loads(self.columns["relations"])]

    @cached_property
    @_in_due_form()
    def evidence(self) -> Evidence:
        """What was replayed, read from its columns."""
        columns = ("episode", "replays", "cross_checks")
        return evidence_from_json({name: json.loads(self.columns[name]) for name in columns})


def total(numbers: Sequence[int | None]) -> int | None:
    """Return the sum; None if one of the values is not known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


@dataclass(frozen=True, slots=True)
class Repeated:
    """A certified candidate that was replayed again, and how its second replay differs, if it does.

    No other candidate may have one of its ``marks``: digests of its content and of the verifier's answers, its name.
    """

    marks: Sequence[str]
    cross_checks: tuple[CrossCheck, ...]
    difference: str | None


def _outcome_from_json(value: dict[str, Any]) -> Any:
    if "columns" in value:
        return CertifiedTexts(**value)
    checks = tuple(CrossCheck(**each) for each in value["cross_checks"])
    kind = Repeated if "marks" in value else Exclusion
    return kind(**{**value, "cross_checks": checks})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Replay:
    """The results of a shard's candidates, and the versions before and after."""

    versions: tuple[Versions, ...]
    outcomes: tuple[CertifiedTexts | Repeated | Exclusion, ...]

    def to_json(self) -> Json:
        """Return the JSON form."""
        return {**asdict(self), "versions": [each.to_json() for each in self.versions]}

    @classmethod
    @_in_due_form()
    def from_json(cls, value: Any) -> Self:
        """Read the JSON form."""
        versions = tuple(Versions(**each) for each in value["versions"])
        outcomes = tuple(map(_outcome_from_json, value["outcomes"]))
        return cls(**{**value, "versions": versions, "outcomes": outcomes})


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstReplay(_Replay):
    """The results of a shard's candidates; ``process`` names the process that replayed them."""

    outcomes: tuple[CertifiedTexts | Exclusion, ...]
    process: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondReplay(_Replay):
    """What both replays gave, and their versions; ``of`` is the digest of the first."""

    outcomes: tuple[Repeated | Exclusion, ...]
    of: str
