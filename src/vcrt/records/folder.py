"""Look at what lies in a dataset's folder, by name, kind and digest, without following a link out of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vcrt.hashing import file_digest
from vcrt.records.manifest import OWN_FILES, FileEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class Damage:
    """One thing that is not as it was sealed; ``place`` is a path within the dataset, and what is meant in it."""

    what: str
    place: str
    found: str | None = None
    expected: str | None = None


def kinds_of_entries(path: Path) -> dict[str, str]:
    """Every entry below ``path`` by its name within it: ``file``, ``directory``, ``link`` or ``special``."""
    found = {}
    for entry in _walk(path):
        name = Path(entry.path).relative_to(path).as_posix()
        if _is_left_by_a_kill(name):
            continue
        if entry.is_symlink():
            found[name] = "link"
        elif entry.is_dir():
            found[name] = "directory"
        else:
            found[name] = "file" if entry.is_file() else "special"
    return dict(sorted(found.items()))


def foreign_entries(kinds: dict[str, str], expected: Iterable[str]) -> Iterator[Damage]:
    """What is there and does not belong there, or is missing; of the files ``expected`` none may be a link."""
    wanted = set(expected)
    folders = {Path(name).parent.as_posix() for name in wanted} - {"."}
    for name, kind in kinds.items():
        if kind == "link":
            yield Damage(
                what="a symbolic link in the dataset's directory",
                place=name,
                expected="plain files",
            )
        elif (kind != "file" or name not in wanted) and (
            kind != "directory" or name not in folders
        ):
            yield Damage(
                what=f"a {kind} in the dataset's directory does not belong to it"
                if kind != "special"
                else "something in the dataset's directory is no plain file",
                place=name,
                expected="only what manifest.json lists",
            )
    for name in sorted(wanted - set(kinds)):
        yield Damage(what="a file of the dataset is missing", place=name)


def _is_left_by_a_kill(name: str) -> bool:
    """Whether an entry is what a killed write of one of a dataset's own files left; nothing ever reads it."""
    return name.startswith(tuple(f".{own}.unfinished-" for own in OWN_FILES))


def _walk(path: Path) -> Iterator[os.DirEntry[str]]:
    # Not recursive: whoever hands over a folder may nest it deeper than Python goes.
    folders = [os.fspath(path)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def altered_file(path: Path, name: str, entry: FileEntry) -> Damage | None:
    """That a file has another size or digest than the manifest says; None if it has not."""
    found = FileEntry(size=(path / name).stat().st_size, sha256=file_digest(path / name))
    if found == entry:
        return None
    return Damage(
        what="a file of the dataset is not the one that was frozen",
        place=name,
        found=f"{found.size} bytes with SHA-256 {found.sha256}",
        expected=f"{entry.size} bytes with SHA-256 {entry.sha256}",
    )
