"""Find the Lean of a user's Lake project, and talk to the driver, a Lean program that it runs.

``lake env``, run as in the user's own shell, gives the toolchain and the folders of ``.olean`` files; nothing is built.
The driver opens a file and replays its steps in other orders. A process that stayed alive while it worked gives an
answer, or :class:`vcrt.errors.VerifierFailure` is raised; a broken process is replaced and the request repeated once.
This does not cover imports that are not built, the ``leanOptions`` of a package, which Lake gives to its builds alone,
and a project whose own code imitates the driver's answers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from vcrt.errors import MalformedInputError, UnavailableError, VerifierFailure
from vcrt.hashing import Json, file_digest
from vcrt.processes.confinement import Bounds
from vcrt.processes.programs import BoundedProcess, Needs, confined, run_program
from vcrt_lean.reading import LIMITS
from vcrt_lean.toolchain import UNKNOWN, lean_needs

#: The program that a project's own Lean runs.
DRIVER = Path(__file__).with_name("driver.lean")
#: The oldest version with the interfaces that the driver uses.
OLDEST = (4, 9)
_FILES = ("lakefile.toml", "lakefile.lean")
_VERSION = re.compile(r"version (?P<version>(?P<major>\d+)\.(?P<minor>\d+)[^\s,]*)")
_REMEDY = "install elan, and run lake build in the project once"
_SECONDS = 600
PROTOCOL = 1
_MARK = "vcrt-answer "
#: Numbers in Lean's own holes and names, which depend on what ran before.
_NUMBERED = re.compile(r"(\?[A-Za-z]\w*|_uniq|_hyg)\.\d+|\._@\.[\w.]*_hyg\.\d+")
#: The lists of errors from opening a file: what is wrong, and how to mend it.
_FAULTS = {
    "header": ("a Lean file whose imports are not there", "lake build, in the project's folder"),
    "errors": ("a Lean file that does not compile", "mend it, as lake build would ask"),
}
Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A Lake project: the command of its Lean, its version, and the folders of ``.olean`` files."""

    folder: Path
    command: tuple[str, ...]
    version: str
    search_path: tuple[str, ...]
    digests: tuple[tuple[str, str], ...] = ()
    needs: Needs = UNKNOWN

    @property
    def label(self) -> str:
        """The version as records have it."""
        return f"Lean {self.version}"


