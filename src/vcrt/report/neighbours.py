"""The names of the two pages, which link to each other where both lie in one folder."""

from __future__ import annotations

from pathlib import Path

REPORT_FILE = "report.html"
EXPLORER_FILE = "explorer.html"


def neighbour(folder: Path, name: str) -> str | None:
    """The relative address of a page in ``folder``, if it is there."""
    return name if (folder / name).is_file() else None
