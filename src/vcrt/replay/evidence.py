"""Write and read what a verifier said of one episode, as JSON, and what the two passes over a shard gave.

Evidence is complete: certificates, relations and orbit are derived from it and nothing else. Not covered: what the
audit view of a dataset looks like (see :mod:`vcrt.records.audit`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from typing import Any

from vcrt.certificates.episodes import Exclusion
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
from vcrt.hashing import Json
from vcrt.randomness import generator
from vcrt.replay.replay import replay_from_json, replay_to_json


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was replayed of an episode (every order, or a tree of sequences) and the second opinions on it."""

    replays: EpisodeReplays
    cross_checks: tuple[CrossCheck, ...] = ()

    @property
    def episode(self) -> Episode:
        """The episode that was replayed."""
        return self.replays.episode

    def to_json(self) -> dict[str, Json]:
        """The JSON form; :func:`evidence_from_json` reads it."""
        return {
            "episode": episode_to_json(self.episode),
            "replays": replays_to_json(self.replays),
            "cross_checks": cross_checks_to_json(self.cross_checks),
        }


def evidence_from_json(value: Mapping[str, Any]) -> Evidence:
    """Read evidence; raises :class:`vcrt.errors.MalformedInputError` for a replay of another form."""
    return Evidence(
        replays_from_json(episode_from_json(value["episode"]), value["replays"]),
        cross_checks_from_json(value["cross_checks"]),
    )


def replays_to_json(replays: EpisodeReplays) -> Json:
    """A list of the replays of all orders, or the object that a tree of sequences is."""
    if not replays.exhaustive:
        return replays.tree.to_json()
    return [replay_to_json(replay) for replay in replays.replays]


def replays_from_json(episode: Episode, value: Any) -> EpisodeReplays:
    """Read what :func:`replays_to_json` writes; raises :class:`vcrt.errors.MalformedInputError`."""
    if isinstance(value, Mapping):
        return EpisodeReplays(episode, tree_from_json(value))
    return EpisodeReplays.of_every_order(episode, [replay_from_json(each) for each in value])


def num_replayed(replays: Any) -> int:
    """How many sequences were replayed, by the JSON form: orders, or the nodes of a tree with its root."""
    return 1 + len(replays["nodes"]) if isinstance(replays, Mapping) else len(replays)


#: The most sequences that are shown to a second engine, where not every order was replayed.
MAX_SHOWN = 24


def replays_for_second_opinions(replays: EpisodeReplays) -> Sequence[Replay]:
    """The replays that second opinions are asked about: all orders, or some of a tree's, drawn by its episode.

    Of a tree, the reference order is always among them; the others are complete orders or refused sequences.
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
    """Each second opinion as ``[checker, checked, agreed]``."""
    return [list(astuple(check)) for check in checks]


def cross_checks_from_json(value: Any) -> tuple[CrossCheck, ...]:
    """Read second opinions."""
    return tuple(CrossCheck(*fields) for fields in value)


def episode_to_json(episode: Episode) -> dict[str, Json]:
    """The JSON form of an episode, from which it can be replayed."""
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
        with _in_due_form():
            return cls(
                versions=tuple(Versions(**versions) for versions in value["versions"]),
                outcomes=tuple(map(_outcome_from_json, value["outcomes"])),
                process=value["process"],
            )

    def evidence(self) -> tuple[Evidence, ...]:
        """The evidence of the candidates that were certified."""
        return tuple(outcome for outcome in self.outcomes if isinstance(outcome, Evidence))


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondReplay:
    """How the second replay of each certified candidate differs from the first, None where it does not.

    ``of`` is the digest of the first replay that it was compared with.
    """

    versions: tuple[Versions, ...]
    differences: tuple[str | None, ...]
    of: str

    def to_json(self) -> Json:
        """The JSON form."""
        return {
            "versions": [versions.to_json() for versions in self.versions],
            "differences": list(self.differences),
            "of": self.of,
        }

    @classmethod
    def from_json(cls, value: Any) -> SecondReplay:
        """Read the JSON form."""
        with _in_due_form():
            return cls(
                versions=tuple(Versions(**versions) for versions in value["versions"]),
                differences=tuple(value["differences"]),
                of=value["of"],
            )


@contextmanager
def _in_due_form() -> Iterator[None]:
    """A piece that is whole by its digest may still come from elsewhere."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DatasetError(
            "a piece of an unfinished certification does not have the documented form",
            found=f"{type(error).__name__}: {str(error)[:300]}",
            remedy="remove the folder of unfinished work (the output with .shards after its name) and certify again",
        ) from error


def _exclusion_to_json(exclusion: Exclusion) -> dict[str, Json]:
    return {
        "exclusion": exclusion.kind,
        "episode_id": exclusion.episode_id,
        "detail": exclusion.detail,
        "cross_checks": cross_checks_to_json(exclusion.cross_checks),
    }


def _outcome_from_json(value: Mapping[str, Any]) -> Evidence | Exclusion:
    if "exclusion" not in value:
        return evidence_from_json(value)
    checks = cross_checks_from_json(value["cross_checks"])
    return Exclusion(value["episode_id"], value["exclusion"], value["detail"], checks)
