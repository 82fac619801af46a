"""Lay out the directory of one training run: where its checkpoints and its log lie.

Scheduled checkpoints stay; between them the latest state is kept until the run is finished. Not covered: what a
checkpoint holds (:mod:`vcrt_train.training.checkpoint`).
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

PROGRESS_LOG = "progress.jsonl"
#: Scheduled checkpoints, and the one that is kept between them.
_CHECKPOINT = re.compile(r"(update|latest)-(\d{6})")


def checkpoint_path(directory: Path, update_index: int) -> Path:
    """Where a run keeps its checkpoint of an update."""
    return directory / f"update-{update_index:06d}"


def kept_path(directory: Path, update_index: int) -> Path:
    """Where a run keeps its state between scheduled checkpoints."""
    return directory / f"latest-{update_index:06d}"


def latest_checkpoint(directory: Path) -> Path | None:
    """The checkpoint of a run with the most updates, scheduled or not, if there is one."""
    if not directory.is_dir():
        return None
    found = [path for path in directory.iterdir() if _CHECKPOINT.fullmatch(path.name)]
    return max(found, key=updates_kept, default=None)


def updates_kept(checkpoint: Path) -> int:
    """After how many updates a checkpoint was written."""
    return int(checkpoint.name.rpartition("-")[2])


def remove_kept(directory: Path, *, but: Path | None = None) -> None:
    """Remove what was kept between scheduled checkpoints."""
    for path in directory.glob("latest-*"):
        if path != but:
            shutil.rmtree(path)


def updates_logged(directory: Path) -> int:
    """How many updates a run's log shows: how far it is, for people to see."""
    path = directory / PROGRESS_LOG
    return path.read_bytes().count(b"\n") if path.is_file() else 0
