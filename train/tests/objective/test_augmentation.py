"""The mean negative log-likelihood of certified orders: by hand, by a loop over the orders, and over drawn paths."""

import math
from types import SimpleNamespace

import pytest
import torch

from tabular_policy import random_order, random_table
from vcrt.orders import all_orders
from vcrt.partial_orders import PartialOrder
from vcrt_train.config import ObjectiveConfig
from vcrt_train.objective.batch import LegalPrefixes, ListedOrders, MaskedPaths, Reading
from vcrt_train.objective.orbit_mass import Paths, path_terms
from vcrt_train.policy.order_sampling import Draw, sample_orders
from vcrt_train.policy.prefix_tree import prefix_tree
from vcrt_train.training.legal_trees import legal_leaves, legal_moves, legal_rows, moves_after


def reading(orbit, *, orders=None, choices=None, uniform_paths=None):
    batch = SimpleNamespace(orbit=orbit, uniform_paths=uniform_paths)
    found = Reading(choices=choices, malformed=None, batch=batch, config=ObjectiveConfig())
    if orders is not None:
        found.__dict__["orders"] = orders
    return found


def paths_of(table, drawn):
    found = [[table.tree.path(each) for each in some] for some in drawn]
    return Paths(
        rows=torch.tensor([[rows for rows, _ in some] for some in found]),
        slots=torch.tensor([[slots for _, slots in some] for some in found]),
    )


def by_weights(table, order, paths):
    """What the policy that drew ``paths`` makes of them."""
    shape = (len(paths.rows), -1, -1)
    legal = moves_after(order, torch.tensor(table.tree.used)).expand(shape)
    used, choices = torch.tensor(table.tree.used).expand(shape), table.choices.expand(shape)
    log_q = path_terms(choices, legal, used, paths).log_q
    orbit = MaskedPaths(legal=legal, paths=paths, behaviour_log_q=log_q)
    return reading(orbit, choices=choices).mean_orbit_log_prob(), log_q


def looped(table, order):
    """Order by order and choice by choice."""
    found, count = torch.zeros((), dtype=torch.float64), 0
    for each in all_orders(order.num_operations):
        if order.allows(each):
            count += 1
            for step in range(order.num_operations - 1):
                row = table.logits[table.tree.row_of[each[:step]]]
                open_slots = [s for s in range(len(row)) if s not in each[:step]]
                found = found + row[open_slots].log_softmax(0)[open_slots.index(each[step])]
    return found / count


def test_by_hand():
    """Three orders of six are legal; what the others have is of no consequence, be it nothing."""
    log_probs = torch.tensor([[0.5, 0.25, 0.125, 0.125, 0.0, 0.0], [0.5, 0.1, 0.1, 0.1, 0.1, 0.1]])
    members = torch.tensor([[True, True, False, True, False, False], [True] + [False] * 5])
    orders = log_probs.log().requires_grad_()
    loss = reading(ListedOrders(members=members), orders=orders).augmentation_loss()
    assert loss.item() == pytest.approx((math.log(2 * 4 * 8) / 3 + math.log(2)) / 2)
    (gradient,) = torch.autograd.grad(loss, orders)
    expected = torch.tensor([[-1, -1, 0, -1, 0, 0], [-3, 0, 0, 0, 0, 0]]) / 6
    torch.testing.assert_close(gradient, expected)


def test_it_is_smallest_where_the_orbit_is_spread_evenly():
    members = torch.tensor([[True, True, True, False]])

    def of(*shares):
        orders = torch.tensor([shares]).log()
        return reading(ListedOrders(members=members), orders=orders).augmentation_loss().item()

    assert of(1 / 3, 1 / 3, 1 / 3, 0.0) == pytest.approx(math.log(3))
    # All mass is legal in both; the orbit mass cannot tell them apart.
    assert of(0.8, 0.1, 0.1, 0.0) > math.log(3) + 0.4


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_tree_of_all_legal_prefixes_gives_the_mean_and_its_gradient(n, seed):
    table, order = random_table(n, seed), random_order(n, seed)
    table.logits.requires_grad_()
    tree = prefix_tree(n, legal_leaves(order))
    rows = torch.tensor([table.tree.row_of[prefix] for prefix in tree.prefixes])
    orbit = LegalPrefixes(legal=legal_moves([tree], [order]), rows=legal_rows([tree], [order]))
    found = reading(orbit, choices=table.choices[rows][None]).mean_orbit_log_prob()[0]
    expected = looped(table, order)
    assert found.item() == pytest.approx(expected.item(), abs=1e-12)
    one, other = (torch.autograd.grad(value, table.logits)[0] for value in (found, expected))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_paths_of_the_policy_weigh_by_how_unlikely_they_were():
    """Every legal order once, as paths: weighted by 1 / q, against the sum written out; the plain mean is another."""
    order, table = PartialOrder.of(4, [(0, 1)]), random_table(4, 3)
    paths = paths_of(table, [[each for each in all_orders(4) if order.allows(each)]])
    found, log_q = by_weights(table, order, paths)
    of_orders = table.choices[paths.rows[0], paths.slots[0]].sum(-1).tolist()
    weights = [math.exp(-q) for q in log_q[0].tolist()]
    weighted = sum(w * p for w, p in zip(weights, of_orders, strict=True)) / sum(weights)
    assert found.item() == pytest.approx(weighted, abs=1e-12)
    assert abs(found.item() - sum(of_orders) / len(of_orders)) > 0.01


def test_weighted_paths_come_to_the_uniform_mean_as_they_become_many():
    table, order = random_table(5, 1), random_order(5, 1)
    (drawn,) = sample_orders(
        table.next_choices,
        [Draw(count=2000, scheme="independent", within=[order] * 3)],
        num_prompts=3,
        num_operations=5,
        generator=torch.Generator().manual_seed(0),
    )
    paths, exact = paths_of(table, drawn), looped(table, order).item()
    found, _ = by_weights(table, order, paths)
    assert found.tolist() == pytest.approx([exact] * 3, abs=0.1)
    # Under the policy itself the mean is another: it draws what it finds likely.
    plain = table.choices[paths.rows, paths.slots].sum(-1).mean(-1)
    assert (plain - exact).min() > 0.3


def test_uniform_paths_are_a_plain_mean():
    table, order = random_table(5, 2), random_order(5, 2)
    extensions = [each for each in all_orders(5) if order.allows(each)]
    uniform = paths_of(table, [extensions])
    orbit = MaskedPaths(legal=None, paths=None, behaviour_log_q=None)
    found = reading(orbit, choices=table.choices[None], uniform_paths=uniform).mean_orbit_log_prob()
    assert found.item() == pytest.approx(looped(table, order).item(), abs=1e-12)
