"""Lift episodes out of a user's Rocq file: windows of consecutive steps of its proofs, bullets and all.

A step is a tactic sentence with the bullets before it and the closing braces behind it. A window starts in the state
that the file has before it, and the rest of its proof must close what it leaves. What cannot be let through is refused
with its line; what stands behind it in the file too, as it may change what that means. Nothing here runs Rocq.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from vcrt.documents import read_limited
from vcrt.environments.contract import Episode, Operation, Provenance
from vcrt.environments.rocq import grammar
from vcrt.environments.rocq.grammar import Sentence
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, sha256_hex
from vcrt.printable import counted
from vcrt.randomness import derive_seed

MAX_FILE_BYTES = 1_000_000
LIFT_SCHEMA = "lift"
GENERATOR = "rocq.lift"
_ENDS = ("Qed.", "Defined.", "Admitted.", "Abort.", "Save")

Cause: TypeAlias = Literal[
    "grammar", "before", "short", "rocq", "lean", "assumptions", "no verdict"
]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedStep:
    """A step as it stands in the file: its label, its text, its line and, where known, ``LINE:COLUMN-LINE:COLUMN``."""

    label: str
    text: str
    line: int
    span: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lifted:
    """A window of a proof as an episode, and where it was found."""

    theorem: str
    line: int
    statement: str
    steps: tuple[LiftedStep, ...]
    episode: Episode


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A proof, or a part of one, that is not lifted or not judged.

    ``cause`` is ``grammar`` (its text may not reach Rocq), ``before`` (what stands before it may not), ``short`` (fewer
    steps than a window has), ``rocq`` or ``lean`` (the prover refuses it as it stands), ``assumptions`` (it rests on
    axioms), or ``no verdict`` (the prover gave none).
    """

    file: str
    line: int
    theorem: str
    found: str
    allowed: str
    cause: Cause = "grammar"


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedFile:
    """All that a file gives, in the order in which it stands there."""

    name: str
    digest: str
    lifted: tuple[Lifted, ...]
    refused: tuple[Refusal, ...]


@dataclass(slots=True)
class _Step:
    """A tactic sentence with its bullets and closing braces."""

    parts: list[Sentence] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join(" ".join(part.text for part in self.parts).split())


def lift_file(path: Path, *, steps: int = 4) -> LiftedFile:
    """The windows of ``steps`` steps in a ``.v`` file, and what in it is refused.

    Raises :class:`MalformedInputError` if the file cannot be read as sentences at all.
    """
    data = _bytes(path)
    try:
        read = grammar.sentences(data.decode("utf-8"), where=path.name)
    except UnicodeDecodeError as error:
        raise MalformedInputError(
            "a Rocq file that is not UTF-8 text", where=str(path), found=str(error)
        ) from error
    digest = sha256_hex(data)
    outcomes = list(_outcomes(path.name, digest, read, steps))
    return LiftedFile(
        name=path.name,
        digest=digest,
        lifted=tuple(one for one in outcomes if isinstance(one, Lifted)),
        refused=tuple(one for one in outcomes if isinstance(one, Refusal)),
    )


def _bytes(path: Path) -> bytes:
    try:
        return read_limited(path, MAX_FILE_BYTES, may_be_pipe=True)
    except (OSError, ValueError) as error:
        raise MalformedInputError(
            "a Rocq file that cannot be read",
            where=str(path),
            found=str(getattr(error, "strerror", None) or error),
            expected=f"at most {MAX_FILE_BYTES:,} bytes",
        ) from error


def _outcomes(
    name: str, digest: str, read: Sequence[Sentence], num_steps: int
) -> Iterator[Lifted | Refusal]:
    before, place, door = list[str](), 0, grammar.Before(where=name)
    closed: Refusal | None = None
    while place < len(read):
        statement = read[place]
        body = _body(read, place + 1)
        head = grammar.command_of(statement.text)
        if head in grammar.PROVED and body:
            yield from _theorem(name, digest, before, statement, body, num_steps, closed)
        for sentence in (statement, *body):
            before.append(sentence.text)
            try:
                if closed is None:
                    door.read(sentence.text)
            except MalformedInputError as error:
                closed = Refusal(
                    file=name,
                    line=sentence.line,
                    theorem="",
                    found=f"line {sentence.line}: {error.found}",
                    allowed=str(error.expected),
                    cause="before",
                )
        place += 1 + len(body)


