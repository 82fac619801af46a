"""Hold the scores that the samples of a batch need, and take the losses from them that stand beside TRL's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vcrt_train.integrations.orbit_credit import CandidateScores
from vcrt_train.policy.text_scoring import TextScores


@dataclass(frozen=True, slots=True)
class Credit:
    """What the hook needs while a loss is computed; ``inputs`` is that loss's own copy."""

    scored: Scored
    inputs: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """The scores that a batch's samples need."""

    #: None if no sample needs one.
    scores: CandidateScores | None
    #: ``[B]``: the row of each sample's prompt in ``scores``, or -1.
    prompts: Tensor
    #: ``[B]``: see :meth:`CandidateScores.surplus`.
    surplus: Tensor
    #: The samples' own scores, where one pass gives all; None where TRL's own pass does.
    samples: Sequence[TextScores] | None
    #: Tokens that the model read for a sample, on average.
    tokens: float
    #: A 0 with a gradient of 0.
    unused: Tensor

    def margin_loss(self, margin: float) -> Tensor:
        """Mean over samples of their prompt's margin loss."""
        return self._mean(None if self.scores is None else self.scores.margin_losses(margin))

    def augmentation_loss(self) -> Tensor:
        """Mean over samples of their orbit's negative log-likelihood."""
        return self._mean(None if self.scores is None else self.scores.augmentation_losses())

    def _mean(self, losses: Tensor | None) -> Tensor:
        if losses is None:
            return self.surplus.new_zeros(())
        # The last one is that of the prompts that were not scored, row -1.
        return torch.cat([losses, losses.new_zeros(1)])[self.prompts].mean()

    @property
    def mean_mass(self) -> Tensor:
        """Mean probability of the orbits that were scored; NaN if none was."""
        if self.scores is None:
            return self.surplus.new_tensor(torch.nan)
        return self.scores.orbit_log_masses.detach().exp().mean()
