"""Lift episodes out of a user's Lean file: theorems proved by ``have`` steps or ``case`` blocks, or declarations.

A theorem is lifted if its proof is a tactic block of 2 to 8 such steps, with an optional first ``refine`` and an
optional last ``exact``; a file of nothing but 2 to 8 declarations (behind the classes that it may begin with) is lifted
as a whole. Everything else is refused with its place, and does not stop the rest, unless it may change what the rest
means. Nothing here runs Lean, and every text of an episode has passed :mod:`vcrt.environments.lean.grammar`; that it
says what the file says is for Lean to say (:mod:`vcrt.environments.lean.rereading`). Not covered: what a file's imports
change; it is judged in vcrt's prelude.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Literal, TypeAlias

from vcrt.documents import read_limited
from vcrt.environments.contract import Episode, Operation, Provenance
from vcrt.environments.lean import grammar
from vcrt.environments.lean.influence import begins_command, may_change_others
from vcrt.environments.lean.judging import Limits
from vcrt.environments.lean.source import (
    Command,
    Flaw,
    Original,
    Piece,
    TacticProof,
    plain_text,
    read_commands,
    read_proof,
)
from vcrt.environments.lean.spelling import Spelling, spelling_of, with_explicit_binders
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, sha256_hex
from vcrt.limits import MAX_LIFTED
from vcrt.printable import counted
from vcrt.randomness import derive_seed

#: How many steps an episode may have.
MIN_STEPS = 2
#: The largest file that is read, in bytes.
MAX_FILE_BYTES = 1_000_000
#: The schema of lifted episodes and the generator that their provenance names.
LIFT_SCHEMA = "lift"
GENERATOR = "lean.lift"
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NAMED = re.compile(r"(?:noncomputable )?\w+ ([^\s:({\[]+)")
_DECLARING = ("theorem", "def", "inductive", "instance", "noncomputable", "class")
_PROOF = (
    f"{MIN_STEPS} to {MAX_LIFTED} steps have NAME : TYPE := TERM, or case NAME => exact TERM, "
    "behind at most one refine and before at most one exact"
)
_ALLOWED = (
    f"theorem NAME ... := by and a proof of such steps (have, case), or {MIN_STEPS} to {MAX_LIFTED} "
    "declarations (theorem, def, inductive, instance, behind any classes) that have the file to themselves"
)

Cause: TypeAlias = Literal["grammar", "reading", "lean", "no verdict"]


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
    originals: tuple[Original, ...]
    """The commands that the episode was made of, as they stand in the file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Something in the file that is not lifted or not judged.

    ``cause`` is ``grammar`` (it may not reach Lean, or is none of the forms that are lifted), ``reading`` (it is not
    certain that it means in the file what would be judged), ``lean`` (Lean refuses what stands before the steps) or
    ``no verdict`` (Lean gave none).
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
        text = plain_text(data.decode("utf-8"))
        commands, flaw = read_commands(text)
    except UnicodeDecodeError as error:
        raise MalformedInputError(
            "a Lean file that is not UTF-8 text", where=str(path), found=str(error)
        ) from error
    cap = Limits().max_step_chars if max_chars is None else max_chars
    file = _File(name=path.name, digest=sha256_hex(data), cap=cap, text=text)
    outcomes = _outcomes(file, commands)
    if flaw is not None:
        outcomes.append(file.refusal(flaw.line, flaw.found, flaw.expected))
    outcomes = [_visible(file, outcome) for outcome in outcomes]
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
    text: str

    def refusal(
        self, line: int, found: str, allowed: str, theorem: str = "", cause: Cause = "grammar"
    ) -> Refusal:
        shown = found if len(found) <= 120 else found[:117] + "..."
        return Refusal(
            file=self.name, line=line, theorem=theorem, found=shown, allowed=allowed, cause=cause
        )

    def isolated(
        self, found: list[Lifted | Refusal], changing: Command | None, later: Command | None
    ) -> list[Lifted | Refusal]:
        """What a theorem gives, unless ``changing`` may change its reading or ``later`` may go on with it."""
        (first, *_) = found
        if not isinstance(first, Lifted):
            return found
        if later is not None and not begins_command(later.text):
            said = f"line {later.line} may go on with what is read here: {later.text}"
            allowed = "a theorem before a command of Lean's own, or at the end of its file"
        elif changing is not None:
            said = f"line {changing.line} may change what is read here: {changing.text}"
            allowed = "a theorem before that line, or in a file without it"
        else:
            return found
        return [self.refusal(first.line, said, allowed, first.theorem, "reading")]

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
        return read_limited(path, MAX_FILE_BYTES, may_be_pipe=True)
    except (OSError, ValueError) as error:
        raise MalformedInputError(
            "a Lean file that cannot be read",
            where=str(path),
            found=str(getattr(error, "strerror", None) or error),
            expected=f"at most {MAX_FILE_BYTES:,} bytes",
        ) from error


def _outcomes(file: _File, commands: Sequence[Command]) -> list[Lifted | Refusal]:
    """Theorems with steps one by one, and declarations together."""
    outcomes: list[Lifted | Refusal] = []
    declarations: list[tuple[Command, Piece]] = []
    changing: Command | None = None
    for command, later in zip_longest(commands, commands[1:]):
        word = command.text.split(" ")[0]
        proof = read_proof(command) if word == "theorem" else None
        if isinstance(proof, TacticProof):
            found = file.isolated(_theorem(file, command, proof), changing, later)
            outcomes += found
            if isinstance(found[0], Lifted):
                continue
        elif isinstance(proof, Flaw):
            name = _name_in(command.text)
            outcomes.append(file.refusal(proof.line, proof.found, proof.expected, name))
        elif word in _DECLARING:
            declarations.append((command, Piece(line=command.line, text=command.text)))
        else:
            outcomes.append(file.refusal(command.line, command.text, _ALLOWED))
        if changing is None and may_change_others(command.text):
            changing = command
    if len(declarations) == len(commands):
        return _declarations(file, declarations)
    return outcomes + [file.refusal(d.line, d.text, _ALLOWED) for _, d in declarations]


def _visible(file: _File, outcome: Lifted | Refusal) -> Lifted | Refusal:
    """Refuses what is not shown as it stands, even where only a comment does that."""
    if isinstance(outcome, Lifted):
        turning = _TURNING.search("".join(original.text for original in outcome.originals))
        if turning is not None:
            found = f"the character U+{ord(turning[0]):04X}, which changes the order in which text is shown"
            allowed = "text, comments included, that is shown in the order in which Lean reads it"
            return file.refusal(outcome.line, found, allowed, outcome.theorem)
    return outcome


def _theorem(file: _File, command: Command, proof: TacticProof) -> list[Lifted | Refusal]:
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
    if not refused and not MIN_STEPS <= len(steps) <= MAX_LIFTED:
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
            originals=(command.original(file.text, name, steps),),
        )
    ]


def _declarations(file: _File, commands: Sequence[tuple[Command, Piece]]) -> list[Lifted | Refusal]:
    pieces = [piece for _, piece in commands]
    classes = list(takewhile(lambda piece: piece.text.startswith("class "), pieces))
    steps = pieces[len(classes) :]
    if not MIN_STEPS <= len(steps) <= MAX_LIFTED:
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
            originals=tuple(
                command.original(file.text, _name_in(piece.text)) for command, piece in commands
            ),
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
