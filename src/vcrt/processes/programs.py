"""Run foreign programs within limits: once to their end, or as processes that answer; confined where that is wanted.

A program is killed with all that it has started. This module does not interpret output, and does not say what the
system does about confinement (see :mod:`vcrt.processes.confinement`). It does not see the memory of a process where
the system does not tell it (anywhere but on Linux) or that a wrapper script has started.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from vcrt.processes.confinement import Bounds, Report, started_by

#: The most bytes that a process may print in one answer: a batch of 240 replays in Lean prints about one million.
MAX_OUTPUT_BYTES = 1 << 28
#: Seconds between two looks at the time and the memory of a process.
SECONDS_BETWEEN_LOOKS = 0.25
#: Seconds that a process may take to end after it has closed its output.
SECONDS_TO_DIE = 10.0
_CHUNK = 1 << 16
#: Lean reserves a gigabyte for each of its threads, and more memory than it uses in all.
_RESERVED_BYTES = 1 << 30
#: Processor seconds to start in, added to the limit on the work.
_CPU_SECONDS_TO_START = 30
_LOADER_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What a process printed; ``failure`` says how it broke off, or is None."""

    text: str
    failure: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """The files that a command reads and the programs that it may be; both are empty for a script of the user."""

    readable: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


def bounds(needs: Needs, *, cpu_seconds: float, max_memory_mb: float, threads: int) -> Bounds:
    """Return the bounds of a process that may use ``max_memory_mb`` megabytes and compute for ``cpu_seconds``."""
    return Bounds(
        address_space=threads * _RESERVED_BYTES + 2 * math.ceil(max_memory_mb * 1e6),
        cpu_seconds=_CPU_SECONDS_TO_START + math.ceil(max(0.0, cpu_seconds)),
        readable=needs.readable,
        programs=needs.programs,
    )


def confined(command: Sequence[str], limits: Bounds) -> list[str]:
    """Return the command that runs another one confined."""
    return started_by("vcrt.processes.confinement", limits.text(), *command)


def empty_environment() -> dict[str, str]:
    """Return no variables but the search paths of the loader, which this Python may need to start."""
    return {name: os.environ[name] for name in _LOADER_PATHS if name in os.environ}


def protections_by(limits: Bounds) -> Report:
    """Return what protects from a process with these bounds on this system, as a process that confines itself says."""
    try:
        answer = run_program(confined([], limits), seconds=60, variables=empty_environment())
        answer.check_returncode()
        found = json.loads(answer.stdout)
        return Report(in_force=dict(found["in_force"]), absent=dict(found["absent"]))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        return Report(
            in_force={},
            absent={"everything": f"{type(error.__cause__ or error).__name__}: {error}"},
        )


def run_program(
    command: Sequence[str],
    *,
    seconds: float | None,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, without input, and return its exit status and what it printed.

    ``folder`` and the environment ``variables`` are those of this process by default. ``seconds`` is the limit on wall
    time; None is no limit. Raise ``OSError`` if the program does not start, and its subclass ``TimeoutError`` if it
    does not end in time. Whatever is raised, the program and all that it has started are killed first.
    """
    with subprocess.Popen(
        command,
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, noise = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as late:
            raise TimeoutError(str(late)) from late
        finally:
            _kill(process)
    return subprocess.CompletedProcess(command, process.returncode, output, noise)


def start_program(
    command: Sequence[str], log: IO[bytes], *, folder: Path, variables: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program without input that prints into ``log``; whoever calls ends it."""
    return subprocess.Popen(
        command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log
    )


def answer_of(command: Sequence[str], *, seconds: float) -> str:
    """Return what a program prints, stripped; empty if it does not start, fails, or does not end within ``seconds``."""
    try:
        answer = run_program(command, seconds=seconds)
    except OSError:
        return ""
    return "" if answer.returncode else answer.stdout.strip()


def _kill(process: subprocess.Popen[Any]) -> None:
    """Kill a process that leads its own session, and all that it has started there, unless it has been waited for."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
    process.wait()


class BoundedProcess:
    """A process that may use ``max_memory_mb`` megabytes, until its owner ends it.

    Its environment is ``variables``, or empty.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        max_memory_mb: float,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._max_memory_mb = max_memory_mb
        self._errors = TemporaryFile()  # noqa: SIM115 - closed by end()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env=empty_environment() if variables is None else variables,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        os.set_blocking(self._input.fileno(), False)

    @property
    def number(self) -> int:
        """The process id."""
        return self._process.pid

    def exchange(
        self,
        data: bytes,
        seconds: float,
        *,
        last: bool = False,
        whole: Callable[[bytearray], bool] = lambda received: received.endswith(b"\n"),
    ) -> Output:
        """Send ``data`` and return the answer: one that is ``whole``, or, after the ``last`` input, all until the end.

        The output breaks off if the process dies, is over a limit, or has not answered after ``seconds``.
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
        """Kill the process and all that it has started: a wrapper script must not leave the verifier behind."""
        _kill(self._process)
        for stream in (self._input, self._output, self._errors):
            stream.close()

    def _fed(self, unsent: memoryview) -> memoryview:
        """Send what the process takes now, and return the rest: nothing if it takes no more."""
        try:
            return unsent[os.write(self._input.fileno(), unsent[:_CHUNK]) :]
        except BrokenPipeError:
            return memoryview(b"")

    def _death(self, *, last: bool) -> str | None:
        """Return how the process ended, or None if it ended in order after its last input."""
        try:
            status = self._process.wait(SECONDS_TO_DIE)
        except subprocess.TimeoutExpired:
            return "it closed its pipes and did not end"
        # Provers end with 1 if any message is an error, and a batch of Lean contains errors on purpose.
        if last and status in (0, 1):
            return None
        self._errors.seek(0)
        noise = self._errors.read().decode(errors="replace").strip()[-300:]
        return f"exit status {status}{': ' if noise else ''}{noise}"


def resident_mb(process: int) -> float:
    """Return the memory that a process uses, in megabytes; 0 if the system does not tell."""
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0.0
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


def over_limit(process: int, max_memory_mb: float) -> str | None:
    """Return what to say of a process that uses more than ``max_memory_mb`` megabytes, else None."""
    used = resident_mb(process)
    return f"{used:.0f} MB in use, over the limit" if used > max_memory_mb else None


def _output(received: bytearray, failure: str | None) -> Output:
    return Output(text=received.decode(errors="replace"), failure=failure)
