"""Show progress as bars on a terminal (task, units done, rate, time left), and as plain lines elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from vcrt import progress as contract
from vcrt.printable import duration, printable

#: Seconds between two lines about one task; its last line comes at once.
LINE_INTERVAL = 10.0
#: Seconds of silence that need no explanation: what ends sooner shows no progress where a command usually ends at once.
PATIENCE = 3.0
#: Calls of a verifier that are measured before it is said what all of them will cost.
MEASURED_CALLS = 10


class UnitsColumn(ProgressColumn):
    """The units that are done, of all units; the bar may stand between two units."""

    def render(self, task: Task) -> Text:
        """The two numbers, with their unit."""
        return Text(f"{task.fields['units']}/{task.total or 0:.0f} {task.fields['unit']}")


class RateColumn(ProgressColumn):
    """Units per second since the task began, or verifier calls: their number, expected number and rate."""

    def render(self, task: Task) -> Text:
        """The rate, with its unit."""
        elapsed = task.finished_time if task.finished else task.elapsed
        pace: Pace | None = task.fields["pace"]
        if pace is not None and not task.finished:
            return Text(pace.text(), style="cyan")
        rate = task.fields["units"] / elapsed if elapsed else 0.0
        return Text(f"{rate:.1f} {task.fields['unit']}/s", style="cyan")


@dataclass(frozen=True, slots=True)
class Pace:
    """Verifier calls: how many were made, how many are expected if that is known, and how many for each second.

    The rate is ``measured`` calls in ``elapsed`` seconds of wall time since the first calls were noted.
    """

    done: int
    expected: int | None
    measured: int = 0
    elapsed: float = 0.0

    @property
    def rate(self) -> float:
        """Calls a second."""
        return self.measured / self.elapsed if self.elapsed else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds that are left."""
        if self.expected is None or not self.measured:
            return None
        return max(0, self.expected - self.done) / self.rate

    def text(self) -> str:
        """Calls and their rate."""
        of = f" of about {self.expected:,}" if self.expected is not None else ""
        return f"{self.done:,}{of} calls, {self.rate:.1f}/s"


@dataclass(slots=True)
class _Calls:
    """The calls of a task, measured from the first report on, because workers are still starting before it."""

    first: tuple[float, int] | None = None
    estimated: bool = False

    def pace(self, done: int, expected: int | None) -> Pace:
        """Return the pace after ``done`` calls."""
        now = time.monotonic()
        if self.first is None and done:
            self.first = now, done
        began, before = self.first or (now, done)
        return Pace(done, expected, done - before, now - began)

    def estimate(self, pace: Pace, seconds: float, note: str) -> str | None:
        """Estimate the cost of all calls from the first ones, which took ``seconds`` together.

        The estimate is given once, when enough was measured, and only if enough is left.
        """
        measured = pace.elapsed >= contract.MEASURED_S and pace.measured >= MEASURED_CALLS
        if self.estimated or not measured or (pace.left_s is not None and pace.left_s <= PATIENCE):
            return None
        self.estimated = True
        each = f"at {seconds / pace.done:.2g} s each"
        if pace.expected is None:
            return f"verifier calls {each}; how many there will be is not known yet{note}"
        lasts = duration(pace.expected / pace.rate)
        return f"about {pace.expected:,} verifier calls {each}: {lasts}{note}"


@dataclass(slots=True)
class _BarTask:
    bars: _Bars
    identity: TaskID
    description: str
    made: _Calls = field(default_factory=_Calls)

    def advance(self, units: int = 1) -> None:
        """Note that more units are done."""
        self.bars.appear()
        bars = self.bars.bars
        bars.start_task(self.identity)
        done = self._task.fields["units"] + units
        bars.update(self.identity, completed=done, units=done)

    def calls(self, done: int, seconds: float, expected: int | None, note: str = "") -> None:
        """Move the bar between two units, and print an estimate once."""
        pace = self.made.pace(done, expected)
        if not done or self._task.finished:
            return
        self.bars.appear()
        bars, task = self.bars.bars, self._task
        bars.start_task(self.identity)
        completed = task.fields["units"]
        if expected:
            # Never whole: what is left of a unit is not only calls.
            completed = max(completed, (task.total or 0) * min(done / expected, 0.99))
        bars.update(self.identity, completed=max(completed, task.completed), pace=pace)
        if (estimate := self.made.estimate(pace, seconds, note)) is not None:
            text = f"{self.description}: {estimate}"
            bars.console.print(text, highlight=False, soft_wrap=True)

    @property
    def _task(self) -> Task:
        return next(task for task in self.bars.bars.tasks if task.id == self.identity)


