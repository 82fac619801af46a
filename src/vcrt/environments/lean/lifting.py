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
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile, zip_longest
from pathlib import Path

from vcrt.environments.contract import Episode, Operation, Provenance
from vcrt.environments.lean import grammar
from vcrt.environments.lean.judging import Limits
from vcrt.environments.lean.source import (
    Block,
    Command,
    Flaw,
    Original,
    TacticProof,
    begins_command,
    may_change_others,
    plain_text,
    read_commands,
    read_proof,
)
from vcrt.environments.lean.spelling import Spelling, spelling_of, with_explicit_binders
from vcrt.environments.lifted_files import (
    LIFT_SCHEMA,
    Cause,
    Lifted,
    LiftedFile,
    LiftedStep,
    Refusal,
    file_bytes,
    not_utf8,
    shown,
)
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, sha256_hex
from vcrt.limits import MAX_LIFTED
from vcrt.printable import counted
from vcrt.randomness import derive_seed

#: How many steps an episode may have.
MIN_STEPS = 2
#: The generator that the provenance of lifted episodes names.
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


@dataclass(frozen=True, kw_only=True, slots=True)
class LeanLifted(Lifted):
    """What was lifted, the names by which Lean knows what the user calls otherwise, and the file's own commands."""

    spelling: Spelling
    originals: tuple[Original, ...]
    """The commands that the episode was made of, as they stand in the file."""


def lift_file(path: Path, *, max_chars: int | None = None) -> LiftedFile[LeanLifted]:
    """The episodes in a ``.lean`` file, and what in it is refused.

    No text of a step may be longer than ``max_chars`` (default: that of :class:`Limits`). Raises
    :class:`MalformedInputError` if the file cannot be read as text at all.
    """
    data = file_bytes(path, "Lean")
    try:
        text = plain_text(data.decode("utf-8"))
        commands, flaw = read_commands(text)
    except UnicodeDecodeError as error:
        raise not_utf8(path, "Lean", error) from error
    cap = Limits().max_step_chars if max_chars is None else max_chars
    file = _File(name=path.name, digest=sha256_hex(data), cap=cap, text=text)
    outcomes = _outcomes(file, commands)
    if flaw is not None:
        outcomes.append(file.refusal(flaw.line, flaw.found, flaw.expected))
    return LiftedFile.of(file.name, file.digest, (_visible(file, one) for one in outcomes))


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
        return Refusal(
            file=self.name,
            line=line,
            theorem=theorem,
            found=shown(found),
            allowed=allowed,
            cause=cause,
        )

    def isolated(
        self, found: list[LeanLifted | Refusal], changing: Command | None, later: Command | None
    ) -> list[LeanLifted | Refusal]:
        """What a theorem gives, unless ``changing`` may change its reading or ``later`` may go on with it."""
        (first, *_) = found
        if not isinstance(first, LeanLifted):
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
        self, block: Block, read: Callable[..., object], *, spelling: Spelling, theorem: str
    ) -> str | Refusal:
        """The spelling of a block for Lean, if ``read``, a function of the grammar, allows it."""
        if len(block.text) > self.cap:
            found, allowed = counted(len(block.text), "character"), f"at most {self.cap} characters"
            return self.refusal(block.line, found, allowed, theorem)
        where = f"{self.name}:{block.line}"
        try:
            text = spelling.spelt(block.text, where=where)
            read(text, where=where, max_chars=self.cap)
        except MalformedInputError as error:
            found = spelling.restored(str(error.found))
            if found[:100] != block.text[:100]:
                found = f"{found} in: {block.text}"
            return self.refusal(block.line, found, str(error.expected), theorem)
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


def _outcomes(file: _File, commands: Sequence[Command]) -> list[LeanLifted | Refusal]:
    """Theorems with steps one by one, and declarations together."""
    outcomes: list[LeanLifted | Refusal] = []
    declarations: list[Command] = []
    changing: Command | None = None
    for command, later in zip_longest(commands, commands[1:]):
        word = command.text.split(" ")[0]
        proof = read_proof(command) if word == "theorem" else None
        if isinstance(proof, TacticProof):
            found = file.isolated(_theorem(file, command, proof), changing, later)
            outcomes += found
            if isinstance(found[0], LeanLifted):
                continue
        elif isinstance(proof, Flaw):
            name = _name_in(command.text)
            outcomes.append(file.refusal(proof.line, proof.found, proof.expected, name))
        elif word in _DECLARING:
            declarations.append(command)
        else:
            outcomes.append(file.refusal(command.line, command.text, _ALLOWED))
        if changing is None and may_change_others(command.text):
            changing = command
    if len(declarations) == len(commands):
        return _declarations(file, declarations)
    return outcomes + [file.refusal(d.line, d.text, _ALLOWED) for d in declarations]


