r"""Train on certified orders as on demonstrations: the mean negative log-likelihood of an item's legal orders.

Order-centric data augmentation (arXiv:2502.19907) fine-tunes on traces whose independent steps were reordered, all
reorderings alike. Over *all* orders of an orbit that is the cross entropy from the uniform distribution on it:
:math:`-|O|^{-1} \sum_{\tau \in O} \log \pi(\tau) = \log |O| + \mathrm{KL}(U_O \| \pi)`. By Jensen's inequality it is at
least :math:`\log |O| - \log Z(O)`; what is between them is how unevenly the policy spreads the orbit's mass, which
:math:`Z` leaves free. Not covered: drawing orders (:mod:`vcrt_train.training.legal_trees`), rewards.

Shapes: ``B`` prompts, ``K`` paths.
"""

from __future__ import annotations

from torch import Tensor

from vcrt_train.objective.batch import ListedOrders
from vcrt_train.objective.masked_paths import log_choice
from vcrt_train.objective.reading import Reading


def mean_orbit_log_prob(reading: Reading) -> Tensor:
    """``[B]``: the mean log-probability of each prompt's certified orders: exact, or over uniform or weighted paths."""
    batch = reading.batch
    if batch.uniform_paths is not None:
        return log_choice(reading.choices, batch.uniform_paths).sum(-1).mean(-1)
    if isinstance(batch.orbit, ListedOrders):
        return batch.orbit.mean_log_prob(reading.orders)
    return batch.orbit.mean_log_prob(reading.choices)


def augmentation_loss(reading: Reading) -> Tensor:
    """The mean negative log-likelihood of certified orders, in nats an order; a scalar."""
    return -mean_orbit_log_prob(reading).mean()
