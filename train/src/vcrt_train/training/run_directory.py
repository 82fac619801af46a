"""Lay out the directory of one training run: the places of its checkpoints and its log.

Scheduled checkpoints stay; between them the latest state is kept until the run is finished. This module does not define
what a checkpoint holds (:mod:`vcrt_train.training.checkpoint`).
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

PROGRESS_LOG = "progress.jsonl"
#: The names of scheduled checkpoints, and of the one that is kept between them.
_CHECKPOINT = re.compile(r"(update|latest)-(\d{6})")


def checkpoint_path(directory: Path, update_index: int) -> Path:
    """Return the path of a run's scheduled checkpoint after an update."""
    return directory / f"update-{update_index:06d}"


def kept_path(directory: Path, update_index: int) -> Path:
    """Return the path of a run's state between scheduled checkpoints."""
    return directory / f"latest-{update_index:06d}"


def latest_checkpoint(directory: Path) -> Path | None:
    """Return the checkpoint of a run with the most updates, scheduled or not; None if there is none."""
    if not directory.is_dir():
        return None
    found = [path for path in directory.iterdir() if _CHECKPOINT.fullmatch(path.name)]
    return max(found, key=updates_kept, default=None)


def updates_kept(checkpoint: Path) -> int:
    """Return the number of updates after which a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def remove_kept(directory: Path, *, but: Path | None = None) -> None:
    """Remove the states kept between scheduled checkpoints, except ``but``."""
    for path in directory.glob("latest-*"):
        if path != but:
            shutil.rmtree(path)


def updates_logged(directory: Path) -> int:
    """Return the number of updates in a run's log, to show its progress to people."""
    path = directory / PROGRESS_LOG
    return path.read_bytes().count(b"\n") if path.is_file() else 0
