"""Start the worker in which Lean runs, ask it within limits, and replace it when it broke or has worked enough.

Promises an answer to each request from a worker that stayed alive while it worked on it, or :class:`WorkerBroken`;
a death is never an answer. Not covered: what requests and answers mean (see :mod:`vcrt_lean.sharing`).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from vcrt.environments.bounded_processes import BoundedProcess, bounds
from vcrt.environments.confinement import started_by
from vcrt_lean.protection import (
    WORKER_THREADS,
    python_needs,
)
from vcrt_lean.rendering import PRELUDE

#: What the kernel alone counts (see :mod:`vcrt_lean.recheck`).
RECHECKED = ("accepted terms", "kernel checks")
#: A worker is replaced after so many states: what Lean keeps for good stays small.
STATES_PER_WORKER = 20_000
#: What a worker computes at most before the system ends it: many times what its states take.
_CPU_SECONDS = 1800.0
_SECONDS_TO_START = 120.0


Result = TypeVar("Result")


class WorkerBroken(Exception):
    """A worker died, or was killed for taking too long, or said what is not an answer; the text says which."""


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
        self._worker: BoundedProcess | None = None
        self._spent = 0
        #: What the kernel alone has checked again in all answers so far: accepted terms, found sound, and how often
        #: it was asked for that, which is once for equal ones of one request.
        self.rechecked: Counter[str] = Counter()

    def run(
        self, request: dict[str, Any], read: Callable[[Any], Result], *, cost: int, seconds: float
    ) -> Result:
        """The answer to a request (see :mod:`vcrt_lean.worker`) as ``read`` understands it.

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
            answer = _ask(self._worker, request, seconds)
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
        command = _command(self._folder, self._max_memory_mb)
        worker = BoundedProcess(command, max_memory_mb=self._max_memory_mb)
        try:
            # The header of a file is not a command; the line stays, so that positions do.
            prelude = PRELUDE.removeprefix("prelude")
            limit = f"set_option maxHeartbeats {self._max_heartbeats}\n"
            said = _ask(worker, [prelude, limit], _SECONDS_TO_START)
            if said != []:
                raise WorkerBroken(f"the prelude is not accepted: {said}")
        except BaseException:
            worker.end()
            raise
        return worker


def _ask(process: BoundedProcess, request: Any, seconds: float) -> Any:
    """The answer to one request."""
    answer = process.exchange(json.dumps(request).encode() + b"\n", seconds)
    if answer.failure is not None:
        raise WorkerBroken(answer.failure)
    try:
        return json.loads(answer.text)
    except ValueError:
        raise WorkerBroken(f"not an answer: {answer.text[:100]!r}") from None


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
    return started_by("vcrt_lean.worker", limits.text(), str(folder))
