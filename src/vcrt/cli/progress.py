"""Progress on a terminal: what is being done, how far, how fast and how long still; plain lines elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from vcrt import progress as contract
from vcrt.printable import printable

#: Seconds between two lines about one task; its last line comes at once.
LINE_INTERVAL = 10.0


class RateColumn(ProgressColumn):
    """Units a second since the task began."""

    def render(self, task: Task) -> Text:
        """The rate, with its unit."""
        elapsed = task.finished_time if task.finished else task.elapsed
        rate = task.completed / elapsed if elapsed else 0.0
        return Text(f"{rate:.1f} {task.fields['unit']}/s", style="cyan")


@dataclass(frozen=True, slots=True)
class _BarTask:
    bars: Progress
    identity: TaskID

    def advance(self, units: int = 1) -> None:
        """Note that more units are done."""
        self.bars.start_task(self.identity)
        self.bars.advance(self.identity, units)


@dataclass(frozen=True, slots=True)
class _Bars:
    bars: Progress

    def task(self, description: str, total: int, unit: str) -> contract.Task:
        """A new bar, whose clock starts with its first unit."""
        identity = self.bars.add_task(description, total=total, unit=unit)
        return _BarTask(self.bars, identity)


@dataclass(slots=True)
class _LineTask:
    console: Console
    description: str
    total: int
    unit: str
    began: float = field(default_factory=time.monotonic)
    done: int = 0
    tenths: int = 0
    printed: float = field(default_factory=time.monotonic)

    def advance(self, units: int = 1) -> None:
        """Note that more units are done; prints a line at a tenth, not too soon after the last, and at the end."""
        self.done += units
        tenths = 10 * self.done // max(self.total, 1)
        now = time.monotonic()
        ended = self.done >= self.total
        if tenths > self.tenths and (ended or now - self.printed >= LINE_INTERVAL):
            self.tenths, self.printed = tenths, now
            elapsed = now - self.began
            rate = self.done / elapsed if elapsed else 0.0
            left = (self.total - self.done) / rate if rate else 0.0
            self.console.print(
                f"{self.description}: {self.done}/{self.total} {self.unit}, "
                f"{rate:.1f}/s, {left:.0f} s left",
                highlight=False,
            )


@dataclass(frozen=True, slots=True)
class _Lines:
    console: Console

    def task(self, description: str, total: int, unit: str) -> contract.Task:
        """A new task that prints lines."""
        return _LineTask(self.console, description, total, unit)


class _Printing(logging.Handler):
    """Prints what people are told; of what is quick, the same thing once, however many workers do it."""

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
    """Print on the console what is logged for people while the context lasts."""
    printing, level = _Printing(console), contract.LOGGER.level
    contract.LOGGER.addHandler(printing)
    contract.LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        contract.LOGGER.removeHandler(printing)
        contract.LOGGER.setLevel(level)


@contextmanager
def showing_progress(console: Console) -> Iterator[contract.Progress]:
    """Bars while the context lasts if the console is a terminal, lines otherwise, and what is told on the way."""
    with telling(console), _tasks(console) as progress:
        yield progress


@contextmanager
def _tasks(console: Console) -> Iterator[contract.Progress]:
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        yield _Bars(bars)
