"""Find what other distributions register: environments, commands, lifters and lines of ``vcrt doctor``.

Each is an entry point (Python packaging's `entry points specification`). The engine never imports a member; it finds
them here by their groups:

- ``vcrt.environments``: a name, and a callable without arguments that makes the environment.
- ``vcrt.in_process``: the same names again, for environments that may run in the calling process: they end no process
  and answer quickly. Others get their own process. This changes no verdict and skips no check.
- ``vcrt.commands``: any name, and a dictionary of chapters as in :mod:`vcrt.cli.contents`.
- ``vcrt.lifters``: a name, and the :class:`vcrt.cli.commands.Command` that ``vcrt lift NAME`` runs.
- ``vcrt.doctor``: a name, and a function that gives findings. It replaces the usual findings of the environment of that
  name.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

import vcrt
from vcrt.errors import UnavailableError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENVIRONMENTS = "vcrt.environments"
IN_PROCESS = "vcrt.in_process"
COMMANDS = "vcrt.commands"
LIFTERS = "vcrt.lifters"
DOCTOR = "vcrt.doctor"
#: The environments of the paper, which are certified when none is named.
PAPER_ENVIRONMENTS = ("clrs", "lean", "proofwriter")
NAMELESS = "a package without a name"

_OF_TRAIN = "backbone decide demo evaluate explore export export-model methods plan report reproduce search train"
#: Where the members of this repository lie, with the names that they bring by group. It serves only to say what to
#: install.
FOLDERS: dict[str, dict[str, list[str]]] = {
    "train": {COMMANDS: _OF_TRAIN.split()},
    "research": {COMMANDS: ["pretrain", "probe", "relations"]},
    "environments/clrs": {ENVIRONMENTS: ["clrs"], LIFTERS: ["clrs"]},
    "environments/proofwriter": {
        ENVIRONMENTS: ["proofwriter"],
        LIFTERS: ["proofwriter"],
        COMMANDS: ["theories"],
    },
    "environments/lean": {ENVIRONMENTS: ["lean"], LIFTERS: ["lean"]},
    "environments/rocq": {ENVIRONMENTS: ["rocq"], LIFTERS: ["rocq"]},
    "environments/django": {ENVIRONMENTS: ["django"], LIFTERS: ["django"]},
    "environments/toolbench": {ENVIRONMENTS: ["agentdojo", "bfcl"]},
}

#: The top-level packages of this repository: no object of theirs keeps anything beside an environment's states.
OWN_PACKAGES = frozenset({"vcrt", *(f"vcrt_{folder.rpartition('/')[2]}" for folder in FOLDERS)})


def plugins(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, sorted.

    Raises :class:`UnavailableError` if two distributions register one name for different objects.
    """
    return _plugins(group, tuple(sys.path))


def plugin(group: str, name: str) -> EntryPoint | None:
    """Return the entry point of that name, even if it was installed since the last search; None if there is none."""
    found = plugins(group).get(name)
    if found is None:
        _plugins.cache_clear()
        found = plugins(group).get(name)
    return found


@cache
def _plugins(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:
    """Find the entry points on ``sys.path``; searching all packages takes 15 ms and more."""
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise UnavailableError(
                f"two installed packages register {point.name!r}",
                where=f"entry points of group {group!r}",
                found=f"{other.value} of {distribution_of(other)}, {point.value} of {distribution_of(point)}",
                expected="one package for each name",
                remedy=f"uninstall one of them: pip uninstall {distribution_of(point)}",
            )
    return dict(sorted(found.items()))


def load(point: EntryPoint) -> object:
    """Load the object of an entry point; raises :class:`UnavailableError` if importing its package raises anything.

    Also raises as :func:`require_this_vcrt` does.
    """
    require_this_vcrt(point)
    try:
        return point.load()
    # A package that exits when it is imported must not end the command as if that had done its work.
    except (Exception, SystemExit) as error:
        name = distribution_of(point)
        raise UnavailableError(
            f"{point.name!r} of {name} cannot be loaded",
            where=_place(point),
            found=f"{type(error).__name__}: {error}",
            expected="a package that can be imported",
            remedy=f"install it again, with what it needs: {_installing(point)}; or uninstall it: pip uninstall {name}",
        ) from error


def require_this_vcrt(point: EntryPoint) -> None:
    """Raise :class:`UnavailableError` for an entry point whose distribution asks for another version of vcrt."""
    if asked := _other_vcrt(point):
        raise UnavailableError(
            f"{point.name!r} of {distribution_of(point)} is made for another version of vcrt",
            where=_place(point),
            found=f"vcrt {vcrt.__version__}",
            expected=asked,
            remedy=f"install the one that fits: {_installing(point)}",
        )


def _place(point: EntryPoint) -> str:
    return f"entry point {point.value!r} of group {point.group!r}"


def _other_vcrt(point: EntryPoint) -> str | None:
    """Return the requirement on vcrt of an entry point's distribution if this version does not satisfy it."""
    for line in (point.dist and point.dist.requires) or ():
        if not line.startswith("vcrt") or line == f"vcrt=={vcrt.__version__}":
            continue
        from packaging.requirements import Requirement

        asked = Requirement(line)
        if asked.name == "vcrt" and not asked.specifier.contains(
            vcrt.__version__, prereleases=True
        ):
            return line
    return None


def _installing(point: EntryPoint) -> str:
    """Return the command that reinstalls an entry point's distribution: from this repository, if it is part of it."""
    name = distribution_of(point)
    own = (folder for folder in FOLDERS if name == f"vcrt-{folder.rpartition('/')[2]}")
    return f"pip install --force-reinstall {next((f'./{folder}' for folder in own), name)}"


def installing_extra(extra: str, distribution: str = "vcrt") -> str:
    """Return the command that installs what an extra needs: these packages alone, as vcrt itself is on no index."""
    from importlib import metadata

    from packaging.requirements import Requirement

    needed = []
    try:
        lines = metadata.requires(distribution) or ()
    except metadata.PackageNotFoundError:
        return f"install what the extra {extra!r} of {distribution} names in its pyproject.toml"
    for line in lines:
        one = Requirement(line)
        if (
            one.marker is not None
            and "extra" in str(one.marker)
            and one.marker.evaluate({"extra": extra})
        ):
            one.marker = None
            needed.append(f"'{one}'")
    return f"pip install {' '.join(needed)}"


def distribution_of(point: EntryPoint) -> str:
    """The name of the distribution that registers an entry point."""
    return NAMELESS if point.dist is None else point.dist.name


def folder_with(group: str, name: str) -> str | None:
    """Return the folder of this repository whose package registers that name; None if there is none."""
    for folder, groups in FOLDERS.items():
        if name in groups.get(group, ()):
            return folder
    return None


def known_names(group: str) -> tuple[str, ...]:
    """Return the sorted names that packages of this repository, installed or not, register in a group."""
    return tuple(sorted({name for groups in FOLDERS.values() for name in groups.get(group, ())}))


def not_installed(group: str, name: str, what: str) -> UnavailableError:
    """Return the error for a name of :func:`known_names` that is not installed; it names the package to install."""
    folder = folder_with(group, name)
    return UnavailableError(
        f"{what} {name!r} is not installed here",
        expected=f"the package in the folder {folder} of vcrt's repository",
        remedy=f"pip install ./{folder}",
    )
