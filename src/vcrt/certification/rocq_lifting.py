"""Lift a user's Rocq file: replay the windows of its proofs in every order through the verifier, and report them.

Every window is judged by itself, so that one that Rocq refuses or gives no verdict on does not stop the others. Not
covered: how a file is read (see :mod:`vcrt.environments.rocq.lifting`) and how orders are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from vcrt.certification.certificates import UncertifiedError
from vcrt.certification.pairs import OrdersReport, report_orders
from vcrt.certification.replay_tree import EpisodeReplays
from vcrt.environments.contract import Environment, Episode, Versions
from vcrt.environments.rocq.lifting import Cause, Lifted, Refusal, lift_file
from vcrt.errors import MalformedInputError, VerifierFailure

_STANDS = "a proof that Rocq accepts as it stands, over its standard library alone"


@dataclass(frozen=True, kw_only=True, slots=True)
class LiftedWindow:
    """A window of a proof and what was found."""

    lifted: Lifted
    orders: OrdersReport


@dataclass(frozen=True, kw_only=True, slots=True)
class RocqLift:
    """All that was found in a file, and what was refused, by lines."""

    file: str
    digest: str
    versions: Versions
    theorems: tuple[LiftedWindow, ...]
    refused: tuple[Refusal, ...]


def lift_rocq(
    path: Path,
    environment: Environment,
    replay: Callable[[Environment, Sequence[Episode]], list[EpisodeReplays]],
    *,
    steps: int,
) -> RocqLift:
    """Lift a ``.v`` file and report what windows of ``steps`` steps do in every order, as ``replay`` replays them.

    Raises :class:`MalformedInputError` if the file cannot be read, and :class:`vcrt.errors.UnavailableError` without a
    fit Rocq.
    """
    versions = environment.versions()
    file = lift_file(path, steps=steps)
    outcomes = [*file.refused, *_judged(file.name, file.lifted, environment, replay)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
    return RocqLift(
        file=file.name,
        digest=file.digest,
        versions=versions,
        theorems=tuple(outcome for outcome in outcomes if isinstance(outcome, LiftedWindow)),
        refused=tuple(sorted(refused, key=lambda refusal: refusal.line)),
    )


def _judged(
    file: str,
    windows: Sequence[Lifted],
    environment: Environment,
    replay: Callable[[Environment, Sequence[Episode]], list[EpisodeReplays]],
) -> Iterator[LiftedWindow | Refusal]:
    for window in windows:

        def refusal(
            found: str, cause: Cause, allowed: str = _STANDS, of: Lifted = window
        ) -> Refusal:
            return Refusal(
                file=file,
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
            yield refusal(error.found or error.what, "rocq", error.expected or _STANDS)
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
                yield refusal(refused.reason, "assumptions" if assumed else "rocq")
