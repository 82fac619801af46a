"""Keep a call from writing where no replay sees it: files and databases outside of its state, processes, servers.

Within :func:`watched_effects`, what audit events of Python show of a call is refused before it is done: opening a file
to write to it, changing folders, opening a database of SQLite, starting a process, connecting to an address. Allowed
are the places of the state, temporary files that are gone when the call ends, databases that are opened read-only, and
the kinds that are named. Not covered: libraries in C that open files and connections themselves (DuckDB, libpq), files
that were opened before the call, and threads that ran before it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from vcrt.errors import MalformedInputError

#: How the kinds of effects are called, to be named in an environment's ``ignored``.
FILES, PROCESSES, NETWORK = "outside.files", "outside.processes", "outside.network"
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_TEMPORARY = getattr(os, "O_TMPFILE", 0)
#: Events that change files, with the numbers of their paths and of the folders that these are relative to.
_CHANGES = {
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.link": ((1, 3),),
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.rmdir": ((0, 1),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.utime": ((0, 3),),
}
_BY_OS = ("system", "exec", "posix_spawn", "spawn", "fork", "forkpty")
_STARTS = frozenset(["subprocess.Popen", *(f"os.{name}" for name in _BY_OS)])
_ADVICE = {
    FILES: "give it to `tools_environment` as state=vcrt.sqlite_file(...) or state=vcrt.folder(...), and let the tools "
    "use the connection or path that they receive, or find it where `opened` put it (docs/tools-logs.md)",
    PROCESSES: "let the tool work in this process; or take the folder that it changes as state=vcrt.folder(...)",
    NETWORK: "let the state hold what the server keeps, as state=vcrt.postgres(...) does for a database",
}


@dataclass(slots=True)
class _Call:
    """A call that runs: where it may write, what it did elsewhere, and what it made among temporary files."""

    places: tuple[str, ...]
    allowed: Collection[str]
    others: frozenset[int | None]
    found: list[MalformedInputError] = field(default_factory=list)
    made: dict[str, str] = field(default_factory=dict)
    #: The processes that ran before it started one, if it may and did.
    before: Collection[int] | None = None


_running: _Call | None = None


@contextmanager
def watched_effects(allowed: Collection[str], ignored: Collection[str] = ()) -> Iterator[None]:
    """Raise :class:`MalformedInputError` for effects beside those in folders, and of kinds, that are ``allowed``.

    The kinds in ``ignored`` are allowed, too; processes may then run on after the call.
    One call at a time is watched in a process; one within another is a part of it.
    """
    global _running
    if _running is not None:
        yield
        return
    _hook()
    tempfile.gettempdir()  # it looks for a folder once, by writing to it
    here = threading.get_ident()
    others = frozenset(t.ident for t in threading.enumerate() if t.ident != here)
    call = _running = _Call(
        tuple(os.path.realpath(each) for each in allowed if os.path.isabs(each)),
        [*allowed, *ignored],
        others,
    )
    try:
        yield
    finally:
        _running = None
        left = [path for path in call.made if os.path.lexists(path)]
        if left and FILES not in call.allowed:
            call.found.append(_error(FILES, f"{call.made[left[0]]} of {left[0]}, which stays"))
        left_running = {} if call.before is None or PROCESSES in ignored else _children()
        for number in left_running.keys() - {*(call.before or ())}:
            call.found.append(
                MalformedInputError(
                    "a call that leaves a process running",
                    found=" ".join(left_running[number])[:200],
                    expected="a call that is over, with all its effects, when it returns",
                    remedy="let the tool wait for the processes that it starts; if no call can see what they do, name "
                    f"{PROCESSES!r} in `ignored`",
                )
            )
        if call.found:
            raise call.found[0]


@contextmanager
def unheard() -> Iterator[None]:
    """Do within a call what is none of its effects, such as removing the files of a state that is gone."""
    global _running
    call, _running = _running, None
    try:
        yield
    finally:
        _running = call


@lru_cache(maxsize=1)
def _hook() -> None:
    sys.addaudithook(_heard)


def _heard(event: str, arguments: tuple[Any, ...]) -> None:
    call = _running
    if call is None or threading.get_ident() in call.others:
        return
    if event == "open":
        path, _, flags = arguments
        is_nameless = flags & _TEMPORARY == _TEMPORARY if _TEMPORARY else False
        # A folder is opened by an opener of its own, which is heard itself.
        if flags & _WRITING and not is_nameless and not os.path.isdir(path):
            _changed(call, path, None, "an opening for writing")
    elif event == "sqlite3.connect":
        if _is_shared(os.fsdecode(arguments[0])):
            _refuse(call, FILES, f"an opening of a database in shared memory, {arguments[0]}")
        elif (path := _database(arguments[0])) is not None:
            _changed(call, path, None, "an opening by SQLite")
    elif event in _CHANGES:
        for number, folder in _CHANGES[event]:
            _changed(call, arguments[number], arguments[folder] if folder else None, event)
    elif event in _STARTS:
        if PROCESSES in call.allowed and call.before is None:
            call.before = _children().keys()
        _refuse(call, PROCESSES, f"{event} {' '.join(map(str, arguments[:1]))[:120]}")
    elif event == "socket.connect":
        _refuse(call, NETWORK, f"a connection to {str(arguments[1])[:120]}")


def _changed(call: _Call, path: Any, folder: Any, how: str) -> None:
    """Refuse a change of a path, relative to a folder's descriptor, unless the call may change it."""
    if isinstance(path, int):
        return
    text = os.fsdecode(path)
    if isinstance(folder, int) and folder >= 0:
        text = os.path.join(os.path.realpath(f"/proc/self/fd/{folder}"), text)
    parent, name = os.path.split(os.path.abspath(text))
    whole = os.path.join(os.path.realpath(parent), name)
    if any(_lies_in(whole, place) for place in ("/dev", "/proc", *call.places)):
        return
    if "__pycache__" in Path(whole).parts:
        return
    is_new = whole in call.made or not os.path.lexists(whole)
    if is_new and _lies_in(whole, os.path.realpath(tempfile.gettempdir())):
        call.made.setdefault(whole, how)
        return
    if any(_lies_in(whole, made) for made in call.made):
        return
    _refuse(call, FILES, f"{how} of {whole}")


