"""Judge replays by a worker that runs Lean: the sequences of an episode are a tree, each prefix judged once.

The worker runs within limits, and is replaced after it broke or has worked enough; its death is never an answer. Every
prefix is a state of Lean's own, from which all sequences with this prefix continue. Only if Lean's parser does not take
the steps of a proof one by one, the whole proof of each sequence runs by itself. :mod:`vcrt_lean.worker` documents
requests and answers.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cache
from itertools import chain
from typing import Any, TypeAlias, TypeVar

from vcrt.environments.contract import Replay
from vcrt.errors import VcrtError
from vcrt.processes.confinement import started_by
from vcrt.processes.programs import BoundedProcess, bounds
from vcrt_lean.elaborator import COMMIT
from vcrt_lean.judging import Job, Limits, difference, no_verdict, self_test_jobs
from vcrt_lean.program import PRELUDE, Declarations, Part, Rendered, part_text
from vcrt_lean.reading import Message, Transcript, Unreadable, by_part, read_alone
from vcrt_lean.toolchain import WORKER_THREADS, Toolchain, python_needs

#: The counts of what the kernel alone checks (see :mod:`vcrt_lean.recheck`).
RECHECKED = ("accepted terms", "kernel checks")
#: A worker is replaced after so many states, since Lean keeps some memory for good.
STATES_PER_WORKER = 20_000
#: The most processor seconds of a worker before the system ends it: many times what its states take.
_CPU_SECONDS = 1800.0
_SECONDS_TO_START = 120.0
Result = TypeVar("Result")
_Sequence = tuple[int, ...]
_Verdicts: TypeAlias = dict[_Sequence, Replay | Unreadable]
#: A request to the worker, and the reader of its answer.
_Question: TypeAlias = tuple[dict[str, Any], Callable[[Any], _Verdicts]]


class WorkerBroken(Exception):
    """A worker died, exceeded its time, or gave something else than an answer; the text says which."""


class Elaborators:
    """A worker process with the Lean of ``toolchain`` that answers requests, one at a time.

    The worker starts when it is needed, ends with this process, and is replaced after about ``budget`` states.
    """

    def __init__(
        self, toolchain: Toolchain, limits: Limits, *, budget: int = STATES_PER_WORKER
    ) -> None:
        self.toolchain = toolchain
        self.limits = limits
        self._budget = budget
        self._worker: BoundedProcess | None = None
        self._spent = 0
        #: What the kernel alone has checked again in all answers so far: accepted terms, found sound, and the number of
        #: kernel checks, one for equal terms of one request.
        self.rechecked: Counter[str] = Counter()

    def run(self, request: dict[str, Any], read: Callable[[Any], Result], *, cost: int) -> Result:
        """Return the answer to a request (see :mod:`vcrt_lean.worker`) after ``read``.

        A broken worker is replaced and the request repeated once; an answer for which ``read`` raises ``TypeError`` or
        ``ValueError`` counts as broken too. Raise :class:`WorkerBroken` for a second failure. ``cost`` is the
        approximate number of states that the request makes.
        """
        try:
            return self._attempt(request, read, cost)
        except WorkerBroken:
            return self._attempt(request, read, cost)

    @property
    def process(self) -> int | None:
        """Return the number of the worker's process, if there is one."""
        return None if self._worker is None else self._worker.number

    def close(self) -> None:
        """End the worker, if there is one."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _attempt(self, request: dict[str, Any], read: Callable[[Any], Result], cost: int) -> Result:
        if self._spent + cost > self._budget:
            self.close()
        if self._worker is None:
            self._worker = self._started()
            self._spent = 0
        self._spent += cost
        try:
            answer = _ask(self._worker, request, self.limits.lone_seconds)
            try:
                counts = Counter(dict(zip(RECHECKED, answer["rechecked"], strict=True)))
                if answer["unsound"] is not None:
                    raise WorkerBroken(f"Lean's kernel alone refuses it: {answer['unsound']}")
                found = read(answer["answer"])
            except (TypeError, ValueError, KeyError) as error:
                raise WorkerBroken(f"not an answer to what was asked: {error}") from None
            self.rechecked += counts
            return found
        except BaseException:
            self.close()
            raise

    def _started(self) -> BoundedProcess:
        folder = self.toolchain.libraries
        assert folder is not None, "a Lean whose libraries are not known"
        confinement = bounds(
            python_needs(folder),
            cpu_seconds=_CPU_SECONDS,
            max_memory_mb=self.limits.max_memory_mb,
            threads=WORKER_THREADS,
        )
        command = started_by("vcrt_lean.worker", confinement.text(), str(folder))
        worker = BoundedProcess(command, max_memory_mb=self.limits.max_memory_mb)
        try:
            # The header of a file is not a command; its line stays, so that positions are unchanged.
            prelude = PRELUDE.removeprefix("prelude")
            limit = f"set_option maxHeartbeats {self.limits.max_heartbeats}\n"
            said = _ask(worker, [prelude, limit], _SECONDS_TO_START)
            if said != []:
                raise WorkerBroken(f"the prelude is not accepted: {said}")
        except BaseException:
            worker.end()
            raise
        return worker


def _ask(process: BoundedProcess, request: Any, seconds: float) -> Any:
    """Return the answer to one request."""
    answer = process.exchange(json.dumps(request).encode() + b"\n", seconds)
    if answer.failure is not None:
        raise WorkerBroken(answer.failure)
    try:
        return json.loads(answer.text)
    except ValueError:
        raise WorkerBroken(f"not an answer: {answer.text[:100]!r}") from None


def judge_shared(
    elaborators: Elaborators, jobs: Sequence[Job], *, recheck: bool = False
) -> list[Replay]:
    """Return the verdicts on ``jobs``, in order, with one request to the worker for all jobs of a program.

    With ``recheck``, the kernel alone must accept again what Lean accepts (see :mod:`vcrt_lean.recheck`). Raise
    :class:`vcrt.errors.VerifierFailure` if a job has no verdict, and :class:`vcrt.errors.MalformedInputError` if Lean
    refuses the text before the steps.
    """
    groups: dict[int, list[int]] = {}
    for index, job in enumerate(jobs):
        groups.setdefault(id(job.program), []).append(index)
    replays: dict[int, Replay] = {}
    for indices in groups.values():
        first = jobs[indices[0]]
        rendered = Rendered(first.program)
        sequences = dict.fromkeys(jobs[index].sequence for index in indices)
        # The approximate number of states.
        cost = len({s[:count] for s in sequences for count in range(len(s) + 1)})

        def ask(question: _Question, cost: int = cost) -> _Verdicts:
            request, read = {**question[0], "recheck": recheck}, question[1]
            return elaborators.run(request, read, cost=cost)

        try:
            verdicts = ask(_by_prefix(rendered, sequences)) or ask(_apart(rendered, sequences))
        except WorkerBroken as broken:
            problem = Unreadable(f"the worker broke: {broken}")
            raise no_verdict(first, problem, elaborators.toolchain) from None
        for index in indices:
            verdict = verdicts[jobs[index].sequence]
            if isinstance(verdict, Unreadable):
                raise no_verdict(jobs[index], verdict, elaborators.toolchain)
            replays[index] = verdict
    return [replays[index] for index in range(len(jobs))]


def _by_prefix(rendered: Rendered, sequences: Collection[_Sequence]) -> _Question:
    """Request each prefix of the sequences once; there are no verdicts if Lean does not read a proof line by line."""

    def read(answer: Any) -> _Verdicts:
        if answer is None:
            return {}
        transcript = Transcript(rendered)
        transcript.steps[()] = _messages(answer["said"])
        for prefix, said in answer["steps"]:
            transcript.steps[tuple(prefix)] = _messages(said)
        for sequence, start, end in answer["ends"]:
            transcript.ends[tuple(sequence)] = _messages(start), _messages(end)
        return {sequence: transcript.verdict(sequence) for sequence in sequences}

    return {**_texts(rendered), "sequences": list(sequences)}, read


def _apart(rendered: Rendered, sequences: Collection[_Sequence]) -> _Question:
    """Request each of the sequences by itself, as a text that runs after the prelude."""
    parts = {sequence: rendered.parts(sequence) for sequence in sequences}

    def read(answer: Any) -> _Verdicts:
        verdicts: _Verdicts = {}
        for sequence, (_, said) in zip(sequences, answer["steps"], strict=True):
            try:
                of_parts = by_part(_messages(said), parts[sequence])
                verdicts[sequence] = read_alone(rendered, sequence, of_parts)
            except Unreadable as problem:
                verdicts[sequence] = problem
        return verdicts

    texts = [_declaration(tuple(chain(*each))) for each in parts.values()]
    declarations = {"start": _declaration(()), "steps": texts}
    each = [[place] for place in range(len(texts))]
    return {"declarations": declarations, "sequences": each}, read


def _texts(rendered: Rendered) -> dict[str, Any]:
    """Return the program's part of a request."""
    if isinstance(rendered.program, Declarations):
        steps = list(map(_declaration, rendered.steps))
        return {"declarations": {"start": _declaration(rendered.start), "steps": steps}}
    proof = {
        "name": rendered.names[rendered.program.statement.name],
        "start": part_text(rendered.start),
        "steps": list(map(part_text, rendered.steps)),
        "closing": part_text([line for line in rendered.end if line.role == "closing"]),
        "questions": part_text([line for line in rendered.end if line.role != "closing"]),
    }
    return {"proof": proof}


