"""Count the calls of environments as they are made in this process, and the time that they take.

A call is a step, an initial state, a canonical form, a snapshot or a restoration; of an environment that answers whole
sequences at once, each of them is one. Answers are what they are without it. Not covered: calls in other processes (see
:mod:`vcrt.certification.watching`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from vcrt.environments.contract import Environment, StepEnvironment
from vcrt.environments.shared_prefixes import shares_prefixes
from vcrt.progress import Task

AnyEnvironment = TypeVar("AnyEnvironment", bound=Environment)
#: ``observer(environment, number, seconds)``: so many calls of an environment took so long together.
Observer: TypeAlias = Callable[[str, int, float], None]

#: Seconds between two reports of calls.
INTERVAL_S = 0.2
_STEPS = ("initial_state", "step", "canonical", "snapshot", "restore")
_MARK = "_calls_are_counted"


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
    """Report every call that instrumented environments get in this context to ``observer``."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def instrumented(environment: AnyEnvironment) -> AnyEnvironment:
    """The same environment, whose calls :func:`observing` sees; answers and errors are its own."""
    if not hasattr(environment, _MARK):
        object.__setattr__(environment, _MARK, True)
        # On the object itself, so that its kind and all that it calls of itself stay what they are.
        names = _STEPS if isinstance(environment, StepEnvironment) else ()
        for name in names if shares_prefixes(environment) else (*names, "replay"):
            method = _observed(environment.name, getattr(environment, name), whole=name == "replay")
            object.__setattr__(environment, name, method)
    return environment


def _observed(environment: str, method: Callable[..., Any], *, whole: bool) -> Callable[..., Any]:
    def observed(*arguments: Any, **options: Any) -> Any:
        observer = _observer.get()
        if observer is None:
            return method(*arguments, **options)
        # What the environment calls of itself meanwhile is part of this call.
        token = _observer.set(None)
        began = time.perf_counter()
        try:
            return method(*arguments, **options)
        finally:
            _observer.reset(token)
            requests = arguments[0] if arguments else None
            number = len(requests) if whole and isinstance(requests, Sized) else 1
            observer(environment, number, time.perf_counter() - began)

    return observed


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
