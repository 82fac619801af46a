"""Know the test that runs now, and keep worker processes from one assertion to the next.

pytest's plug-in begins and ends a session; without one, each assertion has processes of its own. The kept ones end
when the working directory, the environment's variables or the import path are others than when they started, when the
next environment comes from a file in another folder, and when a module that they loaded has changed on disk. It
imports nothing that takes time: pytest loads it at every start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from contextvars import Context, copy_context
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

Result = TypeVar("Result")


class RunningTest(NamedTuple):
    """A test: its file, its name in the file, and whether certificates are to be recorded."""

    file: Path
    name: str
    update: bool


class Session:
    """A run of tests; ``test`` is the one that runs now, ``num_certified`` the number of its certificates so far."""

    def __init__(self) -> None:
        self.test: RunningTest | None = None
        self.num_certified = 0
        self._lock = Lock()
        self._context: Context | None = None
        self._kept: AbstractContextManager[Any] | None = None
        self._surroundings: object = None
        self._files: dict[str, object] = {}

    def begin(self, test: RunningTest | None) -> None:
        """Note which test runs from now on; None for no test."""
        self.test, self.num_certified = test, 0

    def note(self, files: Iterable[str]) -> None:
        """Note which files of modules the processes have loaded."""
        for file in files:
            self._files.setdefault(file, _mark(file))

    def run(self, do: Callable[[], Result], folder: str | None = None) -> Result:
        """Do something with the kept processes; a second thread at the same time gets processes of its own.

        ``folder`` is that of the file that the environment comes from, whose neighbours the processes can import.
        """
        if not self._lock.acquire(blocking=False):
            return _with_own_processes(do)
        try:
            return self._started(folder).run(do)
        except Exception:
            raise
        except BaseException as error:  # an interruption: their work is not waited for
            self.end(error)
            raise
        finally:
            self._lock.release()

    def end(self, error: BaseException | None = None) -> None:
        """End the processes: at once if there is an ``error``, else after their work."""
        kept, context, self._kept, self._context = self._kept, self._context, None, None
        if kept is not None and context is not None:
            about = (None, None, None) if error is None else (type(error), error, None)
            context.run(kept.__exit__, *about)

    def _started(self, folder: str | None) -> Context:
        variables = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
        surroundings = os.getcwd(), variables, list(sys.path), folder
        changed = any(_mark(file) != mark for file, mark in self._files.items())
        if self._context is None or changed or self._surroundings != surroundings:
            from vcrt.processes import kept_processes

            self.end()
            self._files.clear()
            # A test may run in a context of its own, such as that of an event loop.
            self._context, self._surroundings = copy_context(), surroundings
            self._kept = kept_processes()
            self._context.run(self._kept.__enter__)
        return self._context


#: The session of pytest's plug-in, if there is one.
session: Session | None = None


def in_processes(do: Callable[[], Result], folder: str | None = None) -> Result:
    """Do something with processes that are kept meanwhile, those of the session if there is one (see its ``run``)."""
    return _with_own_processes(do) if session is None else session.run(do, folder)


def _mark(file: str) -> object:
    """Return what a change of a file changes; None if there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _with_own_processes(do: Callable[[], Result]) -> Result:
    from vcrt.processes import kept_processes

    with kept_processes():
        return do()
