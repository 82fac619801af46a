"""Hold what was found about the episodes of a user's file of proofs, whichever prover judged them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vcrt.certification.certificates import UncertifiedError
from vcrt.certification.pairs import OrdersReport, report_orders
from vcrt.certification.replay_tree import EpisodeReplays
from vcrt.environments.contract import Environment, Episode, Versions
from vcrt.environments.lifted_files import Cause, Lifted, LiftedFile, Refusal
from vcrt.errors import MalformedInputError, VerifierFailure

#: Replays all orders of each episode.
ReplayOrders: TypeAlias = Callable[[Environment, Sequence[Episode]], list[EpisodeReplays]]


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
        refused = [one for one in every if isinstance(one, Refusal)]
        return cls(
            file=file.name,
            digest=file.digest,
            versions=versions,
            theorems=tuple(one for one in every if isinstance(one, LiftedTheorem)),
            refused=tuple(sorted(refused, key=lambda refusal: refusal.line)),
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
