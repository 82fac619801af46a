"""Start, feed, watch and kill worker processes, and serve as one.

A worker is an interpreter that runs :func:`serve` and keeps a record of its calls (:mod:`vcrt.processes.watching`). A
worker that hangs or dies is killed with all that it has started. Work and results are pickled, functions and classes of
the user's own program by value. This module does not try any work again (see :mod:`vcrt.processes.work`).
"""

from __future__ import annotations

import gc
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
from importlib import import_module
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from vcrt.errors import VcrtError
from vcrt.processes import watching
from vcrt.processes.watching import WORKERS_MARK, Doing, at_work, end_marked, recorded_work

Argument = TypeVar("Argument")
Result = TypeVar("Result")

#: Seconds between two calls of ``on_wait`` and two looks at what workers do.
WAIT_S = 0.25
#: The variables for the number of threads of a worker, which is one unless they are set: there are as many workers as
#: cores to use, and half of the time of an import of numpy goes into starting threads that only wait.
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
#: Seconds after which the remains of a dead worker are killed, and seconds that a worker has to leave in.
_GONE_S, _LEAVE_S = 2.0, 10.0
#: The program of a worker. It leaves the main module empty, because functions that are sent by value look there. While
#: it imports, it ignores an interruption (signal 2): its parent kills it.
_START = (
    "__import__('sys').path[:] = {}; __import__('_signal').signal(2, __import__('_signal').SIG_IGN); "
    "__import__('vcrt.processes.workers', fromlist=['serve']).serve()"
)


class WorkerDiedError(Exception):
    """A worker died or was killed while it had a piece of work, or it sent something that cannot be read."""


class RemoteTraceback(Exception):
    """The traceback of an error in a worker, as the cause of that error here."""


class Workers:
    """New worker processes; when the context is left, they and all that they have started are gone.

    ``ended`` says what the workers were doing that died or were killed while they had work. ``on_wait`` is called
    several times a second while :meth:`result` waits.
    """

    def __init__(self, jobs: int, on_wait: Callable[[], None]) -> None:
        self.ended: list[Doing] = []
        self.on_wait = on_wait
        #: Whether a worker died or was killed.
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
        """Hand out a piece of work; raise :class:`WorkerDiedError` if a worker has died before."""
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
        """Return the result of a piece; raise :class:`WorkerDiedError` if a worker died or was killed as late."""
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
        """Have a worker do one piece after another until there is none; each worker has its own thread for this."""
        while (piece := self._pieces.get()) is not None:
            future, work = piece
            if not future.set_running_or_notify_cancel():
                continue
            try:
                data = pickled(work)
            except Exception as error:
                future.set_exception(error)
                continue
            try:
                result, raised, text = worker.ask(data)
            except Exception as failure:
                # All workers are killed first: the records say what each was doing.
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
                raised.__cause__ = RemoteTraceback(f'\n"""\n{text}"""')
                future.set_exception(raised)
            del piece, future, work, data, result, raised
        worker.leave()

    def _break(self, died: WorkerDiedError) -> None:
        """Kill all workers; the pieces that wait fail."""
        waiting: list[Future[Any]] = []
        with self._lock:
            self._death = self._death or died
            for worker, _ in self._started:
                worker.process.kill()
            with suppress(Empty):
                while True:
                    waiting += [piece[0] for piece in [self._pieces.get_nowait()] if piece]
            for _ in self._started:
                self._pieces.put(None)
        for future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(died)

    def _end_stuck(self) -> None:
        """Kill everything if a call is overdue, or if a worker has died and its children keep its pipes open."""
        found = at_work(Path(self._folder.name))
        late = [doing for doing in found if doing.overdue_s > 0]
        now = time.monotonic()
        for doing in found:
            if watching.is_alive(doing.pid):
                self._gone_since.pop(doing.pid, None)
            elif now - self._gone_since.setdefault(doing.pid, now) > _GONE_S:
                late.append(doing)
        if late and not self.ended:
            self.ended = late
            end_marked(self._mark)

    def __exit__(self, kind: object, failure: object, trace: object) -> None:
        self.end(kill=kind is not None or self.is_broken)

    def dismiss(self) -> None:
        """Have the workers leave when their work is done."""
        with self._lock:
            for _ in self._started:
                self._pieces.put(None)

    def end(self, *, kill: bool) -> None:
        """End the workers and all that they have started: at once if ``kill``, else after their work or 10 seconds."""
        until = time.monotonic() + _LEAVE_S
        if kill:
            self._break(WorkerDiedError("the workers were ended"))
        else:
            self.dismiss()
            for _, thread in self._started:
                thread.join(max(0.0, until - time.monotonic()))
        # Children of a worker may live on, and may keep the worker or its pipes from ending.
        if self._started:
            end_marked(self._mark)
        for worker, thread in self._started:
            worker.process.kill()
            thread.join()
            worker.connection.close()
            worker.process.wait()
        self._folder.cleanup()


