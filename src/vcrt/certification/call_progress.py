"""Show the calls that workers make while they make them: how many, how fast, and how many are still expected.

Workers write their counts to a folder, now and then while they work, and whoever waits for them reads it; where it
cannot be written, nothing is counted. Not covered: what is printed (see :mod:`vcrt.cli.progress`), and workers that
share no folder with this process, whose calls are known when their work is done.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from math import factorial, perm
from pathlib import Path
from typing import TypeVar

from vcrt.environments.calls import INTERVAL_S, Calls, observing
from vcrt.environments.isolation import Description
from vcrt.limits import MAX_EXHAUSTIVE
from vcrt.progress import Task

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def calls_for_all_orders(
    environment: Description, num_operations: int | None, *, sharing: bool
) -> int | None:
    """The calls that replaying every order of one episode takes if all are accepted.

    None if not every order is replayed, or if lengths differ.

    With ``sharing``, each prefix is run once, where the environment allows it; otherwise each order starts afresh.
    """
    n = num_operations
    if n is None or n > MAX_EXHAUSTIVE:
        return None
    if not environment.shares_prefixes:
        return factorial(n)
    if not sharing:
        return factorial(n) * (2 + 2 * n)
    calls = 2 * sum(perm(n, length) for length in range(n + 1))
    if environment.offers_snapshots:
        # Of every prefix that more than one operation may follow, and again for each of these but the first.
        calls += sum(perm(n, length) * (n - length) for length in range(n - 1))
    return calls


@dataclass(slots=True)
class _Expected:
    """One environment's share of the work: its task, units, and calls a unit, as they are expected or were found."""

    task: Task
    num_units: int
    expected: int | None
    note: str = ""
    units_done: int = 0
    calls_done: int = 0

    def calls_expected(self, so_far: int) -> int | None:
        left = self.num_units - self.units_done
        if self.units_done and self.calls_done:
            return max(so_far, round(self.calls_done * (1 + left / self.units_done)))
        return None if self.expected is None else max(so_far, left * self.expected)


@dataclass(slots=True)
class CallProgress:
    """Calls of workers: give them :meth:`counting`, call :meth:`show` while they work and :meth:`done` after each."""

    folder: Path
    _expected: dict[str, _Expected] = field(default_factory=dict)

    def counted(
        self, function: Callable[[Argument], Result]
    ) -> Callable[[Argument], tuple[Result, int]]:
        """The work, which gives the number of its calls as well."""
        return partial(_counted, self.folder, function)

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
        found = _read_calls(self.folder)
        by_task: dict[int, list[tuple[str, _Expected]]] = {}
        for item in self._expected.items():
            by_task.setdefault(id(item[1].task), []).append(item)
        for items in by_task.values():
            seconds, so_far, expected = 0.0, 0, list[int | None]()
            for name, share in items:
                calls = found.get(name, Calls())
                seconds += calls.seconds
                number = max(calls.number, share.calls_done)
                so_far += number
                expected.append(share.calls_expected(number))
            known = [number for number in expected if number is not None]
            total = sum(known) if len(known) == len(expected) else None
            items[0][1].task.calls(so_far, seconds, total, items[0][1].note)


@contextmanager
def call_progress() -> Iterator[CallProgress]:
    """The calls of workers, with a folder of its own as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="vcrt-", ignore_cleanup_errors=True) as folder:
        yield CallProgress(Path(folder))


@dataclass(slots=True)
class _CallsFile:
    """Counts calls by environment, and writes them to a file of this process."""

    file: Path
    calls: dict[str, Calls] = field(default_factory=lambda: defaultdict(Calls))
    number: int = 0
    written: float = 0.0

    def __call__(self, environment: str, number: int, seconds: float) -> None:
        self.calls[environment].add(number, seconds)
        self.number += number
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


@cache
def _calls_file(folder: Path) -> _CallsFile:
    return _CallsFile(folder / f"{uuid.uuid4().hex}.json")


def _counted(
    folder: Path, function: Callable[[Argument], Result], argument: Argument
) -> tuple[Result, int]:
    calls = _calls_file(folder)
    before = calls.number
    with observing(calls):
        result = function(argument)
    calls.write()
    return result, calls.number - before


def _read_calls(folder: Path) -> dict[str, Calls]:
    """The calls of all workers that write to ``folder``, by environment."""
    found: dict[str, Calls] = defaultdict(Calls)
    for file in folder.glob("*.json"):
        try:
            for name, (number, seconds) in json.loads(file.read_text()).items():
                found[name].add(number, seconds)
        except (OSError, ValueError):
            continue
    return found
