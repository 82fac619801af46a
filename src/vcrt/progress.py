"""Progress of long work, as the working code sees it. How it is shown is the command line's business."""

from __future__ import annotations

from typing import Protocol


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


class _SilentTask:
    def advance(self, units: int = 1) -> None:
        """Do nothing."""

    def calls(self, done: int, seconds: float, expected: int | None, note: str = "") -> None:
        """Do nothing."""


class Silent:
    """Progress that shows nothing."""

    def task(self, description: str, total: int, unit: str) -> Task:
        """A task that shows nothing."""
        return _SilentTask()


SILENT: Progress = Silent()
