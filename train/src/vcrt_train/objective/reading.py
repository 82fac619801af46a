"""Read from a policy's scores of one batch what the terms of the objective are made of, each quantity once.

Shapes as in :mod:`vcrt_train.objective.batch`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import Tensor

from vcrt_train.config import ObjectiveConfig
from vcrt_train.objective.batch import FrozenBatch, ListedOrders, OrderSet, event_log_probs
from vcrt_train.objective.masked_paths import Masses
from vcrt_train.objective.orbit_mass import orbit_log_mass
from vcrt_train.objective.ratio import orbit_log_ratio, trajectory_log_ratio


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The scores of the current policy on a batch; what is asked for carries a gradient if ``choices`` do."""

    #: ``[B, R, n]``: each slot's log-probability after each prefix.
    choices: Tensor
    #: ``[B]``: log-probability of all answers that are no orders; None for the pointer interface.
    malformed: Tensor | None
    batch: FrozenBatch
    config: ObjectiveConfig
    _masses: dict[int, Masses] = field(default_factory=dict)

    @cached_property
    def events(self) -> Tensor:
        """``[B, E]``: log-probabilities of the listed orders, and of the malformed answers last."""
        return event_log_probs(self.choices, self.malformed, self.batch.orders)

    @cached_property
    def orders(self) -> Tensor:
        """``[B, M]``: log-probabilities of the listed orders."""
        return self._listed()

    def _listed(self) -> Tensor:
        return self.events[:, : self.batch.orders.rows.shape[-2]]

    @cached_property
    def samples(self) -> Tensor:
        """``[B, G]``: log-probabilities of the sampled events."""
        return self.events.gather(1, self.batch.samples)

    @cached_property
    def log_ratio(self) -> Tensor:
        """``[B, G]``: the log-ratio of each sample to the behaviour policy, a success's by the mass of its set.

        Source: :mod:`vcrt_train.objective.ratio`.
        """
        batch = self.batch
        if batch.credit is None or batch.behaviour_log_mass is None:
            return trajectory_log_ratio(self.events, batch.behaviour, batch.samples)
        if isinstance(batch.credit, ListedOrders):
            mass = orbit_log_mass(self._listed(), batch.credit.members)
        else:
            mass = self.masses(batch.credit).log_inside
        successes = batch.rewards > 0
        single = trajectory_log_ratio(self.events, batch.behaviour, batch.samples)
        return orbit_log_ratio(mass, batch.behaviour_log_mass, single, successes=successes)

    def log_mass(self, orders: OrderSet) -> Tensor:
        """``[B]``: the log-probability of a set of orders, exact or an estimate."""
        if isinstance(orders, ListedOrders):
            return orbit_log_mass(self.orders, orders.members)
        return self.masses(orders).log_inside

    def masses(self, orders: OrderSet) -> Masses:
        """The mass inside and outside of a set of orders, read once."""
        if id(orders) not in self._masses:
            if isinstance(orders, ListedOrders):
                found = orders.masses(self.orders)
            else:
                found = orders.masses(self.choices, self.batch.used)
            self._masses[id(orders)] = found
        return self._masses[id(orders)]

    def begin(self) -> None:
        """Read what every objective reads."""
        if self.batch.lists_all_orders:
            _ = self.orders
        else:
            self.masses(self.batch.orbit)

    def of_the_orbit(self) -> Reading:
        """The same without gradient, and with the certified orbit in the margin: what a log reports."""
        return Reading(
            choices=self.choices.detach(),
            malformed=None if self.malformed is None else self.malformed.detach(),
            batch=replace(self.batch, margin=self.batch.orbit),
            config=self.config,
        )
