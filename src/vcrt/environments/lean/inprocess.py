"""The client of the worker in which Lean runs: starting it, limits, replacing one that broke or has worked enough.

Promises an answer to each request from a worker that stayed alive while it worked on it, or :class:`WorkerBroken`;
a death is never an answer. Not covered: what requests and answers mean (see :mod:`vcrt.environments.lean.sharing`).
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

import vcrt
from vcrt.environments.lean.rendering import PRELUDE

#: Nothing of the user's Python set-up gets into the worker; our package comes last, after the standard library.
_START = "import sys; sys.path.append(sys.argv.pop()); from vcrt.environments.lean.worker import main; main()"
#: A worker is replaced after so many states: what Lean keeps for good stays small.
STATES_PER_WORKER = 20_000
_SECONDS_TO_START = 120.0
_CHUNK = 1 << 16


Result = TypeVar("Result")


class WorkerBroken(Exception):
    """A worker died, or was killed for taking too long, or said what is not an answer; the text says which."""


class Elaborators:
    """Answers requests by a worker process, one at a time.

    ``folder`` holds Lean's libraries; ``max_heartbeats`` is Lean's limit on the work for one command. The worker is
    started when it is first needed, ends with this process, and is replaced after about ``budget`` states.
    """

    def __init__(
        self, folder: Path, *, max_heartbeats: int, budget: int = STATES_PER_WORKER
    ) -> None:
        self._folder = folder
        self._max_heartbeats = max_heartbeats
        self._budget = budget
        self._worker: _Worker | None = None
        self._spent = 0

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
                return read(answer)
            except (TypeError, ValueError) as error:
                raise WorkerBroken(f"not an answer to what was asked: {error}") from None
        except BaseException:
            self.close()
            raise

    def _started(self) -> _Worker:
        worker = _Worker(self._folder)
        try:
            # The header of a file is not a command; the line stays, so that positions do.
            prelude = PRELUDE.removeprefix("prelude")
            limit = f"set_option maxHeartbeats {self._max_heartbeats}\n"
            said = worker.ask(prelude + limit, _SECONDS_TO_START)
            if said != []:
                raise WorkerBroken(f"the prelude is not accepted: {said}")
        except BaseException:
            worker.end()
            raise
        return worker


class _Worker:
    """One worker process."""

    def __init__(self, folder: Path) -> None:
        self._errors = TemporaryFile()  # noqa: SIM115 - closed by end()
        self._process = subprocess.Popen(
            _command(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)

    def ask(self, request: Any, seconds: float) -> Any:
        """The answer to one request."""
        unsent = memoryview(json.dumps(request).encode() + b"\n")
        answer = bytearray()
        deadline = time.monotonic() + seconds
        while not answer.endswith(b"\n"):
            left = deadline - time.monotonic()
            wanted = [self._input] if unsent else []
            readable, writable, _ = select.select([self._output], wanted, [], max(left, 0.0))
            if not readable and not writable:
                raise WorkerBroken(f"no answer after {seconds:g} s")
            try:
                if writable:
                    unsent = unsent[os.write(self._input, unsent[:_CHUNK]) :]
                if readable:
                    chunk = os.read(self._output, _CHUNK)
                    if not chunk:
                        raise BrokenPipeError
                    answer += chunk
            except BrokenPipeError:
                raise WorkerBroken(self._death()) from None
        try:
            return json.loads(answer)
        except ValueError:
            raise WorkerBroken(f"not an answer: {bytes(answer[:100])!r}") from None

    def end(self) -> None:
        """Kill the process, if it is not dead yet."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            self._process.kill()
        self._process.communicate()
        self._errors.close()

    def _death(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        noise = self._errors.read().decode(errors="replace").strip()[-300:]
        return f"exit status {status}{': ' if noise else ''}{noise}"


@cache
def shared_elaborators(folder: Path, max_heartbeats: int, process: int) -> Elaborators:
    """The elaborators of this ``process`` (its number: a forked child must not use its parent's worker)."""
    return Elaborators(folder, max_heartbeats=max_heartbeats)


def _command(folder: Path) -> list[str]:
    root = Path(vcrt.__file__).resolve().parent.parent
    return [sys.executable, "-I", "-S", "-c", _START, str(folder), str(root)]
