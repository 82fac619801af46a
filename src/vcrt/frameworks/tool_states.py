"""Say where the state of given tools lies: in Python objects, in globals of modules, in a database file, or a folder.

A state of one of these kinds can be made, copied, and written as canonical bytes, and it is handed to the tools for the
time of one call. Files and folders are copied for each state, so that processes and orders never meet in one file.
"""

from __future__ import annotations

import inspect
import os
import sqlite3
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar
from weakref import finalize

from vcrt.environments.folder_states import (
    Tree,
    Workplace,
    canonical_tree,
    put_back,
    read_tree,
    write_files,
)
from vcrt.environments.outside_effects import PROCESSES, unheard
from vcrt.environments.states.database_rows import canonical_rows
from vcrt.environments.states.object_copies import copied
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, file_digest, json_digest, sha256_hex

#: What stands for the place of a state's files in arguments, outputs and files.
STATE = "{state}"


class ToolState(ABC):
    """Where the state of tools lies. :meth:`begin` makes one, :meth:`opened` hands it to the tools for one call."""

    #: Whether states are Python objects, which :class:`vcrt.environments.tool_calls.CallEnvironment` copies itself.
    is_objects: ClassVar[bool] = False
    #: Kinds of effects outside of the process that the state's bytes show (:mod:`vcrt.environments.outside_effects`).
    effects: ClassVar[tuple[str, ...]] = ()
    #: The number of the form of the states' bytes.
    form: ClassVar[int] = 1
    #: What the states' bytes leave out.
    ignored: tuple[str, ...] = ()

    @abstractmethod
    def begin(self, initial: Json) -> Any:
        """Make the state before the first call; ``initial`` is what the log says of it, None if it says nothing."""

    def opened(self, state: Any) -> AbstractContextManager[Any]:
        """Give what tools receive in a call. Default: the state itself."""
        return nullcontext(state)

    def canonical(self, state: Any) -> bytes:
        """Return the state's canonical bytes. Python objects have none of their own."""
        raise NotImplementedError

    def snapshot(self, state: Any) -> Any:
        """Return the state as a value that no later call changes."""
        raise NotImplementedError

    def restore(self, snapshot: Any) -> Any:
        """Make a new state from a snapshot."""
        raise NotImplementedError

    def shown(self, state: Any) -> Json:
        """Return the state as JSON in which a difference is easy to find; None if it has no such form."""
        return None

    def names(self, state: Any) -> Mapping[str, str]:
        """Return texts of arguments and outputs that differ from state to state, with what stands for them."""
        return {}

    def version(self) -> str:
        """Return what the start depends on, beside the code of the tools: a digest, or nothing."""
        return ""


class Objects(ToolState):
    """A state of Python objects, which ``factory`` makes; with one parameter, it receives the log's initial state."""

    is_objects = True

    def __init__(self, factory: Callable[..., Any]) -> None:
        self.factory = factory

    def begin(self, initial: Json) -> Any:
        """Make the objects; raises :class:`MalformedInputError` for an initial state that nobody takes."""
        return _made(self.factory, initial)


class ModuleGlobals(ToolState):
    """A state that lies in globals of modules, each named as ``module:NAME``; see :func:`module_globals`."""

    is_objects = True

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names_of = names
        self._first: dict[str, Any] | None = None

    def begin(self, initial: Json) -> dict[str, Any]:
        """Copy the globals as they were at first; ``initial`` replaces those that it names."""
        if self._first is None:
            self._first = copied({name: getattr(*_global(name)) for name in self.names_of})
        found: dict[str, Any] = copied(self._first)
        if initial is not None:
            short = {name.partition(":")[2]: name for name in self.names_of}
            given = initial if isinstance(initial, Mapping) else {"": initial}
            if unknown := sorted(set(given) - {*short, *self.names_of}):
                raise MalformedInputError(
                    "an initial state of other globals",
                    found=", ".join(map(repr, unknown))[:120],
                    expected=f"an object with some of {', '.join(sorted(short))}",
                )
            found |= {short.get(name, name): copied(value) for name, value in given.items()}
        return found

    @contextmanager
    def opened(self, state: dict[str, Any]) -> Iterator[Any]:
        """Put the state's objects in the place of the globals for one call."""
        places = {name: _global(name) for name in self.names_of}
        before = {name: getattr(*place) for name, place in places.items()}
        for name, (module, attribute) in places.items():
            setattr(module, attribute, state[name])
        try:
            yield state
        finally:
            for name, (module, attribute) in places.items():
                state[name] = getattr(module, attribute)
                setattr(module, attribute, before[name])


