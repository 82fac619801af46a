"""Replays of an episode: every complete order, each by itself, through the native verifier.

Exhaustive replay is the oracle that frozen datasets are built from. Verdicts are never inferred here; a verifier that
breaks raises :class:`vcrt.errors.VerifierFailure`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vcrt.environments.contract import Environment, Episode, Rejected, Replay, ReplayRequest
from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt.hashing import Json
from vcrt.orders import all_orders


@dataclass(frozen=True, slots=True)
class EpisodeReplays:
    """The replays of all ``n!`` orders of one episode, in lexicographic order of the orders."""

    episode: Episode
    replays: tuple[Replay, ...]


def replay_exhaustively(
    environment: Environment, episodes: Sequence[Episode]
) -> list[EpisodeReplays]:
    """Replay all orders of each episode, in batches of the size that the environment prefers.

    Raises :class:`VerifierFailure` if the verifier answers other requests than those that were asked.
    """
    requests = [
        ReplayRequest(episode, order)
        for episode in episodes
        for order in all_orders(episode.num_operations)
    ]
    replays: list[Replay] = []
    for batch in _batches(requests, environment.preferred_batch):
        answers = environment.replay(batch)
        if [a.sequence for a in answers] != [r.sequence for r in batch]:
            raise VerifierFailure(
                "the environment did not answer each replay request in turn",
                where=f"environment {environment.name!r}",
                found=f"{len(answers)} answers",
                expected=f"{len(batch)} answers, one for each request and in its order",
            )
        replays.extend(answers)
    grouped = []
    start = 0
    for episode in episodes:
        stop = start + len(all_orders(episode.num_operations))
        grouped.append(EpisodeReplays(episode, tuple(replays[start:stop])))
        start = stop
    return grouped


def _batches(requests: Sequence[ReplayRequest], size: int) -> Iterator[Sequence[ReplayRequest]]:
    for start in range(0, len(requests), size):
        yield requests[start : start + size]


def replay_to_json(replay: Replay) -> dict[str, Json]:
    """The JSON form of a replay; :func:`replay_from_json` reads it."""
    reason = None if replay.rejection is None else replay.rejection.reason
    return {
        "order": list(replay.sequence),
        "state_hashes": list(replay.state_hashes),
        "rejection": reason,
    }


def replay_from_json(value: object) -> Replay:
    """Read a replay; raises :class:`MalformedInputError`."""
    match value:
        case {"order": list(order), "state_hashes": list(hashes), "rejection": reason} if (
            all(isinstance(i, int) for i in order)
            and all(isinstance(h, str) for h in hashes)
            and (reason is None or isinstance(reason, str))
        ):
            rejection = None if reason is None else Rejected(reason)
            return Replay(tuple(order), tuple(hashes), rejection)
    raise MalformedInputError(
        "not a replay",
        found=repr(value)[:120],
        expected='{"order": [int], "state_hashes": [str], "rejection": str or null}',
    )
