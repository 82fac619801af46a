"""Ask what a policy says of one record of more operations than whose orders can be listed, through pointers.

Its greedy order is exact, and so is that order's probability. The mass on the legal orders is exact where all legal
prefixes fit (:mod:`vcrt_train.training.legal_trees`), and otherwise an unbiased estimate with a standard error. Not
covered: answers as tokens of the whole vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum

import torch

from vcrt.limits import MAX_MANY_PATHS
from vcrt.orders import Order
from vcrt.partial_orders import PartialOrder
from vcrt.randomness import derive_seed
from vcrt_train.config import Backend, EstimatorConfig
from vcrt_train.policy.prefix_tree import prefix_tree
from vcrt_train.policy.scoring import CausalModel, Prompt, greedy_orders, score_prefixes
from vcrt_train.training.legal_trees import fits
from vcrt_train.training.orbit_masses import read_masses

#: Masked paths of an estimate: it is made once, for one record. Fewer where paths are long.
NUM_PATHS = 256
_NUM_LONG_PATHS = 64
#: Choices of the paths that are drawn and scored together: a bound on memory, whatever the record.
_AT_ONCE = 1_024


@dataclass(frozen=True, kw_only=True, slots=True)
class ManyScores:
    """The greedy order of slots, its log-probability, and the mass of the legal orders.

    ``standard_error`` is that of independent paths, which systematic ones have less of; None where the mass is exact.
    """

    greedy: Order
    log_prob: float
    orbit_mass: float
    standard_error: float | None


@torch.no_grad()
def read_many(
    model: CausalModel, prompt: Prompt, order: PartialOrder, *, backend: Backend, seed: int
) -> ManyScores:
    """Ask ``model``, whose scores were compared with naive ones, about a record whose legal orders extend ``order``.

    ``seed`` draws the paths of an estimate.
    """
    num_operations = prompt.num_operations
    (greedy,) = greedy_orders(model, [prompt], interface="pointers", backend=backend)
    if greedy is None:
        raise AssertionError("through pointers, every answer is an order")
    tree = prefix_tree(num_operations, [greedy[:-2]])
    scores = score_prefixes(model, [prompt], [tree], interface="pointers", backend=backend)
    rows, slots = tree.path(greedy)
    mass, error = _mass(model, prompt, order, backend=backend, seed=seed)
    return ManyScores(
        greedy=greedy,
        log_prob=float(scores.choice_log_probs[0, rows, slots].double().sum()),
        orbit_mass=mass,
        standard_error=error,
    )


def _mass(
    model: CausalModel, prompt: Prompt, order: PartialOrder, *, backend: Backend, seed: int
) -> tuple[float, float | None]:
    """The mass of the legal orders, and its standard error if it is the mean of several estimates."""
    config, num_operations = EstimatorConfig(), order.num_operations
    exact = fits([order], config.max_legal_prefixes)
    wanted = NUM_PATHS if num_operations <= MAX_MANY_PATHS else _NUM_LONG_PATHS
    num_paths = min(wanted, max(_AT_ONCE // num_operations, 2))
    draw = torch.Generator().manual_seed(derive_seed(seed, "decide", "paths") % 2**63)
    parts = [
        read_masses(
            model,
            [prompt],
            [order],
            config=config,
            num_paths=num_paths,
            backend=backend,
            generator=draw,
        )
        for _ in range(1 if exact else wanted // num_paths)
    ]
    masses = [float(part.log_inside[0].double().exp()) for part in parts]
    if exact:
        return masses[0], None
    # Of the logarithm, by the delta method: times the mass it is the mass's.
    errors = [
        mass * float(part.standard_error[0]) for mass, part in zip(masses, parts, strict=True)
    ]
    return fsum(masses) / len(masses), fsum(e * e for e in errors) ** 0.5 / len(masses)
