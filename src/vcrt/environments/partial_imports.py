"""Import some modules of a package that was installed without its dependencies, and leave no other trace of it.

It serves packages whose top level needs far more than the modules that an environment runs. During the import, named
packages are made without running their ``__init__``, and stand-ins replace modules that are missing or unwanted.
Afterwards ``sys.modules`` is as before. Threads must not import the same package during the first call, and the
imported classes cannot be pickled.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from vcrt.errors import UnavailableError
from vcrt.hashing import file_digest


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """A distribution of one tested version, installed without its dependencies, and its top-level package.

    ``needs`` names the dependencies that its imported modules need all the same.
    """

    name: str
    version: str
    package: str
    needs: str = ""

    @property
    def install_command(self) -> str:
        """The command that installs it."""
        return f"pip install --no-deps {self.name}=={self.version}"

    def folder(self) -> Path:
        """Return the folder of its package; raise :class:`UnavailableError` if it is missing or of another version."""
        try:
            version = importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError as error:
            raise self.unavailable("is not installed", "no such distribution") from error
        if version != self.version:
            raise self.unavailable("has an unsupported version", f"{self.name} {version}")
        with own_modules(self.package):
            spec = importlib.util.find_spec(self.package)
        if spec is None or not spec.submodule_search_locations:
            raise self.unavailable("is without its package", f"no package {self.package!r}")
        return Path(next(iter(spec.submodule_search_locations)))

    def unavailable(self, what: str, found: str, remedy: str | None = None) -> UnavailableError:
        """Return the error about it; without a ``remedy``, the error says how to install it."""
        return UnavailableError(
            f"{self.name} {what}",
            where=f"Python environment {sys.prefix}",
            found=found,
            expected=f"{self.name} {self.version}",
            remedy=remedy or self.install_command,
        )

    def load(
        self,
        names: Sequence[str],
        *,
        bare: Sequence[str] = (),
        stand_ins: Mapping[str, Mapping[str, object]] | None = None,
    ) -> dict[str, ModuleType]:
        """Import the modules of these full names, and return them by name.

        Packages in ``bare`` are made without their ``__init__``; ``stand_ins`` has the members of stand-in modules.
        Raise :class:`UnavailableError` as :meth:`folder` does, and if a module needs one that is not installed.
        """
        folder = self.folder()
        members = stand_ins or {}
        with own_modules(self.package, *(name.partition(".")[0] for name in members)):
            for name in bare:
                package = ModuleType(name)
                package.__path__ = [str(folder.joinpath(*name.split(".")[1:]))]
                sys.modules[name] = package
            for name, given in members.items():
                sys.modules[name] = ModuleType(name, "Stand-in used by vcrt during an import.")
                sys.modules[name].__dict__.update(given)
            try:
                return {name: importlib.import_module(name) for name in names}
            except ImportError as error:
                needs = self.needs or error.name
                remedy = f"pip install {needs}" if needs else None
                raise self.unavailable("cannot be imported", str(error), remedy) from error

    def digests(self, files: Sequence[Path]) -> dict[str, str]:
        """Return the SHA-256 of these files, by their path relative to the folder that holds the package."""
        parent = self.folder().parent
        return {str(path.relative_to(parent)): file_digest(path) for path in sorted(files)}


@contextmanager
def own_modules(*packages: str) -> Iterator[None]:
    """Import ``packages`` afresh inside the context; afterwards restore their previously imported modules."""
    before = _taken_out(packages)
    try:
        yield
    finally:
        _taken_out(packages)
        sys.modules.update(before)


def _taken_out(packages: tuple[str, ...]) -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] in packages]
    return {name: sys.modules.pop(name) for name in names}
