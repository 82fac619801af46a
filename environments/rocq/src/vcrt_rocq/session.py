"""Talk to one ``coqidetop`` at a time: its document is a path of sentences; two paths share their common beginning.

A process that stayed alive while it worked gives an answer, or :class:`vcrt.errors.VerifierFailure` is raised: a death,
a limit or an anomaly is never a refusal. A broken process is replaced and the request repeated once.
:mod:`vcrt_rocq.grammar` says which sentences are allowed.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias, TypeVar

from vcrt.errors import UnavailableError, VerifierFailure
from vcrt.printable import counted
from vcrt.processes.confinement import Bounds
from vcrt.processes.programs import (
    BoundedProcess,
    bounds,
    confined,
    empty_environment,
)
from vcrt_rocq import protocol
from vcrt_rocq.protocol import Answer, Goals, Refusal, UnreadableAnswer
from vcrt_rocq.toolchain import SUPPORTED, VARIABLE, Toolchain

Found = TypeVar("Found")
#: The place of a refused sentence, and its refusal.
Refused: TypeAlias = tuple[int, Refusal]
#: Options for printing states: no notation, coercion or implicit argument hides the term.
PRINTING = (
    "Set Printing All.",
    "Set Printing Goal Names.",
    "Set Printing Depth 1000000.",
    "Set Printing Width 1000000.",
)
_OPTIONS = ("-q", "-main-channel", "stdfds", "-async-proofs", "off", "-w", "none")
#: A process is replaced after so many sentences, since its state machine keeps some memory for good.
SENTENCES_PER_PROCESS = 40_000
#: Messages of a prover that gave up, which say nothing about a step.
_BROKEN = ("Anomaly", "Stack overflow", "Out of memory", "Timeout!", "User interrupt", "Fatal")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Wall-clock seconds for one sentence, megabytes in use, and processor seconds for one process."""

    sentence_seconds: float = 20.0
    max_memory_mb: float = 3000.0
    cpu_seconds: float = 3600.0


class Broken(Exception):
    """The process died, exceeded a limit, or gave up; the text says which."""


