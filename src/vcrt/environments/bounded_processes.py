"""Start verifiers' processes confined and with an empty environment, and talk to them within limits.

Promises that each is killed with all that it started when it is ended. Not covered: what the system does about
confinement (see :mod:`vcrt.environments.confinement`), what output means, and the memory of a process where the system
does not tell it (anywhere but Linux) or that a wrapper script started.
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

from vcrt.environments.confinement import Bounds, Report, started_by

#: The most that a process may print at a time, in bytes: a batch of 240 replays in Lean prints about one million.
MAX_OUTPUT_BYTES = 1 << 28
#: How often the time and the memory of a process are looked at.
SECONDS_BETWEEN_LOOKS = 0.25
#: How long a process may take to end when it has closed its output.
SECONDS_TO_DIE = 10.0
_CHUNK = 1 << 16
#: Lean reserves a gigabyte for each of its threads, and more than it uses in all.
_RESERVED_BYTES = 1 << 30
#: A few seconds to start in, whatever the limit on the work.
_CPU_SECONDS_TO_START = 30
_LOADER_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What a process printed; ``failure`` says how it broke off, if it did."""

    text: str
    failure: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What a command reads and the programs that it may be; nothing of it is known for a script of the user's."""

    readable: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


def bounds(needs: Needs, *, cpu_seconds: float, max_memory_mb: float, threads: int) -> Bounds:
    """The bounds of a process that may have ``max_memory_mb`` in use and compute for ``cpu_seconds``."""
    return Bounds(
        address_space=threads * _RESERVED_BYTES + 2 * math.ceil(max_memory_mb * 1e6),
        cpu_seconds=_CPU_SECONDS_TO_START + math.ceil(max(0.0, cpu_seconds)),
        readable=needs.readable,
        programs=needs.programs,
    )


def confined(command: Sequence[str], limits: Bounds) -> list[str]:
    """The command that runs another one confined."""
    return started_by("vcrt.environments.confinement", limits.text(), *command)


def empty_environment() -> dict[str, str]:
    """Nothing but where the loader finds libraries, if the user had to say that for this Python to start."""
    return {name: os.environ[name] for name in _LOADER_PATHS if name in os.environ}


def protections_by(limits: Bounds) -> Report:
    """What protects from a process with these bounds on this system: a process is started and confines itself."""
    try:
        answer = subprocess.run(
            started_by("vcrt.environments.confinement", limits.text()),
            capture_output=True,
            check=True,
            env=empty_environment(),
            timeout=60,
        )
        found = json.loads(answer.stdout)
        return Report(in_force=dict(found["in_force"]), absent=dict(found["absent"]))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        return Report(in_force={}, absent={"everything": f"{type(error).__name__}: {error}"})


def _is_line(received: bytearray) -> bool:
    return received.endswith(b"\n")


class BoundedProcess:
    """A process that may have ``max_memory_mb`` in use, until its owner ends it.

    Its environment is empty, or ``variables``.
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
        """Kill the process with all that it started: a wrapper script must not leave the verifier behind."""
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
        # Provers end with 1 when any message is an error, which a batch of Lean's contains on purpose.
        if last and status in (0, 1):
            return None
        self._errors.seek(0)
        noise = self._errors.read().decode(errors="replace").strip()[-300:]
        return f"exit status {status}{': ' if noise else ''}{noise}"


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
