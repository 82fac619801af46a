"""Work in worker processes, with results in the order of the arguments whatever the number or kind of workers.

Through joblib: its own local processes (loky), or the workers of a Ray or Dask cluster.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from itertools import islice
from typing import Any, Literal, TypeAlias, TypeVar

import joblib
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import BrokenProcessPool

from vcrt.errors import UnavailableError, VcrtError
from vcrt.printable import counted

Argument = TypeVar("Argument")
Result = TypeVar("Result")
Backend: TypeAlias = Literal["loky", "ray", "dask"]

#: Seconds between two calls of ``on_wait``.
WAIT_S = 0.25
#: Arguments handed out for each worker before the first result is awaited: enough to keep it busy, few enough for
#: memory not to grow with the number of arguments.
_AHEAD = 4


def in_fresh_processes(
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    *,
    jobs: int,
    error: type[VcrtError],
    backend: Backend = "loky",
    on_wait: Callable[[], None] = lambda: None,
) -> Iterator[Result]:
    """Apply ``function`` to each argument in ``jobs`` worker processes; results come in the order of arguments.

    With ``loky`` the processes are new; those of a cluster may have worked before. ``on_wait`` is called several times
    a second while a local result is awaited. When a worker dies, the arguments whose results are not in yet are tried
    once more in new processes; when one dies again before a further result came, raises ``error``. A
    :class:`VcrtError` of ``function`` comes through as it is. Raises :class:`UnavailableError` if the backend is not
    installed.
    """
    if backend == "loky":
        return _in_local_processes(function, iter(arguments), jobs, error, on_wait)
    return _on_cluster(function, iter(arguments), jobs, error, backend)


def _in_local_processes(
    function: Callable[[Argument], Result],
    arguments: Iterator[Argument],
    jobs: int,
    error: type[VcrtError],
    on_wait: Callable[[], None],
) -> Iterator[Result]:
    unfinished = deque(islice(arguments, _AHEAD * jobs))
    died_before = False
    while unfinished:
        executor = ProcessPoolExecutor(
            max_workers=min(jobs, len(unfinished)), initializer=end_with, initargs=(os.getpid(),)
        )
        try:
            futures: deque[Future[Result]] = deque(executor.submit(function, a) for a in unfinished)
            while futures:
                while not wait([futures[0]], timeout=WAIT_S).done:
                    on_wait()
                result = futures[0].result()
                futures.popleft()
                unfinished.popleft()
                died_before = False
                for argument in islice(arguments, 1):
                    unfinished.append(argument)
                    futures.append(executor.submit(function, argument))
                yield result
        except BrokenProcessPool as failure:
            executor.shutdown(wait=True, kill_workers=True)
            if died_before:
                raise error(
                    "a worker process died twice over the same work",
                    where=f"{counted(len(unfinished), 'piece')} of work in hand",
                    found=str(failure).splitlines()[0],
                    remedy="look for a crash or a lack of memory; nothing half-done was kept",
                ) from failure
            died_before = True
        except BaseException:
            executor.shutdown(wait=True, kill_workers=True)
            raise
        else:
            executor.shutdown(wait=True)


def _on_cluster(
    function: Callable[[Argument], Result],
    arguments: Iterator[Argument],
    jobs: int,
    error: type[VcrtError],
    backend: Backend,
) -> Iterator[Result]:
    failed_before = False
    unfinished: list[Argument] = list(islice(arguments, _AHEAD * jobs))
    with _cluster(backend, jobs), joblib.parallel_config(backend=backend):
        while unfinished:
            try:
                results = joblib.Parallel(n_jobs=jobs)(
                    joblib.delayed(function)(argument) for argument in unfinished
                )
            except VcrtError:
                raise
            except Exception as failure:
                # Each backend has errors of its own for a worker that is gone.
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
    """Join the cluster that the backend's own settings name, or start a local one of ``jobs`` workers."""
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
    # A worker must be free to start processes of its own.
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
            remedy=f"pip install 'vcrt[{backend}]', or use --backend loky",
        ) from failure


def end_with(parent: int) -> None:
    """End this process soon after ``parent``, its parent's id, is gone, or at once if it is gone already.

    An orphan would go on writing where others may start.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
