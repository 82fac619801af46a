"""Hold what is lifted from a user's file of proofs, for any prover, and the findings about it.

Each prover's package does the lifting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vcrt.certificates.certificates import UncertifiedError
from vcrt.certificates.pairs import OrdersReport, report_orders
from vcrt.certificates.replay_tree import EpisodeReplays
from vcrt.environments.contract import Environment, Episode, Versions
from vcrt.errors import MalformedInputError, VerifierFailure

#: The schema of lifted episodes.
LIFT_SCHEMA = "lift"
#: A function that replays all orders of each episode.
ReplayOrders: TypeAlias = Callable[[Environment, Sequence[Episode]], list[EpisodeReplays]]
#: A cause of :class:`Refusal`, the name of the refusing prover included.
Cause: TypeAlias = str


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedStep:
    """A step in the file: its label, its text, its line and, where known, ``LINE:COLUMN-LINE:COLUMN``."""

    label: str
    text: str
    line: int
    span: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lifted:
    """An episode, and the theorem whose proof contains it."""

    theorem: str
    line: int
    statement: str
    steps: tuple[LiftedStep, ...]
    episode: Episode


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A part of a file that is not lifted or not judged; ``theorem`` names the theorem that this excludes, if any.

    ``cause`` is ``grammar`` (its text may not reach the prover, or has no form that is lifted), ``before`` (the text
    before it may not), ``short`` (fewer steps than a window has), the prover's name (the prover refuses it as written),
    ``assumptions`` (it rests on axioms), or ``no verdict`` (the prover gave none).
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
    """The content of a file: episodes in their order, and refusals by line."""

    name: str
    digest: str
    lifted: tuple[Lifted, ...]
    refused: tuple[Refusal, ...]

    @classmethod
    def of(cls, name: str, digest: str, outcomes: Iterable[Lifted | Refusal]) -> LiftedFile:
        """Split the outcomes into episodes and refusals."""
        every = list(outcomes)
        lifted = tuple(one for one in every if isinstance(one, Lifted))
        return cls(name=name, digest=digest, lifted=lifted, refused=_refused(every))


def _refused(outcomes: Iterable[object]) -> tuple[Refusal, ...]:
    refused = [one for one in outcomes if isinstance(one, Refusal)]
    return tuple(sorted(refused, key=lambda refusal: refusal.line))


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedTheorem:
    """A window of a theorem's proof, and the findings about it."""

    lifted: Lifted
    orders: OrdersReport


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLift:
    """All findings about a file, and the refusals by line."""

    file: str
    digest: str
    versions: Versions
    theorems: tuple[LiftedTheorem, ...]
    refused: tuple[Refusal, ...]

    @classmethod
    def of(
        cls, file: LiftedFile, versions: Versions, outcomes: Iterable[LiftedTheorem | Refusal]
    ) -> FileLift:
        """Combine the findings about a file with the refusals of lifting it."""
        every = [*file.refused, *outcomes]
        return cls(
            file=file.name,
            digest=file.digest,
            versions=versions,
            theorems=tuple(one for one in every if isinstance(one, LiftedTheorem)),
            refused=_refused(every),
        )


def judged_windows(
    file: LiftedFile, environment: Environment, replay: ReplayOrders, stands: str, prover: Cause
) -> Iterator[LiftedTheorem | Refusal]:
    """Yield the result of ``replay`` for each window of a file in every order, or the reason why it is not judged.

    Each window is judged by itself, so a refused one does not stop the others. ``stands`` says what a proof must be to
    be judged; ``prover`` is the cause of the prover's own refusals.
    """
    for window in file.lifted:
        cause, allowed = prover, stands
        try:
            (evidence,) = replay(environment, [window.episode])
            orders = report_orders(evidence)
        except MalformedInputError as error:
            found, allowed = error.found or error.what, error.expected or stands
        except VerifierFailure as error:
            found, allowed, cause = error.found or error.what, error.expected or "", "no verdict"
        except UncertifiedError as error:
            found, allowed, cause = str(error), "one answer to one sequence", "no verdict"
        else:
            if orders.reference_refusal is None:
                yield LiftedTheorem(lifted=window, orders=orders)
                continue
            found = orders.reference_refusal.reason
            if "rests on what is not proved" in found:
                cause = "assumptions"
        yield Refusal(
            file=file.name,
            line=window.line,
            theorem=window.theorem,
            found=found,
            allowed=allowed,
            cause=cause,
        )
