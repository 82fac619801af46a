"""Record the progress of long work where it is done, and report it. How it is shown is the command line's business.

What has units to count is a task; what has none (a model that is loaded, say) is a stage, which is logged, as is what
people are told on the way. The logger is ``vcrt``; nobody listens unless asked to. Calls of environments are counted in
the process that makes them; a worker writes what others are to know to a :class:`Record`. Not covered: what a worker
does at this moment, and for how long it may (see :mod:`vcrt.call_record`).
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
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


@dataclass(slots=True)
class Calls:
    """How many calls were made, and how many seconds they took together."""

    number: int = 0
    seconds: float = 0.0

    def add(self, number: int, seconds: float) -> None:
        """Count more."""
        self.number += number
        self.seconds += seconds


_observer: ContextVar[Observer | None] = ContextVar("observer of calls", default=None)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Report every call that guarded environments get in this context to ``observer``.

    A call is a step, an initial state, a canonical form, a snapshot or a restoration; of an environment that answers
    whole sequences at once, each of them is one.
    """
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def counted_call(
    environment: str, number: int, function: Callable[..., Result], *arguments: object
) -> Result:
    """Call a function, and report that as so many calls, if somebody is :func:`observing`."""
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


@dataclass(slots=True)
class Counting:
    """An observer that reports the calls so far a few times a second, with the name of the environment."""

    report: Callable[[str, Calls], None]
    calls: Calls = field(default_factory=Calls)
    _environment: str = ""
    _reported: float = field(default_factory=time.monotonic)

    @classmethod
    def for_task(cls, task: Task) -> Counting:
        """Reports to a task; how many calls there will be is not known."""
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
    """Lines of JSON that workers write to ``folder``, each to a file of its own, and that who waits for them reads."""

    folder: Path
    _read: dict[str, int] = field(default_factory=dict)

    def write(self, *line: Json) -> None:
        """Add a line; where the folder cannot be written to, nothing is recorded."""
        with suppress(OSError), (self.folder / str(os.getpid())).open("ab") as file:
            file.write(json.dumps(line).encode() + b"\n")

    def news(self) -> Iterator[list[Any]]:
        """The lines that were written since they were read last; one that is still being written waits."""
        for path in sorted(self.folder.iterdir()):
            with path.open("rb") as file:
                file.seek(self._read.get(path.name, 0))
                lines = file.read().split(b"\n")[:-1]
            self._read[path.name] = self._read.get(path.name, 0) + sum(len(n) + 1 for n in lines)
            yield from map(json.loads, lines)


@contextmanager
def recording() -> Iterator[Record]:
    """A record, with a folder of its own as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="vcrt-told-", ignore_cleanup_errors=True) as folder:
        yield Record(Path(folder))


@dataclass(frozen=True, slots=True)
class Heard(Generic[Argument, Result]):
    """A function for worker processes whose log is to be heard in this one: call :meth:`again` now and then."""

    function: Callable[[Argument], Result]
    record: Record

    def __call__(self, argument: Argument) -> Result:
        """Apply the function in a worker, and record what it logs there."""
        handler = _Recording(self.record)
        LOGGER.addHandler(handler)
        LOGGER.setLevel(logging.INFO)
        try:
            return self.function(argument)
        finally:
            LOGGER.removeHandler(handler)

    def again(self) -> None:
        """Log here what workers have logged since."""
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
    """The function as workers are to run it; what they have logged last is logged at the end."""
    with recording() as record:
        one = Heard(function, record)
        try:
            yield one
        finally:
            one.again()


@dataclass(slots=True)
class _Expected:
    """One environment's share of the work: its task, units, and calls a unit, as they are expected or were found."""

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
    """Calls of workers: give them :meth:`counted`, call :meth:`show` while they work and :meth:`done` after each.

    Of workers that do not share a folder with this process, calls are known when their work is done.
    """

    record: Record
    _expected: dict[str, _Expected] = field(default_factory=dict)
    _made: dict[str, Calls] = field(default_factory=lambda: defaultdict(Calls))

    def counted(
        self, function: Callable[[Argument], Result]
    ) -> Callable[[Argument], tuple[Result, int]]:
        """The work, which gives the number of its calls as well."""
        return partial(_counted, self.record, function)

    def expect(
        self, environment: str, task: Task, num_units: int, expected: int | None, note: str = ""
    ) -> None:
        """Show the calls of ``environment`` at ``task``, ``expected`` for each of its ``num_units`` if that is known.

        ``note`` is put behind the first estimate.
        """
        self._expected[environment] = _Expected(task, num_units, expected, note)

    def done(self, environment: str, num_units: int, counted: tuple[Result, int]) -> Result:
        """Note that units are done; gives what the work gave."""
        result, calls = counted
        share = self._expected[environment]
        share.units_done += num_units
        share.calls_done += calls
        share.task.advance(num_units)
        self.show()
        return result

    def show(self) -> None:
        """Tell the tasks how many calls there were so far."""
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
    """The calls of workers, with a record of their own as long as the context lasts."""
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
