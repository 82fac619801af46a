"""Record what a worker process is doing at this moment, where whoever started it can read it.

A worker writes one small file, mapped into its memory: which piece of work it does, which call of foreign code it is
in, since when, and how long that may take. So a call that does not come back, or that ends the process, can be ended
and named from outside. Not covered: what is done about it (see :mod:`vcrt.processes`).
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: The environment variable that replaces the time limit of every verifier's calls, in seconds.
TIMEOUT = "VCRT_VERIFIER_TIMEOUT"
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
