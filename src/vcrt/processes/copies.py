"""Do work in a copy of this process, so that nothing it leaves in memory is met by later work.

A copy (``fork``) begins with all that this process holds: imported modules, their globals, caches, and what libraries
keep. It ends with its work. So the order of two pieces of work cannot matter, unless one leaves something outside of
memory.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import NoReturn, TypeVar

from vcrt.processes.watching import current_record
from vcrt.processes.workers import RemoteTraceback, outcome

Result = TypeVar("Result")
#: The threads of a worker: the one that works, and the one that watches its parent.
_THREADS = 2
#: The connections of a worker: the one that brings its work.
_CONNECTIONS = 1
#: How many processes this one is a copy of: 1 for a copy, 2 for a copy of a copy.
_depth = 0


def may_copy() -> bool:
    """Return whether this is a worker on Linux: others are not copied."""
    return sys.platform == "linux" and current_record() is not None


def own_parts() -> str:
    """Return what this worker has that a copy would lack or share with others, such as threads; or ""."""
    own = Path("/proc/self")
    threads = list((own / "task").iterdir())
    kinds = [_kind(each) for each in (own / "fd").iterdir() if int(each.name) > 2]
    found = {
        "threads": len(threads) > _THREADS,
        "programs": any(_children(each) for each in threads),
        "connections": kinds.count("socket") > _CONNECTIONS,
        # A copy keeps the pipe to each process that it is a copy of.
        "pipes": kinds.count("pipe") > _depth,
    }
    return ", ".join(name for name, is_there in found.items() if is_there)


def _children(thread: Path) -> bytes:
    try:
        return (thread / "children").read_bytes()
    except OSError:  # the system does not tell
        return b""


def _kind(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor).partition(":")[0]
    except OSError:  # the one by which the folder is read
        return ""


def in_copy(work: Callable[[], Result]) -> Result:
    """Return the result of work that a copy of this process does; raise its error.

    If the copy is ended, this process ends in the same way, as if it had done the work itself.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    # What is there now is left alone by the copy's collector of garbage, which has less to do, too.
    gc.freeze()
    reading, writing = Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the other thread only waits
        copy = os.fork()
    if not copy:
        reading.close()
        _be_copy(work, writing)
    writing.close()
    received = None
    with reading, suppress(EOFError, OSError):  # it has ended before, or meanwhile
        received = reading.recv()
    _, status = os.waitpid(copy, 0)
    if received is None:
        _end_as(os.waitstatus_to_exitcode(status))
    result, error, text = received
    if error is not None:
        error.__cause__ = RemoteTraceback(f'\n"""\n{text}"""')
        raise error
    return result  # type: ignore[no-any-return]


def _be_copy(work: Callable[[], object], writing: Connection) -> NoReturn:
    global _depth
    _depth += 1
    code = 1
    try:
        data = outcome(lambda _: work(), None)
        gc.collect()  # what has a finalizer, such as a folder, is removed
        sys.stdout.flush()
        sys.stderr.flush()
        writing.send_bytes(data)
        code = 0
    finally:
        os._exit(code)


def _end_as(code: int) -> NoReturn:
    if code < 0:
        with suppress(OSError):  # of some signals the answer cannot be set
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(max(1, code))
