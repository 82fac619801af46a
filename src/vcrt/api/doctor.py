"""Check what is installed and what works, and name the command that repairs what does not.

Each check uses the thing that it checks: environments are asked for their versions. Packages add their own lines
(:mod:`vcrt.plugins`).
"""

from __future__ import annotations

import functools
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from vcrt import __version__, plugins
from vcrt.environments import registry
from vcrt.environments.isolation import describe
from vcrt.errors import VcrtError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

#: ``absent`` is what only some uses need, ``broken`` what keeps something that was asked for from working.
Status = Literal["ok", "absent", "broken"]
#: Extras for those who work on vcrt itself.
NOT_FOR_USERS = ("dev", "bench", "browser", "docs")
GIB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the diagnosis; ``remedy`` is a command, or a sentence, or nothing."""

    subject: str
    found: str
    status: Status = "ok"
    remedy: str | None = None


def doctor() -> list[Finding]:
    """List what is installed, the provers and devices, what is missing, and the commands that repair it.

    The command exits with an error status if something that vcrt needs cannot be used; missing extras are named, but
    are no error. In Python, a check that fails is a finding with its remedy, never an exception.

    Example: vcrt doctor
    """
    checks = [
        ("packages", _required),
        ("plug-ins", _members),
        ("plug-ins", _unloadable),
        ("extras", _extras),
        ("plug-ins", _absent_members),
    ]
    found = [one for subject, check in checks for one in _attempt(subject, check)]
    # Two names of one package that register one name are one line.
    return [_system(), *dict.fromkeys(found)]


def _attempt(subject: str, check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    try:
        return list(check())
    except VcrtError as error:
        found = "; ".join(filter(None, (error.what, error.found)))
        return [Finding(subject=subject, found=found, status="broken", remedy=error.remedy)]
    # Whatever a broken installation raises: the rest is still to be looked at.
    except Exception as error:
        return [
            Finding(
                subject=subject,
                found=f"{type(error).__name__}: {error}",
                status="broken",
                remedy="pip install --force-reinstall . in the folder of vcrt's repository",
            )
        ]


def _system() -> Finding:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    free = shutil.disk_usage(Path.cwd()).free / GIB
    return Finding(
        subject="vcrt",
        found=f"{__version__}, Python {platform.python_version()} ({sys.executable}), {platform.system()} "
        f"{platform.machine()}, {cores} cores, {memory:.0f} GiB of memory, {free:.0f} GiB free here",
    )


def _distributions() -> tuple[str, ...]:
    """The certifier and the installed packages that add to it."""
    groups = (plugins.ENVIRONMENTS, plugins.COMMANDS, plugins.LIFTERS, plugins.DOCTOR)
    found = {plugins.distribution_of(p) for g in groups for p in plugins.plugins(g).values()}
    return ("vcrt", *sorted(found - {"vcrt", plugins.NAMELESS}))


def _requirements(distribution: str) -> list[Requirement]:
    from packaging.requirements import Requirement

    return [Requirement(line) for line in metadata.requires(distribution) or ()]


def _flaw(requirement: Requirement) -> str | None:
    """Say in words why the requirement is not met; None if it is met."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} {version} is not {requirement.specifier}"
    return None


def _required() -> Iterator[Finding]:
    needed = [
        r
        for distribution in _distributions()
        for r in _requirements(distribution)
        if r.marker is None or r.marker.evaluate({"extra": ""})
    ]
    flaws = {_argument(r): flaw for r in needed if (flaw := _flaw(r)) is not None}
    yield Finding(
        subject="packages",
        found="; ".join(flaws.values()) or f"all {len({r.name for r in needed})} that are required",
        status="broken" if flaws else "ok",
        remedy="pip install " + " ".join(flaws) if flaws else None,
    )


def _argument(requirement: Requirement) -> str:
    """Return what pip is to be given: a folder of this repository, since it is on no index, or the requirement."""
    own = {f"vcrt-{folder.rpartition('/')[2]}": f"./{folder}" for folder in plugins.FOLDERS}
    found = {"vcrt": ".", **own}.get(requirement.name)
    return found or f"'{requirement.name}{requirement.specifier}'"


def environment_findings(
    name: str, *, origin: Callable[[], str] = lambda: "", optional: bool = False
) -> Iterator[Finding]:
    """Report on a registered environment: its verifier, its ``origin``, and the protections that are missing.

    A missing ``optional`` verifier is no fault, because the user has not asked for it.
    """
    try:
        environment = describe(registry.Registered(name))
        verifier, guards = environment.versions().verifier, environment.guards
    except VcrtError as error:
        found = "; ".join(filter(None, (error.what, error.found)))
        status: Status = "absent" if optional else "broken"
        yield Finding(subject=name, found=found, status=status, remedy=error.remedy)
        return
    yield Finding(subject=name, found=f"{verifier}{origin()}")
    if guards.absent:
        missing = "; ".join(f"{part} ({means})" for part, means in guards.absent.items())
        yield Finding(subject=name, found=f"not protected by {missing}", status="absent")


def _members() -> Iterator[Finding]:
    """Return the findings of installed packages; an environment without its own lines gets the usual ones."""
    own = plugins.plugins(plugins.DOCTOR)
    for name in sorted({*registry.environment_names(), *own}):
        check: Callable[[], Iterator[Finding]] = functools.partial(environment_findings, name)
        if name in own:
            check = functools.partial(_said_by, own[name])
        yield from _attempt(name, check)


def _unloadable() -> Iterator[Finding]:
    """Report commands and lifters that cannot be loaded; ``vcrt --help`` leaves them out."""
    for group in (plugins.COMMANDS, plugins.LIFTERS):
        for point in plugins.plugins(group).values():
            yield from _attempt(plugins.distribution_of(point), functools.partial(_nothing, point))


def _nothing(point: EntryPoint) -> Iterator[Finding]:
    plugins.load(point)
    return iter(())


def _said_by(point: EntryPoint) -> Iterator[Finding]:
    findings = cast(Callable[[], Iterator[Finding]], plugins.load(point))
    return findings()


def _extras() -> Iterator[Finding]:
    for distribution in _distributions():
        extras = metadata.metadata(distribution).get_all("Provides-Extra") or []
        for extra in sorted({*extras} - {*NOT_FOR_USERS}):
            yield _extra(distribution, extra)


def _extra(distribution: str, extra: str) -> Finding:
    needed = [
        r
        for r in _requirements(distribution)
        if r.marker is not None
        and r.marker.evaluate({"extra": extra})
        and not r.marker.evaluate({"extra": ""})
    ]
    flaws = [flaw for r in needed if (flaw := _flaw(r)) is not None]
    present = ", ".join(f"{r.name} {metadata.version(r.name)}" for r in needed if not _flaw(r))
    return Finding(
        subject=f"{distribution}[{extra}]",
        found="; ".join(flaws) or present,
        status="absent" if flaws else "ok",
        remedy=plugins.installing_extra(extra, distribution) if flaws else None,
    )


def _absent_members() -> Iterator[Finding]:
    """Report the packages of this repository that are not installed; nobody needs all of them."""
    for folder in plugins.FOLDERS:
        if f"vcrt-{folder.rpartition('/')[2]}" not in _distributions():
            yield Finding(
                subject=folder,
                found="not installed",
                status="absent",
                remedy=f"pip install ./{folder}",
            )