def _visible(file: _File, outcome: LeanLifted | Refusal) -> LeanLifted | Refusal:
    """Refuses what is not shown as it stands, even where only a comment does that."""
    if isinstance(outcome, LeanLifted):
        turning = _TURNING.search("".join(original.text for original in outcome.originals))
        if turning is not None:
            found = f"the character U+{ord(turning[0]):04X}, which changes the order in which text is shown"
            allowed = "text, comments included, that is shown in the order in which Lean reads it"
            return file.refusal(outcome.line, found, allowed, outcome.theorem)
    return outcome


def _theorem(file: _File, command: Command, proof: TacticProof) -> list[LeanLifted | Refusal]:
    first = replace(proof.statement.lines[0], text=with_explicit_binders(proof.statement.text))
    head = Block(lines=(first,))
    name = _name_in(head.text)
    steps = list(proof.tactics)
    opening = [steps.pop(0)] if steps and steps[0].text.startswith("refine ") else []
    closing = [steps.pop()] if steps and steps[-1].text.startswith("exact ") else []
    spelling = spelling_of([head.text, *(block.text for block in proof.tactics)])
    check = partial(file.checked, spelling=spelling, theorem=name)
    statement = check(head, grammar.read_statement)
    before = [check(b, partial(grammar.read_term_tactic, kind="refine")) for b in opening]
    behind = [check(b, partial(grammar.read_term_tactic, kind="exact")) for b in closing]
    texts = [check(block, grammar.read_tactic) for block in steps]
    every = (statement, *before, *behind, *texts)
    refused = [text for text in every if isinstance(text, Refusal)]
    if not refused and not MIN_STEPS <= len(steps) <= MAX_LIFTED:
        found = f"a proof of {counted(len(steps), 'step')}"
        refused = [file.refusal(command.line, found, _PROOF, name)]
    if refused:
        return [*refused]
    initial: Json = {
        "form": "tactics",
        "statement": str(statement),
        "opening": next(map(str, before), None),
        "closing": next(map(str, behind), None),
    }
    operations = _operations(_distinct([_name_in(block.text) for block in steps]), texts)
    return [
        LeanLifted(
            theorem=name,
            line=command.line,
            statement=proof.statement.text,
            steps=_steps(operations, steps, spelling),
            episode=file.episode(command.line, name, initial, operations),
            spelling=spelling,
            originals=(command.original(file.text, name, steps),),
        )
    ]


def _declarations(file: _File, commands: Sequence[Command]) -> list[LeanLifted | Refusal]:
    classes = list(takewhile(lambda command: command.text.startswith("class "), commands))
    steps = commands[len(classes) :]
    if not MIN_STEPS <= len(steps) <= MAX_LIFTED:
        found = counted(len(steps), "declaration")
        return [file.refusal(command.line, found, _ALLOWED) for command in commands[:1]]
    spelling = spelling_of([command.text for command in commands])
    check = partial(file.checked, spelling=spelling, theorem=file.name)
    setup = [check(command, grammar.read_class) for command in classes]
    known = frozenset(_name_in(text) for text in setup if isinstance(text, str))
    texts = [check(step, partial(grammar.read_declaration, classes=known)) for step in steps]
    refused = [text for text in (*setup, *texts) if isinstance(text, Refusal)]
    if refused:
        return [*refused]
    names = [_name_in(str(text)) for text in texts]
    twice = [step for step, name in zip(steps, names, strict=True) if names.count(name) > 1]
    if twice:
        found, allowed = f"a second {twice[-1].text}", "each name declared once"
        return [file.refusal(twice[-1].line, found, allowed, file.name)]
    instances = (_instance_type(str(text)) for text in texts)
    initial: Json = {
        "form": "declarations",
        "setup": [str(text) for text in setup],
        "probes": list(dict.fromkeys(kind for kind in instances if kind)),
    }
    operations = _operations(names, texts)
    line = steps[0].line
    return [
        LeanLifted(
            theorem=file.name,
            line=line,
            statement="",
            steps=_steps(operations, steps, spelling),
            episode=file.episode(line, "declarations", initial, operations),
            spelling=spelling,
            originals=tuple(c.original(file.text, _name_in(c.text)) for c in commands),
        )
    ]


def _operations(names: Sequence[str], texts: Sequence[str | Refusal]) -> list[Operation]:
    return [
        Operation(signature=name, payload=str(text))
        for name, text in zip(names, texts, strict=True)
    ]


def _steps(
    operations: Sequence[Operation], blocks: Sequence[Block], spelling: Spelling
) -> tuple[LiftedStep, ...]:
    return tuple(
        LiftedStep(label=spelling.restored(operation.signature), text=block.text, line=block.line)
        for operation, block in zip(operations, blocks, strict=True)
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
