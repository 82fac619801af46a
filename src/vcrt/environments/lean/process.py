"""Running one Lean process on one source text, within a wall-clock limit.

Promises that no process outlives the call. Not covered: which ``lean`` it is, and what its output means.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

#: Prints one JSON message a line, as soon as it is known. Without a limit on errors Lean drops those after the
#: hundredth, which would turn refusals into acceptances; with one thread it prints nothing before the end.
_OPTIONS = ("--json", "--stdin", "-j2", "-DmaxErrors=100000000")


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What a Lean process printed; ``failure`` says how it broke off, if it did."""

    text: str
    failure: str | None = None


def run_lean(command: Sequence[str], source: str, *, seconds: float, max_heartbeats: int) -> Output:
    """Feed ``source`` to ``lean`` and read its messages; kills it after ``seconds`` of wall-clock time.

    ``max_heartbeats`` is Lean's own limit on the work for one declaration, in thousands of allocations.
    """
    with subprocess.Popen(
        [*command, *_OPTIONS, f"-DmaxHeartbeats={max_heartbeats}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        failure = None
        try:
            out, err = process.communicate(source.encode(), timeout=seconds)
        except subprocess.TimeoutExpired:
            failure = f"no end after {seconds:g} s"
            _kill(process)
            out, err = process.communicate()
        except BaseException:
            _kill(process)
            raise
    # Lean ends with 1 when any message is an error, which every batch contains on purpose.
    if failure is None and process.returncode not in (0, 1):
        noise = err.decode(errors="replace").strip()[-300:]
        failure = f"exit status {process.returncode}{': ' if noise else ''}{noise}"
    return Output(text=out.decode(errors="replace"), failure=failure)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process with all that it started: a wrapper script must not leave Lean behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
