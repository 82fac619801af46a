"""Say when a run of written traces ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When a run ends: after the first of its updates, from ``least`` on, by which the last ones solve a ``share``."""

    least: int = 40
    last: int = 10
    share: float = 0.75

    def ends(self, solved: Sequence[float]) -> bool:
        """Whether updates whose samples solved these shares of their tasks are enough."""
        recent = solved[-self.last :]
        return len(solved) >= self.least and sum(recent) >= self.share * len(recent)