class _Files:
    """The files of one state, in a place of their own, which goes when the state is gone."""

    def __init__(self) -> None:
        self._place = Workplace()
        self.folder = self._place.state
        self._end = finalize(self, _close, self._place, os.getpid())


def _close(place: Workplace, process: int) -> None:
    if process == os.getpid():
        with unheard():  # it may be collected while a later call runs
            place.close()


class Folder(ToolState):
    """A state that is a folder; see :func:`folder`."""

    effects = (PROCESSES,)
    form = 2

    def __init__(
        self, template: Path | None, opened: Callable[[str], Any] | None, ignored: tuple[str, ...]
    ) -> None:
        self._template, self._opened, self._ignored = template, opened, ignored
        self.ignored = tuple(f"{STATE}/{each}" for each in ignored)

    def begin(self, initial: Json) -> _Files:
        """Copy the template, or write the texts by path that ``initial`` has."""
        state = _Files()
        if self._template is not None:
            put_back(state.folder, read_tree(self._template))
        if initial is not None:
            write_files(state.folder, initial)
        return state

    @contextmanager
    def opened(self, state: _Files) -> Iterator[Any]:
        """Give what ``opened`` makes of the folder's path, and close it after the call."""
        with opened_at(self._opened, str(state.folder)) as given:
            yield given

    def canonical(self, state: _Files) -> bytes:
        """Return the canonical bytes of the folder."""
        tree, names = read_tree(state.folder), self.names(state)
        return canonical_tree(tree, ignored=self._ignored, names=names)

    def snapshot(self, state: _Files) -> Tree:
        """Return what the folder holds."""
        return read_tree(state.folder)

    def restore(self, snapshot: Tree) -> _Files:
        """Make a folder that holds the same."""
        state = _Files()
        put_back(state.folder, snapshot)
        return state

    def names(self, state: _Files) -> Mapping[str, str]:
        """Return the folder's path."""
        return {str(state.folder): STATE}

    def version(self) -> str:
        """Return the digest of the template."""
        if self._template is None:
            return ""
        return sha256_hex(canonical_tree(read_tree(self._template), ignored=self._ignored))


