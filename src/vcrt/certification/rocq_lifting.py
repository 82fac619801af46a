"""Lift a user's Rocq or Lean file: replay the windows of its proofs in every order through the prover, and report them.

Every window is judged by itself, so that one that is refused or gets no verdict does not stop the others. Not covered:
how a file is read (see :mod:`vcrt.environments.rocq.lifting` and :mod:`vcrt.certification.lean_windows`) and how
orders are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from vcrt.certification.certificates import UncertifiedError
from vcrt.certification.lean_windows import lift_project_file
from vcrt.certification.pairs import OrdersReport, report_orders
from vcrt.certification.replay_tree import EpisodeReplays
from vcrt.environments.contract import Environment, Episode, Versions
from vcrt.environments.lean.project_environment import LeanProjectEnvironment
from vcrt.environments.rocq.lifting import Cause, Lifted, LiftedFile, Refusal, lift_file
from vcrt.errors import MalformedInputError, VerifierFailure

_STANDS = "a proof that Rocq accepts as it stands, over its standard library alone"
_STANDS_IN_LEAN = "a proof that Lean accepts as it stands, without sorry and axioms of its own"
#: Replays all orders of each episode.
ReplayOrders: TypeAlias = Callable[[Environment, Sequence[Episode]], list[EpisodeReplays]]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedWindow:
    """A window of a proof and what was found."""

    lifted: Lifted
    orders: OrdersReport


@dataclass(frozen=True, kw_only=True, slots=True)
class WindowsLift:
    """All that was found in a file, and what was refused, by lines."""

    file: str
    digest: str
    versions: Versions
    theorems: tuple[LiftedWindow, ...]
    refused: tuple[Refusal, ...]


def lift_rocq(
    path: Path, environment: Environment, replay: ReplayOrders, *, steps: int
) -> WindowsLift:
    """Lift a ``.v`` file and report what windows of ``steps`` steps do in every order, as ``replay`` replays them.

    Raises :class:`MalformedInputError` if the file cannot be read, and :class:`vcrt.errors.UnavailableError` without a
    fit Rocq.
    """
    versions = environment.versions()
    file = lift_file(path, steps=steps)
    return _report(file, versions, _judged(file, environment, replay, _STANDS, "rocq"))


def lift_lean_project(
    path: Path, environment: LeanProjectEnvironment, replay: ReplayOrders, *, steps: int
) -> WindowsLift:
    """Lift a ``.lean`` file of a Lake project and report what windows of ``steps`` steps do in every order.

    Raises :class:`MalformedInputError` for a file that cannot be read or does not compile, and
    :class:`vcrt.errors.VerifierFailure` if Lean does not come to its end.
    """
    file = lift_project_file(path, environment, steps=steps)
    found = _judged(file, environment, replay, _STANDS_IN_LEAN, "lean")
    return _report(file, environment.versions(), found)


def _report(
    file: LiftedFile, versions: Versions, found: Iterator[LiftedWindow | Refusal]
) -> WindowsLift:
    outcomes = [*file.refused, *found]
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
    return WindowsLift(
        file=file.name,
        digest=file.digest,
        versions=versions,
        theorems=tuple(outcome for outcome in outcomes if isinstance(outcome, LiftedWindow)),
        refused=tuple(sorted(refused, key=lambda refusal: refusal.line)),
    )


def _judged(
    file: LiftedFile, environment: Environment, replay: ReplayOrders, stands: str, prover: Cause
) -> Iterator[LiftedWindow | Refusal]:
    for window in file.lifted:

        def refusal(
            found: str, cause: Cause, allowed: str = stands, of: Lifted = window
        ) -> Refusal:
            return Refusal(
                file=file.name,
                line=of.line,
                theorem=of.theorem,
                found=found,
                allowed=allowed,
                cause=cause,
            )

        try:
            (evidence,) = replay(environment, [window.episode])
            orders = report_orders(evidence)
        except MalformedInputError as error:
            yield refusal(error.found or error.what, prover, error.expected or stands)
        except VerifierFailure as error:
            yield refusal(error.found or error.what, "no verdict", error.expected or "")
        except UncertifiedError as error:
            yield refusal(str(error), "no verdict", "one answer to one sequence")
        else:
            refused = orders.reference_refusal
            if refused is None:
                yield LiftedWindow(lifted=window, orders=orders)
            else:
                assumed = "rests on what is not proved" in refused.reason
                yield refusal(refused.reason, "assumptions" if assumed else prover)
