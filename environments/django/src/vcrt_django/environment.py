"""Judge operations of Django migrations, and SQL in them, by Django on SQLite or PostgreSQL.

A state is the database's own catalogue, its rows, and Django's project state, never the text that was sent. Each
operation runs as a migration of its own. Not covered: databases whose rows are not in the episode, and what several
connections do at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from vcrt.environments.contract import (
    BatchEnvironment,
    CrossCheck,
    Episode,
    Guards,
    Operation,
    Rejected,
    Replay,
    ReplayRequest,
    Schema,
    Versions,
)
from vcrt.environments.cross_checks import replays_to_check, sampled_replays
from vcrt.environments.shared_prefixes import replay_by_episode
from vcrt.errors import MalformedInputError
from vcrt_django.schemas import SCHEMAS, sample_episode
from vcrt_django.session import Limits, Session, shared_session
from vcrt_django.toolchain import server_url

CHECKER = "SQL alone"


class DjangoEnvironment(BatchEnvironment):
    """Episodes of operations; each process replays them by one worker that has Django."""

    name: ClassVar[str] = "django"
    schemas: ClassVar[tuple[Schema, ...]] = SCHEMAS
    preferred_batch: ClassVar[int] = 240
    #: The worker has smaller limits of its own, whose errors name the episode.
    call_timeout_s: ClassVar[float] = 3600.0

    def __init__(self, *, limits: Limits | None = None) -> None:
        self.limits = Limits() if limits is None else limits

    def versions(self) -> Versions:
        """Return the versions of Django and database; raise :class:`vcrt.errors.UnavailableError` without fit ones."""
        return Versions(
            environment=self.name,
            adapter="1",
            canonicalizer="4",
            verifier=self._session().first()["label"],
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """Return a candidate episode; raise :class:`vcrt.errors.UnknownNameError` for an unknown schema."""
        return sample_episode(self.schema(schema), seed)

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Return Django's and the database's answers; run prefixes of one episode once.

        Raise :class:`MalformedInputError` for an episode that may not reach Django or whose start is refused, and
        :class:`vcrt.errors.VerifierFailure` if there is no verdict.
        """
        return replay_by_episode(requests, self._asked)

    def guards(self) -> Guards:
        """Return the protections from a worker here."""
        in_force, absent = self._session().first()["guards"]
        return Guards(in_force=in_force, absent=absent)

    def cross_check_all(
        self, episodes: Sequence[Episode], replays: Sequence[Sequence[Replay]] | None = None
    ) -> list[tuple[CrossCheck, ...]]:
        """Return the opinion of the database alone on the SQL of every order, or of a sample for long episodes."""
        found = list[tuple[CrossCheck, ...]]()
        for place, episode in enumerate(episodes):
            asked = (
                replays_to_check(self, episode)
                if replays is None
                else sampled_replays(episode, replays[place])
            )
            others = self._asked(episode, [replay.sequence for replay in asked], second=True)
            agreed = sum(map(_agree, asked, others))
            found.append((CrossCheck(CHECKER, len(asked), agreed),))
        return found

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """Return the opinion of the database alone on its orders."""
        (checks,) = self.cross_check_all([episode])
        return checks

    def describe(self, operation: Operation) -> str:
        """Return the operation, as a migration has it."""
        return str(operation.payload)

    def task(self, episode: Episode) -> str:
        """Return the operations before the steps."""
        return "\n".join(map(str, _initial(episode)["before"]))

    def _session(self) -> Session:
        return shared_session(server_url(), self.limits)

    def _asked(
        self, episode: Episode, sequences: Sequence[tuple[int, ...]], *, second: bool = False
    ) -> list[Replay]:
        known = range(episode.num_operations)
        for sequence in sequences:
            if not all(index in known for index in sequence) or len({*sequence}) < len(sequence):
                raise MalformedInputError(
                    "a sequence of steps that the episode does not have",
                    where=episode.episode_id,
                    found=str(sequence),
                    expected=f"different indices from 0 to {episode.num_operations - 1}",
                )
        initial = _initial(episode)
        request = {
            "where": episode.episode_id,
            "app": initial["app"],
            "before": initial["before"],
            "steps": [operation.payload for operation in episode.operations],
            "sequences": [list(sequence) for sequence in sequences],
            "second": second,
        }
        return as_replays(sequences, self._session().ask(request, where=episode.episode_id))


def as_replays(sequences: Sequence[tuple[int, ...]], answers: Any) -> list[Replay]:
    """Return a worker's answers to sequences as replays."""
    return [
        Replay(tuple(sequence), tuple(hashes), None if reason is None else Rejected(reason))
        for sequence, (hashes, reason) in zip(sequences, answers, strict=True)
    ]


def _agree(one: Replay, other: Replay) -> bool:
    return one.state_hashes == other.state_hashes and one.accepted == other.accepted


def _initial(episode: Episode) -> Mapping[str, Any]:
    initial = episode.initial
    if (
        not isinstance(initial, Mapping)
        or set(initial) != {"app", "before"}
        or not str(initial["app"]).isidentifier()
        or not isinstance(initial["before"], list)
    ):
        raise MalformedInputError(
            "a malformed episode of Django",
            where=episode.episode_id,
            found=repr(initial)[:120],
            expected="app, the name of an app, and before, a list of operations",
        )
    return initial
