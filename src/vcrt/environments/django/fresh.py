"""Do work in a forked process: what it leaves in Python and in an SQLite in memory is gone when it ends.

A connection to a server is shared: whoever forks waits, and puts the database back. The process is one of its parent's
group, so that it ends with it. Not covered: threads, which a forked process does not have.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
from collections.abc import Callable
from typing import TypeVar

from vcrt.environments.bounded_processes import SECONDS_BETWEEN_LOOKS, over_limit
from vcrt.errors import VcrtError, VerifierFailure

Found = TypeVar("Found")
_LENGTH_BYTES = 8


def in_fresh_process(work: Callable[[], Found], *, max_memory_mb: float) -> Found:
    """What ``work`` gives, pickled on the way; raises its :class:`VcrtError`, and :class:`VerifierFailure` else."""
    _flush()
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiving)
        _answer(work, sending)
    os.close(sending)
    received, problem = bytearray(), None
    while not _is_whole(received):
        readable, _, _ = select.select([receiving], [], [], SECONDS_BETWEEN_LOOKS)
        chunk = os.read(receiving, 1 << 16) if readable else None
        if chunk == b"":
            break
        received += chunk or b""
        problem = None if readable else over_limit(child, max_memory_mb)
        if problem is not None:
            os.kill(child, signal.SIGKILL)
            break
    os.close(receiving)
    _, status = os.waitpid(child, 0)
    if not _is_whole(received):
        ended = f"exit status {os.waitstatus_to_exitcode(status)}"
        raise VerifierFailure("the worker that has Django broke off", found=problem or ended)
    is_found, answer = pickle.loads(received[_LENGTH_BYTES:])
    if not is_found:
        raise answer
    found: Found = answer
    return found


def _answer(work: Callable[[], object], sending: int) -> None:
    """Send what ``work`` gives, and end this process."""
    status = 1
    try:
        try:
            answer: tuple[bool, object] = True, work()
        except VcrtError as error:
            answer = False, error
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
            what = "Django failed where it should have given a verdict"
            answer = False, VerifierFailure(what, found=found)
        data = pickle.dumps(answer)
        with os.fdopen(sending, "wb") as pipe:
            pipe.write(len(data).to_bytes(_LENGTH_BYTES, "little") + data)
        _flush()
        status = 0
    finally:
        os._exit(status)


def _is_whole(received: bytearray) -> bool:
    length = int.from_bytes(received[:_LENGTH_BYTES], "little")
    return len(received) >= _LENGTH_BYTES and len(received) == _LENGTH_BYTES + length


def _flush() -> None:
    """What is still to be printed is printed once."""
    sys.stdout.flush()
    sys.stderr.flush()
