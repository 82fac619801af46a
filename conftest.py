"""Do the work of worker processes in the process of the test, but for tests that are about processes.

A worker process costs half a second. What is sent to one and comes back is pickled all the same, and each worker is
another process to the code that asks which one it is in. Mark a test, or a module, ``processes`` where a worker is
killed, hangs, prints, keeps something to itself, or must not see what the test has in memory.

Where vcrt-train is not installed (``make test-pythons``), files are not collected that import it.
"""

from __future__ import annotations

import ast
import gc
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from vcrt.processes import work, workers
from vcrt.replay import completion_judge, shards


class _WorkersHere:
    """Stands for :class:`vcrt.processes.workers.Workers`: work is done when it is submitted."""

    #: The one that works now, if any; and the last one that did.
    at_work: str | None = None
    last: str | None = None

    def __init__(self, jobs: int, on_wait: Callable[[], None]) -> None:
        self.on_wait = on_wait
        self.ended: list[Any] = []
        self.is_broken = False
        self._name = uuid.uuid4().hex

    def __enter__(self) -> _WorkersHere:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def dismiss(self) -> None:
        pass

    def end(self, *, kill: bool) -> None:
        pass

    def submit(self, do: Callable[[Any], Any], argument: object) -> Future[Any]:
        future: Future[Any] = Future()
        outer, _WorkersHere.at_work = _WorkersHere.at_work, self._name
        if self._name != _WorkersHere.last:
            shards.environment_of.cache_clear()
            _WorkersHere.last = self._name
        try:
            sent, given = _sent((do, argument))
            future.set_result(_sent(sent(given)))
        except Exception as error:
            future.set_exception(error)
        finally:
            _WorkersHere.at_work = outer
        return future

    def result(self, future: Future[Any]) -> Any:
        self.on_wait()
        return future.result()


def _sent(value: Any) -> Any:
    return cloudpickle.loads(cloudpickle.dumps(value))


_here = False
#: Folders whose tests have real workers: their libraries, provers and servers keep to one process.
_REAL = (
    "/tests/environments/mcp/",
    "/environments/rocq/tests/",
    "/environments/django/tests/",
)


def _workers(jobs: int, on_wait: Callable[[], None]) -> Any:
    return (_WorkersHere if _here else workers.Workers)(jobs, on_wait)


_own_process = shards._this_process
work.Workers = _workers  # type: ignore[misc,assignment]
completion_judge.Workers = _workers  # type: ignore[misc,assignment]
shards._this_process = lambda: _WorkersHere.at_work or _own_process()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Choose before fixtures are made, those of a module too."""
    global _here
    real = any(folder in item.path.as_posix() for folder in _REAL)
    _here = not real and item.get_closest_marker("processes") is None
    yield
    _here = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the slow ones, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Spare the collector of garbage what stays for good: libraries that collect at each training look at it again."""
    gc.collect()
    gc.freeze()


@cache
def _imports_training(module: Path) -> bool:
    """Whether a module, or one of the support that it imports, imports vcrt_train or its companions when it is loaded.

    What a function imports does not count: such tests say themselves what they do without it.
    """
    names = set()
    for node in ast.parse(module.read_bytes()).body:
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").split(".")[0])
    support = (Path(__file__).parent / "tests" / "support" / f"{name}.py" for name in names)
    return not names.isdisjoint(("vcrt_train", "vcrt_research", "torch")) or any(
        _imports_training(each) for each in support if each.exists() and each != module
    )


if find_spec("vcrt_train") is None:

    def pytest_ignore_collect(collection_path: Path) -> bool | None:
        """Leave out what cannot be imported."""
        return (collection_path.suffix == ".py" and _imports_training(collection_path)) or None
