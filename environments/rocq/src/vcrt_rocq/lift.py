"""Report what windows of the proofs in Rocq files do in every order: ``vcrt lift rocq``.

A step is a tactic sentence with the bullets before it and the closing braces after it. A window of consecutive steps
starts in the file's state before it, and the rest of its proof must close the goals that it leaves. A text that is not
allowed is refused with its line, and so is the rest of the file, whose meaning it may change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vcrt.api.lifting import MIN_STEPS, each_file, require_within, some
from vcrt.documents import read_limited
from vcrt.environments.contract import Environment, Episode, Operation, Provenance
from vcrt.environments.guarding import make_guarded
from vcrt.environments.registry import Registered
from vcrt.errors import MalformedInputError
from vcrt.hashing import Json, sha256_hex
from vcrt.limits import MAX_LIFTED
from vcrt.printable import counted
from vcrt.progress import SILENT, Progress
from vcrt.randomness import derive_seed
from vcrt.replay.lattice_replay import replay_merged
from vcrt.replay.lifted_files import (
    LIFT_SCHEMA,
    Cause,
    FileLift,
    Lifted,
    LiftedFile,
    LiftedStep,
    Refusal,
    ReplayOrders,
    judged_windows,
)
from vcrt_rocq import grammar
from vcrt_rocq.grammar import Sentence

GENERATOR = "rocq.lift"
#: The most bytes of a file, and the most characters of a text in a refusal.
MAX_FILE_BYTES, MAX_SHOWN = 1_000_000, 120
_STANDS = "a proof that Rocq accepts as it stands, over its standard library alone"


def lift_rocq(
    files: Sequence[str | Path], *, steps: int = 4, progress: Progress = SILENT
) -> Iterator[FileLift | MalformedInputError]:
    """Report, for windows of consecutive steps in Rocq proofs, how many orders are legal and which steps commute.

    Each window starts in the state that its file reaches just before it. A file that cannot be read gives an error in
    its place and does not stop the others. The exit status is 2 if a file cannot be read or nothing can be judged.

    Example: vcrt lift rocq Proofs.v

    Args:
        files: Rocq files over the standard library.
        steps: Steps of a window, 2 to 8.

    Raises:
        UnavailableError: There is no suitable Rocq. This error is raised at once, not with the first file.
    """
    files = some(files)
    require_within("steps", steps, MIN_STEPS, MAX_LIFTED)
    environment = make_guarded(Registered("rocq"))
    return each_file(
        files,
        lambda file: lift_rocq_file(file, environment, replay_merged, steps=steps),
        progress,
    )


def lift_rocq_file(
    path: Path, environment: Environment, replay: ReplayOrders, *, steps: int
) -> FileLift:
    """Lift a ``.v`` file and report what windows of ``steps`` steps do in every order, as ``replay`` replays them.

    Raise :class:`MalformedInputError` if the file cannot be read, and :class:`vcrt.errors.UnavailableError` without a
    fit Rocq.
    """
    versions = environment.versions()
    file = lift_file(path, steps=steps)
    return FileLift.of(file, versions, judged_windows(file, environment, replay, _STANDS, "rocq"))


def lift_file(path: Path, *, steps: int = 4) -> LiftedFile:
    """Return the windows of ``steps`` steps in a ``.v`` file, and the refusals.

    Raise :class:`MalformedInputError` if the file cannot be read as sentences at all.
    """
    try:
        data = read_limited(path, MAX_FILE_BYTES, may_be_pipe=True)
    except (OSError, ValueError) as error:
        raise MalformedInputError(
            "a Rocq file that cannot be read",
            where=str(path),
            found=str(getattr(error, "strerror", None) or error),
            expected=f"at most {MAX_FILE_BYTES:,} bytes",
        ) from error
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        read = grammar.sentences(text, where=path.name)
    except UnicodeDecodeError as error:
        what = "a Rocq file that is not UTF-8 text"
        raise MalformedInputError(what, where=str(path), found=str(error)) from error
    digest = sha256_hex(data)
    return LiftedFile.of(path.name, digest, _outcomes(path.name, digest, read, steps))


@dataclass(slots=True)
class _Step:
    """A tactic sentence with its bullets and closing braces."""

    parts: list[Sentence] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join(" ".join(part.text for part in self.parts).split())


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
    """Return the sentences of the proof that begins here, its end included; none if there is none."""
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
        if len(found) > MAX_SHOWN:
            found = found[: MAX_SHOWN - 3] + "..."
        return Refusal(
            file=file, line=line, theorem=theorem, found=found, allowed=allowed, cause=cause
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
