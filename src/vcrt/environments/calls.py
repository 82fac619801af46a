"""Counting the calls of environments as they are made, in this process and in workers, and the time that they take.

A call is a step, an initial state, a canonical form, a snapshot or a restoration; of an environment that answers whole
sequences at once, each of them is one. Answers are what they are without it. Workers write their counts to a folder,
now and then while they work, and whoever waits for them reads it; where it cannot be written, nothing is counted.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from vcrt.environments.contract import Environment, StepEnvironment
from vcrt.progress import Task

Argument = TypeVar("Argument")
Result = TypeVar("Result")
AnyEnvironment = TypeVar("AnyEnvironment", bound=Environment)

#: Seconds between two notes of calls, and between two writings of a worker's counts.
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


class Hearer(Protocol):
    """What is told of calls: of which environment, how many, and how many seconds they took."""

    def __call__(self, environment: str, number: int, seconds: float) -> None:
        """Hear of them."""


_hearer: ContextVar[Hearer | None] = ContextVar("calls of environments", default=None)


@contextmanager
def hearing(hearer: Hearer) -> Iterator[None]:
    """Tell ``hearer`` of every call that counted environments get in this context."""
    token = _hearer.set(hearer)
    try:
        yield
    finally:
        _hearer.reset(token)


def counting(environment: AnyEnvironment) -> AnyEnvironment:
    """The same environment, whose calls are told to whoever is :func:`hearing`; answers and errors are its own."""
    if not hasattr(environment, _MARK):
        object.__setattr__(environment, _MARK, True)
        # On the object itself, so that its kind and all that it calls of itself stay what they are.
        names = _STEPS if isinstance(environment, StepEnvironment) else ()
        for name in (*names, "replay"):
            method = _told(environment.name, getattr(environment, name), whole=name == "replay")
            object.__setattr__(environment, name, method)
    return environment


def _told(environment: str, method: Callable[..., Any], *, whole: bool) -> Callable[..., Any]:
    def told(*arguments: Any, **options: Any) -> Any:
        hearer = _hearer.get()
        if hearer is None:
            return method(*arguments, **options)
        inner = _Inner(hearer)
        token = _hearer.set(inner)
        began = time.perf_counter()
        try:
            return method(*arguments, **options)
        finally:
            _hearer.reset(token)
            # What was told from inside is not told again.
            if not inner.number:
                requests = arguments[0] if whole and arguments else None
                number = len(requests) if isinstance(requests, Sized) else 1
                hearer(environment, number, time.perf_counter() - began)

    return told


@dataclass(slots=True)
class Noting:
    """Hears of calls in this process, and notes them at a task now and then; how many there will be is not known."""

    task: Task
    calls: Calls = field(default_factory=Calls)
    noted: float = field(default_factory=time.monotonic)

    def __call__(self, environment: str, number: int, seconds: float) -> None:
        """Hear of them."""
        self.calls.add(number, seconds)
        if self.is_due():
            self.task.calls(self.calls.number, self.calls.seconds, None)

    def is_due(self) -> bool:
        """Whether it is time to note again."""
        now = time.monotonic()
        due = now - self.noted >= INTERVAL_S
        self.noted = now if due else self.noted
        return due


@dataclass(slots=True)
class _Inner:
    hearer: Hearer
    number: int = 0

    def __call__(self, environment: str, number: int, seconds: float) -> None:
        self.number += number
        self.hearer(environment, number, seconds)


@dataclass(slots=True)
class _Writer:
    """Counts calls by environment, and writes them to a file of this process."""

    file: Path
    calls: dict[str, Calls] = field(default_factory=lambda: defaultdict(Calls))
    written: float = 0.0

    def __call__(self, environment: str, number: int, seconds: float) -> None:
        self.calls[environment].add(number, seconds)
        if time.monotonic() - self.written >= INTERVAL_S:
            self.write()

    def write(self) -> None:
        self.written = time.monotonic()
        unfinished = self.file.with_suffix(".new")
        try:
            counts = {name: [c.number, c.seconds] for name, c in self.calls.items()}
            unfinished.write_text(json.dumps(counts))
            os.replace(unfinished, self.file)
        except OSError:
            return

    def total(self) -> int:
        return sum(calls.number for calls in self.calls.values())


@cache
def _writer(folder: Path) -> _Writer:
    return _Writer(folder / f"{uuid.uuid4().hex}.json")


@dataclass(frozen=True, slots=True)
class Told(Generic[Result]):
    """What work gave, and how many calls it took."""

    result: Result
    calls: int


@dataclass(frozen=True, slots=True)
class Telling(Generic[Argument, Result]):
    """``function``, as a worker does it whose calls are read from ``folder`` while it works."""

    function: Callable[[Argument], Result]
    folder: Path

    def __call__(self, argument: Argument) -> Told[Result]:
        """Do it."""
        writer = _writer(self.folder)
        before = writer.total()
        with hearing(writer):
            result = self.function(argument)
        writer.write()
        return Told(result, writer.total() - before)


def calls_told(folder: Path) -> dict[str, Calls]:
    """The calls of all workers that tell of them in ``folder``, by environment."""
    found: dict[str, Calls] = defaultdict(Calls)
    for file in folder.glob("*.json"):
        try:
            for name, (number, seconds) in json.loads(file.read_text()).items():
                found[name].add(number, seconds)
        except (OSError, ValueError):
            continue
    return found
