"""Run the ``lean`` command on a source, within limits on wall-clock time, memory and output.

Not covered: which ``lean`` it is, and what its output means.
"""

from __future__ import annotations

from collections.abc import Sequence

from vcrt.environments.bounded_processes import BoundedProcess, Needs, Output, bounds, confined
from vcrt_lean.protection import COMMAND_THREADS, UNKNOWN

#: Prints one JSON message a line, as soon as it is known. Without a limit on errors Lean drops those after the
#: hundredth, which would turn refusals into acceptances; with one thread it prints nothing before the end.
_OPTIONS = ("--json", "--stdin", "-j2", "-DmaxErrors=100000000")


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
    process = BoundedProcess(confined([*command, *options], limits), max_memory_mb=max_memory_mb)
    try:
        return process.exchange(source.encode(), seconds, last=True)
    finally:
        process.end()
