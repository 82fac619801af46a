"""Lean 4 as an environment: steps are declarations or tactics, judged by Lean's elaborator and kernel.

Verdicts and states come only from what Lean prints. Not covered: steps that need Lean's standard library, which the
prelude replaces by a few propositions, data types and tactics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from vcrt.environments.contract import (
    BatchEnvironment,
    Episode,
    Operation,
    Replay,
    ReplayRequest,
    Versions,
)
from vcrt.environments.lean.judging import Job, Limits, judge
from vcrt.environments.lean.program import Program, read_program
from vcrt.environments.lean.rendering import PRELUDE
from vcrt.environments.lean.schemas import SCHEMAS, sample_episode
from vcrt.environments.lean.selftest import check_toolchain
from vcrt.environments.lean.toolchain import Toolchain, find_toolchain
from vcrt.errors import MalformedInputError
from vcrt.hashing import sha256_hex


class LeanEnvironment(BatchEnvironment):
    """Episodes of Lean steps, replayed in batches by ``lean`` processes.

    ``limits`` bounds what a replay may use; ``num_operations`` is the length of the sampled episodes.
    """

    name: ClassVar[str] = "lean"
    schemas = SCHEMAS
    preferred_batch: ClassVar[int] = 240
    #: Versions of this adapter and of its canonical states.
    adapter: ClassVar[str] = "1"
    canonicalizer: ClassVar[str] = "1"

    def __init__(self, *, limits: Limits | None = None, num_operations: int = 4) -> None:
        self.limits = Limits() if limits is None else limits
        self.num_operations = num_operations

    def versions(self) -> Versions:
        """Which Lean judges, by version, commit and SHA-256; raises :class:`UnavailableError` without a fit one."""
        toolchain = self._toolchain()
        return Versions(
            environment=self.name,
            adapter=self.adapter,
            canonicalizer=self.canonicalizer,
            verifier=toolchain.label,
            libraries={**dict(toolchain.digests), "prelude.lean": sha256_hex(PRELUDE.encode())},
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """A candidate episode; raises :class:`vcrt.errors.UnknownNameError` for an unknown schema."""
        return sample_episode(self.schema(schema).name, seed, num_operations=self.num_operations)

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Lean's answers, from one process per ``preferred_batch`` requests.

        Raises :class:`MalformedInputError` for an episode that may not reach Lean or whose start Lean refuses, and
        :class:`vcrt.errors.VerifierFailure` where Lean gives no verdict.
        """
        jobs = self._jobs(requests)
        toolchain = self._toolchain() if jobs else None
        replays: list[Replay] = []
        for start in range(0, len(jobs), self.preferred_batch):
            assert toolchain is not None
            replays += judge(toolchain, jobs[start : start + self.preferred_batch], self.limits)
        return replays

    def describe(self, operation: Operation) -> str:
        """The text that Lean gets for the step."""
        return str(operation.payload)

    def _jobs(self, requests: Sequence[ReplayRequest]) -> list[Job]:
        programs: dict[int, Program] = {}
        jobs = []
        for request in requests:
            episode = request.episode
            if id(episode) not in programs:
                programs[id(episode)] = read_program(episode, max_chars=self.limits.max_step_chars)
            if not all(0 <= index < episode.num_operations for index in request.sequence):
                raise MalformedInputError(
                    "a sequence of steps that the episode does not have",
                    where=episode.episode_id,
                    found=str(request.sequence),
                    expected=f"indices from 0 to {episode.num_operations - 1}",
                )
            jobs.append(
                Job(
                    label=episode.episode_id,
                    program=programs[id(episode)],
                    sequence=tuple(request.sequence),
                )
            )
        return jobs

    def _toolchain(self) -> Toolchain:
        toolchain = find_toolchain()
        check_toolchain(toolchain)
        return toolchain
