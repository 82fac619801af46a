"""Hold what was found about the episodes of a user's file of proofs, whichever prover judged them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vcrt.certification.pairs import OrdersReport
from vcrt.certification.replay_tree import EpisodeReplays
from vcrt.environments.contract import Environment, Episode, Versions
from vcrt.environments.lifted_files import Lifted, LiftedFile, Refusal

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
