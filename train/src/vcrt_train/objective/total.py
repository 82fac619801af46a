"""Sum the terms of the objective of one batch, and compute what a log reports.

The values of all terms are reported, also of those that a method leaves out, so that every method's log has the same
columns. This module does not score prompts and does not use the sum (:mod:`vcrt_train.training.update`).

Shapes as in :mod:`vcrt_train.objective.batch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vcrt_train.config import ObjectiveConfig
from vcrt_train.objective.batch import FrozenBatch, MaskedPaths, Reading
from vcrt_train.objective.losses import clip_fraction, dual_step, penalties
from vcrt_train.objective.terms import TERMS, constrained


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The objective and its parts. The ``loss`` is a scalar with a gradient.

    Reported values are computed when they are first asked for, because most epochs do not report.
    """

    loss: Tensor
    #: The penalty of each constraint, by name; 0 if the method does not have the constraint.
    penalties: Mapping[str, Tensor]
    #: ``[B, G]`` or ``[B, G, T]``: the log-ratios of the samples or of their choices.
    log_ratio: Tensor
    reading: Reading

    @cached_property
    def reported(self) -> Reading:
        """The scores without gradient, with the anti-diamond loss of the certified orbit even if another set trains."""
        return self.reading.of_the_orbit()

    @cached_property
    @torch.no_grad()
    def values(self) -> Mapping[str, Tensor]:
        """The value of every term, by name, including the terms that the method leaves out."""
        return {name: term.value(self.reported) for name, term in TERMS.items()}

    @property
    def max_log_ratio(self) -> Tensor:
        """Largest absolute log-ratio of a sample; exactly 0 before the first step of an update."""
        return self.log_ratio.abs().max()

    def metrics(self) -> dict[str, Tensor]:
        """Return what a log reports of the batch, by name: loss, terms, penalties, shares and :meth:`masses`."""
        batch = self.reading.batch
        return {
            "loss": self.loss.detach(),
            **self.values,
            **{f"penalty_{name}": value for name, value in self.penalties.items()},
            "clip_fraction": clip_fraction(
                self.log_ratio, batch.advantages, self.reading.config.clip, batch.num_choices
            ),
            # The share of prompts whose samples all have the same reward: their policy loss has no gradient.
            "zero_advantage_share": (batch.advantages == 0)
            .flatten(1)
            .all(-1)
            .to(self.loss.dtype)
            .mean(),
            "mean_reward": batch.rewards.mean().to(self.loss.device),
            **self.masses(),
        }

    def masses(self) -> dict[str, Tensor]:
        """Return the policy's probability of each kind of answer, by name: means over prompts, exact or estimates."""
        batch = self.reading.batch
        masses = self.reported.masses(batch.orbit)
        listed = batch.orders.rows.shape[-2]
        found = {
            # The mass of the certified orbit, of the other orders, and of answers that are no orders.
            "orbit_mass": masses.log_inside.exp().mean(),
            "illegal_mass": masses.log_outside.exp().mean(),
            "malformed_mass": self.reported.events[:, listed:].exp().sum(-1).mean(),
        }
        if not batch.lists_all_orders:
            paths = batch.orbit.paths.rows.shape[1] if isinstance(batch.orbit, MaskedPaths) else 1
            # These show how reliable the orbit's mass is; they are 0 if it is exact.
            found["orbit_log_mass_error"] = masses.standard_error.mean()
            found["effective_path_share"] = (masses.effective_paths / paths).mean()
        return found


def read(values: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the numbers of scalar tensors, by name. The device is waited for once for all."""
    if not values:
        return {}
    together = torch.stack([value.detach() for value in values.values()])
    return dict(zip(values, together.tolist(), strict=True))


def objective(
    choices: Tensor,
    malformed: Tensor | None,
    batch: FrozenBatch,
    *,
    config: ObjectiveConfig,
    terms: Sequence[str],
    duals: Mapping[str, float],
) -> Objective:
    """Return the sum of ``terms`` under the current policy: the weighted losses and the penalties of the constraints.

    Takes the policy's ``choices [B, R, n]`` and the log-probability of malformed answers ``[B]`` (None for pointers);
    ``duals`` holds the multiplier of each constraint. Source: the paper's equation for the complete objective, Section
    "Dependency Separation and Constraints".
    """
    reading = Reading(choices=choices, malformed=malformed, batch=batch, config=config)
    # This comes first, so that gradients are summed in the same order whatever the terms are.
    reading.begin()
    log_ratio = reading.log_ratio
    values = {name: TERMS[name].value(reading) for name in TERMS if name in terms}
    capped = [name for name in constrained() if name in terms]
    loss, added = choices.new_zeros(()), {}
    if capped:
        in_order = torch.stack([values[name] for name in capped])
        caps = [TERMS[name].cap_in(config) for name in capped]
        parts = penalties(in_order, caps, [duals[name] for name in capped], config.mu)
        added = dict(zip(capped, parts.detach(), strict=True))
        loss = parts.sum()
    for name in [name for name in values if name not in added]:
        loss = loss + TERMS[name].weight_in(config) * values[name]
    nothing = torch.zeros_like(loss.detach())
    return Objective(
        loss=loss,
        penalties={name: added.get(name, nothing) for name in constrained()},
        log_ratio=log_ratio.detach(),
        reading=reading,
    )


def next_duals(
    values: Mapping[str, Tensor],
    duals: Mapping[str, float],
    config: ObjectiveConfig,
    terms: Sequence[str],
) -> dict[str, float]:
    """Return the multipliers after one dual step on the values of the constraints among ``terms``; others stay."""
    found = read({name: values[name] for name in constrained() if name in terms})
    moved = {
        name: dual_step(value, TERMS[name].cap_in(config), duals[name], config.mu)
        for name, value in found.items()
    }
    return {**duals, **moved}
