"""Lift a user's Rocq or Lean file: replay the windows of its proofs in every order through the prover, and report them.

Every window is judged by itself, so that one that is refused or gets no verdict does not stop the others. Not covered:
how a file is read (see :mod:`vcrt.environments.rocq.lifting` and :mod:`vcrt.certification.lean_windows`) and how
orders are replayed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vcrt.certification.certificates import UncertifiedError
from vcrt.certification.lean_windows import lift_project_file
from vcrt.certification.lifted_files import FileLift, LiftedTheorem, ReplayOrders
from vcrt.certification.pairs import report_orders
from vcrt.environments.contract import Environment
from vcrt.environments.lean.project_environment import LeanProjectEnvironment
from vcrt.environments.lifted_files import Cause, Lifted, LiftedFile, Refusal
from vcrt.environments.rocq.lifting import lift_file
from vcrt.errors import MalformedInputError, VerifierFailure

_STANDS = "a proof that Rocq accepts as it stands, over its standard library alone"
_STANDS_IN_LEAN = "a proof that Lean accepts as it stands, without sorry and axioms of its own"


def lift_rocq(
    path: Path, environment: Environment, replay: ReplayOrders, *, steps: int
) -> FileLift:
    """Lift a ``.v`` file and report what windows of ``steps`` steps do in every order, as ``replay`` replays them.

    Raises :class:`MalformedInputError` if the file cannot be read, and :class:`vcrt.errors.UnavailableError` without a
    fit Rocq.
    """
    versions = environment.versions()
    file = lift_file(path, steps=steps)
    return FileLift.of(file, versions, _judged(file, environment, replay, _STANDS, "rocq"))


def lift_lean_project(
    path: Path, environment: LeanProjectEnvironment, replay: ReplayOrders, *, steps: int
) -> FileLift:
    """Lift a ``.lean`` file of a Lake project and report what windows of ``steps`` steps do in every order.

    Raises :class:`MalformedInputError` for a file that cannot be read or does not compile, and
    :class:`vcrt.errors.VerifierFailure` if Lean does not come to its end.
    """
    file = lift_project_file(path, environment, steps=steps)
    found = _judged(file, environment, replay, _STANDS_IN_LEAN, "lean")
    return FileLift.of(file, environment.versions(), found)


def _judged(
    file: LiftedFile,
    environment: Environment,
    replay: ReplayOrders,
    stands: str,
    prover: Cause,
) -> Iterator[LiftedTheorem | Refusal]:
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
                yield LiftedTheorem(lifted=window, orders=orders)
            else:
                assumed = "rests on what is not proved" in refused.reason
                yield refusal(refused.reason, "assumptions" if assumed else prover)