def _children() -> dict[int, list[str]]:
    """Return the commands of this process's children that run, by their process ids."""
    import psutil

    found = {}
    for each in psutil.Process().children():
        with suppress(psutil.Error):
            if each.status() != psutil.STATUS_ZOMBIE:
                found[each.pid] = each.cmdline()
    return found


def _lies_in(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip(os.sep) + os.sep)


def _database(given: Any) -> str | None:
    """Return the path of a database that is opened to be written to; None for one in its own memory or read-only."""
    text = os.fsdecode(given)
    if not text.startswith("file:"):
        return None if text in ("", ":memory:") else text
    parts = urlsplit(text)
    asked = parse_qs(parts.query)
    read_only = asked.get("mode", [""])[-1] in ("ro", "memory") or asked.get("immutable") == ["1"]
    path = unquote(parts.path)
    return None if read_only or path in ("", ":memory:") else path


def _is_shared(text: str) -> bool:
    """Return whether a database is in memory that another connection may keep."""
    return text.startswith("file:") and "cache=shared" in text and "memory" in text


def _refuse(call: _Call, kind: str, found: str) -> None:
    if kind in call.allowed:
        return
    call.found.append(_error(kind, found))
    raise call.found[-1]


def _error(kind: str, found: str) -> MalformedInputError:
    return MalformedInputError(
        "a call that reaches outside of its state, where no replay sees what it changes",
        found=found[:300],
        expected="a call whose effects all lie in the state that `reset` makes",
        remedy=f"{_ADVICE[kind]}; if it changes nothing that another call can see, name {kind!r} in `ignored`",
    )
