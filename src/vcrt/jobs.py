"""Count worker processes; apart from :mod:`vcrt.processes`, so that the command line loads nothing for it."""

from __future__ import annotations

import os

from vcrt.errors import VcrtError


def num_jobs(jobs: int | None) -> int:
    """How many worker processes: as many as there are cores by default; raises :class:`VcrtError` for less than one."""
    if jobs is not None and jobs < 1:
        raise VcrtError("too few jobs", found=str(jobs), expected="at least 1")
    return jobs if jobs is not None else len(os.sched_getaffinity(0))
