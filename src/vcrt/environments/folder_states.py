"""Keep states that are folders: read them as values, put them back in place, and write them as canonical bytes.

A folder's paths, their types and modes, and the bytes of files and links count; of databases of SQLite, the rows. The
time of a file's last change is put back too, because programs such as git use it, but it does not count; owners and
other times are ignored.
Not covered: sockets, pipes and devices, which are refused, and other programs that change the folder meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

from vcrt.environments.states.database_rows import MAGIC, database_form
from vcrt.errors import MalformedInputError, TooLargeError
from vcrt.hashing import Json, canonical_json, sha256_hex

#: The most bytes of files that a folder may hold.
MAX_BYTES = 1 << 28
_PREFIX, _LOCK = "vcrt-state-", "lock"


class Entry(NamedTuple):
    """A file, a folder or a link: its kind, its mode, and its bytes or target.

    ``changed_ns`` is when a file was last changed.
    """

    kind: str
    mode: int
    content: bytes
    changed_ns: int = 0


_NOTHING = Entry("", 0, b"")
#: What a folder holds, by path from it, each folder before what is in it.
Tree: TypeAlias = dict[str, Entry]


def read_tree(folder: Path, before: Mapping[str, Entry] | None = None) -> Tree:
    """Read the content of a folder; files that are unchanged since ``before`` share its memory.

    Raises :class:`MalformedInputError` for anything but files, folders and links, :class:`TooLargeError` for too much.
    """
    tree: Tree = {}
    total = 0
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        with os.scandir(folder / inside) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            path = f"{inside}/{entry.name}" if inside else entry.name
            tree[path] = read = _read(entry, path)
            if read.kind == "folder":
                waiting.append(path)
            elif before is not None and before.get(path) == read:
                tree[path] = before[path]
            total += len(read.content)
            if total > MAX_BYTES:
                raise TooLargeError(
                    "a state that is too large to be kept",
                    where=str(folder),
                    expected=f"at most {MAX_BYTES:,} bytes",
                )
    return tree


def _read(entry: os.DirEntry[str], path: str) -> Entry:
    found = entry.stat(follow_symlinks=False)
    mode = found.st_mode
    if stat.S_ISLNK(mode):
        return Entry("link", 0, os.fsencode(os.readlink(entry.path)))
    if stat.S_ISDIR(mode):
        return Entry("folder", stat.S_IMODE(mode), b"")
    if not stat.S_ISREG(mode):
        raise MalformedInputError(
            "a state that cannot be kept",
            where=path,
            found="neither a file, a folder nor a link",
            remedy="let the server put its sockets and pipes elsewhere ($TMPDIR)",
        )
    return Entry("file", stat.S_IMODE(mode), Path(entry.path).read_bytes(), found.st_mtime_ns)


def put_back(folder: Path, tree: Tree) -> None:
    """Make a folder hold exactly this; entries that are already right are left alone."""
    now = read_tree(folder)
    for path, entry in now.items():
        if entry.kind == "folder" and entry.mode & 0o700 != 0o700:
            (folder / path).chmod(entry.mode | 0o700)
    for path in reversed(now):
        if path not in tree or tree[path].kind != now[path].kind:
            place = folder / path
            if now[path].kind == "folder":
                place.rmdir()
            else:
                place.unlink()
    for path, entry in tree.items():
        place = folder / path
        if entry.kind == "folder":
            place.mkdir(exist_ok=True)
        elif now.get(path) != entry:
            if path not in now or now[path][:3] != entry[:3]:
                place.unlink(missing_ok=True)
                if entry.kind == "link":
                    place.symlink_to(os.fsdecode(entry.content))
                else:
                    place.write_bytes(entry.content)
                    place.chmod(entry.mode)
            if entry.kind == "file":
                os.utime(place, ns=(entry.changed_ns, entry.changed_ns))
    for path in reversed(tree):
        entry = tree[path]
        if entry.kind == "folder" and (now.get(path) != entry or entry.mode & 0o700 != 0o700):
            (folder / path).chmod(entry.mode)


def canonical_tree(
    tree: Mapping[str, Entry],
    *,
    ignored: Iterable[str] = (),
    names: Mapping[str, str] | None = None,
) -> bytes:
    """Return the canonical bytes of a tree, without paths that match a pattern of ``ignored`` (``fnmatch``).

    ``names`` maps texts, such as the folder's path, to replacements wherever they occur in paths, files and links.
    Databases of SQLite count by their rows (:mod:`vcrt.environments.states.database_rows`).
    """
    patterns, rows_of = tuple(ignored), with_rows(tree)
    kept = {p: e for p, e in rows_of.items() if not any(fnmatchcase(p, each) for each in patterns)}
    rows: list[Json] = [
        [printable_path(path), entry.kind, entry.mode, sha256_hex(entry.content)]
        for path, entry in sorted(named_tree(kept, names or {}).items())
    ]
    return canonical_json(rows)


def with_rows(tree: Mapping[str, Entry]) -> Tree:
    """Return a tree in which databases of SQLite have their rows in place of their bytes, and no log beside them."""
    found = dict(tree)
    for path, entry in tree.items():
        log, journal = (tree.get(path + kind, _NOTHING).content for kind in ("-wal", "-journal"))
        is_whole = entry.kind == "file" and entry.content.startswith(MAGIC) and not journal
        if is_whole and (form := database_form(entry.content, log)) is not None:
            found[path] = entry._replace(content=form)
            for kind in ("-wal", "-shm", "-journal"):
                found.pop(path + kind, None)
    return found


def named_tree(tree: Mapping[str, Entry], names: Mapping[str, str]) -> Tree:
    """Return a tree with texts replaced wherever they occur in paths, files and links."""
    found = dict(tree)
    for text, name in names.items():
        old, new = os.fsencode(text), os.fsencode(name)
        found = {
            path.replace(text, name): entry._replace(content=entry.content.replace(old, new))
            for path, entry in found.items()
        }
    return found


def holds(content: object, text: str) -> bool:
    """Tell whether a text stands in a path, file or link of a tree, or in what ``repr`` says of another value."""
    if not isinstance(content, dict) or not all(isinstance(e, Entry) for e in content.values()):
        return text in repr(content)
    return any(text in path or text.encode() in e.content for path, e in content.items())


def printable_path(path: str) -> str:
    """Return a path as text that UTF-8 can hold; different paths give different texts."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"\0{os.fsencode(path).hex()}"
    return path


