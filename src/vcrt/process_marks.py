"""Mark a process, so that it and all that it starts can be found, however far they have detached themselves.

A mark stands in the environment, which a program may write over (those do that set their own title), and on Linux in
the limit on file locks as well: the system hands that on, too, and has restricted nothing by it since Linux 2.4.
Imports only the standard library, as it is used by a process without any other package.
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
    """Have this process, and all that it starts from now on, bear the mark; ``mark`` is hexadecimal."""
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
    """Whether a process has the mark in its limits; False where the system does not tell."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/limits").read_text(encoding="ascii").splitlines():
            if line.startswith(_LINE):
                lower, upper = line[len(_LINE) :].split()[:2]
                found = upper if variable == SERVER_MARK else lower
                return found == str(_number(variable, mark))
    return False


def _number(variable: str, mark: str) -> int:
    """A server's is above that of any worker, as the upper limit, where it stands, is above the lower one."""
    return int(mark[:14], 16) + (1 << 56) * (variable == SERVER_MARK)
