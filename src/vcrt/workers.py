"""Run worker processes that are watched, and of which nothing is left: not a hanging one, nor what it started.

Each keeps a record of what it does (:mod:`vcrt.process_records`). Work and results are pickled, functions of one's own
program by value. Not covered: which work is tried again (see :mod:`vcrt.processes`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from vcrt.process_records import (
    TIMEOUT,
    WORKERS_MARK,
    Doing,
    at_work,
    bears_mark,
    current_record,
    mark_process,
    record_calls,
    recorded_work,
)

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
#: What a worker runs: nothing of this stands in its main module, where functions that are sent by value look. An
#: interruption (signal 2) is ignored while it imports: its parent ends it.
_START = (
    "__import__('sys').path[:] = {}; __import__('_signal').signal(2, __import__('_signal').SIG_IGN); "
    "__import__('vcrt.workers', fromlist=['serve']).serve()"
)


class WorkerDiedError(Exception):
    """A worker died, or was ended, with a piece of work in hand, or gave what cannot be read."""


class _RemoteTraceback(Exception):
    """Where in a worker an error was raised."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class Workers:
    """New worker processes, of which nothing is left when the context is left.

    ``ended`` says what those were doing that died or were ended in the midst of work.
    """

    def __init__(self, jobs: int, on_wait: Callable[[], None]) -> None:
        self.ended: list[Doing] = []
        self.on_wait = on_wait
        #: Whether one died, or was ended.
        self.is_broken = False
        self._jobs = jobs
        self._mark = os.urandom(16).hex()
        self._folder = tempfile.TemporaryDirectory(prefix="vcrt-workers-")
        self._gone_since: dict[int, float] = {}
        self._lock = threading.Lock()
        self._pieces: SimpleQueue[tuple[Future[Any], object] | None] = SimpleQueue()
        self._started: list[tuple[_Worker, threading.Thread]] = []
        self._death: WorkerDiedError | None = None

    def __enter__(self) -> Workers:
        return self

    def submit(self, do: Callable[[Argument], Result], argument: Argument) -> Future[Result]:
        """Hand a piece of work out; raises :class:`WorkerDiedError` once one has died."""
        future: Future[Result] = Future()
        with self._lock:
            if self._death is not None:
                raise WorkerDiedError(str(self._death))
            if len(self._started) < self._jobs:
                worker = _Worker(self._folder.name, self._mark)
                thread = threading.Thread(target=self._serve, args=(worker,), daemon=True)
                self._started.append((worker, thread))
                thread.start()
            self._pieces.put((future, (do, argument)))
        return future

    def result(self, future: Future[Result]) -> Result:
        """The result of a piece; raises :class:`WorkerDiedError` when a worker died or was ended for being late."""
        while not wait([future], timeout=WAIT_S).done:
            self.on_wait()
            self._end_stuck()
        try:
            return future.result()
        except WorkerDiedError:
            self.is_broken = True
            self.ended = self.ended or at_work(Path(self._folder.name))
            raise

    def _serve(self, worker: _Worker) -> None:
        """Have a worker do piece after piece until there is none; in a thread of its own."""
        while (piece := self._pieces.get()) is not None:
            future, work = piece
            if not future.set_running_or_notify_cancel():
                continue
            try:
                data = _pickled(work)
            except Exception as error:
                future.set_exception(error)
                continue
            try:
                result, raised, text = worker.ask(data)
            except Exception as failure:
                # All of them are ended first: records say what each was doing.
                died = WorkerDiedError(worker.death(failure))
                self._break(died)
                future.set_exception(died)
                return
            if raised is None:
                future.set_result(result)
            elif isinstance(raised, WorkerDiedError):
                self._break(raised)
                future.set_exception(raised)
                return
            else:
                raised.__cause__ = _RemoteTraceback(text)
                future.set_exception(raised)
            del piece, future, work, data, result, raised
        worker.leave()

    def _break(self, died: WorkerDiedError) -> None:
        """End all of them; no piece that waits will be done."""
        waiting: list[Future[Any]] = []
        with self._lock:
            self._death = self._death or died
            for worker, _ in self._started:
                worker.kill()
            with suppress(Empty):
                while True:
                    waiting += [piece[0] for piece in [self._pieces.get_nowait()] if piece]
            for _ in self._started:
                self._pieces.put(None)
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(died)

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

    def dismiss(self) -> None:
        """Have the workers leave when what they do is done."""
        with self._lock:
            for _ in self._started:
                self._pieces.put(None)

    def end(self, *, kill: bool) -> None:
        """End the workers and all that they have started: at once, or when what they do is done."""
        until = time.monotonic() + _LEAVE_S
        if kill:
            self._break(WorkerDiedError("the workers were ended"))
        else:
            self.dismiss()
            for _, thread in self._started:
                thread.join(max(0.0, until - time.monotonic()))
        # Children of a worker that live on, also those that keep it or its pipes from ending.
        if self._started:
            end_marked(self._mark)
        for worker, thread in self._started:
            worker.kill()
            thread.join()
            worker.close()
        self._folder.cleanup()


