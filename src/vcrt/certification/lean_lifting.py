"""Lift a user's Lean file: replay what its theorems hold in every order through the verifier, and report it.

Every theorem is judged by itself, so that one that Lean refuses or gives no verdict on does not stop the others.
Not covered: how a file is read (see :mod:`vcrt.environments.lean.lifting`) and how orders are replayed (the caller's
choice).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from vcrt.certification.certificates import UncertifiedError
from vcrt.certification.lifted_files import FileLift, LiftedTheorem, ReplayOrders
from vcrt.certification.pairs import OrdersReport, PairReport, Refused, report_orders
from vcrt.environments.contract import Environment
from vcrt.environments.lean.judging import Limits
from vcrt.environments.lean.lifting import LeanLifted, lift_file
from vcrt.environments.lean.program import read_program
from vcrt.environments.lean.rereading import Difference, difference
from vcrt.environments.lifted_files import Cause, Refusal
from vcrt.errors import MalformedInputError, VerifierFailure

_SAME = (
    "a text of which Lean makes what vcrt's spelling of it says; say the same with brackets around every part, with "
    "names that mean nothing else, and without tabs and unusual spaces"
)
_Reasoned = TypeVar("_Reasoned", PairReport, Refused)


def lift_lean(path: Path, environment: Environment, replay: ReplayOrders) -> FileLift:
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
    outcomes = (_judged(file.name, lifted, environment, replay) for lifted in file.lifted)
    return FileLift.of(file, versions, outcomes)


def _judged(
    file: str, lifted: LeanLifted, environment: Environment, replay: ReplayOrders
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
    except UncertifiedError as error:
        return refusal(str(error), "one answer to one sequence", "no verdict")


def _difference(lifted: LeanLifted, accepted: Sequence[tuple[int, ...]]) -> Difference | None:
    """What Lean reads otherwise in the file: with the steps as they stand there or, if that fails, as ``accepted``."""
    written = tuple(range(lifted.episode.num_operations))
    order = written if written in accepted or not accepted else accepted[0]
    limits = Limits()
    program = read_program(lifted.episode, max_chars=limits.max_step_chars)
    return difference(lifted.originals, program, order, limits)


def _restored(lifted: LeanLifted, orders: OrdersReport) -> OrdersReport:
    """The report with the names that the user wrote."""

    def restored(report: _Reasoned) -> _Reasoned:
        return replace(report, reason=lifted.spelling.restored(report.reason))

    reference = orders.reference_refusal
    return replace(
        orders,
        pairs=tuple(map(restored, orders.pairs)),
        reference_refusal=None if reference is None else restored(reference),
    )
