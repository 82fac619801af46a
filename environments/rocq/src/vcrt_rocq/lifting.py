"""Lift episodes out of a user's Rocq file: windows of consecutive steps of its proofs, bullets and all.

A step is a tactic sentence with the bullets before it and the closing braces behind it. A window starts in the state
that the file has before it, and the rest of its proof must close what it leaves. What cannot be let through is refused
with its line; what stands behind it in the file too, as it may change what that means. Nothing here runs Rocq.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vcrt.environments.contract import Episode, Operation, Provenance
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
from vcrt.printable import counted
from vcrt.randomness import derive_seed
from vcrt_rocq import grammar
from vcrt_rocq.grammar import Sentence

GENERATOR = "rocq.lift"


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
    data = file_bytes(path, "Rocq")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        read = grammar.sentences(text, where=path.name)
    except UnicodeDecodeError as error:
        raise not_utf8(path, "Rocq", error) from error
    digest = sha256_hex(data)
    return LiftedFile.of(path.name, digest, _outcomes(path.name, digest, read, steps))


def _outcomes(
    name: str, digest: str, read: Sequence[Sentence], num_steps: int
) -> Iterator[Lifted | Refusal]:
    before, place, door = list[str](), 0, grammar.Before(where=name)
    closed: Refusal | None = None
    while place < len(read):
        statement = read[place]
        body = _body(read, place + 1)
        if body:
            yield from _theorem(name, digest, before, statement, body, num_steps, closed)
        for sentence in (statement, *body):
            if grammar.is_query(sentence.text):
                continue
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
        if read[end].text.startswith(grammar.PROOF_ENDS):
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
    theorem = "".join(text.split()[1:2]).rstrip(":")

    def refusal(
        found: str, allowed: str, line: int = statement.line, cause: Cause = "grammar"
    ) -> Refusal:
        return Refusal(
            file=file, line=line, theorem=theorem, found=shown(found), allowed=allowed, cause=cause
        )

    if closed is not None:
        yield refusal(closed.found, closed.allowed, cause="before")
        return
    head = grammar.command_of(statement.text)
    if head not in grammar.PROVED:
        yield refusal(head, f"a proof of a {', '.join(sorted(grammar.PROVED))}, which has a name")
        return
    if not body[-1].text.startswith(("Qed.", "Defined.")):
        yield refusal(body[-1].text, "a proof that ends with Qed. or Defined.")
        return
    proof = [one for one in body[:-1] if not grammar.is_query(one.text)]
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