class SqliteFile(ToolState):
    """A state that is a file of SQLite; see :func:`sqlite_file`."""

    def __init__(
        self,
        template: Path | None,
        script: str | None,
        opened: Callable[[str], Any] | None,
        *,
        row_order: bool,
    ) -> None:
        self._template, self._script, self._opened = template, script, opened
        self._row_order = row_order

    def begin(self, initial: Json) -> _Files:
        """Copy the file, run the script, then the statements that ``initial`` has as a text."""
        state = _Files()
        path = _database(state)
        if self._template is not None:
            # By SQLite: what lies in a log beside the file belongs to it.
            with (
                closing(_read_only(self._template)) as source,
                closing(sqlite3.connect(path)) as copy,
            ):
                source.backup(copy)
        if initial is not None and not isinstance(initial, str):
            raise MalformedInputError(
                "an initial state that is no SQL", found=repr(initial)[:80], expected="a text"
            )
        for script in filter(None, (self._script, initial)):
            with closing(sqlite3.connect(path)) as connection:
                try:
                    connection.executescript(script)
                    connection.commit()
                except sqlite3.Error as error:
                    raise MalformedInputError(
                        "an initial state that SQLite refuses", found=str(error)
                    ) from error
        return state

    @contextmanager
    def opened(self, state: _Files) -> Iterator[Any]:
        """Give what ``opened`` makes of the file's path (by default, a connection), and close it after the call."""
        with (
            opened_at(self._opened or sqlite3.connect, str(_database(state))) as given,
            _attaching_nothing(given),
        ):
            yield given

    def canonical(self, state: _Files) -> bytes:
        """Return the canonical bytes of the schema and of all rows, in the order in which SQLite gives them."""
        own = {f"{_database(state).name}{kind}" for kind in ("", "-wal", "-shm", "-journal")}
        if beside := sorted({*os.listdir(state.folder)} - own):
            raise MalformedInputError(
                "a file that a call wrote beside the database, which vcrt.sqlite_file neither keeps nor compares",
                found=", ".join(beside)[:200],
                expected="a state that is the database alone",
                remedy="take both as one folder: state=vcrt.folder(FOLDER), with the database in it",
            )
        with closing(sqlite3.connect(_database(state))) as connection:
            return canonical_rows(connection, row_order=self._row_order)

    def snapshot(self, state: _Files) -> bytes:
        """Return the database as one value."""
        with closing(sqlite3.connect(_database(state))) as connection:
            return connection.serialize()

    def restore(self, snapshot: bytes) -> _Files:
        """Make a file that holds the same."""
        state = _Files()
        _database(state).write_bytes(snapshot)
        return state

    def names(self, state: _Files) -> Mapping[str, str]:
        """Return the path of the file's folder."""
        return {str(state.folder): STATE}

    def version(self) -> str:
        """Return the digests of the file and the script."""
        file = "" if self._template is None else file_digest(self._template)
        return json_digest([file, self._script])


def _database(state: _Files) -> Path:
    return state.folder / "state.db"


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)


@contextmanager
def _attaching_nothing(given: Any) -> Iterator[None]:
    """Raise :class:`MalformedInputError` if a connection is told to open another database: no copy of it is made."""
    attached: list[object] = []

    def is_allowed(action: int, name: object, *_: object) -> int:
        if action != sqlite3.SQLITE_ATTACH or name in ("", ":memory:"):
            return sqlite3.SQLITE_OK
        attached.append(name)
        return sqlite3.SQLITE_DENY

    if isinstance(given, sqlite3.Connection):
        given.set_authorizer(is_allowed)
    try:
        yield
    finally:
        if attached:
            raise MalformedInputError(
                "a call that attaches another database, which no replay puts back",
                found=f"ATTACH {attached[0]}",
                expected="tools that use the database of the state alone",
                remedy="put its tables into vcrt.sqlite_file; or take both files as vcrt.folder",
            )


@contextmanager
def opened_at(opened: Callable[[str], Any] | None, path: str) -> Iterator[Any]:
    """Give what ``opened`` makes of a path, a context manager's value included; commit and close it afterwards."""
    given = path if opened is None else opened(path)
    if isinstance(given, sqlite3.Connection):
        with closing(given):
            yield given
            given.commit()
    elif hasattr(given, "__enter__") and hasattr(given, "__exit__"):
        with given as entered:
            yield entered
    else:
        try:
            yield given
        finally:
            close = getattr(given, "close", None)
            if callable(close):
                close()


def module_globals(*names: str) -> ToolState:
    """Take globals of modules as the state of tools, each named as ``module:NAME``.

    During a call, the globals are the state's objects; afterwards the old globals are put back. Code that holds a
    global under another name (``from shop import STOCK``) does not see the state; an error names it.

    >>> import vcrt
    >>> state = vcrt.module_globals("string:digits")

    Raises:
        MalformedInputError: There is no such module or global.
    """
    for name in names:
        _global(name)
    if not names:
        raise MalformedInputError("no globals", expected='names such as "shop:STOCK"')
    return ModuleGlobals(names)


