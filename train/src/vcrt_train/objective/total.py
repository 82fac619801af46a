"""Sum the terms of the objective of one batch, and say what a log reports of it.

A method leaves terms out; the values of all terms are reported all the same, so that every method's log has the same
columns. Not covered: where the scores come from, and what is done with the sum (:mod:`vcrt_train.training.update`).

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
    """The objective and what it is made of. Scalars; only ``loss`` carries a gradient.

    What a log reports beside the loss is computed when it is first asked for: most epochs nobody asks.
    """

    loss: Tensor
    #: The penalty of each constraint, by name; 0 where the method has not got it.
    penalties: Mapping[str, Tensor]
    #: ``[B, G]``: the log-ratios of the samples.
    log_ratio: Tensor
    reading: Reading

    @cached_property
    def reported(self) -> Reading:
        """The scores without gradient; the anti-diamond loss is about the certified orbit here, whatever trains."""
        return self.reading.of_the_orbit()

    @cached_property
    @torch.no_grad()
    def values(self) -> Mapping[str, Tensor]:
        """The value of every term, by name, those included that the method leaves out."""
        return {name: term.value(self.reported) for name, term in TERMS.items()}

    @property
    def max_log_ratio(self) -> Tensor:
        """Largest absolute log-ratio of a sample; exactly 0 before the first step of an update."""
        return self.log_ratio.abs().max()

    def metrics(self) -> dict[str, float]:
        """What a log says of this batch, by name: the loss, every term, the penalties, shares and :meth:`masses`."""
        batch = self.reading.batch
        found = {
            "loss": self.loss.detach(),
            **self.values,
            **{f"penalty_{name}": value for name, value in self.penalties.items()},
            "clip_fraction": clip_fraction(
                self.log_ratio, batch.advantages, self.reading.config.clip
            ),
            # Prompts whose samples all got the same reward: the policy loss is silent there.
            "zero_advantage_share": (batch.advantages == 0).all(-1).to(self.loss.dtype).mean(),
            "mean_reward": batch.rewards.mean(),
        }
        return {**{name: float(value) for name, value in found.items()}, **self.masses()}

    def masses(self) -> dict[str, float]:
        """Where the policy's probability is, by name: means over the prompts; exact, or estimates with their error."""
        batch = self.reading.batch
        masses = self.reported.masses(batch.orbit)
        listed = batch.orders.rows.shape[-2]
        found = {
            # Of the certified orbit, of the other orders, and of answers that are no orders.
            "orbit_mass": masses.log_inside.exp().mean(),
            "illegal_mass": masses.log_outside.exp().mean(),
            "malformed_mass": self.reported.events[:, listed:].exp().sum(-1).mean(),
        }
        if not batch.lists_all_orders:
            paths = batch.orbit.paths.rows.shape[1] if isinstance(batch.orbit, MaskedPaths) else 1
            # How far the orbit's mass can be trusted: 0 where it is exact.
            found["orbit_log_mass_error"] = masses.standard_error.mean()
            found["effective_path_share"] = (masses.effective_paths / paths).mean()
        return {name: float(value) for name, value in found.items()}


def objective(
    choices: Tensor,
    malformed: Tensor | None,
    batch: FrozenBatch,
    *,
    config: ObjectiveConfig,
    terms: Sequence[str],
    duals: Mapping[str, float],
) -> Objective:
    """The sum of ``terms`` under the current policy: the losses by their weights, the constraints by their penalties.

    Takes the policy's ``choices [B, R, n]`` and the log-probability of malformed answers ``[B]`` (None for pointers);
    ``duals`` holds the multiplier of each constraint. Source: the paper's equation for the complete objective, Section
    "Dependency Separation and Constraints".
    """
    reading = Reading(choices=choices, malformed=malformed, batch=batch, config=config)
    # Before all else, so that gradients are summed in one order, whatever the terms.
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
    """The multipliers after one dual step on the values of the constraints among ``terms``; others stay."""
    moved = {
        name: dual_step(float(values[name]), TERMS[name].cap_in(config), duals[name], config.mu)
        for name in constrained()
        if name in terms
    }
    return {**duals, **moved}
