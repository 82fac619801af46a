"""Run Lean processes within limits on wall-clock time, memory and output.

Promises that each is confined (see :mod:`vcrt.environments.confinement`), and killed with all that it started when
it is ended. Not covered: which ``lean`` it is, what its output means, and the memory of a process where the system does
not tell it (anywhere but Linux) or that a wrapper script started.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from vcrt.environments.lean.protection import (
    COMMAND_THREADS,
    UNKNOWN,
    Needs,
    bounds,
    confined,
    empty_environment,
)

#: Prints one JSON message a line, as soon as it is known. Without a limit on errors Lean drops those after the
#: hundredth, which would turn refusals into acceptances; with one thread it prints nothing before the end.
_OPTIONS = ("--json", "--stdin", "-j2", "-DmaxErrors=100000000")

#: The most that a Lean process may print at a time, in bytes: a batch of 240 replays prints about one million.
MAX_OUTPUT_BYTES = 1 << 28
#: How often the time and the memory of a process are looked at.
SECONDS_BETWEEN_LOOKS = 0.25
#: How long a process may take to end when it has closed its output.
SECONDS_TO_DIE = 10.0
_CHUNK = 1 << 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What a Lean process printed; ``failure`` says how it broke off, if it did."""

    text: str
    failure: str | None = None


def _is_line(received: bytearray) -> bool:
    return received.endswith(b"\n")


class LeanProcess:
    """A process that may have ``max_memory_mb`` in use, until its owner ends it."""

    def __init__(self, command: Sequence[str], *, max_memory_mb: float) -> None:
        self._max_memory_mb = max_memory_mb
        self._errors = TemporaryFile()  # noqa: SIM115 - closed by end()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env=empty_environment(),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        os.set_blocking(self._input.fileno(), False)

    @property
    def number(self) -> int:
        """The number of the process."""
        return self._process.pid

    def exchange(
        self,
        data: bytes,
        seconds: float,
        *,
        last: bool = False,
        whole: Callable[[bytearray], bool] = _is_line,
    ) -> Output:
        """What the process prints after ``data``: a ``whole`` answer or, after its ``last`` input, all until it ends.

        It breaks off by its death, by a limit, or when ``seconds`` are over and nothing more is there.
        """
        unsent, received = memoryview(data), bytearray()
        deadline = time.monotonic() + seconds
        next_look = 0.0
        while True:
            if last and not unsent:
                self._input.close()
            wanted = [self._input] if unsent else []
            patience = min(max(0.0, deadline - time.monotonic()), SECONDS_BETWEEN_LOOKS)
            readable, writable, _ = select.select([self._output], wanted, [], patience)
            if writable:
                unsent = self._fed(unsent)
            if readable:
                chunk = os.read(self._output.fileno(), _CHUNK)
                received += chunk
                if not chunk:
                    return _output(received, self._death(last=last))
                if not last and whole(received):
                    return _output(received, None)
                if len(received) > MAX_OUTPUT_BYTES:
                    return _output(received, f"more than {MAX_OUTPUT_BYTES:,} bytes")
            now = time.monotonic()
            if not readable or now >= next_look:
                next_look = now + SECONDS_BETWEEN_LOOKS
                problem = over_limit(self._process.pid, self._max_memory_mb)
                if problem is None and now >= deadline:
                    problem = f"no {'end' if last else 'answer'} after {seconds:g} s"
                if problem is not None:
                    return _output(received, problem)

    def end(self) -> None:
        """Kill the process with all that it started: a wrapper script must not leave Lean behind."""
        if self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                self._process.kill()
        self._process.wait()
        for stream in (self._input, self._output, self._errors):
            stream.close()

    def _fed(self, unsent: memoryview) -> memoryview:
        """What is left when the process has taken what it takes now: nothing if it takes no more."""
        try:
            return unsent[os.write(self._input.fileno(), unsent[:_CHUNK]) :]
        except BrokenPipeError:
            return memoryview(b"")

    def _death(self, *, last: bool) -> str | None:
        """How a process came to its end, if that was not after its last input and in due form."""
        try:
            status = self._process.wait(SECONDS_TO_DIE)
        except subprocess.TimeoutExpired:
            return "it closed its pipes and did not end"
        # Lean ends with 1 when any message is an error, which every batch contains on purpose.
        if last and status in (0, 1):
            return None
        self._errors.seek(0)
        noise = self._errors.read().decode(errors="replace").strip()[-300:]
        return f"exit status {status}{': ' if noise else ''}{noise}"


def run_lean(
    command: Sequence[str],
    source: str,
    *,
    seconds: float,
    max_heartbeats: int,
    max_memory_mb: float,
    needs: Needs = UNKNOWN,
) -> Output:
    """Feed ``source`` to ``lean`` and read its messages; kills it after ``seconds``, or above ``max_memory_mb``.

    ``needs`` are the files that the command needs; without any, it may read what the user may.
    ``max_heartbeats`` is Lean's own limit on the work for one declaration, in thousands of allocations.
    """
    # Two threads compute.
    limits = bounds(
        needs, cpu_seconds=2 * seconds, max_memory_mb=max_memory_mb, threads=COMMAND_THREADS
    )
    options = [*_OPTIONS, f"-DmaxHeartbeats={max_heartbeats}"]
    process = LeanProcess(confined([*command, *options], limits), max_memory_mb=max_memory_mb)
    try:
        return process.exchange(source.encode(), seconds, last=True)
    finally:
        process.end()


def resident_mb(process: int) -> float:
    """The memory that a process has in use, in megabytes; 0 if the system does not tell."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0.0
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


def over_limit(process: int, max_memory_mb: float) -> str | None:
    """What to say of a process that has too much memory in use, or None."""
    used = resident_mb(process)
    return f"{used:.0f} MB in use, over the limit" if used > max_memory_mb else None


def _output(received: bytearray, failure: str | None) -> Output:
    return Output(text=received.decode(errors="replace"), failure=failure)
