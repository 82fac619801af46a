"""Find environments by name in the entry-point group ``vcrt.environments``, or by file and class."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from vcrt.environments.contract import Environment
from vcrt.errors import MalformedInputError, UnavailableError, UnknownNameError, VcrtError
from vcrt.plugins import (
    ENVIRONMENTS,
    IN_PROCESS,
    known_names,
    not_installed,
    plugin,
    plugins,
    require_this_vcrt,
)
from vcrt.processes.watching import current_record

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Prefix of the module name of a file whose own name another module has.
_OWN = "vcrt_file_"
_INSTALLED = ("site-packages", "dist-packages")
#: The modules loaded from files, by their names in ``sys.modules``.
_given: dict[str, ModuleType] = {}


def environment_names() -> tuple[str, ...]:
    """Return the names of all registered environments, sorted.

    >>> {"clrs", "lean", "proofwriter"} <= set(environment_names())
    True
    """
    return tuple(plugins(ENVIRONMENTS))


def in_process_names() -> tuple[str, ...]:
    """Return the names of the environments that may be asked in the asking process, sorted."""
    own = {name: point.value for name, point in plugins(IN_PROCESS).items()}
    return tuple(n for n, point in plugins(ENVIRONMENTS).items() if own.get(n) == point.value)


def load_environment(name: str) -> Environment:
    """Make the environment of that name.

    Raise :class:`UnknownNameError` for an unknown name, and :class:`UnavailableError` if the plug-in does not give an
    :class:`Environment`.
    """
    point = plugin(ENVIRONMENTS, name)
    if point is None:
        if name in known_names(ENVIRONMENTS):
            raise not_installed(ENVIRONMENTS, name, "the environment")
        error = UnknownNameError.of("environment", name, environment_names())
        own = "name the class of an environment of your own: `--environment FILE.py:CLASS`"
        error.remedy = f"{error.remedy} Or {own}" if error.remedy else own
        raise error
    where = f"entry point {point.value!r} of group {ENVIRONMENTS!r}"
    return make_environment(name, partial(_loaded, point), where)


def _loaded(point: EntryPoint) -> object:
    require_this_vcrt(point)
    return point.load()()


def make_environment(
    name: str, factory: Callable[[], object], where: str | None = None, file: str | None = None
) -> Environment:
    """Call a class, or another callable without arguments, and return the environment that it makes.

    Raise :class:`UnavailableError` if it makes none. The error names whatever the class raises, unless that is a named
    error already. If the class comes from a Python ``file``, raise :class:`MalformedInputError` for its faults, but
    still :class:`UnavailableError` for a module that it lacks.
    """
    own = UnavailableError if file is None else MalformedInputError
    if isinstance(factory, Environment):
        raise UnavailableError(
            f"environment {name!r} is given by an instance",
            where=where,
            found=f"an object of {type(factory).__name__}",
            expected="its class: processes make environments of their own",
        )
    try:
        made = factory()
    except VcrtError:
        raise
    # This includes an import that exits: it must not end the command as if its work were done.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and current_record() is None:
            raise  # whoever sits before this process
        kind = UnavailableError if isinstance(error, ImportError) else own
        raise kind(
            f"environment {name!r} cannot be loaded",
            where=where,
            found=f"{type(error).__name__}: {error}",
            expected="a class that can be made without arguments, with every method of the contract",
            remedy="mend or uninstall its package, or name other environments"
            if file is None
            else _mended(error, file),
        ) from error
    if not isinstance(made, Environment):
        raise own(
            f"{'the plug-in for' if file is None else 'the class of'} environment {name!r} is not an Environment",
            where=where,
            found=type(made).__name__,
            expected="a callable without arguments that returns a vcrt.environments.contract.Environment"
            if file is None
            else "the class of a vcrt.CallEnvironment, or of another vcrt.environments.contract.Environment",
        )
    return made


def _mended(error: BaseException, file: str) -> str:
    """Return how to mend an error of a file's class while it was loaded or made."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file
    ]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    if isinstance(error, SyntaxError):
        file = error.filename or file
    place = f"its class in {file}" if line is None else f"line {line} of {file}"
    if isinstance(error, ImportError):
        return f"mend {place}: install what it imports, or put it beside the file"
    return f"mend {place}"


