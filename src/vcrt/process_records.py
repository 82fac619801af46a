"""Say of a process, to whoever started it, whose it is and what it is doing at this moment.

A mark stands in the environment, which a program may write over (those do that set their own title), and on Linux in
the limit on file locks as well: the system hands that on, too, and has restricted nothing by it since Linux 2.4. So a
process and all that it starts can be found, however far they have detached themselves.

A worker writes one small file, mapped into its memory: which piece of work it does, which call of foreign code it is
in, since when, and how long that may take. So a call that does not come back, or that ends the process, can be ended
and named from outside. Imports only the standard library, as it is used by a process without any other package. Not
covered: what is done about it (see :mod:`vcrt.processes`).
"""

from __future__ import annotations

import mmap
import os
import resource
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

#: The environment variable that replaces the time limit of every verifier's calls, in seconds.
TIMEOUT = "VCRT_VERIFIER_TIMEOUT"
#: The environment variables that name workers and a server in what they have started.
WORKERS_MARK, SERVER_MARK = "VCRT_WORKERS", "VCRT_SERVER"
_FILE_LOCKS, _LINE = 10, "Max file locks"
_SIZE = 4096
#: Piece of work (0: none), when its call began, that one's limit (0: no call is being made), bytes of its name.
_HEAD = struct.Struct("<QddH")
#: Separates the parts of a call's name: where it was made, and what of that.
_SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True)
class Doing:
    """What a worker does: the number of its piece of work, and the call that it is in, if any.

    ``episode`` and ``call`` name the call, or, between calls, the last one; ``overdue_s`` is by how many seconds it
    has overrun its limit.
    """

    pid: int
    work: int
    episode: str
    call: str
    limit_s: float
    overdue_s: float

    @property
    def place(self) -> str:
        """The call in words."""
        return ", ".join(filter(None, (self.episode, self.call)))


class CallRecord:
    """The record of this process; :func:`record_calls` makes the one that :func:`current_record` gives."""

    def __init__(self, path: Path) -> None:
        with path.open("w+b") as file:
            file.truncate(_SIZE)
            self._map = mmap.mmap(file.fileno(), _SIZE)
        self._work = 0
        self._length = 0

    def set_work(self, number: int | None) -> None:
        """Say that the piece of work ``number`` is begun; None: that it is done."""
        self._work = 0 if number is None else number + 1
        self._write(0.0, b"")

    def begin(self, episode: str, call: str, limit_s: float) -> bytes:
        """Say that a call is begun, which may take ``limit_s`` seconds by the clock on the wall.

        Gives what was said before, of the call that it is made in, if any: for :meth:`end`.
        """
        outer = self._map[: _HEAD.size + self._length]
        name = f"{episode}{_SEPARATOR}{call}".encode(errors="backslashreplace")
        self._write(limit_s, name[: _SIZE - _HEAD.size])
        return outer

    def end(self, outer: bytes | None = None) -> None:
        """Say that it has come back, to the call that it was made in, if any."""
        if outer is not None and _HEAD.unpack_from(outer)[2]:
            self._length = len(outer) - _HEAD.size
            self._map[: len(outer)] = outer
            return
        # Its name stays: it is the last that is known if the process ends now.
        _HEAD.pack_into(self._map, 0, self._work, 0.0, 0.0, self._length)

    def _write(self, limit_s: float, name: bytes) -> None:
        self._length = len(name)
        self._map[_HEAD.size : _HEAD.size + len(name)] = name
        now = time.monotonic() if limit_s else 0.0
        _HEAD.pack_into(self._map, 0, self._work, now, limit_s, len(name))


_current: CallRecord | None = None


def record_calls(folder: Path) -> None:
    """Keep this process's record in ``folder`` from now on."""
    global _current
    _current = CallRecord(folder / str(os.getpid()))


def current_record() -> CallRecord | None:
    """The record of this process, None where nobody watches it."""
    return _current


@contextmanager
def recorded_work(number: int) -> Iterator[None]:
    """Do the piece of work ``number``."""
    record = current_record()
    if record is not None:
        record.set_work(number)
    try:
        yield
    finally:
        if record is not None:
            record.set_work(None)


def at_work(folder: Path) -> list[Doing]:
    """What the processes do whose records lie in ``folder``, those that are in the midst of a piece of work."""
    return [doing for path in sorted(folder.iterdir()) if (doing := _read(path)) is not None]


def _read(path: Path) -> Doing | None:
    data = path.read_bytes()
    if len(data) < _SIZE:
        return None  # not whole yet
    work, began, limit, length = _HEAD.unpack_from(data)
    if not work:
        return None
    name = data[_HEAD.size : _HEAD.size + length].decode(errors="replace")
    episode, _, call = name.partition(_SEPARATOR)
    return Doing(
        pid=int(path.name),
        work=work - 1,
        episode=episode,
        call=call,
        limit_s=limit,
        overdue_s=time.monotonic() - began - limit if limit else 0.0,
    )


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
