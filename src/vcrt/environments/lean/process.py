"""Running one Lean process on one source text, within limits on wall-clock time and memory.

Promises that no process outlives the call, and that each is confined (see :mod:`vcrt.environments.lean.confinement`).
Not covered: which ``lean`` it is, what its output means, and the memory of a process where the system does not tell it
(anywhere but Linux) or that a wrapper script started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
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

#: The most that a Lean process may print, in bytes: a batch of 240 replays prints about one million.
MAX_OUTPUT_BYTES = 1 << 28

#: How often the memory of a process is looked at.
SECONDS_BETWEEN_LOOKS = 0.25


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What a Lean process printed; ``failure`` says how it broke off, if it did."""

    text: str
    failure: str | None = None


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
    # From a file, not a pipe: one that is not emptied at once would have to be fed while the process is watched.
    with TemporaryFile() as file:
        file.write(source.encode())
        file.seek(0)
        with subprocess.Popen(
            confined([*command, *_OPTIONS, f"-DmaxHeartbeats={max_heartbeats}"], limits),
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=empty_environment(),
        ) as process:
            try:
                out, err, failure = _watch(process, seconds, max_memory_mb)
            except BaseException:
                _kill(process)
                raise
    # Lean ends with 1 when any message is an error, which every batch contains on purpose.
    if failure is None and process.returncode not in (0, 1):
        noise = err.decode(errors="replace").strip()[-300:]
        failure = f"exit status {process.returncode}{': ' if noise else ''}{noise}"
    return Output(text=out.decode(errors="replace"), failure=failure)


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


def _watch(
    process: subprocess.Popen[bytes], seconds: float, max_memory_mb: float
) -> tuple[bytes, bytes, str | None]:
    """What the process printed, and why it was killed, if it was."""
    deadline = time.monotonic() + seconds
    while True:
        left = deadline - time.monotonic()
        try:
            out, err = process.communicate(timeout=max(0.0, min(left, SECONDS_BETWEEN_LOOKS)))
        except subprocess.TimeoutExpired:
            pass
        else:
            return out, err, None
        failure = over_limit(process.pid, max_memory_mb)
        if failure is None and time.monotonic() >= deadline:
            failure = f"no end after {seconds:g} s"
        if failure is not None:
            _kill(process)
            out, err = process.communicate()
            return out, err, failure


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process with all that it started: a wrapper script must not leave Lean behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
