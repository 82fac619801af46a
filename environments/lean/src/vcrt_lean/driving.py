"""Talk to the driver, a Lean program that a project's own Lean runs: open a file, replay its steps in other orders.

Promises an answer from a process that stayed alive while it worked, or :class:`vcrt.errors.VerifierFailure`; a process
that breaks is replaced and asked once more. Not covered: a project whose own code imitates the driver's answers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from vcrt.environments.bounded_processes import BoundedProcess, confined
from vcrt.environments.confinement import Bounds
from vcrt.errors import MalformedInputError, VerifierFailure
from vcrt.hashing import Json
from vcrt_lean.messages import LIMITS
from vcrt_lean.project import Project

Found = TypeVar("Found")
PROTOCOL = 1
_MARK = "vcrt-answer "
#: Numbers that Lean gives to holes and names of its own, which depend on what it did before.
_NUMBERED = re.compile(r"(\?[A-Za-z]\w*|_uniq|_hyg)\.\d+|\._@\.[\w.]*_hyg\.\d+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Seconds by the clock for one request (a file with its imports is one), megabytes in use, processor seconds."""

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
    """A theorem that is proved by a tactic block: its place, where its proof begins, and its steps."""

    name: str
    line: int
    start: int
    proof: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """A goal as the driver writes it; hypotheses by name and text, in the order in which they stand."""

    tag: str
    hypotheses: tuple[tuple[str, str], ...]
    instances: tuple[str, ...]
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """What was reached by each sequence, goals or why its last step is refused, and how complete ones end.

    The end of an order is the axioms that its theorem rests on, or why Lean refuses the whole.
    """

    nodes: Mapping[tuple[int, ...], tuple[Goal, ...] | str]
    ends: Mapping[tuple[int, ...], tuple[str, ...] | str]


class Broken(Exception):
    """The process died, ran into a limit, or gave no answer; the text says which."""


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
        """The theorems of a file, elaborated with its imports.

        Raises :class:`MalformedInputError` for a file that does not compile or whose imports are not built.
        """

        def attempt() -> tuple[Theorem, ...]:
            self._opened = None
            answer = self._ask(open_request(file, self._project.search_path))
            theorems = read_opened(answer, file)
            self._opened = file
            return theorems

        return self._twice(attempt, str(file))

    def replay(
        self, file: Path, number: int, *, first: int, count: int, sequences: Sequence[Sequence[int]]
    ) -> Answers:
        """What the steps ``first`` to ``first + count - 1`` of a theorem do in some orders."""

        def attempt() -> Answers:
            if self._opened != file:
                read_opened(self._ask(open_request(file, self._project.search_path)), file)
                self._opened = file
            request: Json = {
                "do": "replay",
                "theorem": number,
                "first": first,
                "count": count,
                "sequences": [list(sequence) for sequence in sequences],
            }
            return read_answers(self._ask(request))

        return self._twice(attempt, f"{file}, theorem {number}")

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
                        "vcrt_lean.driving.Limits",
                    ) from error
        raise AssertionError

    def _ask(self, request: Json) -> dict[str, Any]:
        if self._process is None:
            command = confined(list(self._project.command), self.bounds())
            self._process = BoundedProcess(command, max_memory_mb=self._limits.max_memory_mb)
            read_hello(self._exchanged(b""))
        return self._exchanged(json.dumps(request).encode() + b"\n")

    def _exchanged(self, data: bytes) -> dict[str, Any]:
        assert self._process is not None
        output = self._process.exchange(data, self._limits.seconds, whole=is_answered)
        if output.failure is not None:
            # Lean speaks of what is wrong with the driver on its standard output.
            raise Broken(": ".join(filter(None, (output.failure, output.text.strip()[-500:]))))
        return read_answer(output.text)

    def bounds(self) -> Bounds:
        """What the driver may read and use."""
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


def open_request(file: Path, search_path: Sequence[str]) -> Json:
    """The request that opens a file."""
    return {"do": "open", "file": str(file), "path": list(search_path)}


def is_answered(received: bytearray) -> bool:
    """Whether an answer has come whole; what the file itself prints stands on other lines."""
    if not received.endswith(b"\n"):
        return False
    start = received.rfind(b"\n", 0, len(received) - 1) + 1
    return received.startswith(_MARK.encode(), start)


def read_answer(text: str) -> dict[str, Any]:
    """The answer in what was printed; raises :class:`Broken` for one that cannot be read, or that says it failed."""
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


def read_hello(answer: Mapping[str, Any]) -> str:
    """The version of the Lean that runs the driver; raises :class:`Broken` for a driver of another protocol."""
    if answer.get("protocol") != PROTOCOL:
        raise Broken(f"a driver of protocol {answer.get('protocol')!r}, not {PROTOCOL}")
    return str(answer.get("version"))


def read_opened(answer: Mapping[str, Any], file: Path) -> tuple[Theorem, ...]:
    """The theorems of a file that was opened.

    Raises :class:`MalformedInputError` with Lean's message and its place if there is an error, and :class:`Broken`.
    """
    for place, what, remedy in (
        (
            "header",
            "a Lean file whose imports are not there",
            "lake build, in the project's folder",
        ),
        ("errors", "a Lean file that does not compile", "mend it, as lake build would ask"),
    ):
        for error in answer.get(place, ()):
            raise MalformedInputError(
                what,
                where=f"{file}:{error['line']}:{error['column']}",
                found=str(error["text"])[:1000],
                remedy=remedy,
            )
    try:
        return tuple(_theorem(one) for one in answer["theorems"])
    except (KeyError, TypeError) as error:
        raise Broken(f"theorems of another form: {error!r}") from error


def _theorem(value: Mapping[str, Any]) -> Theorem:
    return Theorem(
        name=str(value["name"]),
        line=int(value["line"]),
        start=int(value["start"]),
        proof=int(value["proof"]),
        steps=tuple(
            Step(
                **{name: int(step[name]) for name in ("start", "stop", "line", "column")},
                end_line=int(step["end_line"]),
                end_column=int(step["end_column"]),
                tactics=tuple(map(str, step["tactics"])),
                kinds=tuple(map(str, step["kinds"])),
            )
            for step in value["steps"]
        ),
    )


def read_answers(answer: Mapping[str, Any]) -> Answers:
    """What a replay gave; raises :class:`Broken`, and for a limit of Lean's own too: that says nothing about a step."""
    try:
        return Answers(
            nodes={
                tuple(node["path"]): refusal_text(node["refused"])
                if "refused" in node
                else tuple(map(_goal, node["goals"]))
                for node in answer["nodes"]
            },
            ends={
                tuple(end["path"]): refusal_text(end["refused"])
                if "refused" in end
                else tuple(map(str, end["axioms"]))
                for end in answer["ends"]
            },
        )
    except (KeyError, TypeError) as error:
        raise Broken(f"answers of another form: {error!r}") from error


def _goal(value: Mapping[str, Any]) -> Goal:
    return Goal(
        tag=str(value["tag"]),
        hypotheses=tuple((str(name), str(text)) for name, text in value["hypotheses"]),
        instances=tuple(map(str, value["instances"])),
        target=str(value["target"]),
    )


def refusal_text(text: str) -> str:
    """Lean's message without the numbers that depend on what was run before; raises :class:`Broken` for a limit."""
    if any(limit in text for limit in LIMITS):
        raise Broken(text[:300])
    return _NUMBERED.sub(r"\1", text)