def write_files(folder: Path, files: Json) -> None:
    """Write files from a mapping of paths to texts; None makes a folder.

    Raises :class:`MalformedInputError` for anything else, and for a path that leads out of the folder.
    """
    if not isinstance(files, Mapping):
        raise MalformedInputError(
            "an initial state that is no folder of texts",
            found=repr(files)[:80],
            expected="an object with texts by path",
        )
    for path, text in files.items():
        place = folder / path
        inside = os.path.normpath(place)
        if not Path(inside).is_relative_to(folder) or not isinstance(text, str | None):
            raise MalformedInputError(
                "an initial state that is no folder of texts",
                where=repr(path)[:200],
                found=f"{type(text).__name__} at {os.path.relpath(inside, folder)}",
                expected="paths within the folder, each with a text, or null for a folder",
            )
        if text is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text.encode())


def with_texts(value: Any, texts: Mapping[str, str]) -> Any:
    """Return JSON with each of these texts replaced in it, in keys too; anything else as it is."""
    if isinstance(value, str):
        for text, other in texts.items():
            value = value.replace(text, other)
        return value
    if isinstance(value, dict):
        return {with_texts(k, texts): with_texts(v, texts) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [with_texts(part, texts) for part in value]
    return value


class Workplace:
    """A new folder with a ``state``, a ``home`` and a ``tmp`` in it, removed by :meth:`close`.

    Making one also removes those of killed processes, which no process locks any more.
    """

    def __init__(self) -> None:
        _remove_abandoned(Path(tempfile.gettempdir()))
        self.path = Path(os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX)))
        self._lock = _locked(self.path / "locking")
        (self.path / "locking").rename(self.path / _LOCK)
        for name in ("state", "home", "tmp"):
            (self.path / name).mkdir()

    @property
    def state(self) -> Path:
        """The folder that holds the state."""
        return self.path / "state"

    def clear_others(self) -> None:
        """Empty ``home`` and ``tmp``."""
        for name in ("home", "tmp"):
            put_back(self.path / name, {})

    def close(self) -> None:
        """Remove the whole workplace."""
        _remove(self.path)
        self._lock.close()


def _locked(path: Path) -> IO[bytes]:
    stream = path.open("ab")
    fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return stream


def _remove(folder: Path) -> None:
    """Remove a folder, also if parts of it are write-protected."""
    for inside, _, _ in os.walk(folder):
        with suppress(OSError):
            os.chmod(inside, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    for lock in folder.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError), _locked(lock):
            _remove(lock.parent)