@dataclass(slots=True)
class _Bars:
    bars: Progress
    after: float
    began: float = field(default_factory=time.monotonic)
    shown: bool = False

    def task(self, description: str, total: int, unit: str) -> contract.Task:
        """A new bar, whose clock starts with its first unit."""
        identity = self.bars.add_task(description, total=total, unit=unit, units=0, pace=None)
        return _BarTask(self, identity, description)

    def appear(self) -> None:
        """Show the bars, unless it is too early."""
        if not self.shown and time.monotonic() - self.began >= self.after:
            self.shown = True
            self.bars.start()


@dataclass(slots=True)
class _LineTask:
    console: Console
    description: str
    total: int
    unit: str
    after: float
    began: float = field(default_factory=time.monotonic)
    done: int = 0
    tenths: int = 0
    printed: float = field(default_factory=time.monotonic)
    made: _Calls = field(default_factory=_Calls)
    calls_printed: int = 0

    def advance(self, units: int = 1) -> None:
        """Note that more units are done; prints a line at a tenth, not too soon after the last, and at the end."""
        self.done += units
        tenths = 10 * self.done // max(self.total, 1)
        now = time.monotonic()
        ended = self.done >= self.total
        if now - self.began < self.after:
            return
        if tenths > self.tenths and (ended or now - self.printed >= LINE_INTERVAL):
            self.tenths = tenths
            elapsed = now - self.began
            rate = self.done / elapsed if elapsed else 0.0
            left = (self.total - self.done) / rate if rate else 0.0
            rest = f"done in {duration(elapsed)}" if ended else f"{rate:.1f}/s, {left:.0f} s left"
            self._print(f"{self.done}/{self.total} {self.unit}, {rest}")

    def calls(self, done: int, seconds: float, expected: int | None, note: str = "") -> None:
        """Print an estimate once, and then lines at intervals that grow in long work."""
        pace = self.made.pace(done, expected)
        if self.done >= self.total:
            return
        if (estimate := self.made.estimate(pace, seconds, note)) is not None:
            self._print(estimate)
            self.calls_printed = done
        elif time.monotonic() - self.printed >= max(LINE_INTERVAL, pace.elapsed / 20):
            left = "" if pace.left_s is None else f", {duration(pace.left_s)} left"
            made = f"{pace.text()}{left}"
            if done == self.calls_printed:
                made = f"{done:,} calls, none ended since: one lasts, or answers are compared"
            self._print(f"{self.done}/{self.total} {self.unit}, {made}")
            self.calls_printed = done

    def _print(self, text: str) -> None:
        self.printed = time.monotonic()
        self.console.print(f"{self.description}: {text}", highlight=False, soft_wrap=True)


@dataclass(frozen=True, slots=True)
class _Lines:
    console: Console
    after: float

    def task(self, description: str, total: int, unit: str) -> contract.Task:
        """A new task that prints lines."""
        return _LineTask(self.console, description, total, unit, self.after)


class LeftColumn(TimeRemainingColumn):
    """The time left, computed from the verifier's calls if they are counted."""

    def render(self, task: Task) -> Text:
        """Hours, minutes and seconds."""
        pace: Pace | None = task.fields["pace"]
        if pace is None or pace.left_s is None or task.finished:
            return super().render(task)
        return Text(str(timedelta(seconds=round(pace.left_s))), style="progress.remaining")


class _Printing(logging.Handler):
    """A handler that prints messages for people; messages of quick work that repeat are printed once."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line, with how long it took."""
        text, seconds = printable(record.getMessage()), getattr(record, "seconds", None)
        if text in self._told and (seconds is None or seconds < contract.FIRST_TOLD_S):
            return
        self._told.add(text)
        took = "" if seconds is None else f", {seconds:.1f} s"
        self._console.print(text + took, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def telling(console: Console) -> Iterator[None]:
    """Print messages for people on the console while the context lasts."""
    printing, logger = _Printing(console), contract.LOGGER
    level, propagate = logger.level, logger.propagate
    logger.addHandler(printing)
    logger.setLevel(logging.INFO)
    # Libraries that set up the root logger would have it printed twice.
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(printing)
        logger.setLevel(level)
        logger.propagate = propagate


@contextmanager
def showing_progress(console: Console, *, after: float = 0.0) -> Iterator[contract.Progress]:
    """Show bars while the context lasts if the console is a terminal, lines otherwise, and messages for people.

    Nothing is shown before ``after`` seconds.
    """
    with telling(console), _tasks(console, after) as progress:
        yield progress


@contextmanager
def _tasks(console: Console, after: float) -> Iterator[contract.Progress]:
    if not console.is_terminal:
        yield _Lines(console, after)
        return
    whole = Column(no_wrap=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", table_column=Column(ratio=1)),
        BarColumn(bar_width=24),
        UnitsColumn(table_column=whole),
        RateColumn(table_column=whole.copy()),
        LeftColumn(table_column=whole.copy()),
    )
    bars = Progress(*columns, console=console)
    shown = _Bars(bars, after)
    try:
        if not after:
            shown.appear()
        yield shown
    finally:
        bars.stop()
