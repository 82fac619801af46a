"""Work in fresh worker processes, with results in the order of the arguments whatever the number of workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import TypeVar

from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import BrokenProcessPool

from vcrt.errors import VcrtError

Argument = TypeVar("Argument")
Result = TypeVar("Result")

#: Seconds between two calls of ``on_wait``.
WAIT_S = 0.25


def in_fresh_processes(
    function: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    *,
    jobs: int,
    error: type[VcrtError],
    on_wait: Callable[[], None] = lambda: None,
) -> Iterator[Result]:
    """Apply ``function`` to each argument in ``jobs`` new worker processes; results come in the order of arguments.

    ``on_wait`` is called several times a second while a result is awaited. When a worker dies, the arguments whose
    results are not in yet are tried once more in new processes; when one dies again before a further result came,
    raises ``error``. Exceptions of ``function`` come through as they are.
    """
    remaining = list(arguments)
    died_before = False
    while remaining:
        executor = ProcessPoolExecutor(
            max_workers=min(jobs, len(remaining)), initializer=_end_with, initargs=(os.getpid(),)
        )
        try:
            futures: list[Future[Result]] = [executor.submit(function, a) for a in remaining]
            for future in futures:
                while not wait([future], timeout=WAIT_S).done:
                    on_wait()
                yield future.result()
                del remaining[0]
                died_before = False
        except BrokenProcessPool as failure:
            executor.shutdown(wait=True, kill_workers=True)
            if died_before:
                raise error(
                    "a worker process died twice over the same work",
                    where=f"{len(remaining)} pieces of work to go",
                    found=str(failure).splitlines()[0],
                    remedy="look for a crash or a lack of memory; nothing half-done was kept",
                ) from failure
            died_before = True
        except BaseException:
            executor.shutdown(wait=True, kill_workers=True)
            raise
        else:
            executor.shutdown(wait=True)


def _end_with(parent: int) -> None:
    """End this worker soon after its parent is gone: an orphan would go on writing where others may start."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
