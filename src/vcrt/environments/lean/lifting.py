"""Episodes out of a user's Lean file: theorems proved by ``have`` steps or ``case`` blocks, or a file of declarations.

A theorem is lifted if its proof is a tactic block of 2 to 8 such steps, with an optional first ``refine`` and an
optional last ``exact``; a file of nothing but 2 to 8 declarations (behind the classes that it may begin with) is lifted
as a whole. Everything else is refused with its place, and does not stop the rest. Nothing here runs Lean, and every
text of an episode has passed :mod:`vcrt.environments.lean.grammar`. Not covered: what the theorem means in the user's
own Lean; it is judged in that of vcrt's prelude.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Literal, TypeAlias

from vcrt.environments.contract import Episode, Operation, Provenance
from vcrt.environments.lean import grammar
from vcrt.environments.lean.judging import Limits
from vcrt.environments.lean.source import (
    Command,
    Flaw,
    Piece,
    TacticProof,
    read_commands,
    read_proof,
)
from vcrt.environments.lean.spelling import Spelling, spelling_of, with_explicit_binders
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, sha256_hex
from vcrt.printable import counted
from vcrt.randomness import derive_seed

#: How many steps an episode may have.
MIN_STEPS, MAX_STEPS = 2, 8
#: The largest file that is read, in bytes.
MAX_FILE_BYTES = 1_000_000
#: The schema of lifted episodes and the generator that their provenance names.
LIFT_SCHEMA = "lift"
GENERATOR = "lean.lift"
_NAMED = re.compile(r"(?:noncomputable )?\w+ ([^\s:({\[]+)")
_DECLARING = ("theorem", "def", "inductive", "instance", "noncomputable", "class")
_PROOF = (
    f"{MIN_STEPS} to {MAX_STEPS} steps have NAME : TYPE := TERM, or case NAME => exact TERM, "
    "behind at most one refine and before at most one exact"
)
_ALLOWED = (
    f"theorem NAME ... := by and a proof of such steps (have, case), or {MIN_STEPS} to {MAX_STEPS} "
    "declarations (theorem, def, inductive, instance, behind any classes) that have the file to themselves"
)

Cause: TypeAlias = Literal["grammar", "lean", "no verdict"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedStep:
    """A step as it stands in the file: its label (unique in its episode), its text and its line."""

    label: str
    text: str
    line: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Lifted:
    """An episode, where it was found, and the names by which Lean knows what the user calls otherwise."""

    theorem: str
    """The name of the theorem, or of the file if the episode is made of its declarations."""
    line: int
    statement: str
    """The theorem's statement as it stands in the file; empty if the episode is made of declarations."""
    steps: tuple[LiftedStep, ...]
    episode: Episode
    spelling: Spelling


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Something in the file that is not lifted or not judged.

    ``cause`` is ``grammar`` (it may not reach Lean, or is none of the forms that are lifted), ``lean`` (Lean refuses
    what stands before the steps) or ``no verdict`` (Lean gave none).
    """

    file: str
    line: int
    theorem: str
    """The theorem that is lost by it; empty if there is none."""
    found: str
    allowed: str
    cause: Cause = "grammar"

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedFile:
    """All that a file gives, in the order in which it stands there."""

    name: str
    digest: str
    lifted: tuple[Lifted, ...]
    refused: tuple[Refusal, ...]


def lift_file(path: Path, *, max_chars: int | None = None) -> LiftedFile:
    """The episodes in a ``.lean`` file, and what in it is refused.

    No text of a step may be longer than ``max_chars`` (default: that of :class:`Limits`). Raises
    :class:`MalformedInputError` if the file cannot be read as text at all.
    """
    data = _bytes(path)
    try:
        commands, flaw = read_commands(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise MalformedInputError(
            "a Lean file that is not UTF-8 text", where=str(path), found=str(error)
        ) from error
    cap = Limits().max_step_chars if max_chars is None else max_chars
    file = _File(name=path.name, digest=sha256_hex(data), cap=cap)
    outcomes = _outcomes(file, commands)
    if flaw is not None:
        outcomes.append(file.refusal(flaw.line, flaw.found, flaw.expected))
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
    return LiftedFile(
        name=file.name,
        digest=file.digest,
        lifted=tuple(outcome for outcome in outcomes if isinstance(outcome, Lifted)),
        refused=tuple(sorted(refused, key=lambda refusal: refusal.line)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _File:
    """The file that is lifted, and the longest text that a step of it may have."""

    name: str
    digest: str
    cap: int

    def refusal(self, line: int, found: str, allowed: str, theorem: str = "") -> Refusal:
        shown = found if len(found) <= 120 else found[:117] + "..."
        return Refusal(file=self.name, line=line, theorem=theorem, found=shown, allowed=allowed)

    def checked(
        self, piece: Piece, read: Callable[..., object], spelling: Spelling, theorem: str
    ) -> str | Refusal:
        """The spelling of a piece for Lean, if ``read``, a function of the grammar, allows it."""
        where = f"{self.name}:{piece.line}"
        if len(piece.text) > self.cap:
            found, allowed = (
                f"{counted(len(piece.text), 'character')}",
                f"at most {self.cap} characters",
            )
            return self.refusal(piece.line, found, allowed, theorem)
        try:
            text = spelling.spelt(piece.text, where=where)
            read(text, where=where, max_chars=self.cap)
        except MalformedInputError as error:
            found = spelling.restored(str(error.found))
            if found[:100] != piece.text[:100]:
                found = f"{found} in: {piece.text}"
            return self.refusal(piece.line, found, str(error.expected), theorem)
        return text

    def episode(
        self, line: int, theorem: str, initial: Json, operations: Sequence[Operation]
    ) -> Episode:
        return Episode(
            environment="lean",
            schema=LIFT_SCHEMA,
            initial=initial,
            operations=tuple(operations),
            provenance=Provenance(
                source=f"{self.name}/{theorem}@sha256:{self.digest}",
                generator=GENERATOR,
                seed=derive_seed(line, GENERATOR, self.digest) % 2**31,
            ),
        )


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise MalformedInputError(
            "a Lean file that cannot be read", where=str(path), found=str(error.strerror)
        ) from error
    if len(data) > MAX_FILE_BYTES:
        raise MalformedInputError(
            "a Lean file that is too large",
            where=str(path),
            found=f"more than {MAX_FILE_BYTES} bytes",
            expected=f"at most {MAX_FILE_BYTES} bytes",
        )
    return data


def _outcomes(file: _File, commands: Sequence[Command]) -> list[Lifted | Refusal]:
    """Theorems with steps one by one, and declarations together."""
    outcomes: list[Lifted | Refusal] = []
    declarations: list[Piece] = []
    for command in commands:
        word = command.text.split(" ")[0]
        proof = read_proof(command) if word == "theorem" else None
        if isinstance(proof, TacticProof):
            outcomes += _theorem(file, proof)
        elif isinstance(proof, Flaw):
            name = _name_in(command.text)
            outcomes.append(file.refusal(proof.line, proof.found, proof.expected, name))
        elif word in _DECLARING:
            declarations.append(Piece(line=command.line, text=command.text))
        else:
            outcomes.append(file.refusal(command.line, command.text, _ALLOWED))
    if len(declarations) == len(commands):
        return _declarations(file, declarations)
    return outcomes + [file.refusal(d.line, d.text, _ALLOWED) for d in declarations]


def _theorem(file: _File, proof: TacticProof) -> list[Lifted | Refusal]:
    head = Piece(line=proof.statement.line, text=with_explicit_binders(proof.statement.text))
    name = _name_in(head.text)
    steps = list(proof.tactics)
    opening = [steps.pop(0)] if steps and steps[0].text.startswith("refine ") else []
    closing = [steps.pop()] if steps and steps[-1].text.startswith("exact ") else []
    spelling = spelling_of([head.text, *(piece.text for piece in proof.tactics)])
    readings: list[tuple[Piece, Callable[..., object]]] = [
        (head, grammar.read_statement),
        *((piece, partial(grammar.read_term_tactic, kind="refine")) for piece in opening),
        *((piece, partial(grammar.read_term_tactic, kind="exact")) for piece in closing),
        *((piece, grammar.read_tactic) for piece in steps),
    ]
    texts = {piece: file.checked(piece, read, spelling, name) for piece, read in readings}
    refused = [text for text in texts.values() if isinstance(text, Refusal)]
    if not refused and not MIN_STEPS <= len(steps) <= MAX_STEPS:
        refused = [
            file.refusal(head.line, f"a proof of {counted(len(steps), 'step')}", _PROOF, name)
        ]
    if refused:
        return [*refused]
    initial: Json = {
        "form": "tactics",
        "statement": str(texts[head]),
        "opening": next((str(texts[piece]) for piece in opening), None),
        "closing": next((str(texts[piece]) for piece in closing), None),
    }
    labels = _distinct([_name_in(piece.text) for piece in steps])
    operations = [
        Operation(signature=label, payload=str(texts[piece]))
        for label, piece in zip(labels, steps, strict=True)
    ]
    return [
        Lifted(
            theorem=name,
            line=head.line,
            statement=proof.statement.text,
            steps=_steps(labels, steps),
            episode=file.episode(head.line, name, initial, operations),
            spelling=spelling,
        )
    ]


def _declarations(file: _File, pieces: Sequence[Piece]) -> list[Lifted | Refusal]:
    classes = list(takewhile(lambda piece: piece.text.startswith("class "), pieces))
    steps = pieces[len(classes) :]
    if not MIN_STEPS <= len(steps) <= MAX_STEPS:
        found = counted(len(steps), "declaration")
        return [file.refusal(piece.line, found, _ALLOWED) for piece in pieces[:1]]
    spelling = spelling_of([piece.text for piece in pieces])
    setup = [file.checked(piece, grammar.read_class, spelling, file.name) for piece in classes]
    known = frozenset(_name_in(text) for text in setup if isinstance(text, str))
    read = partial(grammar.read_declaration, classes=known)
    texts = [file.checked(piece, read, spelling, file.name) for piece in steps]
    refused = [text for text in (*setup, *texts) if isinstance(text, Refusal)]
    if refused:
        return [*refused]
    names = [_name_in(str(text)) for text in texts]
    twice = [piece for piece, name in zip(steps, names, strict=True) if names.count(name) > 1]
    if twice:
        found, allowed = f"a second {twice[-1].text}", "each name declared once"
        return [file.refusal(twice[-1].line, found, allowed, file.name)]
    found_instances = (_instance_type(str(text)) for text in texts)
    initial: Json = {
        "form": "declarations",
        "setup": [str(text) for text in setup],
        "probes": list(dict.fromkeys(kind for kind in found_instances if kind)),
    }
    operations = [
        Operation(signature=name, payload=str(text))
        for name, text in zip(names, texts, strict=True)
    ]
    line = steps[0].line
    return [
        Lifted(
            theorem=file.name,
            line=line,
            statement="",
            steps=_steps([spelling.restored(name) for name in names], steps),
            episode=file.episode(line, "declarations", initial, operations),
            spelling=spelling,
        )
    ]


def _steps(labels: Sequence[str], pieces: Sequence[Piece]) -> tuple[LiftedStep, ...]:
    return tuple(
        LiftedStep(label=label, text=piece.text, line=piece.line)
        for label, piece in zip(labels, pieces, strict=True)
    )


def _distinct(names: Sequence[str]) -> list[str]:
    """``names`` with ``#2``, ``#3``, ... behind those that have been there before."""
    return [
        name if (count := names[: index + 1].count(name)) == 1 else f"{name}#{count}"
        for index, name in enumerate(names)
    ]


def _name_in(text: str) -> str:
    """The name behind the keyword of a command or a tactic; empty if there is none."""
    match = _NAMED.match(text)
    return "" if match is None else match[1]


def _instance_type(text: str) -> str:
    """What an instance is an instance of; empty for every other declaration."""
    if not text.removeprefix("noncomputable ").startswith("instance "):
        return ""
    return text.partition(":")[2].partition(":=")[0].strip(" ")
