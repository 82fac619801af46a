"""Report what the steps of the proofs in Lean files do in every order: ``vcrt lift lean``.

A step is one of a block's own steps by Lean's syntax tree, of any kind: ``have``, ``obtain``, ``case``, a bullet,
``calc``. A window of consecutive steps starts in the file's state before it, and the rest of its proof must close the
goals that it leaves. Proofs that are terms, and steps inside a step, are not lifted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from vcrt.api.lifting import MIN_STEPS, each_file, require_within, some
from vcrt.documents import read_limited
from vcrt.environments.contract import Episode, Operation, Provenance
from vcrt.environments.guarding import guarded
from vcrt.errors import MalformedInputError, VcrtError
from vcrt.hashing import Json, sha256_hex
from vcrt.limits import MAX_LIFTED
from vcrt.printable import counted
from vcrt.progress import SILENT, Progress
from vcrt.randomness import derive_seed
from vcrt.replay.lattice_replay import replay_merged
from vcrt.replay.lifted_files import (
    LIFT_SCHEMA,
    FileLift,
    Lifted,
    LiftedFile,
    LiftedStep,
    Refusal,
    ReplayOrders,
    judged_windows,
)
from vcrt_lean.project import Step, Theorem, find_project
from vcrt_lean.project_environment import LeanProjectEnvironment

GENERATOR = "lean-project.lift"
MAX_FILE_BYTES = 1_000_000
_STANDS = "a proof that Lean accepts as it stands, without sorry and axioms of its own"


def lift_lean(
    files: Sequence[str | Path],
    *,
    project: str | Path | None = None,
    steps: int = 4,
    progress: Progress = SILENT,
) -> Iterator[FileLift | MalformedInputError]:
    """Report, for windows of consecutive steps in Lean proofs, how many orders are legal and which steps commute.

    The Lean of the files' own project judges the files, with their imports. A file that cannot be read gives an error
    in its place and does not stop the others. The exit status is 2 if a file cannot be read or nothing can be judged.

    Example: vcrt lift lean Proofs.lean --project .

    Args:
        files: Lean files of the project.
        project: The folder of the files' Lake project, built by lake build; it must be given.
        steps: Steps of a window, 2 to 8.

    Raises:
        UnavailableError: There is no suitable Lean. Like the next error, it is raised at once, not with the first file.
        MalformedInputError: The folder is no project.
    """
    files = some(files)
    if project is None:
        raise VcrtError(
            "lift lean needs a Lake project with a Lean toolchain: name its folder with --project"
        )
    require_within("steps", steps, MIN_STEPS, MAX_LIFTED)
    environment = LeanProjectEnvironment(find_project(Path(project)))
    guarded(environment)
    return each_file(
        files,
        lambda file: lift_lean_project(file, environment, replay_merged, steps=steps),
        progress,
        end=environment.close,
    )


def lift_project_file(
    path: Path, environment: LeanProjectEnvironment, *, steps: int = 4
) -> LiftedFile:
    """Return the windows of ``steps`` steps in a file of the environment's project, and the too short theorems.

    Raise :class:`MalformedInputError` for a file that cannot be read or does not compile, and
    :class:`vcrt.errors.VerifierFailure` if Lean gives no answer.
    """
    try:
        path = path.resolve(strict=True)
        source = read_limited(path, MAX_FILE_BYTES)
        source.decode("utf-8")
    except (OSError, ValueError) as error:
        raise MalformedInputError(
            "a Lean file that cannot be read",
            where=str(path),
            found=str(getattr(error, "strerror", None) or error),
            expected=f"UTF-8 text of at most {MAX_FILE_BYTES:,} bytes",
        ) from error
    outcomes = (
        outcome
        for number, theorem in enumerate(environment.theorems(path))
        for outcome in _windows(path, source, environment, number, theorem, steps)
    )
    return LiftedFile.of(path.name, sha256_hex(source), outcomes)


def lift_lean_project(
    path: Path, environment: LeanProjectEnvironment, replay: ReplayOrders, *, steps: int
) -> FileLift:
    """Lift a ``.lean`` file of a Lake project and report what windows of ``steps`` steps do in every order.

    Raise :class:`MalformedInputError` for a file that cannot be read or does not compile, and
    :class:`vcrt.errors.VerifierFailure` if Lean does not finish.
    """
    file = lift_project_file(path, environment, steps=steps)
    found = judged_windows(file, environment, replay, _STANDS, "lean")
    return FileLift.of(file, environment.versions(), found)


def _windows(
    path: Path,
    source: bytes,
    environment: LeanProjectEnvironment,
    number: int,
    theorem: Theorem,
    num_steps: int,
) -> Iterator[Lifted | Refusal]:
    total = len(theorem.steps)
    if total < num_steps:
        yield Refusal(
            file=path.name,
            line=theorem.line,
            theorem=theorem.name,
            found=counted(total, "step"),
            allowed=f"{num_steps} or more",
            cause="short",
        )
    folder, digest = environment.project.folder, sha256_hex(source)
    shown = str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
    for first in range(0, total - num_steps + 1, num_steps):
        window = theorem.steps[first : first + num_steps]
        texts = [_label(_text(source, step)) for step in window]
        initial: Json = {
            "file": shown,
            "sha256": digest,
            "theorem": theorem.name,
            "number": number,
            "first": first,
        }
        episode = Episode(
            environment=environment.name,
            schema=LIFT_SCHEMA,
            initial=initial,
            operations=tuple(
                Operation(signature=f"{place}. {text}", payload=_text(source, step))
                for place, (text, step) in enumerate(zip(texts, window, strict=True), first + 1)
            ),
            provenance=Provenance(
                source=f"{path.name}/{theorem.name}@sha256:{digest}",
                generator=GENERATOR,
                seed=derive_seed(window[0].line, GENERATOR, digest, first) % 2**31,
            ),
        )
        yield Lifted(
            theorem=theorem.name,
            line=window[0].line,
            statement=" ".join(source[theorem.start : theorem.proof].decode().split()),
            steps=tuple(
                LiftedStep(label=text, text=text, line=step.line, span=_span(step))
                for text, step in zip(texts, window, strict=True)
            ),
            episode=episode,
        )


def _text(source: bytes, step: Step) -> str:
    return source[step.start : step.stop].decode()


def _label(text: str) -> str:
    """Return the step on one line, without comment lines."""
    lines = (line for line in text.splitlines() if not line.strip().startswith("--"))
    return " ".join(" ".join(lines).split())


def _span(step: Step) -> str:
    return f"{step.line}:{step.column}-{step.end_line}:{step.end_column}"