class _Worker:
    """One worker process, and the connection on which it is given work."""

    def __init__(self, folder: str, mark: str) -> None:
        self._connection, theirs = Pipe()
        threads = {name: os.environ.get(name, "1") for name in _THREADS}
        with theirs:
            self._process = started(theirs.fileno(), {**os.environ, **threads, WORKERS_MARK: mark})
        with suppress(OSError):  # whoever asks it finds that it is gone
            self._connection.send((os.getpid(), folder, mark, sys.argv))

    def ask(self, data: bytes) -> tuple[Any, BaseException | None, str]:
        """The result of a piece of work, or the error that it ended in, and where; raises if the worker is gone."""
        self._connection.send_bytes(data)
        found: tuple[Any, BaseException | None, str] = self._connection.recv()
        return found

    def death(self, failure: Exception) -> str:
        """How it came to its end, which is at hand, or what it gave that cannot be read."""
        if not isinstance(failure, OSError | EOFError):
            return f"a worker gave what cannot be read: {type(failure).__name__}: {failure}"
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GONE_S)
        self.kill()
        code = self._process.wait()
        with suppress(ValueError):
            return f"a worker process was terminated by {signal.Signals(-code).name}"
        return f"a worker process was terminated with exit code {code}"

    def leave(self) -> None:
        """Let it end, and wait for that."""
        with suppress(OSError):
            self._connection.send(None)
        self._process.wait()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def close(self) -> None:
        """Close the connection, when the worker is gone."""
        self._connection.close()
        self._process.wait()


def started(connection: int, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """A new interpreter that serves on a connection, with these environment variables."""
    path = [str(each) or os.getcwd() for each in sys.path]
    # What foreign code prints is no part of what this command prints.
    return subprocess.Popen(
        [sys.executable, "-c", _START.format(path)], stdin=connection, stdout=2, env=variables
    )


def _pickled(value: object) -> bytes:
    """Any value as bytes, functions and classes of one's own program with their code."""
    import cloudpickle

    data: bytes = cloudpickle.dumps(value)
    return data


def serve() -> None:
    """Do what comes on the standard input, until that is over: what a worker process is there for."""
    # An interruption is the parent's to handle: it ends its workers.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    connection = Connection(os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    with suppress(EOFError, OSError):
        parent, folder, mark, sys.argv = connection.recv()
        mark_process(WORKERS_MARK, mark)
        end_with(parent)
        record_calls(Path(folder))
        while (done := _done(connection)) is not None:
            connection.send_bytes(done)


def _done(connection: Connection) -> bytes | None:
    """What came of the next piece: its result, or the error that it ended in and where; None if there is none."""
    try:
        work = connection.recv()
    except (EOFError, OSError):
        return None
    except Exception as failure:
        text = f"a worker cannot read its work: {type(failure).__name__}: {failure}"
        return _pickled((None, WorkerDiedError(text), ""))
    if work is None:
        return None
    do, argument = work
    try:
        return _pickled((do(argument), None, ""))
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        try:
            return _pickled((None, error, text))
        except Exception as failure:
            return _pickled((None, TypeError(f"{type(error).__name__}: {failure}"), text))


def is_alive(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def end_marked(mark: str, variable: str = WORKERS_MARK) -> bool:
    """Kill each process that bears this mark of ``variable``, but this one, however far it has detached itself.

    By default, those that workers of the mark are or have started. Gives whether there was one.
    """
    import psutil

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


def _is_marked(process: Any, mark: str, variable: str) -> bool:
    """Whether another process that has not ended bears the mark."""
    import psutil

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
        mark = os.urandom(16).hex()
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
                import psutil

                for child in psutil.Process().children(recursive=True):
                    with suppress(psutil.Error):
                        child.kill()
                end_marked(mark)
                os._exit(1)