def find_project(folder: Path) -> Project:
    """Return the project in a folder.

    Raise :class:`MalformedInputError` for a folder that is no Lake project, and :class:`UnavailableError` without Lake,
    or with a Lean that is too old.
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
    """Return what a command of the user's own toolchain prints; raise :class:`UnavailableError` if it fails."""
    try:
        answer = run_program(command, seconds=_SECONDS, folder=folder)
        text, problem = answer.stdout, answer.stderr.strip() if answer.returncode else None
    except OSError as error:
        text, problem = "", str(error)
    if problem is not None:
        raise UnavailableError(
            f"{' '.join([Path(command[0]).name, *command[1:]])} fails",
            where=str(folder),
            found=problem[-500:] or "no message",
            remedy=_REMEDY,
        )
    return text


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Wall-clock seconds for one request (a file with its imports is one), megabytes in use, processor seconds."""

    seconds: float = 900.0
    max_memory_mb: float = 16_000.0
    cpu_seconds: float = 7200.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A step of a proof: bytes ``start`` to ``stop`` of the file; lines from 1, columns from 0, in characters.

    ``tactics`` are the kinds of tactics in it, ``kinds`` those of all other parts of its syntax.
    """

    start: int
    stop: int
    line: int
    column: int
    end_line: int
    end_column: int
    tactics: tuple[str, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Theorem:
    """A theorem with a tactic proof: its place, the beginning of its proof, and its steps."""

    name: str
    line: int
    start: int
    proof: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """A goal as the driver writes it, with the names and texts of hypotheses in their order."""

    tag: str
    hypotheses: tuple[tuple[str, str], ...]
    instances: tuple[str, ...]
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """The result of each sequence, goals or the refusal of its last step, and the ends of complete ones.

    The end of an order is the axioms that its theorem rests on, or Lean's refusal of the whole.
    """

    nodes: Mapping[tuple[int, ...], tuple[Goal, ...] | str]
    ends: Mapping[tuple[int, ...], tuple[str, ...] | str]


class Broken(Exception):
    """The process died, exceeded a limit, or gave no answer; the text says which."""


class DriverSession:
    """One process of the driver and the file that it has open."""

    def __init__(self, project: Project, limits: Limits) -> None:
        self._project = project
        self._limits = limits
        self._process: BoundedProcess | None = None
        self._opened: Path | None = None

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.end()
        self._process = self._opened = None

    def open(self, file: Path) -> tuple[Theorem, ...]:
        """Return the theorems of a file, elaborated with its imports.

        Raise :class:`MalformedInputError` for a file that does not compile or whose imports are not built.
        """
        return self._twice(lambda: self._open(file), str(file))

    def replay(
        self, file: Path, number: int, *, first: int, count: int, sequences: Sequence[Sequence[int]]
    ) -> Answers:
        """Replay the steps ``first`` to ``first + count - 1`` of a theorem in some orders."""

        def attempt() -> Answers:
            if self._opened != file:
                self._open(file)
            request: Json = {
                "do": "replay",
                "theorem": number,
                "first": first,
                "count": count,
                "sequences": [list(sequence) for sequence in sequences],
            }
            return read_answers(self._ask(request))

        return self._twice(attempt, f"{file}, theorem {number}")

    def _open(self, file: Path) -> tuple[Theorem, ...]:
        self._opened = None
        request: Json = {"do": "open", "file": str(file), "path": list(self._project.search_path)}
        theorems = read_opened(self._ask(request), file)
        self._opened = file
        return theorems

    def _twice(self, attempt: Callable[[], Found], where: str) -> Found:
        for last in (False, True):
            try:
                return attempt()
            except (Broken, OSError) as error:
                self.close()
                if last:
                    raise VerifierFailure(
                        "Lean gave no verdict, not even in a new process",
                        where=where,
                        found=str(error),
                        expected=f"an answer of {self._project.label}",
                        remedy="if a limit was reached, raise it: Lean's own in the file (maxHeartbeats), others in "
                        "vcrt_lean.project.Limits",
                    ) from error
        raise AssertionError

    def _ask(self, request: Json) -> dict[str, Any]:
        if self._process is None:
            command = confined(list(self._project.command), self.bounds())
            self._process = BoundedProcess(command, max_memory_mb=self._limits.max_memory_mb)
            protocol = self._exchanged(b"").get("protocol")
            if protocol != PROTOCOL:
                raise Broken(f"a driver of protocol {protocol!r}, not {PROTOCOL}")
        return self._exchanged(json.dumps(request).encode() + b"\n")

    def _exchanged(self, data: bytes) -> dict[str, Any]:
        assert self._process is not None
        output = self._process.exchange(data, self._limits.seconds, whole=is_answered)
        if output.failure is not None:
            # Lean reports errors in the driver on its standard output.
            raise Broken(": ".join(filter(None, (output.failure, output.text.strip()[-500:]))))
        return read_answer(output.text)

    def bounds(self) -> Bounds:
        """Return what the driver may read and use."""
        needs = self._project.needs
        # A library of .olean files is mapped into memory as a whole: addresses are not limited, memory in use is.
        return Bounds(
            address_space=None,
            cpu_seconds=int(self._limits.cpu_seconds),
            readable=needs.readable,
            programs=needs.programs,
            open_files=1024,
            folder=str(self._project.folder),
        )


def is_answered(received: bytearray) -> bool:
    """Return whether an answer is complete; the file's own output stands on other lines."""
    if not received.endswith(b"\n"):
        return False
    start = received.rfind(b"\n", 0, len(received) - 1) + 1
    return received.startswith(_MARK.encode(), start)


def read_answer(text: str) -> dict[str, Any]:
    """Return the answer in the output; raise :class:`Broken` if it is unreadable or reports a failure."""
    last = text.rstrip("\n").rpartition("\n")[2]
    try:
        answer = json.loads(last.removeprefix(_MARK))
    except ValueError as error:
        raise Broken(f"an answer that is no JSON: {last[:120]!r}") from error
    if not last.startswith(_MARK) or not isinstance(answer, dict):
        raise Broken(f"an answer of another form: {last[:120]!r}")
    if "failure" in answer:
        raise Broken(str(answer["failure"])[:500])
    return answer


_THEOREMS = TypeAdapter(tuple[Theorem, ...])
_GOALS = TypeAdapter(tuple[Goal, ...])


def read_opened(answer: Mapping[str, Any], file: Path) -> tuple[Theorem, ...]:
    """Return the theorems of a file that was opened.

    Raise :class:`MalformedInputError` with Lean's message and its place for an error, :class:`Broken` for another form.
    """
    for place, (what, remedy) in _FAULTS.items():
        for error in answer.get(place, ()):
            raise MalformedInputError(
                what,
                where=f"{file}:{error['line']}:{error['column']}",
                found=str(error["text"])[:1000],
                remedy=remedy,
            )
    try:
        return _THEOREMS.validate_python(answer["theorems"])
    except (KeyError, ValueError) as error:
        raise Broken(f"theorems of another form: {error!r}") from error


def read_answers(answer: Mapping[str, Any]) -> Answers:
    """Return a replay's results; raise :class:`Broken` for another form or a limit of Lean, which is no verdict."""
    try:
        return Answers(
            nodes={tuple(node["path"]): _node(node) for node in answer["nodes"]},
            ends={tuple(end["path"]): _end(end) for end in answer["ends"]},
        )
    except (KeyError, TypeError, ValueError) as error:
        raise Broken(f"answers of another form: {error!r}") from error


def _node(value: Mapping[str, Any]) -> tuple[Goal, ...] | str:
    if "refused" in value:
        return refusal_text(value["refused"])
    return _GOALS.validate_python(value["goals"])


def _end(value: Mapping[str, Any]) -> tuple[str, ...] | str:
    if "refused" in value:
        return refusal_text(value["refused"])
    return tuple(map(str, value["axioms"]))


def refusal_text(text: str) -> str:
    """Return Lean's message without the numbers that depend on what ran before; raise :class:`Broken` for a limit."""
    if any(limit in text for limit in LIMITS):
        raise Broken(text[:300])
    return _NUMBERED.sub(r"\1", text)
