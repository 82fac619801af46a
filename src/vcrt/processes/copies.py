"""Do work in a copy of this process, so that nothing it leaves in memory is met by later work.

A copy (``fork``) begins with all that this process holds: imported modules, their globals, caches, and what libraries
keep. It ends with its work. So the order of two pieces of work cannot matter, unless one leaves something outside of
memory.
"""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from vcrt.processes.watching import current_record
from vcrt.processes.workers import RemoteTraceback, outcome

Result = TypeVar("Result")
#: The threads of a worker: the one that works, and the one that watches its parent.
_THREADS = 2
#: The connections of a worker: the one that brings its work.
_CONNECTIONS = 1
#: The shared memory of a worker: its record.
_MAPPED = 1
#: Seconds in which a thread that has ended is gone.
_GONE_S = 0.05
#: How many processes this one is a copy of: 1 for a copy, 2 for a copy of a copy.
_depth = 0


def may_copy() -> bool:
    """Return whether this is a worker on Linux: others are not copied."""
    return sys.platform == "linux" and current_record() is not None


def own_parts() -> str:
    """Return what this worker has that a copy would lack or share with others, such as threads; or ""."""
    own = Path("/proc/self")
    threads = list((own / "task").iterdir())
    if len(threads) > _THREADS >= threading.active_count():
        time.sleep(_GONE_S)  # what has ended takes a moment to be gone
        threads = list((own / "task").iterdir())
    kinds = [_kind(each) for each in (own / "fd").iterdir() if int(each.name) > 2]
    found = {
        "threads": len(threads) > _THREADS,
        "programs": any(_children(each) for each in threads),
        "connections": kinds.count("socket") > _CONNECTIONS,
        "shared memory": (own / "maps").read_bytes().count(b" rw-s ") > _MAPPED,
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
    status = 1
    # The system, or somebody's handler of signals, may have waited for it.
    with suppress(ChildProcessError):
        status = os.waitpid(copy, 0)[1]
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
        _forget_endings()
        data = outcome(lambda _: work(), None)
        gc.collect()  # what has a finalizer, such as a folder, is removed
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        writing.send_bytes(data)
        code = 0
    finally:
        os._exit(code)


def _forget_endings() -> None:
    """Leave to the process what it does when it ends; what is registered from now on, this copy does."""
    atexit._clear()
    endings: Any = weakref.finalize
    for each in list(endings._registry):
        each.atexit = False
    atexit.register(endings._exitfunc)


def _end_as(code: int) -> NoReturn:
    if code < 0:
        with suppress(OSError):  # of some signals the answer cannot be set
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(max(1, code))
