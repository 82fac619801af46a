"""The client of the worker in which Lean runs: starting it, limits, replacing one that broke or has worked enough.

Promises an answer to each request from a worker that stayed alive while it worked on it, or :class:`WorkerBroken`;
a death is never an answer. Not covered: what requests and answers mean (see :mod:`vcrt.environments.lean.sharing`).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

from vcrt.environments.lean.process import MAX_OUTPUT_BYTES, SECONDS_BETWEEN_LOOKS, over_limit
from vcrt.environments.lean.protection import (
    WORKER_THREADS,
    bounds,
    empty_environment,
    python_needs,
    started_by,
)
from vcrt.environments.lean.rendering import PRELUDE

#: A worker is replaced after so many states: what Lean keeps for good stays small.
STATES_PER_WORKER = 20_000
#: What a worker computes at most before the system ends it: many times what its states take.
_CPU_SECONDS = 1800.0
_SECONDS_TO_START = 120.0
_SECONDS_TO_DIE = 10.0
_CHUNK = 1 << 16


Result = TypeVar("Result")


class WorkerBroken(Exception):
    """A worker died, or was killed for taking too long, or said what is not an answer; the text says which."""


@dataclass(frozen=True, slots=True)
class Rechecked:
    """How many accepted declarations and proofs were found sound again, and how often the kernel was asked for that.

    It is asked once for equal ones of one request (see :mod:`vcrt.environments.lean.recheck`).
    """

    accepted: int = 0
    kernel_checks: int = 0

    def __add__(self, other: Rechecked) -> Rechecked:
        return Rechecked(self.accepted + other.accepted, self.kernel_checks + other.kernel_checks)

    def __sub__(self, other: Rechecked) -> Rechecked:
        return Rechecked(self.accepted - other.accepted, self.kernel_checks - other.kernel_checks)


class Elaborators:
    """Answers requests by a worker process, one at a time.

    ``folder`` holds Lean's libraries; ``max_heartbeats`` is Lean's limit on the work for one command, and
    ``max_memory_mb`` what the worker may have in use. The worker is started when it is first needed, ends with this
    process, and is replaced after about ``budget`` states.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_heartbeats: int,
        max_memory_mb: float,
        budget: int = STATES_PER_WORKER,
    ) -> None:
        self._folder = folder
        self._max_heartbeats = max_heartbeats
        self._max_memory_mb = max_memory_mb
        self._budget = budget
        self._worker: _Worker | None = None
        self._spent = 0
        #: What the kernel alone has checked again in all answers so far.
        self.rechecked = Rechecked()

    def run(
        self, request: dict[str, Any], read: Callable[[Any], Result], *, cost: int, seconds: float
    ) -> Result:
        """The answer to a request (see :mod:`vcrt.environments.lean.worker`) as ``read`` understands it.

        A worker that breaks is replaced and the request made once more; an answer at which ``read`` raises
        ``TypeError`` or ``ValueError`` counts as broken too. Raises :class:`WorkerBroken` if that breaks as well.
        ``cost`` is about how many states the request makes; ``seconds`` limits the time of each attempt.
        """
        try:
            return self._attempt(request, read, cost, seconds)
        except WorkerBroken:
            return self._attempt(request, read, cost, seconds)

    @property
    def process(self) -> int | None:
        """The number of the worker's process, if there is one."""
        return None if self._worker is None else self._worker.number

    def close(self) -> None:
        """End the worker, if there is one."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    def _attempt(
        self, request: dict[str, Any], read: Callable[[Any], Result], cost: int, seconds: float
    ) -> Result:
        if self._spent + cost > self._budget:
            self.close()
        if self._worker is None:
            self._worker = self._started()
            self._spent = 0
        self._spent += cost
        try:
            answer = self._worker.ask(request, seconds)
            try:
                counts = Rechecked(*answer["rechecked"])
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

    def _started(self) -> _Worker:
        worker = _Worker(self._folder, self._max_memory_mb)
        try:
            # The header of a file is not a command; the line stays, so that positions do.
            prelude = PRELUDE.removeprefix("prelude")
            limit = f"set_option maxHeartbeats {self._max_heartbeats}\n"
            said = worker.ask([prelude, limit], _SECONDS_TO_START)
            if said != []:
                raise WorkerBroken(f"the prelude is not accepted: {said}")
        except BaseException:
            worker.end()
            raise
        return worker


class _Worker:
    """One worker process."""

    def __init__(self, folder: Path, max_memory_mb: float) -> None:
        self._max_memory_mb = max_memory_mb
        self._errors = TemporaryFile()  # noqa: SIM115 - closed by end()
        self._process = subprocess.Popen(
            _command(folder, max_memory_mb),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env=empty_environment(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)

    @property
    def number(self) -> int:
        """The number of the process."""
        return self._process.pid

    def ask(self, request: Any, seconds: float) -> Any:
        """The answer to one request."""
        unsent = memoryview(json.dumps(request).encode() + b"\n")
        answer = bytearray()
        deadline = time.monotonic() + seconds
        while not answer.endswith(b"\n"):
            patience = min(max(0.0, deadline - time.monotonic()), SECONDS_BETWEEN_LOOKS)
            wanted = [self._input] if unsent else []
            readable, writable, _ = select.select([self._output], wanted, [], patience)
            if not readable and not writable:
                self._check(seconds, deadline)
            try:
                if writable:
                    unsent = unsent[os.write(self._input, unsent[:_CHUNK]) :]
                if readable:
                    answer += self._received()
                    if len(answer) > MAX_OUTPUT_BYTES:
                        raise WorkerBroken(f"an answer of more than {MAX_OUTPUT_BYTES:,} bytes")
            except BrokenPipeError:
                raise WorkerBroken(self._death()) from None
        try:
            return json.loads(answer)
        except ValueError:
            raise WorkerBroken(f"not an answer: {bytes(answer[:100])!r}") from None

    def end(self) -> None:
        """Kill the process, if it is not dead yet."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _check(self, seconds: float, deadline: float) -> None:
        """The worker is silent: see that it keeps its limits."""
        problem = over_limit(self._process.pid, self._max_memory_mb)
        if problem is None and time.monotonic() >= deadline:
            problem = f"no answer after {seconds:g} s"
        if problem is not None:
            raise WorkerBroken(problem)

    def _received(self) -> bytes:
        chunk = os.read(self._output, _CHUNK)
        if not chunk:
            raise BrokenPipeError
        return chunk

    def _death(self) -> str:
        try:
            status = self._process.wait(_SECONDS_TO_DIE)
        except subprocess.TimeoutExpired:
            return "it closed its pipes and did not end"
        self._errors.seek(0)
        noise = self._errors.read().decode(errors="replace").strip()[-300:]
        return f"exit status {status}{': ' if noise else ''}{noise}"


@cache
def _shared(folder: Path, max_heartbeats: int, max_memory_mb: float, process: int) -> Elaborators:
    return Elaborators(folder, max_heartbeats=max_heartbeats, max_memory_mb=max_memory_mb)


def shared_elaborators(folder: Path, *, max_heartbeats: int, max_memory_mb: float) -> Elaborators:
    """The elaborators that all of this process shares, for equal arguments."""
    # A forked child must not use its parent's worker.
    return _shared(folder, max_heartbeats, max_memory_mb, os.getpid())


def _command(folder: Path, max_memory_mb: float) -> list[str]:
    limits = bounds(
        python_needs(folder),
        cpu_seconds=_CPU_SECONDS,
        max_memory_mb=max_memory_mb,
        threads=WORKER_THREADS,
    )
    return started_by("worker", limits.text(), str(folder))
