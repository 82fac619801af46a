"""Small random policies and plain-Python recomputations of their probabilities, for the tests of the objective."""

import math
from itertools import permutations

import torch

from vcrt.orders import all_orders
from vcrt_train.objective import losses as ratio
from vcrt_train.objective.orbit_mass import orbit_log_mass
from vcrt_train.policy.prefix_tree import order_tree

EXTRA_TOKENS = 3
GRID = [(n, interface) for n in (2, 3, 4) for interface in ("pointers", "tokens")]


class RandomPolicy:
    """A policy whose parameters are the logits of each choice after each prefix, ``[B, R, V]`` in float64."""

    def __init__(self, n, interface="pointers", *, batch=2, seed=0, scale=1.5):
        self.n, self.interface = n, interface
        # Full depth in both interfaces: the oracle does not rely on the forced last choice being left out.
        self.tree = order_tree(n, n - 1)
        self.used = torch.tensor(self.tree.used)
        width = n if interface == "pointers" else n + EXTRA_TOKENS
        generator = torch.Generator().manual_seed(seed)
        shape = (batch, self.tree.num_rows, width)
        self.logits = (scale * torch.randn(shape, generator=generator)).double()

    def choice_log_probs(self, logits):
        if self.interface == "pointers":
            return logits.masked_fill(self.used, -torch.inf).log_softmax(-1)
        return logits.log_softmax(-1)[..., : self.n]

    def events(self, logits):
        rows = torch.tensor(self.tree.order_rows)
        slots = torch.tensor(self.tree.order_slots)
        orders = self.choice_log_probs(logits)[:, rows, slots].sum(-1)
        if self.interface == "pointers":
            return orders
        return torch.cat([orders, torch.log1p(-orders.exp().sum(-1, keepdim=True))], dim=1)

    def leaf(self):
        return self.logits.clone().requires_grad_()


def next_choice(policy, logits, b, prefix):
    """The distribution over slots after ``prefix``, as a list; plain Python."""
    row = logits[b, policy.tree.row_of[prefix]].tolist()
    open_columns = [
        column for column in range(len(row)) if policy.interface == "tokens" or column not in prefix
    ]
    total = sum(math.exp(row[column]) for column in open_columns)
    return [math.exp(row[s]) / total if s in open_columns else 0.0 for s in range(policy.n)]


def order_probability(policy, logits, b, order):
    product = 1.0
    for step, slot in enumerate(order):
        product *= next_choice(policy, logits, b, order[:step])[slot]
    return product


def event_probabilities(policy, logits, b):
    """Each order's probability, and for tokens that of everything else, summed over the places where it goes wrong."""
    probabilities = [order_probability(policy, logits, b, order) for order in all_orders(policy.n)]
    if policy.interface == "tokens":
        wrong = 0.0
        for length in range(policy.n):
            for prefix in permutations(range(policy.n), length):
                reach = order_probability(policy, logits, b, prefix)
                good = sum(
                    p
                    for slot, p in enumerate(next_choice(policy, logits, b, prefix))
                    if slot not in prefix
                )
                wrong += reach * (1 - good)
        probabilities.append(wrong)
    return probabilities


def random_members(rows, columns, *, seed):
    """Boolean ``[rows, columns]`` with at least one member and one non-member in each row."""
    generator = torch.Generator().manual_seed(seed)
    members = torch.rand(rows, columns, generator=generator) < 0.5
    members[:, 0], members[:, -1] = True, False
    return members


def orbit_log_ratio(new, old, samples, *, successes, orbit):
    """The ratio by the log-probabilities of all events ``[B, E]`` and booleans ``[B, M]``."""
    count = orbit.shape[1]
    masses = [orbit_log_mass(each[:, :count], orbit) for each in (new, old)]
    single = ratio.trajectory_log_ratio(new, old, samples)
    return ratio.orbit_log_ratio(*masses, single, successes=successes)
