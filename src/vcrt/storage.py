"""Files that are whole or not there: written beside, flushed to the disk, and published by one rename."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vcrt.errors import VcrtError


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically, replacing one that is there."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.unfinished-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _flush_directory(path.parent)


def publish_directory(path: Path, fill: Callable[[Path], None], error: type[VcrtError]) -> None:
    """Let ``fill`` write into a new directory beside ``path`` and publish it under that name by one rename.

    Nothing is overwritten: raises ``error`` if something has that name. If ``fill`` fails, nothing is left.
    """
    refuse_existing(path, error)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.partial-", dir=path.parent))
    try:
        partial.chmod(0o755)
        fill(partial)
        for file in sorted(partial.rglob("*")):
            if file.is_file():
                _flush_file(file)
            else:
                _flush_directory(file)
        _flush_directory(partial)
        refuse_existing(path, error)
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _flush_directory(path.parent)


def remove_partial(directory: Path, name: str = "*") -> None:
    """Remove what killed calls of :func:`publish_directory` for ``name`` left; nobody else publishes it now."""
    for partial in directory.glob(f".{name}.partial-*"):
        shutil.rmtree(partial)


def remove_unfinished_files(directory: Path, pattern: str) -> None:
    """Remove what killed calls of :func:`write_file` left of files named like ``pattern`` below ``directory``.

    The directory has no other writer now.
    """
    for file in directory.rglob(f".{pattern}.unfinished-*"):
        if file.is_file():
            file.unlink()


def remove_leftovers(directory: Path) -> None:
    """Remove what killed calls of :func:`write_file` and :func:`publish_directory` left anywhere below ``directory``.

    The directory has no other writer now.
    """
    for partial in list(directory.rglob(".*.partial-*")):
        if partial.is_dir():
            shutil.rmtree(partial)
    remove_unfinished_files(directory, "*")


@contextmanager
def sole_user(path: Path, what: str, error: type[VcrtError]) -> Iterator[None]:
    """Hold the lock file ``path``; raises ``error`` if another process holds it. The system frees it on any death."""
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as failure:
            raise error(
                f"another process is at work on {what}",
                where=str(path.parent),
                remedy="wait for it, or end it",
            ) from failure
        yield


def require_new(path: Path, error: type[VcrtError]) -> None:
    """Make sure, before long work, that ``path`` is free and that its parent can be written to."""
    refuse_existing(path, error)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise error(
            "the output's folder cannot be written to",
            where=str(path.parent),
            remedy="choose another --output, or change the folder's permissions",
        )


def refuse_existing(path: Path, error: type[VcrtError]) -> None:
    """Raise ``error`` if something of that name exists, so that nothing is overwritten."""
    if path.exists() or path.is_symlink():
        raise error(
            "the output exists already and is not overwritten",
            where=str(path),
            expected="a name that is not taken",
            remedy="choose another --output, or move that one away",
        )


def _flush_file(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
