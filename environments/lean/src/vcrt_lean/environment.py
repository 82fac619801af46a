"""Judge Lean 4 steps, which are declarations or tactics, by Lean's elaborator and kernel.

Verdicts and states come from Lean's output alone. Not covered: steps that need Lean's standard library, which the
prelude replaces by a few propositions, data types and tactics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import ClassVar

from vcrt.environments.contract import (
    BatchEnvironment,
    CrossCheck,
    Episode,
    Footprint,
    Guards,
    Operation,
    Replay,
    ReplayRequest,
    Versions,
)
from vcrt.environments.cross_checks import replays_to_check, sampled_replays
from vcrt.errors import MalformedInputError
from vcrt.hashing import sha256_hex
from vcrt_lean.inprocess import RECHECKED, elaborators_of, judge_shared, runs_in_process
from vcrt_lean.judging import Job, Limits, check_toolchain, judge
from vcrt_lean.posets import POSET_SCHEMAS, sample_poset
from vcrt_lean.program import PRELUDE, Declarations, Program, footprint_of, read_program
from vcrt_lean.schemas import SCHEMAS, sample_episode
from vcrt_lean.toolchain import Toolchain, find_toolchain, protections


class LeanEnvironment(BatchEnvironment):
    """Episodes of Lean steps, replayed in batches by ``lean`` processes.

    ``limits`` bounds the resources of a replay. With ``recheck``, the kernel alone checks again what Lean accepts,
    which takes about a tenth of the time.
    """

    name: ClassVar[str] = "lean"
    schemas = (*SCHEMAS, *POSET_SCHEMAS)
    preferred_batch: ClassVar[int] = 240
    #: Its processes have smaller limits of their own, whose errors name the episode.
    call_timeout_s: ClassVar[float] = 3600.0
    #: Versions of this adapter and of its canonical states.
    adapter: ClassVar[str] = "1"
    canonicalizer: ClassVar[str] = "2"

    def __init__(self, *, limits: Limits | None = None, recheck: bool = False) -> None:
        self.limits = Limits() if limits is None else limits
        self.recheck = recheck
        self._rechecked: Counter[str] = Counter()

    def versions(self) -> Versions:
        """Return version, commit and SHA-256 of the judging Lean; raise :class:`UnavailableError` without a fit one."""
        toolchain = self._toolchain()
        route = ", elaborator in process" if runs_in_process(toolchain) else ""
        return Versions(
            environment=self.name,
            adapter=self.adapter,
            canonicalizer=self.canonicalizer,
            verifier=toolchain.label + route,
            libraries={**dict(toolchain.digests), "prelude.lean": sha256_hex(PRELUDE.encode())},
        )

    def sample(self, schema: str, seed: int) -> Episode:
        """Return a candidate episode; raise :class:`vcrt.errors.UnknownNameError` for an unknown schema."""
        known = self.schema(schema)
        if known.num_steps is not None:
            return sample_poset(known, seed)
        return sample_episode(known.name, seed)

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Return Lean's answers, from its elaborator in a worker, or else from ``lean`` commands.

        Raise :class:`MalformedInputError` for an episode that may not reach Lean or whose start Lean refuses, and
        :class:`vcrt.errors.VerifierFailure` if Lean gives no verdict.
        """
        jobs = self._jobs(requests)
        if not jobs:
            return []
        toolchain = self._toolchain()
        elaborators = elaborators_of(toolchain, self.limits)
        if elaborators is None:
            return self._replay_by_command(toolchain, jobs)
        before = elaborators.rechecked.copy()
        replays = judge_shared(elaborators, jobs, recheck=self.recheck)
        self._rechecked += elaborators.rechecked - before
        return replays

    def thorough(self) -> LeanEnvironment:
        """Return the same environment with ``recheck``."""
        return LeanEnvironment(limits=self.limits, recheck=True)

    def guards(self) -> Guards:
        """Return the protections from a Lean process, and what its kernel alone has accepted again, without axioms.

        If Lean runs by its command line alone, nothing is checked again.
        """
        report = protections(find_toolchain().needs)
        return Guards(
            in_force=report.in_force,
            absent=report.absent,
            checked_again={what: self._rechecked[what] for what in RECHECKED if self.recheck},
        )

    def cross_check(self, episode: Episode) -> tuple[CrossCheck, ...]:
        """Return the ``lean`` command's opinion on its orders, each replayed by itself; none if it is the verifier."""
        (checks,) = self.cross_check_all([episode])
        return checks

    def cross_check_all(
        self,
        episodes: Sequence[Episode],
        replays: Sequence[Sequence[Replay]] | None = None,
    ) -> list[tuple[CrossCheck, ...]]:
        """Return the ``lean`` command's opinion on every order of each episode, from one process per batch.

        Each order is replayed by itself; an order that was refused at a step, up to that step. Long episodes are
        sampled (see :mod:`vcrt.environments.cross_checks`).
        """
        toolchain = self._toolchain()
        if elaborators_of(toolchain, self.limits) is None:
            return [() for _ in episodes]
        if replays is None:
            groups = [replays_to_check(self, episode) for episode in episodes]
        else:
            groups = [
                sampled_replays(episode, group)
                for episode, group in zip(episodes, replays, strict=True)
            ]
        requests = [
            ReplayRequest(episode, _decided(replay))
            for episode, group in zip(episodes, groups, strict=True)
            for replay in group
        ]
        opinions = iter(self._replay_by_command(toolchain, self._jobs(requests)))
        return [(_compared(group, islice(opinions, len(group))),) for group in groups]

    def describe(self, operation: Operation) -> str:
        """Return the text that Lean gets for the step."""
        return str(operation.payload)

    def task(self, episode: Episode) -> str:
        """Return the text before the steps: classes, or the theorem and the beginning of its proof."""
        program = read_program(episode)
        if isinstance(program, Declarations):
            return "\n".join(step.text for step in program.setup)
        return "\n".join(filter(None, (program.statement.text, program.opening)))

    def footprint(self, episode: Episode, operation: Operation) -> Footprint:
        """Return the names in a step's text as read, and the name or instance that it declares as written."""
        return footprint_of(read_program(episode), episode.operations.index(operation))

    def _jobs(self, requests: Sequence[ReplayRequest]) -> list[Job]:
        programs: dict[int, Program] = {}
        jobs = []
        for request in requests:
            episode = request.episode
            if id(episode) not in programs:
                programs[id(episode)] = read_program(episode)
            if not all(0 <= index < episode.num_operations for index in request.sequence):
                raise MalformedInputError(
                    "a sequence of steps that the episode does not have",
                    where=episode.episode_id,
                    found=str(request.sequence),
                    expected=f"indices from 0 to {episode.num_operations - 1}",
                )
            program = programs[id(episode)]
            jobs.append(Job(episode.episode_id, program, tuple(request.sequence)))
        return jobs

    def _replay_by_command(self, toolchain: Toolchain, jobs: Sequence[Job]) -> list[Replay]:
        starts = range(0, len(jobs), self.preferred_batch)
        batches = [jobs[start : start + self.preferred_batch] for start in starts]
        return [replay for batch in batches for replay in judge(toolchain, batch, self.limits)]

    def _toolchain(self) -> Toolchain:
        toolchain = find_toolchain()
        check_toolchain(toolchain)
        return toolchain


def _decided(replay: Replay) -> tuple[int, ...]:
    """Return the steps up to the refused one, or all."""
    return replay.sequence[: len(replay.state_hashes)] if replay.rejection else replay.sequence


def _compared(replays: Sequence[Replay], opinions: Iterable[Replay]) -> CrossCheck:
    agreed = sum(
        replace(opinion, sequence=replay.sequence) == replay
        for replay, opinion in zip(replays, opinions, strict=True)
    )
    return CrossCheck("lean command line", checked=len(replays), agreed=agreed)
