"""Hold what is lifted out of a user's file of proofs, whichever prover judges it, and read the bytes of such a file.

Not covered: what is lifted, which is each prover's own, and what was found about it
(:mod:`vcrt.certification.lifted_files`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vcrt.documents import read_limited
from vcrt.environments.contract import Episode
from vcrt.errors import MalformedInputError

#: The largest file that is read, in bytes.
MAX_FILE_BYTES = 1_000_000
#: The schema of lifted episodes.
LIFT_SCHEMA = "lift"
#: The most characters of a text that a refusal shows.
MAX_SHOWN = 120

#: Why something is refused: one of those of :class:`Refusal`, or the name of the prover that refuses it.
Cause: TypeAlias = str


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedStep:
    """A step as it stands in the file: its label, its text, its line and, where known, ``LINE:COLUMN-LINE:COLUMN``."""

    label: str
    text: str
    line: int
    span: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lifted:
    """An episode, and the theorem in whose proof it was found."""

    theorem: str
    line: int
    statement: str
    steps: tuple[LiftedStep, ...]
    episode: Episode


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Something in a file that is not lifted or not judged; ``theorem`` is lost by it, if one is.

    ``cause`` is ``grammar`` (its text may not reach the prover, or is none of the forms that are lifted), ``before``
    (what stands before it may not), ``short`` (fewer steps than a window has), the prover's name (it refuses it as it
    stands), ``assumptions`` (it rests on axioms), or ``no verdict`` (the prover gave none).
    """

    file: str
    line: int
    theorem: str
    found: str
    allowed: str
    cause: Cause = "grammar"

    @property
    def where(self) -> str:
        """``file:line``."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedFile:
    """All that a file gives: episodes in the order in which they stand there, and refusals by their lines."""

    name: str
    digest: str
    lifted: tuple[Lifted, ...]
    refused: tuple[Refusal, ...]

    @classmethod
    def of(cls, name: str, digest: str, outcomes: Iterable[Lifted | Refusal]) -> LiftedFile:
        """The two kinds of outcomes apart."""
        every = list(outcomes)
        refused = [one for one in every if isinstance(one, Refusal)]
        return cls(
            name=name,
            digest=digest,
            lifted=tuple(one for one in every if not isinstance(one, Refusal)),
            refused=tuple(sorted(refused, key=lambda refusal: refusal.line)),
        )


def file_bytes(path: Path, prover: str) -> bytes:
    """What a file of this prover's holds; raises :class:`MalformedInputError` if it cannot be read."""
    try:
        return read_limited(path, MAX_FILE_BYTES, may_be_pipe=True)
    except (OSError, ValueError) as error:
        raise MalformedInputError(
            f"a {prover} file that cannot be read",
            where=str(path),
            found=str(getattr(error, "strerror", None) or error),
            expected=f"at most {MAX_FILE_BYTES:,} bytes",
        ) from error


def not_utf8(path: Path, prover: str, error: UnicodeDecodeError) -> MalformedInputError:
    """The error of a file that is no text."""
    what = f"a {prover} file that is not UTF-8 text"
    return MalformedInputError(what, where=str(path), found=str(error))


def shown(text: str) -> str:
    """A text as a refusal shows it."""
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."
