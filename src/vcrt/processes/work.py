"""Apply a function to many arguments in worker processes, and yield the results in the order of the arguments.

The workers are processes of this machine or, through joblib, of a Ray or Dask cluster; the results are the same.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from vcrt.errors import UnavailableError, VcrtError, VerifierFailure
from vcrt.plugins import installing_extra
from vcrt.printable import counted
from vcrt.processes import Backend
from vcrt.processes.watching import TIMEOUT, Doing
from vcrt.processes.workers import WorkerDiedError, Workers, do_piece, preload, watched_here

Argument = TypeVar("Argument")
Result = TypeVar("Result")

#: The number of arguments that each worker is given before the first result is awaited: enough to keep it busy, and few
#: enough that memory does not grow with the number of arguments.
_AHEAD = 4


def num_jobs(jobs: int | None) -> int:
    """Return ``jobs``, or by default the number of usable cores; raise :class:`VcrtError` for less than one."""
    if jobs is not None and jobs < 1:
        raise VcrtError("too few jobs", found=str(jobs), expected="at least 1")
    return jobs if jobs is not None else len(os.sched_getaffinity(0))


def in_fresh_processes(
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    *,
    jobs: int,
    error: type[VcrtError] = VerifierFailure,
    backend: Backend = "local",
    on_wait: Callable[[], None] = lambda: None,
    narrow: Callable[[Argument, str], Argument | None] = lambda argument, episode: None,
    kept: KeptProcess | None = None,
) -> Iterator[Result]:
    """Apply ``function`` to each argument in ``jobs`` worker processes; yield results in the order of the arguments.

    The processes of the backend ``local`` are new; those of a cluster may have worked before. ``on_wait`` is called
    several times a second while a local result is awaited. If a worker dies, or overruns the time limit in its record
    (see :mod:`vcrt.processes.watching`), it is killed with all that it has started, and its argument is tried once
    more, alone. If ``narrow(argument, episode)`` gives the part of the argument in which that happened, this part is
    tried before. A second failure raises ``error`` with the place. A :class:`VcrtError` of ``function`` is raised
    unchanged; an exception that would end a process, such as ``SystemExit``, becomes ``error``. If there is only one
    argument, the ``kept`` process is used, if one is given. Raise :class:`UnavailableError` if the backend is not
    installed.
    """
    if backend != "local":
        yield from _on_cluster(function, iter(arguments), jobs, error, backend)
        return
    pieces = enumerate(arguments)
    unfinished = deque(islice(pieces, _AHEAD * jobs))
    done_alone: dict[int, Result] = {}
    died_before = False
    if len(unfinished) > 1:
        kept = None
    while unfinished:
        with (
            Workers(min(jobs, len(unfinished)), on_wait) if kept is None else kept.lent(on_wait)
        ) as workers:
            try:
                do = partial(do_piece, function, error)
                futures: deque[Future[Result] | None] = deque(
                    None if piece[0] in done_alone else workers.submit(do, piece)
                    for piece in unfinished
                )
                while futures:
                    number, future = unfinished[0][0], futures[0]
                    result = done_alone.pop(number) if future is None else workers.result(future)
                    futures.popleft()
                    unfinished.popleft()
                    died_before = False
                    for piece in islice(pieces, 1):
                        unfinished.append(piece)
                        futures.append(workers.submit(do, piece))
                    yield result
                continue
            except WorkerDiedError as failure:
                broken = failure
        # It is not known which worker died first: the work of each is tried by itself.
        in_hand = dict(unfinished)
        suspects = [d for d in workers.ended if d.work in in_hand and d.work not in done_alone]
        for doing in suspects:
            argument = in_hand[doing.work]
            part = narrow(argument, doing.episode)
            if part is not None:
                do_alone(function, part, doing, error, on_wait)
            done_alone[doing.work] = do_alone(function, argument, doing, error, on_wait)
        if not suspects and died_before:
            raise _died(error, "", broken) from broken
        died_before = not suspects


def do_alone(
    function: Callable[[Argument], Result],
    argument: Argument,
    before: Doing | None,
    error: type[VcrtError],
    on_wait: Callable[[], None],
) -> Result:
    """Try work alone that has broken its worker ``before``; return its result, or raise ``error`` if it fails again."""
    with Workers(1, on_wait) as workers:
        try:
            return workers.result(workers.submit(partial(do_piece, function, error), (0, argument)))
        except WorkerDiedError as failure:
            broken = failure
    now = next(iter(workers.ended), before)
    if now is not None and now.overdue_s > 0:
        raise error(
            "a verifier's call ran over its time limit, and again when it was tried alone",
            where=now.place,
            found=f"no answer after {now.limit_s:g} s",
            expected="an answer within the limit; the process was ended with all that it had started",
            remedy="mend what hangs; or allow more time, by `call_timeout_s` in the environment's class or by the "
            "command's `--verifier-timeout SECONDS`",
        )
    places = [doing.place for doing in (now, before) if doing is not None and doing.place]
    raise _died(error, next(iter(places), ""), broken) from broken


class KeptProcess:
    """One worker process for many pieces of work; a piece starts it if it has not started or has died."""

    def __init__(self) -> None:
        self._workers: Workers | None = None
        self._timeout: str | None = None
        self._begun: Future[Any] | None = None

    def prepare(self, *modules: str) -> None:
        """Start the process, and have it import modules that it will need."""
        for module in modules:
            self.begin(preload, module)

    def begin(
        self, function: Callable[[Argument], Result], argument: Argument
    ) -> Callable[[Callable[[], None]], Result]:
        """Begin a piece of work; whatever is submitted later is done after it.

        Return what awaits the result; it is given ``on_wait``. If the process has died, the work is done again as
        :func:`in_fresh_processes` does it.
        """
        begun: Future[Result] | None = None
        with suppress(WorkerDiedError):  # the next question finds that
            begun = self._started().submit(partial(do_piece, function, VcrtError), (0, argument))
            self._begun = begun

        def result(on_wait: Callable[[], None]) -> Result:
            if begun is not None:
                with suppress(WorkerDiedError), self.lent(on_wait) as workers:
                    return workers.result(begun)
            (again,) = in_fresh_processes(function, [argument], jobs=1, on_wait=on_wait, kept=self)
            return again

        return result

    @contextmanager
    def lent(self, on_wait: Callable[[], None]) -> Iterator[Workers]:
        """Give the process as workers, which live on when the context is left, unless they are broken."""
        workers = self._started()
        workers.on_wait = on_wait
        try:
            yield workers
        finally:
            if workers.is_broken:
                self.end()

    def dismiss(self) -> None:
        """Have the process leave when its work is done; do not wait for that."""
        if self._workers is not None and not self._is_at_work():
            self._workers.dismiss()

    def _is_at_work(self) -> bool:
        return self._begun is not None and not self._begun.done()

    def end(self, *, kill: bool = False) -> None:
        """End the process: at once if ``kill``, if it is broken, or if nobody awaits its work; else after its work."""
        workers, self._workers = self._workers, None
        if workers is not None:
            workers.end(kill=kill or self._is_at_work() or workers.is_broken)

    def _started(self) -> Workers:
        # A process has the time limit that held when it was started.
        timeout = os.environ.get(TIMEOUT)
        if self._workers is not None and self._timeout != timeout:
            self.end(kill=True)
        if self._workers is None:
            self._workers, self._timeout = Workers(1, lambda: None), timeout
        return self._workers


class KeptProcesses(NamedTuple):
    """Two processes: one replays first; the other answers questions about an environment and replays again."""

    first: KeptProcess
    again: KeptProcess


_KEPT: ContextVar[KeptProcesses | None] = ContextVar("kept processes", default=None)


@contextmanager
def kept_processes() -> Iterator[KeptProcesses]:
    """Keep two worker processes in this context for work that asks for them: most questions take less than a start."""
    outer = _KEPT.get()
    if outer is not None:
        yield outer
        return
    kept = KeptProcesses(KeptProcess(), KeptProcess())
    token, kill = _KEPT.set(kept), True
    try:
        yield kept
        kill = False
        for process in kept:
            process.dismiss()
    finally:
        _KEPT.reset(token)
        for process in kept:
            process.end(kill=kill)


def kept_now() -> KeptProcesses | None:
    """Return the processes that are kept now, or None."""
    return _KEPT.get()


def _died(error: type[VcrtError], place: str, failure: WorkerDiedError) -> VcrtError:
    return error(
        "a worker process died twice over the same work",
        where=place or None,
        found=str(failure),
        remedy="look for a crash or a lack of memory; nothing half-done was kept",
    )


def _on_cluster(
    function: Callable[[Argument], Result],
    arguments: Iterator[Argument],
    jobs: int,
    error: type[VcrtError],
    backend: Backend,
) -> Iterator[Result]:
    joblib: Any = _imported("joblib", backend)
    failed_before = False
    timeout = os.environ.get(TIMEOUT)
    unfinished: list[Argument] = list(islice(arguments, _AHEAD * jobs))
    with _cluster(backend, jobs), joblib.parallel_config(backend=backend):
        while unfinished:
            try:
                results = joblib.Parallel(n_jobs=jobs)(
                    joblib.delayed(watched_here)(function, timeout, argument)
                    for argument in unfinished
                )
            except VcrtError:
                raise
            except Exception as failure:
                # Each backend has its own errors for a worker that has died.
                if failed_before:
                    raise error(
                        f"work on the {backend} backend failed twice",
                        where=f"{counted(len(unfinished), 'piece')} of work in hand",
                        found=f"{type(failure).__name__}: {str(failure)[:300]}",
                        remedy="look at the cluster's own logs; nothing half-done was kept",
                    ) from failure
                failed_before = True
                continue
            failed_before = False
            yield from results
            unfinished = list(islice(arguments, _AHEAD * jobs))


def _cluster(backend: Backend, jobs: int) -> AbstractContextManager[object]:
    """Join the cluster that the settings of the backend name, or start a local one of ``jobs`` workers."""
    if backend == "ray":
        ray: Any = _imported("ray", backend)
        if not ray.is_initialized():
            num_cpus = None if os.environ.get("RAY_ADDRESS") else jobs
            ray.init(num_cpus=num_cpus, include_dashboard=False, log_to_driver=False)
        _imported("ray.util.joblib", backend).register_ray()
        return nullcontext()
    dask: Any = _imported("dask", backend)
    distributed: Any = _imported("dask.distributed", backend)
    local: dict[str, Any] = {}
    if not dask.config.get("scheduler-address", None):
        local = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
    # A worker must be allowed to start processes.
    with dask.config.set({"distributed.worker.daemon": False}):
        client: AbstractContextManager[object] = distributed.Client(**local)
    return client


def _imported(module: str, backend: Backend) -> Any:
    try:
        return import_module(module)
    except ImportError as failure:
        raise UnavailableError(
            f"the {backend} backend is not installed",
            found=str(failure),
            remedy=f"{installing_extra(backend)}; or use --backend local",
        ) from failure