def _body(read: Sequence[Sentence], start: int) -> Sequence[Sentence]:
    """The sentences of the proof that begins here, its end included; none if none does."""
    if start >= len(read):
        return ()
    first = read[start].text
    if not first.startswith("Proof") and grammar.command_of(first):
        return ()
    for end in range(start, len(read)):
        if read[end].text.startswith(_ENDS):
            return read[start : end + 1]
        if end > start and grammar.command_of(read[end].text) in grammar.PROVED:
            break
    return ()


def _theorem(
    file: str,
    digest: str,
    before: Sequence[str],
    statement: Sentence,
    body: Sequence[Sentence],
    num_steps: int,
    closed: Refusal | None,
) -> Iterator[Lifted | Refusal]:
    text = grammar.without_prefixes(statement.text)
    theorem = text.split()[1].rstrip(":")

    def refusal(
        found: str, allowed: str, line: int = statement.line, cause: Cause = "grammar"
    ) -> Refusal:
        shown = found if len(found) <= 120 else found[:117] + "..."
        return Refusal(
            file=file, line=line, theorem=theorem, found=shown, allowed=allowed, cause=cause
        )

    if closed is not None:
        yield refusal(closed.found, closed.allowed, cause="before")
        return
    if not body[-1].text.startswith(("Qed.", "Defined.")):
        yield refusal(body[-1].text, "a proof that ends with Qed. or Defined.")
        return
    proof = list(body[:-1])
    if proof and proof[0].text.startswith("Proof"):
        first = proof.pop(0)
        if not first.text.startswith(("Proof.", "Proof using")):
            yield refusal(first.text, "Proof.", first.line)
            return
    try:
        grammar.read_statement(text, where=file)
        for sentence in proof:
            grammar.read_tactic(sentence.text, where=f"{file}:{sentence.line}")
            if sentence.text.endswith("..."):
                raise MalformedInputError("", found=sentence.text, expected="one full stop")
    except MalformedInputError as error:
        yield refusal(str(error.found), str(error.expected))
        return
    steps = _steps(proof)
    if len(steps) < num_steps:
        yield refusal(counted(len(steps), "step"), f"{num_steps} or more", statement.line, "short")
    for start in range(0, len(steps) - num_steps + 1, num_steps):
        yield _window(
            file, digest, before, Sentence(text, statement.line), theorem, steps, start, num_steps
        )


def _steps(proof: Sequence[Sentence]) -> list[_Step]:
    steps, open_step = list[_Step](), _Step()
    for sentence in proof:
        if sentence.text == "}" and steps and not open_step.parts:
            steps[-1].parts.append(sentence)
            continue
        open_step.parts.append(sentence)
        if not grammar.is_bullet(sentence.text):
            steps.append(open_step)
            open_step = _Step()
    if open_step.parts and steps:
        steps[-1].parts += open_step.parts
    return steps


def _window(
    file: str,
    digest: str,
    before: Sequence[str],
    statement: Sentence,
    theorem: str,
    steps: Sequence[_Step],
    start: int,
    num_steps: int,
) -> Lifted:
    window = steps[start : start + num_steps]
    initial: Json = {
        "form": "proof",
        "before": list(before),
        "statement": statement.text,
        "opening": [step.text for step in steps[:start]],
        "closing": [step.text for step in steps[start + num_steps :]],
    }
    episode = Episode(
        environment="rocq",
        schema=LIFT_SCHEMA,
        initial=initial,
        operations=tuple(
            Operation(signature=f"{number}. {step.text}", payload=step.text)
            for number, step in enumerate(window, start=start + 1)
        ),
        provenance=Provenance(
            source=f"{file}/{theorem}@sha256:{digest}",
            generator=GENERATOR,
            seed=derive_seed(window[0].parts[0].line, GENERATOR, digest, start) % 2**31,
        ),
    )
    return Lifted(
        theorem=theorem,
        line=window[0].parts[0].line,
        statement=statement.text,
        steps=tuple(
            LiftedStep(label=step.text, text=step.text, line=step.parts[0].line) for step in window
        ),
        episode=episode,
    )
