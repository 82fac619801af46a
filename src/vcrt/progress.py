"""Record the progress of long work where it is done, and report it; the command line shows it.

Work with countable units is a task. Work without units (loading a model, say) is a stage, which is logged to the logger
``vcrt`` like messages to the user; by default nothing listens to it. Each process counts the calls of environments that
it makes; a worker writes its counts and messages to a :class:`Record`. Not covered: what a worker does at this moment,
and its time limit (see :mod:`vcrt.processes.watching`).
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from vcrt.hashing import Json

Argument = TypeVar("Argument")
Result = TypeVar("Result")
#: ``observer(environment, number, seconds)``: so many calls of an environment took so long together.
Observer: TypeAlias = Callable[[str, int, float], None]

LOGGER = logging.getLogger("vcrt")
#: Seconds after which a stage that still lasts is told, and from then on how often.
FIRST_TOLD_S = 1.0
TOLD_EVERY_S = 10.0
#: Seconds of a verifier's calls that are measured before it is said what all of them will cost.
MEASURED_S = 1.0
#: Seconds between two reports of calls.
_INTERVAL_S = 0.2


class Task(Protocol):
    """One piece of long work with a known number of units."""

    def advance(self, units: int = 1) -> None:
        """Note that ``units`` more are done."""

    def calls(self, done: int, seconds: float, expected: int | None, note: str = "") -> None:
        """Note that ``done`` verifier calls, of ``expected`` if that is known, took ``seconds`` together.

        ``note`` is shown with the estimate, once; it says, for example, how to need fewer calls.
        """


class Progress(Protocol):
    """The receiver of progress reports of long work."""

    def task(self, description: str, total: int, unit: str) -> Task:
        """Begin a task of ``total`` units, called ``unit`` in the plural."""


class Silent:
    """Progress that shows nothing, and its task."""

    def task(self, description: str, total: int, unit: str) -> Task:
        """A task that shows nothing."""
        return self

    def advance(self, units: int = 1) -> None:
        """Do nothing."""

    def calls(self, done: int, seconds: float, expected: int | None, note: str = "") -> None:
        """Do nothing."""


SILENT: Progress = Silent()


def tell(text: str, *, seconds: float | None = None) -> None:
    """Log a message that users should see now, and how long its work took."""
    LOGGER.info("%s", text, extra={"seconds": seconds})


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Log that ``what`` is being done: after one second, then every ten seconds, and when it is done."""
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


@dataclass(slots=True)
class Calls:
    """The number of calls, and the seconds that they took together."""

    number: int = 0
    seconds: float = 0.0

    def add(self, number: int, seconds: float) -> None:
        """Add further calls and their seconds."""
        self.number += number
        self.seconds += seconds


_observer: ContextVar[Observer | None] = ContextVar("observer of calls", default=None)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Report every call that guarded environments get in this context to ``observer``.

    A call is a step, an initial state, a canonical form, a snapshot or a restoration. For an environment that
    answers whole sequences at once, each sequence is one call.
    """
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def counted_call(
    environment: str, number: int, function: Callable[..., Result], *arguments: object
) -> Result:
    """Call a function and report it as so many calls to the observer, if there is one (:func:`observing`)."""
    observer = _observer.get()
    if observer is None or not number:
        return function(*arguments)
    # What the environment calls of itself meanwhile is part of these calls.
    token = _observer.set(None)
    began = time.perf_counter()
    try:
        return function(*arguments)
    finally:
        _observer.reset(token)
        observer(environment, number, time.perf_counter() - began)


def observed(work: Callable[[], Result]) -> tuple[Result, list[tuple[str, int, float]]]:
    """Return the result of work, and the calls that it would have reported; :func:`report` does that elsewhere."""
    found: list[tuple[str, int, float]] = []
    with observing(lambda *call: found.append(call)):
        return work(), found


def report(calls: Iterable[tuple[str, int, float]]) -> None:
    """Report calls that were made elsewhere to the observer, if there is one."""
    observer = _observer.get()
    if observer is not None:
        for call in calls:
            observer(*call)


@dataclass(slots=True)
class Counting:
    """An observer that reports the calls so far a few times a second, with the name of the environment."""

    report: Callable[[str, Calls], None]
    calls: Calls = field(default_factory=Calls)
    _environment: str = ""
    _reported: float = field(default_factory=time.monotonic)

    @classmethod
    def for_task(cls, task: Task) -> Counting:
        """Make an observer that reports to a task; the total number of calls is not known."""
        return cls(lambda _, calls: task.calls(calls.number, calls.seconds, None))

    def __call__(self, environment: str, number: int, seconds: float) -> None:
        """Count calls."""
        self.calls.add(number, seconds)
        self._environment = environment
        if time.monotonic() - self._reported >= _INTERVAL_S:
            self.report_now()

    def report_now(self) -> None:
        """Report the calls so far, if there are any."""
        self._reported = time.monotonic()
        if self.calls.number:
            self.report(self._environment, self.calls)


@dataclass(frozen=True, slots=True)
class Record:
    """Lines of JSON in ``folder``: each worker writes to its own file, and the waiting process reads them."""

    folder: Path
    _read: dict[str, int] = field(default_factory=dict)

    def write(self, *line: Json) -> None:
        """Add a line; if the folder cannot be written to, record nothing."""
        with suppress(OSError), (self.folder / str(os.getpid())).open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")

    def news(self) -> Iterator[list[Any]]:
        """Return the complete lines that were written since the last call."""
        for path in sorted(self.folder.iterdir()):
            with path.open("rb") as file:
                file.seek(self._read.get(path.name, 0))
                lines = file.read().split(b"\n")[:-1]
            self._read[path.name] = self._read.get(path.name, 0) + sum(len(n) + 1 for n in lines)
            yield from map(json.loads, lines)


@contextmanager
def recording() -> Iterator[Record]:
    """Make a record with its own folder, which is removed when the context ends."""
    with tempfile.TemporaryDirectory(prefix="vcrt-told-", ignore_cleanup_errors=True) as folder:
        yield Record(Path(folder))


@dataclass(frozen=True, slots=True)
class Heard(Generic[Argument, Result]):
    """A function for worker processes whose log messages reach this process: call :meth:`again` regularly."""

    function: Callable[[Argument], Result]
    record: Record

    def __call__(self, argument: Argument) -> Result:
        """Apply the function in a worker and record its log messages."""
        handler = _Recording(self.record)
        LOGGER.addHandler(handler)
        LOGGER.setLevel(logging.INFO)
        try:
            return self.function(argument)
        finally:
            LOGGER.removeHandler(handler)

    def again(self) -> None:
        """Log here the messages that workers have logged since the last call."""
        for text, seconds in self.record.news():
            tell(text, seconds=seconds)


class _Recording(logging.Handler):
    def __init__(self, record: Record) -> None:
        super().__init__()
        self._record = record

    def emit(self, record: logging.LogRecord) -> None:
        self._record.write(record.getMessage(), getattr(record, "seconds", None))


@contextmanager
def heard(function: Callable[[Argument], Result]) -> Iterator[Heard[Argument, Result]]:
    """Wrap a function for workers; when the context ends, log their last messages here."""
    with recording() as record:
        one = Heard(function, record)
        try:
            yield one
        finally:
            one.again()


@dataclass(slots=True)
class _Expected:
    """One environment's share of the work: its task, its units, and the calls for each unit, expected or measured."""

    task: Task
    num_units: int
    expected: int | None
    note: str
    units_done: int = 0
    calls_done: int = 0

    def calls_expected(self, so_far: int) -> int | None:
        left = self.num_units - self.units_done
        if self.units_done and self.calls_done:
            return max(so_far, round(self.calls_done * (1 + left / self.units_done)))
        return None if self.expected is None else max(so_far, left * self.expected)


