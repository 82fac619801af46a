"""The scores that the samples of one batch need, and what a loss hands on to TRL's hook about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vcrt.integrations.orbit_credit import CandidateScores


@dataclass(frozen=True, slots=True)
class Credit:
    """What the hook needs while a loss is computed; ``inputs`` is that loss's own copy."""

    surplus: Tensor
    inputs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores that a batch's samples need."""

    #: None if no sample needs one.
    scores: CandidateScores | None
    #: ``[B]``: the row of each sample's prompt in ``scores``, or -1.
    prompts: Tensor
    #: ``[B]``: see :meth:`CandidateScores.surplus`.
    surplus: Tensor
    #: A 0 with a gradient of 0.
    unused: Tensor

    def margin_loss(self, margin: float) -> Tensor:
        """Mean over samples of their prompt's margin loss."""
        if self.scores is None:
            return self.surplus.new_zeros(())
        losses = self.scores.margin_losses(margin)
        # The last one is that of the prompts that were not scored, row -1.
        return torch.cat([losses, losses.new_zeros(1)])[self.prompts].mean()

    @property
    def mean_mass(self) -> Tensor:
        """Mean probability of the orbits that were scored; NaN if none was."""
        if self.scores is None:
            return self.surplus.new_tensor(torch.nan)
        return self.scores.orbit_log_masses.detach().exp().mean()