def sqlite_file(
    template: str | os.PathLike[str] | None = None,
    opened: Callable[[str], Any] | None = None,
    *,
    script: str | None = None,
    row_order: bool = True,
) -> ToolState:
    """Take a database file of SQLite as the state of tools; the file itself is copied, never written to.

    >>> import vcrt
    >>> def tools(database):
    ...     def add(name: str):
    ...         return database.execute("INSERT INTO names VALUES (?)", (name,)).rowcount
    ...     return [add]
    >>> start = vcrt.sqlite_file(script="CREATE TABLE names (name TEXT)")
    >>> environment = vcrt.tools_environment(tools_of=tools, state=start, name="names")()
    >>> environment.call(environment.reset(None), "add", {"name": "ann"})
    1

    Args:
        template: The file to begin with; None for an empty database.
        opened: Turns the path of a copy into what the tools receive in a call; by default ``sqlite3.connect``. Its
            result is closed after each call: what is not committed then is lost, except on a connection of sqlite3.
        script: SQL that is run in each new copy.
        row_order: Whether the order of rows counts; a query without ``ORDER BY`` shows it. With False, rows are a set,
            and row numbers that no column shows do not count.

    Raises:
        MalformedInputError: There is no such file.
    """
    return SqliteFile(_existing(template), script, opened, row_order=row_order)


def folder(
    template: str | os.PathLike[str] | None = None,
    opened: Callable[[str], Any] | None = None,
    *,
    ignored: tuple[str, ...] = (),
) -> ToolState:
    """Take a folder as the state of tools; the folder itself is copied, never written to.

    In arguments and outputs, ``{state}`` stands for the path of the copy.

    >>> import os, vcrt
    >>> def tools(path):
    ...     def make(name: str):
    ...         os.mkdir(os.path.join(path, name))
    ...         return os.listdir(path)
    ...     return [make]
    >>> environment = vcrt.tools_environment(tools_of=tools, state=vcrt.folder(), name="names")()
    >>> environment.call(environment.reset(None), "make", {"name": "ann"})
    ['ann']

    Args:
        template: The folder to begin with; None for an empty one.
        opened: Turns the path of a copy into what the tools receive in a call; by default, the path itself.
        ignored: Patterns (``fnmatch``) of paths that no tool reads.

    Raises:
        MalformedInputError: There is no such folder.
    """
    return Folder(_existing(template), opened, ignored)


def _existing(template: str | os.PathLike[str] | None) -> Path | None:
    if template is None:
        return None
    path = Path(template)
    if not path.exists():
        raise MalformedInputError(
            "the initial state does not exist", where=str(path), expected="a path that exists"
        )
    return path.resolve()


def _global(name: str) -> tuple[Any, str]:
    """Return the module and the attribute that a name means."""
    module, colon, attribute = name.partition(":")
    found: Any = None
    with suppress(ImportError):
        found = sys.modules.get(module) or import_module(module)
    if not colon or found is None or not hasattr(found, attribute):
        raise MalformedInputError(
            "a global that is not there",
            found=repr(name),
            expected='the name of a module and of a global in it, such as "shop:STOCK"',
        )
    return found, attribute


def _made(factory: Callable[..., Any], initial: Json) -> Any:
    """Call a factory with the initial state, if it has a parameter for it."""
    given = list[inspect.Parameter]()
    with suppress(TypeError, ValueError):
        given += inspect.signature(factory).parameters.values()
    given = [p for p in given if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
    needs = any(p.default is p.empty and p.kind is not p.VAR_POSITIONAL for p in given)
    if initial is None:
        return factory(None) if needs else factory()
    if not given:
        raise MalformedInputError(
            "a log with an initial state, which the tools' state does not take",
            found=repr(initial)[:120],
            expected="a log without one, or state=lambda initial: ...",
        )
    return factory(initial)