class _Worker:
    """One worker process, and the connection over which it receives work."""

    def __init__(self, folder: str, mark: str) -> None:
        self.connection, theirs = Pipe()
        threads = {name: os.environ.get(name, "1") for name in _THREADS}
        with theirs:
            self.process = started(theirs.fileno(), {**os.environ, **threads, WORKERS_MARK: mark})
        with suppress(OSError):  # the first question finds that it has died
            self.connection.send((os.getpid(), folder, mark, sys.argv))

    def ask(self, data: bytes) -> tuple[Any, BaseException | None, str]:
        """Return the result of a piece of work, its error and the traceback of that; raise if the worker has died."""
        self.connection.send_bytes(data)
        found: tuple[Any, BaseException | None, str] = self.connection.recv()
        return found

    def death(self, failure: Exception) -> str:
        """Return how the worker ended, or why what it sent cannot be read; it has ended or is about to."""
        if not isinstance(failure, OSError | EOFError):
            return f"a worker gave what cannot be read: {type(failure).__name__}: {failure}"
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_GONE_S)
        self.process.kill()
        code = self.process.wait()
        with suppress(ValueError):
            return f"a worker process was terminated by {signal.Signals(-code).name}"
        return f"a worker process was terminated with exit code {code}"

    def leave(self) -> None:
        """Tell the worker to end, and wait until it has."""
        with suppress(OSError):
            self.connection.send(None)
        self.process.wait()


def started(connection: int, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Return a new interpreter that serves on a connection, with these environment variables."""
    path = [str(each) or os.getcwd() for each in sys.path]
    # Foreign code may print: this goes to standard error, as standard output belongs to this command.
    return subprocess.Popen(
        [sys.executable, "-c", _START.format(path)], stdin=connection, stdout=2, env=variables
    )


def serve() -> None:
    """Do the work that arrives on the standard input, until there is no more: the whole life of a worker process."""
    # The parent handles an interruption: it kills its workers.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    connection = Connection(os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    with suppress(EOFError, OSError):
        parent, folder, mark, sys.argv = connection.recv()
        watching.mark_process(WORKERS_MARK, mark)
        end_with(parent)
        watching.record_calls(Path(folder))
        while (done := _done(connection)) is not None:
            connection.send_bytes(done)


def _done(connection: Connection) -> bytes | None:
    """Return the pickled outcome of the next piece: result, error, and the error's traceback; None if none is left."""
    try:
        work = connection.recv()
    except (EOFError, OSError):
        return None
    except Exception as failure:
        text = f"a worker cannot read its work: {type(failure).__name__}: {failure}"
        return pickled((None, WorkerDiedError(text), ""))
    if work is None:
        return None
    return outcome(*work)


def outcome(do: Callable[[Argument], object], argument: Argument) -> bytes:
    """Do a piece of work; return its result, error, and the error's traceback, as bytes."""
    try:
        return pickled((do(argument), None, ""))
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        try:
            return pickled((None, error, text))
        except Exception as failure:
            return pickled((None, TypeError(f"{type(error).__name__}: {failure}"), text))


def pickled(value: object) -> bytes:
    """Return any value as bytes, functions and classes of the user's own program with their code."""
    import cloudpickle

    data: bytes = cloudpickle.dumps(value)
    return data


def do_piece(
    function: Callable[[Argument], Result], error: type[VcrtError], piece: tuple[int, Argument]
) -> Result:
    """Do a numbered piece of work; raise ``error`` for what would end the process that awaits it (``SystemExit``)."""
    number, argument = piece
    with recorded_work(number):
        try:
            return function(argument)
        except (StopIteration, KeyboardInterrupt, GeneratorExit, SystemExit) as ended:
            raise error(
                "work in a process ended itself",
                found=f"{type(ended).__name__}({str(ended)[:200]})",
                remedy="let it return or raise an error",
            ) from ended


def preload(module: str) -> None:
    """Import a module for later work, and exempt everything in memory from garbage collection from now on."""
    gc.disable()
    try:
        import_module(module)
    finally:
        gc.enable()
    gc.freeze()


def end_with(parent: int) -> None:
    """End this process soon after ``parent`` (a process id) is no longer its parent: an orphan would go on writing."""

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
    """Apply ``function`` in a process of a cluster, which reports a call that overruns its limit and ends itself."""
    if timeout is not None:
        os.environ[watching.TIMEOUT] = timeout
    if watching.current_record() is None:
        folder = tempfile.TemporaryDirectory(prefix="vcrt-worker-")
        watching.record_calls(Path(folder.name))
        mark = os.urandom(16).hex()
        watching.mark_process(WORKERS_MARK, mark)
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
