"""Find environments by name, as plug-ins of the entry-point group ``vcrt.environments``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from vcrt.call_record import current_record
from vcrt.environments.contract import Environment
from vcrt.errors import UnavailableError, UnknownNameError, VcrtError

GROUP = "vcrt.environments"
#: The environments of the paper, which are certified when none is named.
PAPER_ENVIRONMENTS = ("clrs", "lean", "proofwriter")


def environment_names() -> tuple[str, ...]:
    """The names of all registered environments, sorted.

    >>> {"clrs", "lean", "proofwriter"} <= set(environment_names())
    True
    """
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


@cache
def own_environment_names() -> tuple[str, ...]:
    """The names of the environments that come with vcrt itself, sorted."""
    points = entry_points(group=GROUP)
    return tuple(sorted({p.name for p in points if p.dist is not None and p.dist.name == "vcrt"}))


def load_environment(name: str) -> Environment:
    """Make the environment of that name.

    Raises :class:`UnknownNameError` for an unknown name and :class:`UnavailableError` when the plug-in does not give
    an :class:`Environment`.
    """
    for point in entry_points(group=GROUP):
        if point.name == name:
            where = f"entry point {point.value!r} of group {GROUP!r}"
            return make_environment(name, partial(_loaded, point), where)
    raise UnknownNameError.of("environment", name, environment_names())


def _loaded(point: EntryPoint) -> object:
    return point.load()()


def make_environment(
    name: str, factory: Callable[[], object], where: str | None = None
) -> Environment:
    """What a class, or another callable without arguments, makes; raises :class:`UnavailableError` if it does not.

    Whatever somebody's class raises is named here, but for errors that are named already.
    """
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
    # An import that exits, too: it must not end the command as if that had done its work.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and current_record() is None:
            raise  # whoever sits before this process
        raise UnavailableError(
            f"environment {name!r} cannot be loaded",
            where=where,
            found=f"{type(error).__name__}: {error}",
            expected="a class that can be made without arguments, with every method of the contract",
            remedy="mend or uninstall its package, or name other environments",
        ) from error
    if not isinstance(made, Environment):
        raise UnavailableError(
            f"the plug-in for environment {name!r} is not an Environment",
            where=where,
            found=type(made).__name__,
            expected="a callable without arguments that returns a vcrt.environments.contract.Environment",
        )
    return made


@dataclass(frozen=True, slots=True)
class FromFile:
    """Makes the environment that a class in a Python file is; two of one file and class are equal."""

    path: str
    name: str

    def __call__(self) -> Environment:
        """Make it; raises :class:`UnavailableError`."""
        return make_environment(self.name, self._made, f"{self.path}:{self.name}")

    def _made(self) -> object:
        place = Path(self.path)
        # Under its own name, so that what it pickles or imports of itself is found.
        module = sys.modules.get(place.stem)
        if module is None or getattr(module, "__file__", None) != self.path:
            spec = importlib.util.spec_from_file_location(place.stem, self.path)
            if spec is None or spec.loader is None:
                raise ImportError("no Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[place.stem] = module
            spec.loader.exec_module(module)
        return getattr(module, self.name)()


def named_factory(name: str) -> Callable[[], Environment]:
    """How the environment of that name is made: a registered one, or ``FILE.py:CLASS``.

    Raises :class:`UnavailableError` for a file that is not there.
    """
    path, separator, kind = name.rpartition(":")
    if not separator:
        return Registered(name)
    file = Path(path)
    if not file.is_file():
        raise UnavailableError(
            f"environment {name!r} cannot be loaded",
            found=f"no file {path}",
            expected="FILE.py:CLASS, or the name of a registered environment",
        )
    return FromFile(str(file.resolve()), kind)


def given_environments(names: Iterable[str]) -> dict[str, Callable[[], Environment]]:
    """Environments that are given as ``FILE.py:CLASS``, by their own names; raises as :func:`named_factory` does."""
    factories = [named_factory(name) for name in names]
    return {factory().name: factory for factory in factories}


@dataclass(frozen=True, slots=True)
class Registered:
    """Makes the registered environment of a name; two of one name are equal, also in another process."""

    name: str

    def __call__(self) -> Environment:
        """Make it; raises what :func:`load_environment` raises."""
        return load_environment(self.name)
