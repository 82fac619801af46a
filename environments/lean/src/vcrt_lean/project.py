"""Find the Lean of a user's Lake project: its own toolchain, and where the ``.olean`` files of its imports lie.

Lake is asked (``lake env``), as it stands in the user's own shell; nothing is built. Not covered: whether the imports
of a file are built, and the ``leanOptions`` of a package, which Lake gives to its builds alone.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vcrt.environments.bounded_processes import Needs
from vcrt.errors import MalformedInputError, UnavailableError
from vcrt.hashing import file_digest
from vcrt_lean.protection import UNKNOWN, lean_needs

#: The program that a project's own Lean runs.
DRIVER = Path(__file__).with_name("driver.lean")
#: The oldest version whose interfaces the driver keeps to.
OLDEST = (4, 9)
_FILES = ("lakefile.toml", "lakefile.lean")
_VERSION = re.compile(r"version (?P<version>(?P<major>\d+)\.(?P<minor>\d+)[^\s,]*)")
_REMEDY = "install elan, and run lake build in the project once"
_SECONDS = 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A Lake project: the command of its Lean, what that says it is, and the folders of ``.olean`` files."""

    folder: Path
    command: tuple[str, ...]
    version: str
    search_path: tuple[str, ...]
    digests: tuple[tuple[str, str], ...] = ()
    needs: Needs = UNKNOWN

    @property
    def label(self) -> str:
        """The version as it is recorded."""
        return f"Lean {self.version}"


def find_project(folder: Path) -> Project:
    """The project in a folder.

    Raises :class:`MalformedInputError` for a folder that holds no Lake project, and :class:`UnavailableError` without
    Lake, or with a Lean that is too old.
    """
    folder = folder.absolute()
    if not any((folder / name).is_file() for name in _FILES):
        raise MalformedInputError(
            "not a Lake project",
            where=str(folder),
            found="no such folder" if not folder.is_dir() else f"no {' and no '.join(_FILES)}",
            expected="the folder in which lake build is run",
        )
    lake = shutil.which("lake")
    if lake is None:
        raise UnavailableError(
            "no Lean toolchain was found", found="no lake on PATH", remedy=_REMEDY
        )
    said = _said([lake, "env", "printenv"], folder)
    known = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    return _project(folder, known)


def _project(folder: Path, known: Mapping[str, str]) -> Project:
    """The project by what Lake says of its environment."""
    sysroot = known.get("LEAN_SYSROOT", "")
    lean = Path(sysroot, "bin", "lean")
    if not sysroot or not lean.is_file():
        raise UnavailableError(
            "a Lake that does not tell where its Lean is",
            where=str(folder),
            found=f"LEAN_SYSROOT={sysroot}",
            expected="a toolchain with bin/lean",
            remedy=_REMEDY,
        )
    said = _said([str(lean), "--version"], folder)
    match = _VERSION.search(said)
    if match is None or (int(match["major"]), int(match["minor"])) < OLDEST:
        raise UnavailableError(
            "a Lean that is too old" if match else "a lean that does not tell its version",
            where=str(lean),
            found=said.strip() or "no answer to --version",
            expected=f"Lean {'.'.join(map(str, OLDEST))} or later",
            remedy="name a later version in the project's lean-toolchain",
        )
    paths = [Path(each) for each in known.get("LEAN_PATH", "").split(os.pathsep) if each]
    search_path = tuple(str(each if each.is_absolute() else folder / each) for each in paths)
    own = lean_needs(lean)
    readable = (*own.readable, *search_path, str(folder), str(DRIVER))
    return Project(
        folder=folder,
        command=(str(lean), "--run", str(DRIVER)),
        version=match["version"],
        search_path=search_path,
        digests=(("driver", file_digest(DRIVER)), ("lean", file_digest(lean.resolve()))),
        needs=Needs(readable=readable, programs=own.programs) if own.readable else UNKNOWN,
    )


def _said(command: list[str], folder: Path) -> str:
    """What a command of the user's own toolchain prints."""
    try:
        answer = subprocess.run(
            command, cwd=folder, capture_output=True, timeout=_SECONDS, check=False
        )
        text = answer.stdout.decode(errors="replace")
        problem = answer.stderr.decode(errors="replace").strip() if answer.returncode else None
    except (OSError, subprocess.TimeoutExpired) as error:
        text, problem = "", str(error)
    if problem is not None:
        raise UnavailableError(
            f"{' '.join([Path(command[0]).name, *command[1:]])} fails",
            where=str(folder),
            found=problem[-500:] or "no message",
            remedy=_REMEDY,
        )
    return text
