"""Judge steps of Rocq proofs, and declarations, by Rocq itself over its standard library.

Verdicts and states come from the prover's output alone. Not covered: levels of universes, which a state does not tell,
and what another order of the hypotheses would do to tactics that are let through as indifferent to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar

from vcrt.environments.contract import (
    BatchEnvironment,
    CrossCheck,
    Episode,
    Guards,
    Operation,
    Replay,
    ReplayRequest,
    Schema,
    Versions,
)
from vcrt.environments.cross_checks import replays_to_check, sampled_replays
from vcrt.environments.shared_prefixes import replay_by_episode
from vcrt.errors import MalformedInputError
from vcrt_rocq.judging import Judge
from vcrt_rocq.program import Declarations, Proof, read_program
from vcrt_rocq.recheck import protected_by, second_opinions
from vcrt_rocq.schemas import SCHEMAS, sample_episode
from vcrt_rocq.session import Limits, shared_session
from vcrt_rocq.toolchain import find_toolchain


class RocqEnvironment(BatchEnvironment):
    """Episodes of Rocq steps; each process replays them by one ``coqidetop``.

    ``limits`` bounds its resources. With ``recheck``, the second opinion is compiled and checked by ``coqchk``.
    """

    name: ClassVar[str] = "rocq"
    schemas: ClassVar[tuple[Schema, ...]] = SCHEMAS
    preferred_batch: ClassVar[int] = 240
    #: Its sentences have smaller limits of their own, whose errors name the episode.
    call_timeout_s: ClassVar[float] = 3600.0

    def __init__(self, *, limits: Limits | None = None, recheck: bool = False) -> None:
        self.limits = Limits() if limits is None else limits
        self.recheck = recheck
        self._rechecked = 0
        #: The program that was read last: many requests are about the same episode.
        self._read: tuple[Episode, Proof | Declarations] | None = None

    def versions(self) -> Versions:
        """Return the versions of the judging Rocq; raise :class:`vcrt.errors.UnavailableError` without a fit one."""
        toolchain = find_toolchain()
        shared_session(toolchain, self.limits)
        return Versions(
            environment=self.name,
            adapter="1",
            canonicalizer="2",
            verifier=toolchain.label,
            libraries=dict(toolchain.digests),
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """Return a candidate episode; raise :class:`vcrt.errors.UnknownNameError` for an unknown schema."""
        return sample_episode(self.schema(schema), seed)

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Return Rocq's answers; run prefixes of one episode once.

        Raise :class:`MalformedInputError` for an episode that may not reach Rocq or whose start Rocq refuses, and
        :class:`vcrt.errors.VerifierFailure` if it gives no verdict.
        """
        return replay_by_episode(requests, self._answered)

    def _answered(self, episode: Episode, sequences: Sequence[tuple[int, ...]]) -> list[Replay]:
        _require_known(episode, sequences)
        if self._read is None or self._read[0] is not episode:
            self._read = episode, read_program(episode)
        return self._judge.replays(self._read[1], sequences, where=episode.episode_id)

    def thorough(self) -> RocqEnvironment:
        """Return the same environment with ``recheck``."""
        return RocqEnvironment(limits=self.limits, recheck=True)

    def guards(self) -> Guards:
        """Return the protections from a Rocq process here."""
        report = protected_by(find_toolchain(), self.limits)
        checked = {"orders compiled, checked by coqchk": self._rechecked} if self.recheck else {}
        return Guards(in_force=report.in_force, absent=report.absent, checked_again=checked)

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """Return the opinion of ``coqtop`` on files of its orders."""
        (checks,) = self.cross_check_all([episode])
        return checks

    def cross_check_all(
        self, episodes: Sequence[Episode], replays: Sequence[Sequence[Replay]] | None = None
    ) -> list[tuple[CrossCheck, ...]]:
        """Return the opinion of ``coqtop``, which reads whole files, on every order of each episode.

        Long episodes are sampled (see :mod:`vcrt.environments.cross_checks`).
        """
        if replays is None:
            groups = [replays_to_check(self, episode) for episode in episodes]
        else:
            groups = [
                sampled_replays(episode, group)
                for episode, group in zip(episodes, replays, strict=True)
            ]
        items = [
            (read_program(episode), group) for episode, group in zip(episodes, groups, strict=True)
        ]
        found = second_opinions(find_toolchain(), self.limits, items, compiled=self.recheck)
        self._rechecked += sum(check.checked for check in found) if self.recheck else 0
        return [(check,) for check in found]

    def describe(self, operation: Operation) -> str:
        """Return the text that Rocq gets for the step."""
        return str(operation.payload)

    def task(self, episode: Episode) -> str:
        """Return the text before the steps."""
        program = read_program(episode)
        before = [text for text in program.before if not text.startswith(("From", "Require"))]
        if isinstance(program, Declarations):
            return "\n".join(before)
        return "\n".join([*program.statement.sentences, *program.opening])

    @cached_property
    def _judge(self) -> Judge:
        return Judge(shared_session(find_toolchain(), self.limits))


def _require_known(episode: Episode, sequences: Sequence[tuple[int, ...]]) -> None:
    for sequence in sequences:
        if not all(0 <= index < episode.num_operations for index in sequence):
            raise MalformedInputError(
                "a sequence of steps that the episode does not have",
                where=episode.episode_id,
                found=str(sequence),
                expected=f"indices from 0 to {episode.num_operations - 1}",
            )
