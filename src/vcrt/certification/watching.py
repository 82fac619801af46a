"""The calls that workers make, shown while they make them: how many, how fast, and how many are still expected.

Not covered: what is printed (see :mod:`vcrt.cli.progress`), and workers that share no folder with this process, whose
calls are known when their work is done.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import factorial, perm
from pathlib import Path
from typing import TypeVar

from vcrt.environments.calls import Calls, Telling, Told, calls_told
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
class _Watched:
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
class Watch:
    """Workers at work: give them :meth:`telling`, call :meth:`show` while they work and :meth:`done` after each."""

    folder: Path
    _watched: dict[str, _Watched] = field(default_factory=dict)

    def telling(self, function: Callable[[Argument], Result]) -> Callable[[Argument], Told[Result]]:
        """The work, with its calls told."""
        return Telling(function, self.folder)

    def of(
        self, environment: str, task: Task, num_units: int, expected: int | None, note: str = ""
    ) -> None:
        """Show the calls of ``environment`` at ``task``, ``expected`` for each of its ``num_units`` if that is known.

        ``note`` is put behind the first estimate.
        """
        self._watched[environment] = _Watched(task, num_units, expected, note)

    def done(self, environment: str, num_units: int, told: Told[Result]) -> Result:
        """Note that units are done; gives what the work gave."""
        watched = self._watched[environment]
        watched.units_done += num_units
        watched.calls_done += told.calls
        watched.task.advance(num_units)
        self.show()
        return told.result

    def show(self) -> None:
        """Tell the tasks how many calls there were so far."""
        found = calls_told(self.folder)
        by_task: dict[int, list[tuple[str, _Watched]]] = {}
        for item in self._watched.items():
            by_task.setdefault(id(item[1].task), []).append(item)
        for items in by_task.values():
            seconds, so_far, expected = 0.0, 0, list[int | None]()
            for name, watched in items:
                calls = found.get(name, Calls())
                seconds += calls.seconds
                number = max(calls.number, watched.calls_done)
                so_far += number
                expected.append(watched.calls_expected(number))
            known = [number for number in expected if number is not None]
            total = sum(known) if len(known) == len(expected) else None
            items[0][1].task.calls(so_far, seconds, total, items[0][1].note)


@contextmanager
def watching() -> Iterator[Watch]:
    """A watch over workers, with a folder of its own as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="vcrt-", ignore_cleanup_errors=True) as folder:
        yield Watch(Path(folder))
