"""Progress of work in another process, relayed to whoever waits for it.

The worker writes its latest state to a file of a folder now and then, and always at the end; the other side reads it
while it waits. Not covered: several workers at once (see :mod:`vcrt.certification.watching`).
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vcrt.progress import Progress, Task

_FILE = "progress.json"
_INTERVAL_S = 0.2


@dataclass(slots=True)
class RelayingProgress:
    """The worker's side: progress of one task, written to ``folder``."""

    folder: Path
    _state: dict[str, Any] = field(default_factory=dict)
    _written: float = 0.0

    def task(self, description: str, total: int, unit: str) -> Task:
        """Begin the task."""
        self._state = {"what": [description, total, unit], "units": 0, "calls": None}
        self._write(0.0)
        return self

    def advance(self, units: int = 1) -> None:
        """Note that ``units`` more are done."""
        self._state["units"] += units
        self._write(_INTERVAL_S)

    def calls(self, done: int, seconds: float, expected: int | None, note: str = "") -> None:
        """Note calls, as :meth:`vcrt.progress.Task.calls` says."""
        self._state["calls"] = [done, seconds, expected, note]
        self._write(_INTERVAL_S)

    def _write(self, interval_s: float) -> None:
        if time.monotonic() - self._written < interval_s:
            return
        self._written = time.monotonic()
        unfinished = self.folder / f"{_FILE}.new"
        unfinished.write_text(json.dumps(self._state))
        os.replace(unfinished, self.folder / _FILE)


@dataclass(slots=True)
class RelayedProgress:
    """The waiting side: call :meth:`show` now and then, and once when the work is done."""

    folder: Path
    progress: Progress
    _task: Task | None = None
    _units: int = 0
    _calls: list[Any] | None = None

    def show(self) -> None:
        """Tell the progress what is new."""
        try:
            state = json.loads((self.folder / _FILE).read_text())
        except FileNotFoundError:
            return
        if self._task is None:
            self._task = self.progress.task(*state["what"])
        self._task.advance(state["units"] - self._units)
        self._units = state["units"]
        if state["calls"] not in (None, self._calls):
            self._calls = state["calls"]
            self._task.calls(*state["calls"])
