"""Look at what is installed here, what works, and which command mends what does not.

Everything is looked at as it is used: environments are asked for their versions, the embedded backbone is loaded.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vcrt import __version__
from vcrt.environments import registry
from vcrt.environments.isolation import describe
from vcrt.errors import VcrtError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

#: ``absent`` is what only some uses need, ``broken`` what keeps something that was asked for from working.
Status = Literal["ok", "absent", "broken"]
#: Extras for those who work on vcrt itself.
NOT_FOR_USERS = ("dev", "bench", "browser")
GIB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the diagnosis; ``remedy`` is a command, or a sentence, or nothing."""

    subject: str
    found: str
    status: Status = "ok"
    remedy: str | None = None


def doctor() -> list[Finding]:
    """Look at everything that is installed, as it is used: ``vcrt doctor``.

    A check that fails is a finding with its remedy, never an exception.
    """
    return [
        _system(),
        *_attempt("packages", _required),
        *_attempt("PyTorch", _devices),
        *(finding for name in registry.environment_names() for finding in _environment(name)),
        *_attempt("backbone", _backbone),
        *_attempt("extras", _extras),
    ]


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
                remedy="pip install --upgrade --force-reinstall vcrt",
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


def _requirements() -> list[Requirement]:
    from packaging.requirements import Requirement

    return [Requirement(line) for line in metadata.requires("vcrt") or ()]


def _flaw(requirement: Requirement) -> str | None:
    """Why the requirement is not met, in words; None if it is."""
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is not installed"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} {version} is not {requirement.specifier}"
    return None


def _required() -> Iterator[Finding]:
    needed = [r for r in _requirements() if r.marker is None or r.marker.evaluate({"extra": ""})]
    flaws = {f"{r.name}{r.specifier}": flaw for r in needed if (flaw := _flaw(r)) is not None}
    yield Finding(
        subject="packages",
        found="; ".join(flaws.values()) or f"all {len(needed)} that are required",
        status="broken" if flaws else "ok",
        remedy="pip install " + " ".join(f"'{name}'" for name in flaws) if flaws else None,
    )


def _devices() -> Iterator[Finding]:
    import torch

    with warnings.catch_warnings(action="ignore"):
        is_usable = torch.cuda.is_available()
    if is_usable:
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        yield Finding(subject="PyTorch", found=f"{torch.__version__}, {', '.join(names)}")
        return
    found = f"{torch.__version__}, no usable GPU: models run on the CPU"
    yield Finding(subject="PyTorch", found=found)
    if not _has_card():
        return
    if torch.version.cuda is None:
        yield Finding(
            subject="PyTorch",
            found="there is an NVIDIA card, and this is a build of PyTorch without CUDA",
            status="absent",
            remedy="pip install --force-reinstall torch, from an index whose builds have CUDA: "
            "https://pytorch.org/get-started/locally",
        )
        return
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        said = "PyTorch does not say why"
    # Whatever the driver and the library make of each other.
    except Exception as error:
        said = str(error).strip().partition("\n")[0]
    yield Finding(
        subject="PyTorch",
        found=f"there is an NVIDIA card, and PyTorch cannot use it: {said}",
        status="absent",
        remedy=f"update NVIDIA's driver to one for CUDA {torch.version.cuda}, or install a PyTorch for an older CUDA: "
        "https://pytorch.org/get-started/locally; in a container, look whether it was given the card",
    )


def _has_card(driver: Path = Path("/proc/driver/nvidia/version")) -> bool:
    """Whether there are signs of an NVIDIA card that nobody has hidden."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and (driver.exists() or shutil.which("nvidia-smi") is not None)


def _environment(name: str) -> Iterator[Finding]:
    try:
        environment = describe(registry.Registered(name))
        verifier, guards = environment.versions().verifier, environment.guards
    except VcrtError as error:
        found = "; ".join(filter(None, (error.what, error.found)))
        status: Status = "absent" if _may_be_missing(name) else "broken"
        yield Finding(subject=name, found=found, status=status, remedy=error.remedy)
        return
    yield Finding(subject=name, found=f"{verifier}{_origin(name)}")
    if guards.absent:
        missing = "; ".join(f"{part} ({means})" for part, means in guards.absent.items())
        yield Finding(subject=name, found=f"not protected by {missing}", status="absent")


def _may_be_missing(name: str) -> bool:
    """Whether a verifier need not be there: nobody has named one."""
    from vcrt.environments.django.toolchain import VARIABLE as DJANGO
    from vcrt.environments.rocq.toolchain import VARIABLE as ROCQ

    variable = {"rocq": ROCQ, "django": DJANGO}.get(name)
    return variable is not None and not os.environ.get(variable)


def _origin(name: str) -> str:
    """Which Lean or Rocq it is, of the several that may be there."""
    if name == "rocq":
        from vcrt.environments.rocq.toolchain import find_toolchain as find_rocq

        return f"; {find_rocq().origin}"
    if name != "lean":
        return ""
    from vcrt.environments.lean.toolchain import find_toolchain

    found = find_toolchain()
    return f"; {found.origin}: {found.command[0]}"


def _backbone() -> Iterator[Finding]:
    from vcrt.policy.backbone import load_backbone

    backbone = load_backbone()
    size = sum(parameter.numel() for parameter in backbone.model.parameters())
    found = f"{backbone.name}, {size:,} parameters, digest {backbone.digest[:12]} as locked"
    yield Finding(subject="backbone", found=found)


def _extras() -> Iterator[Finding]:
    extras = metadata.metadata("vcrt").get_all("Provides-Extra") or []
    for extra in sorted({*extras} - {*NOT_FOR_USERS}):
        needed = [
            r
            for r in _requirements()
            if r.marker is not None
            and r.marker.evaluate({"extra": extra})
            and not r.marker.evaluate({"extra": ""})
        ]
        flaws = [flaw for r in needed if (flaw := _flaw(r)) is not None]
        present = ", ".join(f"{r.name} {metadata.version(r.name)}" for r in needed if not _flaw(r))
        yield Finding(
            subject=f"vcrt[{extra}]",
            found="; ".join(flaws) or present,
            status="absent" if flaws else "ok",
            remedy=f"pip install 'vcrt[{extra}]'" if flaws else None,
        )
