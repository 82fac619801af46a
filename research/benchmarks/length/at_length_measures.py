"""What greedy answers do not show: the mass of the legal orders, and over how many of them it is spread.

For each record, paths masked to legal moves are drawn independently. Weighted by ``w`` they stand for the policy given
that its order is legal: ``log Z`` is the logarithm of their mean, and the entropy of the legal orders is the weighted
mean of ``log Z - log pi``. Its exponential is the effective number of legal orders.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from vcrt.partial_orders import num_linear_extensions
from vcrt_train.objective.orbit_mass import path_terms
from vcrt_train.policy.causal_model import CausalModel
from vcrt_train.policy.order_sampling import Draw, sample_orders
from vcrt_train.policy.prefix_tree import prefix_tree
from vcrt_train.policy.scoring import score_prefixes
from vcrt_train.training.batch_trees import next_choices_of
from vcrt_train.training.items import EncodedItem
from vcrt_train.training.legal_trees import legal_moves, paths_in, stacked

PATHS = 64


@torch.no_grad()
def legal_mass_and_entropy(
    model: CausalModel, items: Sequence[EncodedItem], *, seed: int, at_a_time: int = 16
) -> tuple[list[float], list[float]]:
    """For each item the mass of its legal orders, and their entropy as a share of the largest, from 0 to 1.

    Estimated from ``PATHS`` paths; equal seeds draw alike.
    """
    masses: list[float] = []
    shares: list[float] = []
    for start in range(0, len(items), at_a_time):
        some = items[start : start + at_a_time]
        prompts, orders = [item.prompt for item in some], [item.orbit for item in some]
        n = prompts[0].num_operations
        (drawn,) = sample_orders(
            next_choices_of(model, prompts, backend="auto"),
            [Draw(count=PATHS, scheme="independent", within=orders)],
            num_prompts=len(some),
            num_operations=n,
            generator=torch.Generator().manual_seed(seed + start),
        )
        trees = [prefix_tree(n, [path[: n - 2] for path in paths]) for paths in drawn]
        scores = score_prefixes(model, prompts, trees, interface="pointers", backend="auto")
        used = stacked([torch.tensor(tree.used) for tree in trees])
        terms = path_terms(
            scores.choice_log_probs, legal_moves(trees, orders), used, paths_in(trees, drawn)
        )
        log_inside = terms.log_inside.double()
        log_mass = log_inside.logsumexp(-1) - torch.tensor(float(PATHS)).double().log()
        weights = log_inside.softmax(-1)
        log_prob = terms.log_q.double() + log_inside
        entropy = (weights * (log_mass[:, None] - log_prob)).sum(-1)
        most = torch.tensor([float(num_linear_extensions(order)) for order in orders]).log()
        masses += log_mass.exp().tolist()
        shares += (entropy / most).clamp(0, 1).tolist()
    return masses, shares
