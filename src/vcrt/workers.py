"""Run worker processes that are watched, and of which nothing is left: not a hanging one, nor what it started.

Each keeps a record of what it does (:mod:`vcrt.call_record`). Not covered: which work goes to which of them, and what
is tried again (see :mod:`vcrt.processes`).
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil
from loky import ProcessPoolExecutor
from loky.backend.context import LokyContext
from loky.process_executor import BrokenProcessPool

from vcrt.call_record import (
    TIMEOUT,
    Doing,
    at_work,
    current_record,
    record_calls,
    recorded_work,
)
from vcrt.process_marks import WORKERS_MARK, bears_mark, mark_process

Argument = TypeVar("Argument")
Result = TypeVar("Result")

#: Seconds between two calls of ``on_wait``.
WAIT_S = 0.25
#: Threads of a worker, one unless they are set: there are as many workers as cores are to be used, and making threads
#: that only wait is half of what an import of numpy costs.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
#: Seconds after which a worker that is gone is ended for good, and those that a worker has to leave in.
_GONE_S = 2.0
_LEAVE_S = 10.0
#: How often, and after how many seconds, is looked for what was started while others were ended.
_ROUNDS, _LOOK_S = 20, 0.02


class Workers:
    """New worker processes, of which nothing is left when the context is left.

    ``ended`` says what those were doing that died or were ended in the midst of work.
    """

    def __init__(self, jobs: int, on_wait: Callable[[], None]) -> None:
        self.ended: list[Doing] = []
        self.on_wait = on_wait
        #: Whether one died, or was ended.
        self.is_broken = False
        self._mark = uuid.uuid4().hex
        self._folder = tempfile.TemporaryDirectory(prefix="vcrt-workers-")
        self._gone_since: dict[int, float] = {}
        self._executor = ProcessPoolExecutor(
            max_workers=jobs,
            # By its name "loky" multiprocessing gives that of whichever copy was imported last: joblib has one, too.
            context=LokyContext(),
            initializer=_begin_worker,
            initargs=(os.getpid(), self._folder.name, self._mark),
            env={
                **{name: os.environ.get(name, "1") for name in _THREADS},
                WORKERS_MARK: self._mark,
            },
        )

    def __enter__(self) -> Workers:
        return self

    def submit(self, do: Callable[[Argument], Result], argument: Argument) -> Future[Result]:
        """Hand a piece of work out."""
        future: Future[Result] = self._executor.submit(do, argument)
        return future

    def result(self, future: Future[Result]) -> Result:
        """The result of a piece; raises ``BrokenProcessPool`` when a worker died or was ended for being late."""
        while not wait([future], timeout=WAIT_S).done:
            self.on_wait()
            self._end_stuck()
        try:
            return future.result()
        except BrokenProcessPool:
            self.is_broken = True
            self.ended = self.ended or at_work(Path(self._folder.name))
            raise

    def _end_stuck(self) -> None:
        """End everything if a call is overdue, or if a worker is gone while what it forked keeps its pipes open."""
        found = at_work(Path(self._folder.name))
        late = [doing for doing in found if doing.overdue_s > 0]
        now = time.monotonic()
        for doing in found:
            if is_alive(doing.pid):
                self._gone_since.pop(doing.pid, None)
            elif now - self._gone_since.setdefault(doing.pid, now) > _GONE_S:
                late.append(doing)
        if late and not self.ended:
            self.ended = late
            end_marked(self._mark)

    def __exit__(self, kind: object, failure: object, trace: object) -> None:
        self.end(kill=kind is not None or self.is_broken)

    def end(self, *, kill: bool) -> None:
        """End the workers and all that they have started: at once, or when what they do is done."""
        leaving = threading.Thread(target=self._executor.shutdown, kwargs={"kill_workers": kill})
        leaving.start()
        leaving.join(_LEAVE_S)
        # Children of a worker that live on, also those that keep it or its pipes from ending.
        end_marked(self._mark)
        leaving.join()
        self._folder.cleanup()


def _begin_worker(parent: int, folder: str, mark: str) -> None:
    mark_process(WORKERS_MARK, mark)
    end_with(parent)
    record_calls(Path(folder))
    # An interruption is the parent's to handle: it ends its workers.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    # What foreign code reads or prints is no part of what this command reads or prints.
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)


def is_alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def end_marked(mark: str, variable: str = WORKERS_MARK) -> bool:
    """Kill each process that bears this mark of ``variable``, but this one, however far it has detached itself.

    By default, those that workers of the mark are or have started. Gives whether there was one.
    """
    found = False
    for _ in range(_ROUNDS):  # what is started meanwhile is found in the next one
        marked = [each for each in psutil.process_iter() if _is_marked(each, mark, variable)]
        for process in marked:
            with suppress(psutil.Error):
                process.kill()
        if not marked:
            break
        found = True
        time.sleep(_LOOK_S)
    return found


def _is_marked(process: psutil.Process, mark: str, variable: str) -> bool:
    """Whether another process that has not ended bears the mark."""
    try:
        if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
            return False
        if bears_mark(process.pid, variable, mark):
            return True
        return bool(process.environ().get(variable) == mark)
    except psutil.Error:
        return False


def end_with(parent: int) -> None:
    """End this process soon after ``parent``, its parent's id, is gone, or at once if it is gone already.

    An orphan would go on writing where others may start.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        if WORKERS_MARK in os.environ:
            end_marked(os.environ[WORKERS_MARK])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def watched_here(
    function: Callable[[Argument], Result], timeout: str | None, argument: Argument
) -> Result:
    """Apply ``function`` in a process of a cluster, which ends itself when a call overruns its limit, and says so."""
    if timeout is not None:
        os.environ[TIMEOUT] = timeout
    if current_record() is None:
        folder = tempfile.TemporaryDirectory(prefix="vcrt-worker-")
        record_calls(Path(folder.name))
        mark = uuid.uuid4().hex
        mark_process(WORKERS_MARK, mark)
        threading.Thread(target=_end_when_late, args=(folder, mark), daemon=True).start()
    with recorded_work(0):
        return function(argument)


def _end_when_late(folder: tempfile.TemporaryDirectory[str], mark: str) -> None:
    while True:
        time.sleep(WAIT_S)
        for doing in at_work(Path(folder.name)):
            if doing.overdue_s > 0:
                text = f"vcrt: no answer after {doing.limit_s:g} s: {doing.place}"
                print(text, file=sys.stderr, flush=True)
                for child in psutil.Process().children(recursive=True):
                    with suppress(psutil.Error):
                        child.kill()
                end_marked(mark)
                os._exit(1)
