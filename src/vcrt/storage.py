"""Write files that are whole or absent: write a temporary file, flush it to the disk, and publish it by one rename.

The user's umask decides who may read them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vcrt.errors import VcrtError

_UNFINISHED, _PARTIAL = "unfinished", "partial"
#: Seconds between two looks at a lock that is waited for.
_LOOK_S = 0.05


def write_file(path: Path, data: bytes) -> None:
    """Write a file atomically, replacing an existing one, and remove the leftovers of killed calls for it."""
    _remove_abandoned(path.parent, _UNFINISHED, path.name)
    descriptor, name = _locked_file(path)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
            # Still locked, so that nobody takes it for a leftover.
            name.replace(path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise
    _flush(path.parent)


def publish_directory(path: Path, fill: Callable[[Path], None], error: type[VcrtError]) -> None:
    """Let ``fill`` write into a new directory beside ``path`` and publish it under that name by one rename.

    Nothing is overwritten: raises ``error`` if something has that name. If ``fill`` fails, nothing remains.
    Leftovers of killed calls for the same name are removed.
    """
    refuse_existing(path, error)
    make_directory(path.parent)
    remove_partial(path.parent, path.name)
    descriptor, partial = _locked_directory(path)
    try:
        fill(partial)
        for entry in (*sorted(partial.rglob("*")), partial):
            _flush(entry)
        refuse_existing(path, error)
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)
    _flush(path.parent)


def make_directory(path: Path) -> None:
    """Make a directory and its missing parents, and flush them to the disk like files that are published."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for place in missing:
        _flush(place.parent)


def remove_partial(directory: Path, name: str | None = None) -> None:
    """Remove the leftovers of killed calls of :func:`publish_directory` in a directory, for one name or for all names.

    Work of running calls is kept.
    """
    _remove_abandoned(directory, _PARTIAL, name)


def remove_unfinished_files(directory: Path, pattern: str) -> None:
    """Remove leftovers of killed calls of :func:`write_file` for files named like ``pattern`` below ``directory``.

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
    """Hold the lock file ``path``; raises ``error`` if another process holds it. The system frees it on any death.

    Raises ``error`` also if ``path`` is a link or no plain file, so that no file elsewhere is made or waited for.
    """
    with os.fdopen(_opened_lock(path, error), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as failure:
            raise error(
                f"another process is at work on {what}",
                where=str(path.parent),
                remedy="wait for it, or end it",
            ) from failure
        yield


@contextmanager
def alone_in(
    directory: Path, what: str, error: type[VcrtError], *, patience: float = 30.0
) -> Iterator[None]:
    """Hold a lock on ``directory`` itself, waiting up to ``patience`` seconds for its present holder.

    A worker whose parent was killed runs for a moment longer; it must not write where its successor starts.
    Raises ``error`` if the holder does not end. On a file system without locks on directories, no lock is held.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    until = time.monotonic() + patience
    try:
        while not _lock(descriptor):
            if time.monotonic() > until:
                raise error(
                    f"another process is at work on {what}",
                    where=str(directory),
                    remedy="wait for it, or end it",
                )
            time.sleep(_LOOK_S)
        yield
    finally:
        os.close(descriptor)


def _opened_lock(path: Path, error: type[VcrtError]) -> int:
    odd = error(
        "the lock is not a plain file",
        where=str(path),
        expected="an empty file, or nothing of that name",
        remedy="find out where this folder comes from, then remove the lock",
    )
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as failure:
        # A link, a pipe that nobody reads or a socket, a folder.
        if failure.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise odd from failure
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise odd
    return descriptor


def require_new(path: Path, error: type[VcrtError]) -> None:
    """Check before long work that ``path`` does not exist and that its parent can be written to."""
    refuse_existing(path, error)
    make_directory(path.parent)
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


def _flush(path: Path) -> None:
    """Flush a file or directory to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _locked_file(path: Path) -> tuple[int, Path]:
    """Open and lock a new file beside ``path``; the lock tells the file of a running call from a leftover."""
    while True:
        name = _new_name(path, _UNFINISHED)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o666)
        if _is_kept(descriptor):
            return descriptor, name


def _locked_directory(path: Path) -> tuple[int, Path]:
    while True:
        partial = _new_name(path, _PARTIAL)
        partial.mkdir()
        try:
            descriptor = os.open(partial, os.O_RDONLY)
        except FileNotFoundError:
            continue
        if _is_kept(descriptor):
            return descriptor, partial


def _new_name(path: Path, kind: str) -> Path:
    """Return an unused name beside ``path``."""
    return path.parent / f".{path.name}.{kind}-{secrets.token_hex(8)}"


def _is_kept(descriptor: int) -> bool:
    """Lock a new file; if another call took it for a leftover before that, close it and return False."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError:
        # A file system without locks: nobody can lock it to remove it either.
        return True
    if os.fstat(descriptor).st_nlink > 0:
        return True
    os.close(descriptor)
    return False


def _lock(descriptor: int) -> bool:
    """Lock a file or directory unless another process holds it; a file system without locks counts as free."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _remove_abandoned(directory: Path, kind: str, name: str | None) -> None:
    """Remove leftovers of killed calls in a directory, for that name or for any, but no work of running calls."""
    begins, holds = "." if name is None else f".{name}.{kind}-", f".{kind}-"
    with os.scandir(directory) as entries:
        names = [e.name for e in entries if e.name.startswith(begins) and holds in e.name]
    found = [directory / each for each in names]
    for leftover in found:
        try:
            descriptor = os.open(leftover, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if kind == _PARTIAL:
                shutil.rmtree(leftover)
            else:
                leftover.unlink()
        except OSError:
            # Somebody is at work on it, was quicker, or may remove it: it is in nobody's way.
            continue
        finally:
            os.close(descriptor)
