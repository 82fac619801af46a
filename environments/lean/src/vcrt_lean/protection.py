"""Start Lean processes confined, with an empty environment, and with what they need to be readable.

Not covered: what the system does about it (see :mod:`vcrt.environments.confinement`).
"""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path

from vcrt.environments.bounded_processes import Needs, bounds, protections_by
from vcrt.environments.confinement import Report

#: Lean reserves a gigabyte for each of its threads: a worker has 3, a command 5 or more.
WORKER_THREADS, COMMAND_THREADS = 4, 12
_ELF = b"\x7fELF"


#: Of a script that starts Lean nobody knows what else it reads and starts.
UNKNOWN = Needs()


def python_needs(*more: Path) -> Needs:
    """What this Python needs without its site-packages, and ``more``."""
    library = os.path.dirname(os.__file__)
    config = [
        str(Path(folder) / "pyvenv.cfg") for folder in (sys.prefix, Path(sys.executable).parent)
    ]
    return Needs(
        readable=(library, *config, *map(str, more)),
        programs=(str(Path(sys.executable).resolve()),),
    )


def lean_needs(executable: Path) -> Needs:
    """What an installed Lean needs: its own folder; nothing is known of a script that starts another."""
    try:
        with executable.open("rb") as stream:
            is_binary = stream.read(len(_ELF)) == _ELF
    except OSError:
        is_binary = False
    if not is_binary:
        return UNKNOWN
    prefix = str(executable.resolve().parent.parent)
    return Needs(readable=(prefix,), programs=(prefix,))


@cache
def protections(needs: Needs) -> Report:
    """What protects from a process with these needs on this system: a process is started and confines itself."""
    limits = bounds(needs, cpu_seconds=1800, max_memory_mb=1500, threads=WORKER_THREADS)
    return protections_by(limits)
