"""Hold what is lifted out of a user's file of proofs, whichever prover judges it, and what was found about it.

Not covered: what is lifted, which is each prover's own.
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
#: Replays all orders of each episode.
ReplayOrders: TypeAlias = Callable[[Environment, Sequence[Episode]], list[EpisodeReplays]]
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
        lifted = tuple(one for one in every if isinstance(one, Lifted))
        return cls(name=name, digest=digest, lifted=lifted, refused=_refused(every))


def _refused(outcomes: Iterable[object]) -> tuple[Refusal, ...]:
    refused = [one for one in outcomes if isinstance(one, Refusal)]
    return tuple(sorted(refused, key=lambda refusal: refusal.line))


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedTheorem:
    """A window of a theorem's proof, and what was found about it."""

    lifted: Lifted
    orders: OrdersReport


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLift:
    """All that was found in a file, and what was refused, by lines."""

    file: str
    digest: str
    versions: Versions
    theorems: tuple[LiftedTheorem, ...]
    refused: tuple[Refusal, ...]

    @classmethod
    def of(
        cls, file: LiftedFile, versions: Versions, outcomes: Iterable[LiftedTheorem | Refusal]
    ) -> FileLift:
        """What was found about what a file gave, with what was refused before."""
        every = [*file.refused, *outcomes]
        return cls(
            file=file.name,
            digest=file.digest,
            versions=versions,
            theorems=tuple(one for one in every if isinstance(one, LiftedTheorem)),
            refused=_refused(every),
        )


def judged_windows(
    file: LiftedFile,
    environment: Environment,
    replay: ReplayOrders,
    stands: str,
    prover: Cause,
) -> Iterator[LiftedTheorem | Refusal]:
    """What each window of a file does in every order, as ``replay`` replays them, or why it is not judged.

    Each is judged by itself, so that one that is refused does not stop the others. ``stands`` says what a proof must
    be for that, ``prover`` is the cause of what the prover refuses.
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
