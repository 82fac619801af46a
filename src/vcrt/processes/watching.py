"""Let a process be watched: define the record of what it does and the marks of all that it has started.

A worker writes one small file, which is mapped into its memory: the piece of work that it does, the call of foreign
code that it is in, when that call began and how long it may take. So another process can kill a worker whose call does
not come back, and can name the call after the worker has died.

A mark is an environment variable, and on Linux the limit on file locks as well: some programs overwrite their
environment, but each process inherits this limit, which restricts nothing since Linux 2.4. So everything that a process
has started is found by its mark, even if it has detached itself.

Confined processes without any other package use this module. Only what looks at other processes imports more: psutil.
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
from typing import Any

#: The environment variable that replaces the time limit of the calls of every verifier, in seconds.
TIMEOUT = "VCRT_VERIFIER_TIMEOUT"
#: The environment variables with the mark of workers and the mark of a server.
WORKERS_MARK, SERVER_MARK = "VCRT_WORKERS", "VCRT_SERVER"
#: In how many rounds, and how many seconds apart, marked processes are looked for and killed.
_ROUNDS, _LOOK_S = 20, 0.02
_FILE_LOCKS, _LINE = 10, "Max file locks"
_SIZE = 4096
#: The piece of work, counted from 1 (0: none); of its call the beginning, the limit (0: there is no call), both in
#: seconds, and the length of the name in bytes.
_HEAD = struct.Struct("<QddH")
#: Separates the two parts of the name of a call: the episode, and the call in it.
_SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True)
class Doing:
    """The piece of work, by its number, and the call that a worker is in.

    ``episode`` and ``call`` name the call, or the last call if the worker is in none. ``overdue_s`` is the time in
    seconds by which the call has overrun ``limit_s``; 0 if the worker is in no call.
    """

    pid: int
    work: int
    episode: str
    call: str
    limit_s: float
    overdue_s: float

    @property
    def place(self) -> str:
        """Return the call in words."""
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
        """Record that the piece of work ``number`` has begun, or, for None, that it is done."""
        self._work = 0 if number is None else number + 1
        self._write(0.0, b"")

    def begin(self, episode: str, call: str, limit_s: float) -> bytes:
        """Record that a call has begun, which may take ``limit_s`` seconds of wall time.

        Return what the record said before about the enclosing call, which :meth:`end` takes.
        """
        outer = self._map[: _HEAD.size + self._length]
        name = f"{episode}{_SEPARATOR}{call}".encode(errors="backslashreplace")
        self._write(limit_s, name[: _SIZE - _HEAD.size])
        return outer

    def end(self, outer: bytes | None = None) -> None:
        """Record that the call has come back, to the enclosing call ``outer`` if there was one."""
        if outer is not None and _HEAD.unpack_from(outer)[2]:
            self._length = len(outer) - _HEAD.size
            self._map[: len(outer)] = outer
            return
        # The name stays: if the process dies now, this was the last known call.
        _HEAD.pack_into(self._map, 0, self._work, 0.0, 0.0, self._length)

    def _write(self, limit_s: float, name: bytes) -> None:
        self._length = len(name)
        self._map[_HEAD.size : _HEAD.size + len(name)] = name
        now = time.monotonic() if limit_s else 0.0
        _HEAD.pack_into(self._map, 0, self._work, now, limit_s, len(name))


_current: CallRecord | None = None


def record_calls(folder: Path) -> None:
    """Keep the record of this process in ``folder`` from now on."""
    global _current
    _current = CallRecord(folder / str(os.getpid()))


def current_record() -> CallRecord | None:
    """Return the record of this process, or None if nobody watches it."""
    return _current


@contextmanager
def recorded_work(number: int) -> Iterator[None]:
    """Record in this context that the process does the piece of work ``number``."""
    record = current_record()
    if record is not None:
        record.set_work(number)
    try:
        yield
    finally:
        if record is not None:
            record.set_work(None)


def at_work(folder: Path) -> list[Doing]:
    """Return what each process does whose record lies in ``folder`` and that has a piece of work."""
    return [doing for path in sorted(folder.iterdir()) if (doing := _read(path)) is not None]


def _read(path: Path) -> Doing | None:
    data = path.read_bytes()
    if len(data) < _SIZE:
        return None  # not complete yet
    work, began, limit, length = _HEAD.unpack_from(data)
    if not work:
        return None
    name = data[_HEAD.size : _HEAD.size + length].decode(errors="replace")
    episode, _, call = name.partition(_SEPARATOR)
    overdue = time.monotonic() - began - limit if limit else 0.0
    return Doing(int(path.name), work - 1, episode, call, limit, overdue)


def mark_process(variable: str, mark: str) -> None:
    """Mark this process and all processes that it starts from now on; ``mark`` is hexadecimal."""
    os.environ[variable] = mark
    if sys.platform != "linux":
        return
    number = _number(variable, mark)
    # A process that has lowered the upper limit may not raise it again: then only the environment has the mark.
    with suppress(OSError, ValueError):
        lower, upper = resource.getrlimit(_FILE_LOCKS)
        if variable == SERVER_MARK:
            upper, number = number, lower if 0 <= lower < number else number
        resource.setrlimit(_FILE_LOCKS, (number, upper))


def bears_mark(process: int, variable: str, mark: str) -> bool:
    """Return whether a process has the mark in its limits; False if the system does not tell."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/limits").read_text(encoding="ascii").splitlines():
            if line.startswith(_LINE):
                lower, upper = line[len(_LINE) :].split()[:2]
                found = upper if variable == SERVER_MARK else lower
                return found == str(_number(variable, mark))
    return False


def _number(variable: str, mark: str) -> int:
    """Return the mark as a number; the upper limit holds a server's, which is above any of workers in the lower one."""
    return int(mark[:14], 16) + (1 << 56) * (variable == SERVER_MARK)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def end_marked(mark: str, variable: str = WORKERS_MARK) -> bool:
    """Kill each process but this one that has this mark of ``variable``, even if it has detached itself.

    By default, these are the workers of the mark and all that they have started. Return whether there was one.
    """
    import psutil

    found = False
    for _ in range(_ROUNDS):  # the next round finds what was started meanwhile
        marked = [each for each in psutil.process_iter() if _is_marked(each, mark, variable)]
        for process in marked:
            with suppress(psutil.Error):
                process.kill()
        if not marked:
            break
        found = True
        time.sleep(_LOOK_S)
    return found


def _is_marked(process: Any, mark: str, variable: str) -> bool:
    """Return whether this is another process, has not ended and has the mark."""
    import psutil

    try:
        if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
            return False
        if bears_mark(process.pid, variable, mark):
            return True
        return bool(process.environ().get(variable) == mark)
    except psutil.Error:
        return False
