"""Judge windows of steps of a user's own Lean proofs by the Lean of the project that they stand in.

The driver is tried first, on proofs whose answers are known. A complete order must leave a theorem that Lean's kernel
accepts and that rests on nothing but Lean's own three axioms. Not covered: what a state is (see
:mod:`vcrt_lean.states`), and another kernel's opinion.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from vcrt.environments.bounded_processes import protections_by
from vcrt.environments.contract import (
    BatchEnvironment,
    Episode,
    Guards,
    Operation,
    Rejected,
    Replay,
    ReplayRequest,
    Schema,
    Versions,
)
from vcrt.environments.shared_prefixes import replay_by_episode
from vcrt.errors import MalformedInputError, UnknownNameError, VerifierFailure
from vcrt.hashing import sha256_hex
from vcrt_lean.driver_selftest import check
from vcrt_lean.driving import Answers, DriverSession, Limits, Theorem
from vcrt_lean.project import Project
from vcrt_lean.states import AXIOMS, StateForm


class LeanProjectEnvironment(BatchEnvironment):
    """Windows of the proofs in a project's files, replayed by one driver in each process."""

    name: ClassVar[str] = "lean-project"
    schemas: ClassVar[tuple[Schema, ...]] = ()
    preferred_batch: ClassVar[int] = 240
    #: The driver has limits of its own, which come first and name the file.
    call_timeout_s: ClassVar[float] = 3600.0

    def __init__(self, project: Project, *, limits: Limits | None = None) -> None:
        self.project = project
        self._session = DriverSession(project, Limits() if limits is None else limits)
        self._is_tried = False
        self._opened: dict[Path, tuple[str, tuple[Theorem, ...]]] = {}

    def close(self) -> None:
        """End the driver."""
        self._session.close()

    def versions(self) -> Versions:
        """Which Lean judges."""
        return Versions(
            environment=self.name,
            adapter="1",
            canonicalizer="1",
            verifier=self.project.label,
            libraries=dict(self.project.digests),
        )

    def theorems(self, file: Path) -> tuple[Theorem, ...]:
        """The theorems of a file that are proved by tactics.

        Raises :class:`MalformedInputError` for one that does not compile, :class:`VerifierFailure`, and
        :class:`vcrt.errors.UnavailableError` if the driver does not judge as it should.
        """
        digest = sha256_hex(file.read_bytes())
        if not self._is_tried:
            check(self._session, self.project)
            self._is_tried = True
        if file not in self._opened or self._opened[file][0] != digest:
            self._session.close()
            self._opened[file] = digest, self._session.open(file)
        return self._opened[file][1]

    def sample(self, schema: str, seed: int) -> Episode:
        """Nothing is sampled: raises :class:`UnknownNameError`."""
        raise UnknownNameError.of(f"{self.name} schema", schema, ())

    def replay(self, requests: Sequence[ReplayRequest]) -> list[Replay]:
        """Lean's answers; prefixes of one episode are run once.

        Raises :class:`MalformedInputError` for an episode that is none of this project as it stands, and
        :class:`VerifierFailure` where Lean gives no verdict.
        """
        return replay_by_episode(requests, self._replayed)

    def guards(self) -> Guards:
        """What keeps the driver from doing harm here."""
        report = protections_by(self._session.bounds())
        return Guards(in_force=report.in_force, absent=report.absent)

    def describe(self, operation: Operation) -> str:
        """The step as it stands in the file."""
        return str(operation.payload)

    def _replayed(self, episode: Episode, sequences: Sequence[tuple[int, ...]]) -> list[Replay]:
        initial: Any = episode.initial
        file = self.project.folder / str(initial["file"])
        number, first = int(initial["number"]), int(initial["first"])
        theorems = self.theorems(file)
        if self._opened[file][0] != initial["sha256"] or number >= len(theorems):
            raise MalformedInputError(
                "a file that is no longer what an episode was lifted from",
                where=episode.episode_id,
                found=str(file),
                expected=f"SHA-256 {initial['sha256']}",
                remedy="lift it again",
            )
        answers = self._session.replay(
            file, number, first=first, count=episode.num_operations, sequences=sequences
        )
        form = StateForm.of(theorems[number].steps[first:], file.read_bytes())
        return [replay_of(sequence, answers, form, episode) for sequence in sequences]


def replay_of(
    sequence: tuple[int, ...], answers: Answers, form: StateForm, episode: Episode
) -> Replay:
    """The replay of one sequence by the driver's answers; raises :class:`VerifierFailure` if one is missing."""
    hashes = list[str]()
    for length in range(len(sequence) + 1):
        node = answers.nodes.get(sequence[:length])
        if node is None:
            raise _unanswered(sequence[:length], episode)
        if isinstance(node, str):
            return Replay(sequence, tuple(hashes), Rejected(node))
        hashes.append(form.digest(node))
    if len(sequence) < episode.num_operations:
        return Replay(sequence, tuple(hashes))
    end = answers.ends.get(sequence)
    if end is None:
        raise _unanswered(sequence, episode)
    return Replay(sequence, tuple(hashes), _refused_end(end))


def _refused_end(end: tuple[str, ...] | str) -> Rejected | None:
    if isinstance(end, str):
        return Rejected(f"at the end: {end}")
    assumed = sorted(set(end) - AXIOMS)
    if assumed:
        return Rejected(f"a theorem that rests on what is not proved: {', '.join(assumed)}")
    return None


def _unanswered(sequence: tuple[int, ...], episode: Episode) -> VerifierFailure:
    return VerifierFailure(
        "the driver gave no answer to a sequence of steps",
        where=episode.episode_id,
        found=str(list(sequence)),
        expected="an answer to each",
    )
