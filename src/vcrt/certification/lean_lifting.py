"""A user's Lean file through the verifier: what is lifted from it, replayed in every order, and reported.

Every theorem is judged by itself, so that one that Lean refuses or gives no verdict on does not stop the others.
Not covered: how a file is read (see :mod:`vcrt.environments.lean.lifting`) and how orders are replayed (the caller's
choice).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from vcrt.certification.certificates import InconsistentReplayError
from vcrt.certification.pairs import OrdersReport, PairReport, Refused, report_orders
from vcrt.certification.replay_tree import EpisodeReplays
from vcrt.environments.contract import Environment, Episode, Versions
from vcrt.environments.lean.judging import Limits
from vcrt.environments.lean.lifting import Cause, Lifted, Refusal, lift_file
from vcrt.environments.lean.program import read_program
from vcrt.environments.lean.rereading import Difference, difference
from vcrt.errors import MalformedInputError, VerifierFailure

_SAME = (
    "a text of which Lean makes what vcrt's spelling of it says; say the same with brackets around every part, with "
    "names that mean nothing else, and without tabs and unusual spaces"
)
#: Replays all orders of each episode.
ReplayOrders: TypeAlias = Callable[[Environment, Sequence[Episode]], list[EpisodeReplays]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedTheorem:
    """A theorem (or a file of declarations) and what was found; messages speak of the user's own names."""

    lifted: Lifted
    orders: OrdersReport


@dataclass(frozen=True, kw_only=True, slots=True)
class LeanLift:
    """All that was found in a file, and what was refused, by lines."""

    file: str
    digest: str
    versions: Versions
    theorems: tuple[LiftedTheorem, ...]
    refused: tuple[Refusal, ...]


def lift_lean(path: Path, environment: Environment, replay: ReplayOrders) -> LeanLift:
    """Lift a ``.lean`` file and report what its steps do in every order, as ``replay`` replays them.

    Raises :class:`MalformedInputError` if the file cannot be read or holds no command, and
    :class:`vcrt.errors.UnavailableError` without a fit Lean; a theorem that Lean refuses or gives no verdict on is
    among the refused ones.
    """
    versions = environment.versions()
    file = lift_file(path)
    if not file.lifted and not file.refused:
        raise MalformedInputError(
            "a Lean file without any command",
            where=str(path),
            found="nothing, or nothing but white space and comments",
            expected="theorems proved by steps, or a file of declarations",
        )
    outcomes = [_judged(file.name, lifted, environment, replay) for lifted in file.lifted]
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
    return LeanLift(
        file=file.name,
        digest=file.digest,
        versions=versions,
        theorems=tuple(outcome for outcome in outcomes if isinstance(outcome, LiftedTheorem)),
        refused=tuple(sorted([*file.refused, *refused], key=lambda refusal: refusal.line)),
    )


def _judged(
    file: str, lifted: Lifted, environment: Environment, replay: ReplayOrders
) -> LiftedTheorem | Refusal:
    def refusal(found: str, allowed: str, cause: Cause) -> Refusal:
        return Refusal(
            file=file,
            line=lifted.line,
            theorem=lifted.theorem,
            found=lifted.spelling.restored(found),
            allowed=allowed,
            cause=cause,
        )

    def misread(accepted: Sequence[tuple[int, ...]]) -> Refusal | None:
        other = _difference(lifted, accepted)
        if other is None:
            return None
        return replace(refusal(other.reason, _SAME, "reading"), line=other.line)

    try:
        try:
            (evidence,) = replay(environment, [lifted.episode])
        except MalformedInputError as error:
            return misread(()) or refusal(error.found or error.what, error.expected or "", "lean")
        whole = lifted.episode.num_operations
        accepted = [r.sequence for r in evidence.replays if r.accepted and len(r.sequence) == whole]
        judged = LiftedTheorem(lifted=lifted, orders=_restored(lifted, report_orders(evidence)))
        return misread(accepted) or judged
    except VerifierFailure as error:
        return refusal(error.found or error.what, error.expected or "", "no verdict")
    except InconsistentReplayError as error:
        return refusal(str(error), "one answer to one sequence", "no verdict")


def _difference(lifted: Lifted, accepted: Sequence[tuple[int, ...]]) -> Difference | None:
    """What Lean reads otherwise in the file: with the steps as they stand there or, if that fails, as ``accepted``."""
    written = tuple(range(lifted.episode.num_operations))
    order = written if written in accepted or not accepted else accepted[0]
    limits = Limits()
    program = read_program(lifted.episode, max_chars=limits.max_step_chars)
    return difference(lifted.originals, program, order, limits)


def _restored(lifted: Lifted, orders: OrdersReport) -> OrdersReport:
    """The report with the names that the user wrote."""

    def pair(report: PairReport) -> PairReport:
        return replace(report, reason=lifted.spelling.restored(report.reason))

    def refused(report: Refused) -> Refused:
        return replace(report, reason=lifted.spelling.restored(report.reason))

    reference = orders.reference_refusal
    return replace(
        orders,
        pairs=tuple(map(pair, orders.pairs)),
        reference_refusal=None if reference is None else refused(reference),
    )
