"""What a verifier said of one episode, as JSON: the episode, what was replayed of it, and second opinions.

Evidence is complete: certificates, relations and orbit are derived from it and nothing else. Not covered: what the
audit view of a dataset looks like (see :mod:`vcrt.records.audit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vcrt.certification.replay import replay_from_json, replay_to_json
from vcrt.certification.replay_tree import EpisodeReplays, tree_from_json
from vcrt.environments.contract import (
    CrossCheck,
    Episode,
    Operation,
    Provenance,
    Replay,
    operation_to_json,
)
from vcrt.hashing import Json
from vcrt.randomness import generator


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


def shown_to_others(replays: EpisodeReplays) -> Sequence[Replay]:
    """The replays that second opinions are asked about: all orders, or some of a tree's, drawn by its episode.

    Of a tree, the reference order is always among them; the others are complete orders or refused sequences.
    """
    if replays.exhaustive:
        return replays.replays
    tree = replays.tree
    reference = tree.replay(tuple(range(tree.num_operations)))
    others = [replay for replay in tree.whole() if replay.sequence != reference.sequence]
    draw = generator(0, "shown to others", replays.episode.content_hash())
    places = sorted(draw.permutation(len(others))[: MAX_SHOWN - 1].tolist())
    return [reference, *(others[place] for place in places)]


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
