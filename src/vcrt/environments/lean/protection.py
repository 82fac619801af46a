"""Start Lean processes confined, with an empty environment, and with what they need to be readable.

Not covered: what the system does about it (see :mod:`vcrt.environments.confinement`).
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vcrt.environments.confinement import Bounds, Report, started_by

#: Lean reserves a gigabyte for each of its threads, and more than it uses in all: a worker has 3, a command 5 or more.
_RESERVED_BYTES = 1 << 30
WORKER_THREADS, COMMAND_THREADS = 4, 12
#: A few seconds to start in, whatever the limit on the work.
_CPU_SECONDS_TO_START = 30
_ELF = b"\x7fELF"
_LOADER_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What a command reads and the programs that it may be; nothing of it is known for a script of the user's."""

    readable: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


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
    return started_by("confinement", limits.text(), *command)


def empty_environment() -> dict[str, str]:
    """Nothing but where the loader finds libraries, if the user had to say that for this Python to start."""
    return {name: os.environ[name] for name in _LOADER_PATHS if name in os.environ}


@cache
def protections(needs: Needs) -> Report:
    """What protects from a process with these needs on this system: a process is started and confines itself."""
    limits = bounds(needs, cpu_seconds=1800, max_memory_mb=1500, threads=WORKER_THREADS)
    try:
        answer = subprocess.run(
            started_by("confinement", limits.text()),
            capture_output=True,
            check=True,
            env=empty_environment(),
            timeout=60,
        )
        found = json.loads(answer.stdout)
        return Report(in_force=dict(found["in_force"]), absent=dict(found["absent"]))
    except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
        return Report(in_force={}, absent={"everything": f"{type(error).__name__}: {error}"})
