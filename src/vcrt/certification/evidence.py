"""What a verifier said of one episode, as JSON: the episode, all its replays, and second opinions.

Evidence is complete: certificates, relations and orbit are derived from it and nothing else. Not covered: what the
audit view of a dataset looks like (see :mod:`vcrt.records.audit`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vcrt.certification.replay import EpisodeReplays, replay_from_json, replay_to_json
from vcrt.environments.contract import (
    CrossCheck,
    Episode,
    Operation,
    Provenance,
    operation_to_json,
)
from vcrt.hashing import Json


@dataclass(frozen=True, slots=True)
class Evidence:
    """The exhaustive replays of an episode and the second opinions on it."""

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
            "replays": [replay_to_json(replay) for replay in self.replays.replays],
            "cross_checks": cross_checks_to_json(self.cross_checks),
        }


def evidence_from_json(value: Mapping[str, Any]) -> Evidence:
    """Read evidence; raises :class:`vcrt.errors.MalformedInputError` for a replay of another form."""
    replays = tuple(replay_from_json(replay) for replay in value["replays"])
    return Evidence(
        EpisodeReplays(episode_from_json(value["episode"]), replays),
        cross_checks_from_json(value["cross_checks"]),
    )


def cross_checks_to_json(checks: tuple[CrossCheck, ...]) -> list[Json]:
    """Each second opinion as ``[checker, checked, agreed]``."""
    return [[check.checker, check.checked, check.agreed] for check in checks]


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
        "provenance": provenance_to_json(episode.provenance),
    }


def provenance_to_json(provenance: Provenance) -> dict[str, Json]:
    """The JSON form of an episode's provenance."""
    return {
        "source": provenance.source,
        "generator": provenance.generator,
        "seed": provenance.seed,
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
