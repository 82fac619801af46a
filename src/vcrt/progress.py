"""Report the progress of long work, as the working code sees it. How it is shown is the command line's business.

What has units to count is a task; what has none (a model that is loaded, say) is a stage, which is logged, as is what
people are told on the way. The logger is ``vcrt``; nobody listens unless asked to.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")

LOGGER = logging.getLogger("vcrt")
#: Seconds after which a stage that still lasts is told, and from then on how often.
FIRST_TOLD_S = 1.0
TOLD_EVERY_S = 10.0
#: Seconds of a verifier's calls that are measured before it is said what all of them will cost.
MEASURED_S = 1.0


class Task(Protocol):
    """One piece of long work with a known number of units."""

    def advance(self, units: int = 1) -> None:
        """Note that ``units`` more are done."""

    def calls(self, done: int, seconds: float, expected: int | None, note: str = "") -> None:
        """Note that ``done`` calls of a verifier were made, which took ``seconds`` together, of ``expected`` if known.

        ``note`` belongs to the estimate that is shown once, such as a way to have less.
        """


class Progress(Protocol):
    """Where long work reports to."""

    def task(self, description: str, total: int, unit: str) -> Task:
        """Begin a task of ``total`` units, called ``unit`` in the plural."""


class Silent:
    """Progress that shows nothing, and the task of it."""

    def task(self, description: str, total: int, unit: str) -> Task:
        """A task that shows nothing."""
        return self

    def advance(self, units: int = 1) -> None:
        """Do nothing."""

    def calls(self, done: int, seconds: float, expected: int | None, note: str = "") -> None:
        """Do nothing."""


SILENT: Progress = Silent()


def tell(text: str, *, seconds: float | None = None) -> None:
    """Log something that people should know now, and how long it took."""
    LOGGER.info("%s", text, extra={"seconds": seconds})


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Log that ``what`` is being done: when it lasts more than a second, every ten seconds, and when it is done."""
    began = time.monotonic()
    over = threading.Event()

    def watch() -> None:
        if over.wait(FIRST_TOLD_S):
            return
        tell(f"{what} ...")
        while not over.wait(TOLD_EVERY_S):
            tell(f"{what}: not done yet", seconds=time.monotonic() - began)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
    tell(f"{what}: done", seconds=time.monotonic() - began)


@dataclass(frozen=True, slots=True)
class Heard(Generic[Argument, Result]):
    """A function for worker processes whose log is to be heard in this one: call :meth:`again` now and then."""

    function: Callable[[Argument], Result]
    folder: Path
    _read: dict[str, int] = field(default_factory=dict)

    def __call__(self, argument: Argument) -> Result:
        """Apply the function in a worker, and keep what it logs in a file there."""
        handler = logging.FileHandler(self.folder / str(os.getpid()), encoding="utf-8")
        handler.setFormatter(_AsJson())
        LOGGER.addHandler(handler)
        LOGGER.setLevel(logging.INFO)
        try:
            return self.function(argument)
        finally:
            LOGGER.removeHandler(handler)
            handler.close()

    def again(self) -> None:
        """Log here what workers have logged since; a line that is still being written waits."""
        for path in sorted(self.folder.iterdir()):
            with path.open("rb") as file:
                file.seek(self._read.get(path.name, 0))
                lines = file.read().split(b"\n")[:-1]
            self._read[path.name] = self._read.get(path.name, 0) + sum(len(n) + 1 for n in lines)
            for line in lines:
                text, seconds = json.loads(line)
                tell(text, seconds=seconds)


@contextmanager
def heard(function: Callable[[Argument], Result]) -> Iterator[Heard[Argument, Result]]:
    """The function as workers are to run it; what they have logged last is logged at the end."""
    with tempfile.TemporaryDirectory(prefix="vcrt-told-") as folder:
        one = Heard(function, Path(folder))
        try:
            yield one
        finally:
            one.again()


class _AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps([record.getMessage(), getattr(record, "seconds", None)])