@dataclass(frozen=True, slots=True)
class CallProgress:
    """The calls of workers: pass them :meth:`counted`, call :meth:`show` while they work and :meth:`done` after each.

    If workers do not share a folder with this process, their calls are known only when their work is done.
    """

    record: Record
    _expected: dict[str, _Expected] = field(default_factory=dict)
    _made: dict[str, Calls] = field(default_factory=lambda: defaultdict(Calls))

    def counted(
        self, function: Callable[[Argument], Result]
    ) -> Callable[[Argument], tuple[Result, int]]:
        """Wrap the work so that it also returns the number of its calls."""
        return partial(_counted, self.record, function)

    def expect(
        self, environment: str, task: Task, num_units: int, expected: int | None, note: str = ""
    ) -> None:
        """Show the calls of ``environment`` at ``task``, ``expected`` for each of its ``num_units`` if that is known.

        ``note`` is shown after the first estimate.
        """
        self._expected[environment] = _Expected(task, num_units, expected, note)

    def done(self, environment: str, num_units: int, counted: tuple[Result, int]) -> Result:
        """Note that units are done; return the result of the work."""
        result, calls = counted
        share = self._expected[environment]
        share.units_done += num_units
        share.calls_done += calls
        share.task.advance(num_units)
        self.show()
        return result

    def show(self) -> None:
        """Report the number of calls so far to the tasks."""
        for environment, number, seconds in self.record.news():
            self._made[environment].add(number, seconds)
        names_of: dict[int, list[str]] = {}
        for name, share in self._expected.items():
            names_of.setdefault(id(share.task), []).append(name)
        for names in names_of.values():
            shares = [self._expected[name] for name in names]
            so_far = [
                max(self._made[name].number, share.calls_done)
                for name, share in zip(names, shares, strict=True)
            ]
            expected = [
                share.calls_expected(number) for share, number in zip(shares, so_far, strict=True)
            ]
            known = [number for number in expected if number is not None]
            total = sum(known) if len(known) == len(expected) else None
            seconds = sum(self._made[name].seconds for name in names)
            shares[0].task.calls(sum(so_far), seconds, total, shares[0].note)


@contextmanager
def call_progress() -> Iterator[CallProgress]:
    """Make a counter of workers' calls, whose record lasts as long as the context."""
    with recording() as record:
        yield CallProgress(record)


def _counted(
    record: Record, function: Callable[[Argument], Result], argument: Argument
) -> tuple[Result, int]:
    told = Calls()

    def report(environment: str, calls: Calls) -> None:
        record.write(environment, calls.number - told.number, calls.seconds - told.seconds)
        told.number, told.seconds = calls.number, calls.seconds

    counting = Counting(report)
    with observing(counting):
        result = function(argument)
    counting.report_now()
    return result, counting.calls.number