def _messages(said: Any) -> list[Message]:
    """Return messages of the worker; raise ``TypeError`` or ``ValueError`` for other values."""
    messages = []
    for line, severity, text in said:
        if not (isinstance(line, int) and isinstance(severity, str) and isinstance(text, str)):
            raise TypeError(f"not a message: {line}, {severity}, {text}")
        messages.append(Message(line, severity, text))
    return messages


def _declaration(part: Part) -> dict[str, Any]:
    """Return a declaration in request form; Lean's error about a missing instance does not refuse it."""
    first = part[0] if part else None
    known = first is not None and first.role == "step" and not first.text.startswith("inductive")
    return {
        "text": part_text(part),
        "guarded": sum(line.role != "synth" for line in part),
        "name": part[1].text.split()[-1] if known else "",
        "declared": [line.text.split()[-1] for line in part if line.role == "axioms"],
    }


@cache
def runs_in_process(toolchain: Toolchain) -> bool:
    """Return whether a worker can elaborate with ``toolchain``: it has the known commit and passes the self-test.

    The result is cached for the process.
    """
    if toolchain.libraries is None or toolchain.commit != COMMIT:
        return False
    try:
        replays = judge_shared(shared_elaborators(toolchain, Limits()), self_test_jobs())
        return difference(replays) is None
    except VcrtError:
        return False


def shared_elaborators(toolchain: Toolchain, limits: Limits) -> Elaborators:
    """Return the elaborators that this process shares for equal arguments."""
    # A forked child must not use its parent's worker.
    return _shared(toolchain, limits, os.getpid())


@cache
def _shared(toolchain: Toolchain, limits: Limits, process: int) -> Elaborators:
    return Elaborators(toolchain, limits)


def elaborators_of(toolchain: Toolchain, limits: Limits) -> Elaborators | None:
    """Return the elaborators with ``toolchain`` in a worker, or None if it cannot run there."""
    return shared_elaborators(toolchain, limits) if runs_in_process(toolchain) else None
