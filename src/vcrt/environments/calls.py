"""Count the calls of environments as they are made in this process, and the time that they take.

Guarded environments report theirs (see :mod:`vcrt.environments.guarding`). A call is a step, an initial state, a
canonical form, a snapshot or a restoration; of an environment that answers whole sequences at once, each of them is
one. Not covered: calls in other processes (see :mod:`vcrt.certification.call_progress`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from vcrt.progress import Task

Result = TypeVar("Result")
#: ``observer(environment, number, seconds)``: so many calls of an environment took so long together.
Observer: TypeAlias = Callable[[str, int, float], None]

#: Seconds between two reports of calls.
INTERVAL_S = 0.2


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
    """Report every call that guarded environments get in this context to ``observer``."""
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
class TaskObserver:
    """Reports the calls in this process to a task now and then; how many there will be is not known."""

    task: Task
    calls: Calls = field(default_factory=Calls)
    reported: float = field(default_factory=time.monotonic)

    def __call__(self, environment: str, number: int, seconds: float) -> None:
        """Count calls."""
        self.calls.add(number, seconds)
        if self.is_due():
            self.task.calls(self.calls.number, self.calls.seconds, None)

    def is_due(self) -> bool:
        """Whether it is time to report again."""
        now = time.monotonic()
        due = now - self.reported >= INTERVAL_S
        self.reported = now if due else self.reported
        return due
