"""Mark a process so that it and all its descendants can be found, even if they have detached themselves.

The mark is an environment variable, which a program may overwrite (programs that set their own title do so). On
Linux the limit on file locks holds it as well: child processes inherit it, and it has had no effect since Linux 2.4.
This module imports only the standard library, because processes without any other package use it.
"""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

#: The environment variables that name workers and a server in what they have started.
WORKERS_MARK, SERVER_MARK = "VCRT_WORKERS", "VCRT_SERVER"
_FILE_LOCKS, _LINE = 10, "Max file locks"


def mark_process(variable: str, mark: str) -> None:
    """Mark this process and all processes that it starts from now on; ``mark`` is hexadecimal."""
    os.environ[variable] = mark
    if sys.platform != "linux":
        return
    number = _number(variable, mark)
    # Who has lowered the upper limit may not raise it again: the environment alone has the mark then.
    with suppress(OSError, ValueError):
        lower, upper = resource.getrlimit(_FILE_LOCKS)
        if variable == SERVER_MARK:
            upper, number = number, lower if 0 <= lower < number else number
        resource.setrlimit(_FILE_LOCKS, (number, upper))


def bears_mark(process: int, variable: str, mark: str) -> bool:
    """Say whether a process has the mark in its limits; False if the system does not tell."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/limits").read_text(encoding="ascii").splitlines():
            if line.startswith(_LINE):
                lower, upper = line[len(_LINE) :].split()[:2]
                found = upper if variable == SERVER_MARK else lower
                return found == str(_number(variable, mark))
    return False


def _number(variable: str, mark: str) -> int:
    """Return the mark as a number; a server's, held by the upper limit, is above any worker's, in the lower limit."""
    return int(mark[:14], 16) + (1 << 56) * (variable == SERVER_MARK)
