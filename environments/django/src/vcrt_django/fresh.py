"""Do work in a forked process: its changes in Python and in an SQLite in memory vanish when it ends.

Parent and child share a connection to a server: the parent waits, and restores the database. The child is in its
parent's process group, so that it ends with it. A forked process has no threads.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

from vcrt.errors import MalformedInputError, UnavailableError, VcrtError, VerifierFailure
from vcrt.hashing import Json
from vcrt.processes.programs import SECONDS_BETWEEN_LOOKS, over_limit

_KINDS = (UnavailableError, MalformedInputError, VerifierFailure)
_PARTS = ("what", "where", "found", "expected", "remedy")


def error_form(error: Exception) -> Json:
    """Return an error for another process: its kind and its parts."""
    if not isinstance(error, VcrtError):
        found = f"{type(error).__name__}: {error}"
        what = "Django failed where it should have given a verdict"
        error = VerifierFailure(what, found=found)
    kind = next((k.__name__ for k in _KINDS if isinstance(error, k)), VerifierFailure.__name__)
    return [kind, {name: getattr(error, name) for name in _PARTS}]


def error_of(form: Any) -> VcrtError:
    """Return the error that :func:`error_form` wrote."""
    name, parts = form
    return {kind.__name__: kind for kind in _KINDS}[name](**parts)


def in_fresh_process(work: Callable[[], Json], *, max_memory_mb: float) -> Any:
    """Return the result of ``work``; raise its :class:`VcrtError`, and :class:`VerifierFailure` for other failures."""
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
    answer = json.loads(received)
    if "error" in answer:
        raise error_of(answer["error"])
    return answer["found"]


def _answer(work: Callable[[], Json], sending: int) -> None:
    """Send the result of ``work``, one line, and end this process."""
    status = 1
    try:
        try:
            answer = {"found": work()}
        except Exception as error:
            answer = {"error": error_form(error)}
        with os.fdopen(sending, "wb") as pipe:
            pipe.write(json.dumps(answer).encode() + b"\n")
        _flush()
        status = 0
    finally:
        os._exit(status)


def _is_whole(received: bytearray) -> bool:
    return received.endswith(b"\n")


def _flush() -> None:
    """Flush the output, so that the child does not print it again."""
    sys.stdout.flush()
    sys.stderr.flush()