class Session:
    """One process and the sentences that it has run so far; every method raises :class:`VerifierFailure`."""

    def __init__(self, toolchain: Toolchain, limits: Limits) -> None:
        self._toolchain = toolchain
        self._limits = limits
        self._process: BoundedProcess | None = None
        self._root = 0
        self._path: list[tuple[str, int]] = []
        self._tip = 0
        self._sentences = 0

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.end()
        self._process = None

    def go_to(self, path: Sequence[str], *, where: str) -> Refused | None:
        """Run the sentences of ``path`` from the beginning; return the place and refusal of a refused one, or None."""
        return self._twice(lambda: self._run(path), where)

    def step(
        self, path: Sequence[str], sentences: Sequence[str], *, where: str
    ) -> Refused | Goals | None:
        """Run sentences after an accepted path; return the goals after them, None if no proof is in progress.

        If a sentence is refused, return its place and its refusal.
        """

        def attempt() -> Refused | Goals | None:
            self._require(path)
            done, goals = tuple(path), None
            for place, sentence in enumerate(sentences):
                is_last = place == len(sentences) - 1
                then = protocol.GOALS if is_last else protocol.STATUS
                refusal, answer = self._extend(done, sentence, then)
                if refusal is not None:
                    return place, refusal
                done = (*done, sentence)
                goals = protocol.goals_in(answer) if is_last else None
            return goals

        return self._twice(attempt, where)

    def goals(self, path: Sequence[str], *, where: str) -> Goals | None:
        """Return the goals after an accepted path; None if no proof is in progress."""

        def attempt() -> Goals | None:
            self._require(path)
            *_, answer = self._ask([*self._back(path), protocol.GOALS])
            if answer.refusal is not None:
                raise Broken(f"no goals: {answer.refusal.message[:300]}")
            return protocol.goals_in(answer)

        return self._twice(attempt, where)

    @property
    def label(self) -> str:
        """The prover's name and version."""
        return self._toolchain.label

    def ask(
        self, path: Sequence[str], queries: Sequence[str], *, where: str, at: int | None = None
    ) -> list[str | Refusal]:
        """Return the prover's answer to each query after an accepted path, or after its first ``at`` sentences."""

        def attempt() -> list[str | Refusal]:
            self._require(path)
            back = self._back(path)
            state = self._tip
            if at is not None:
                state = self._path[at - 1][1] if at else self._root
            answers = self._ask([*back, *(protocol.query(each, state) for each in queries)])
            return [answer.refusal or "\n".join(answer.messages) for answer in answers[len(back) :]]

        return self._twice(attempt, where) if queries else []

    def check(self) -> None:
        """Try the prover on a proof, a hole and an axiom; raise :class:`UnavailableError` if it misjudges one."""
        where, label = "self-test", self._toolchain.label
        start = ["Lemma t1 : exists n : nat, n = 2.", "refine (ex_intro _ ?[w] ?[p])."]
        try:
            found: list[object] = [
                self.go_to(start, where=where),
                isinstance(self.step(start, ["[p]: exact eq_refl."], where=where), Goals),
                isinstance(
                    self.step([*start, "[p]: exact eq_refl."], ["[w]: exact 2."], where=where),
                    tuple,
                ),
                self.step([*start, "[p]: exact eq_refl."], ["Qed."], where=where),
                self.ask(
                    [*start, "[p]: exact eq_refl.", "Qed."], ["Print Assumptions t1."], where=where
                ),
                isinstance(self.step(start, ["Qed."], where=where), tuple),
                self.ask(["Axiom a1 : False."], ["Print Assumptions a1."], where=where),
            ]
        except VerifierFailure as failure:
            found = [failure.found]
        closed, axiom = ["Closed under the global context"], ["Axioms: a1 : False"]
        expected = [None, True, True, None, closed, True, axiom]
        if found != expected:
            raise UnavailableError(
                f"{label} does not judge as it should",
                where=self._toolchain.origin,
                found=str(found)[-300:],
                expected=SUPPORTED,
                remedy=f"name another one in {VARIABLE}, and name the program itself: a script may not run it",
            )

    def _twice(self, attempt: Callable[[], Found], where: str) -> Found:
        for last in (False, True):
            try:
                return attempt()
            except (Broken, UnreadableAnswer, OSError) as error:
                self.close()
                if last:
                    raise VerifierFailure(
                        "Rocq gave no verdict, not even in a new process",
                        where=where,
                        found=str(error),
                        expected=f"an answer of {self._toolchain.label} ({self._toolchain.origin})",
                        remedy="if a limit was reached, raise it in vcrt_rocq.session.Limits",
                    ) from error
        raise AssertionError

    def _require(self, path: Sequence[str]) -> None:
        """Run the sentences of an accepted path, as far as this process has not."""
        refused = self._run(path)
        if refused is not None:
            raise Broken(f"what was accepted is refused now: {refused[1].message[:300]}")

    def _run(self, path: Sequence[str]) -> Refused | None:
        """Run the rest of ``path``; return the place and refusal of a refused sentence, or None."""
        for place in range(self._shared(path), len(path)):
            refusal, _ = self._extend(path[:place], path[place], protocol.STATUS)
            if refusal is not None:
                return place, refusal
        return None

    def _shared(self, path: Sequence[str]) -> int:
        if self._process is None or self._sentences > SENTENCES_PER_PROCESS:
            self._start()
        count = 0
        for (known, _), wanted in zip(self._path, path, strict=False):
            if known != wanted:
                break
            count += 1
        return count

    def _back(self, path: Sequence[str]) -> list[str]:
        """Return the call that makes the end of ``path``, which has run, the tip; none if it is."""
        del self._path[len(path) :]
        state = self._path[-1][1] if self._path else self._root
        if state == self._tip:
            return []
        self._tip = state
        return [protocol.back_to(state)]

    def _extend(
        self, path: Sequence[str], sentence: str, then: str
    ) -> tuple[Refusal | None, Answer]:
        back = self._back(path)
        parent, self._tip = self._tip, -1
        answers = self._ask([*back, protocol.add(sentence, parent), then])
        added, answer = answers[-2:]
        if back and answers[0].refusal is not None:
            raise Broken(f"no way back: {answers[0].refusal.message[:300]}")
        if added.refusal is not None:
            self._tip = parent
            return added.refusal, answer
        state = protocol.state_in(added)
        if answer.refusal is not None:
            return answer.refusal, answer
        self._tip = state
        self._path.append((sentence, self._tip))
        return None, answer

    def _ask(self, calls: Sequence[str]) -> list[Answer]:
        """Return the answers to some calls; raise :class:`Broken` without answers or if the prover gave up."""
        assert self._process is not None
        self._sentences += 1
        number = len(calls)
        output = self._process.exchange(
            "".join(calls).encode(),
            self._limits.sentence_seconds,
            whole=lambda received: received.count(protocol.END) >= number,
        )
        if output.failure is not None:
            raise Broken(output.failure)
        answers = protocol.read_answers(output.text)
        if len(answers) != number:
            raise UnreadableAnswer(
                f"{counted(len(answers), 'answer')} to {counted(number, 'call')}"
            )
        for answer in answers:
            if answer.refusal is not None and answer.refusal.message.startswith(_BROKEN):
                raise Broken(answer.refusal.message[:300])
        return answers

    def _start(self) -> None:
        self.close()
        confinement = bounds_of(self._toolchain, self._limits)
        command = confined([str(self._toolchain.server), *_OPTIONS], confinement)
        self._process = BoundedProcess(
            command, max_memory_mb=self._limits.max_memory_mb, variables=variables()
        )
        self._path, self._sentences = [], 0
        (answer,) = self._ask([protocol.INIT])
        self._root = self._tip = protocol.state_in(answer)
        for sentence in PRINTING:
            refusal, _ = self._extend([], sentence, protocol.STATUS)
            if refusal is not None:
                raise Broken(f"{sentence} is refused: {refusal.message}")
            self._root, self._path = self._tip, []


def variables() -> dict[str, str]:
    """Return its processes' environment variables: a minor heap of 32 MB saves a tenth of the time.

    OCaml 5 reserves the memory of one thread only, as the limits require.
    """
    return {**empty_environment(), "OCAMLRUNPARAM": "d=1,s=4M"}


def bounds_of(toolchain: Toolchain, limits: Limits) -> Bounds:
    """Return what a process of this Rocq may read and use."""
    made = bounds(
        toolchain.needs,
        cpu_seconds=limits.cpu_seconds,
        max_memory_mb=limits.max_memory_mb,
        threads=1,
    )
    return replace(made, folder="/")


@cache
def _session(toolchain: Toolchain, limits: Limits, process: int) -> Session:
    session = Session(toolchain, limits)
    atexit.register(session.close)
    try:
        session.check()
    except BaseException:
        session.close()
        raise
    return session


def shared_session(toolchain: Toolchain, limits: Limits) -> Session:
    """Return this process's session for these settings, tested at the first request.

    Raise :class:`UnavailableError` if the prover does not judge as expected.
    """
    return _session(toolchain, limits, os.getpid())