def classes_in(file: Path) -> tuple[str, ...]:
    """The names of the environments' classes in a Python file, which is not run; none if it cannot be read as Python.

    Those that ``vcrt.tools_environment`` and ``vcrt.mcp_server`` make are among them.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ()
    found = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made_by = ast.unparse(node.value.func).rpartition(".")[2]
            names = [each.id for each in node.targets if isinstance(each, ast.Name)]
            found += names if made_by in ("tools_environment", "mcp_server") else []
    return tuple(found)


def name_in_commands(environment: Environment) -> str:
    """Return the name that commands take for this environment: its registered name, or ``FILE.py:CLASS``."""
    if environment.name in environment_names():
        return environment.name
    kind = type(environment)
    try:
        file = Path(inspect.getfile(kind))
    except (OSError, TypeError):
        return "FILE.py:CLASS"
    if file.is_relative_to(Path.cwd()):
        file = file.relative_to(Path.cwd())
    return f"{file}:{kind.__qualname__}"


@dataclass(frozen=True, slots=True)
class FromFile:
    """A factory of the environment that a class in a Python file defines; equal for equal file and class."""

    path: str
    name: str

    def __call__(self) -> Environment:
        """Make it; raise as :func:`make_environment` does."""
        return make_environment(self.name, self._made, f"{self.path}:{self.name}", self.path)

    def _made(self) -> object:
        place = Path(self.path)
        # As for a script, Python can import modules beside the file, now and later; but its own modules come first.
        if str(place.parent) not in sys.path:
            sys.path.insert(_behind_the_standard_library(), str(place.parent))
        name = _module_name(place)
        module = before = sys.modules.get(name)
        if module is None or getattr(module, "__file__", None) != self.path:
            spec = importlib.util.spec_from_file_location(name, self.path)
            if spec is None or spec.loader is None:
                raise ImportError("no Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[name] = module
            try:
                spec.loader.exec_module(module)
            except BaseException:
                sys.modules.pop(name, None)
                if before is not None:
                    sys.modules[name] = before
                raise
            _given[name] = module
        kind = getattr(module, self.name, None)
        if kind is None:
            near = get_close_matches(self.name, classes_in(place), n=1)
            raise MalformedInputError(
                f"a file without the class {self.name!r}",
                where=self.path,
                expected=_classes_expected(self.path, place),
                remedy=f"did you mean {self.path}:{near[0]}?" if near else None,
            )
        if not callable(kind):
            raise MalformedInputError(
                f"{self.name!r} is no class of an environment",
                where=self.path,
                found=f"an object of {type(kind).__module__}.{type(kind).__qualname__}",
                expected=_classes_expected(self.path, place),
                remedy=f"if these are tools: ENVIRONMENT = vcrt.tools_environment({self.name}, state=...) in the file, "
                f"and {self.path}:ENVIRONMENT",
            )
        return kind()


def own_module_name(kind: object) -> str:
    """Return the module name of a class or function as its file has it, even if it had to be loaded under another."""
    return str(kind.__module__).removeprefix(_OWN)


def _module_name(file: Path) -> str:
    """Return the file's own name, so that it can import and pickle by it, unless another module has that name."""
    name = file.stem
    installed = [each for each in sys.path if Path(each).name in _INSTALLED]
    known = PathFinder.find_spec(name, installed)
    others = [known.origin if known is not None and known.has_location else None]
    module = sys.modules.get(name)
    if module is not None and module is not _given.get(name):
        others.append(getattr(module, "__file__", None) or name)
    if name in sys.stdlib_module_names or any(o and not _is_same(o, file) for o in others):
        return _OWN + name
    return name


def _is_same(place: str, file: Path) -> bool:
    return os.path.realpath(place) == os.path.realpath(file)


def _behind_the_standard_library() -> int:
    """Return the index in ``sys.path`` of a folder behind Python's own modules and before installed ones."""
    standard = sysconfig.get_path("stdlib")
    own = (standard, os.path.join(standard, "lib-dynload"))
    return max((at + 1 for at, place in enumerate(sys.path) if place in own), default=0)


def _classes_expected(path: str, file: Path) -> str:
    """Return what names an environment of this file, for each of its classes."""
    return " or ".join(f"{path}:{name}" for name in classes_in(file) or ("CLASS",))


def named_factory(name: str) -> Callable[[], Environment]:
    """Return a factory of the environment of that name: a registered one, or ``FILE.py:CLASS``.

    Raise :class:`MalformedInputError` if there is no such file, or if the name of its class is missing.
    """
    path, separator, kind = name.rpartition(":")
    if not separator and name.endswith(".py") and Path(name).is_file():
        raise MalformedInputError(
            "a file without the name of its class",
            found=name,
            expected=_classes_expected(name, Path(name)),
        )
    if not separator:
        return Registered(name)
    file = Path(path)
    if not file.is_file():
        raise MalformedInputError(
            f"environment {name!r} cannot be loaded",
            found=f"no file {path}",
            expected="FILE.py:CLASS, or the name of a registered environment",
        )
    return FromFile(str(file.resolve()), kind)


def sendable_factory(
    environment: str | Callable[[], Environment],
) -> Callable[[], Environment]:
    """Return how an environment is made, by its name or by a class, so that worker processes can make it too.

    Raises :class:`MalformedInputError` as :func:`named_factory` does, and for a class that no other process can have.
    """
    if isinstance(environment, str):
        return named_factory(environment)
    module = sys.modules.get(getattr(environment, "__module__", ""))
    if isinstance(environment, type) and module is not None and module.__name__ != "__main__":
        # A class that a function made is found by the name that its module has for it.
        for name, value in list(vars(module).items()):
            if value is environment:
                environment.__name__ = environment.__qualname__ = name
    from vcrt.processes.workers import pickled

    try:
        pickled(environment)
    except Exception as error:
        raise MalformedInputError(
            "an environment that cannot be sent to a worker process",
            where=str(getattr(environment, "__qualname__", environment)),
            found=f"{type(error).__name__}: {str(error)[:200]}",
            expected="a class that stands in a module under a name",
            remedy="put it, or NAME = vcrt.tools_environment(...), into a file, and name it as FILE.py:NAME",
        ) from error
    return environment


def given_environments(
    names: Iterable[str | Callable[[], Environment]],
) -> dict[str, Callable[[], Environment]]:
    """Return factories of environments given as ``FILE.py:CLASS``, by their own names; raise what these raise."""
    factories = [sendable_factory(name) for name in names]
    return {factory().name: factory for factory in factories}


@dataclass(frozen=True, slots=True)
class Registered:
    """A factory of the registered environment of a name; equal for equal names, also in another process."""

    name: str

    def __call__(self) -> Environment:
        """Make it; raise as :func:`load_environment` does."""
        return load_environment(self.name)
