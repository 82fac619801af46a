"""The references: exact gradients, ratios of both classes, steps at equal states, evenness; against enumeration."""

import math
from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from listed_training import train
from objective_oracle import RandomPolicy, event_probabilities, random_members
from tabular_policy import members, random_order, random_table
from training_fixtures import ENCODE, supervised_records
from vcrt.orders import all_orders
from vcrt.partial_orders import PartialOrder
from vcrt_train.config import ObjectiveConfig
from vcrt_train.objective.batch import LegalPrefixes, ListedOrders, MaskedPaths, Reading
from vcrt_train.objective.losses import (
    clip_fraction,
    clipped_loss,
    leave_one_out_advantage,
    scaled_by_deviation,
    step_advantages,
)
from vcrt_train.objective.orbit_mass import Paths, path_terms
from vcrt_train.policy.order_sampling import Draw, sample_orders
from vcrt_train.policy.prefix_tree import prefix_tree
from vcrt_train.training.gradient_variance import moments_of
from vcrt_train.training.items import EncodedItem, OrderList, encode_items
from vcrt_train.training.legal_trees import legal_leaves, legal_moves, legal_rows, moves_after
from vcrt_train.training.methods import method

CONFIG = ObjectiveConfig()


def reading_of(policy, logits, legal, **fields):
    """A reading of all orders under a policy whose logits these are."""
    malformed = None if policy.interface == "pointers" else policy.events(logits)[:, -1]
    batch = SimpleNamespace(
        orbit=ListedOrders(members=legal),
        orders=Paths(
            rows=torch.tensor(policy.tree.order_rows), slots=torch.tensor(policy.tree.order_slots)
        ),
        lists_all_orders=True,
        **fields,
    )
    choices = policy.choice_log_probs(logits)
    return Reading(choices=choices, malformed=malformed, batch=batch, config=CONFIG)


@pytest.mark.parametrize("interface", ["pointers", "tokens"])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_exact_losses_and_evenness_by_enumeration(n, interface):
    policy = RandomPolicy(n, interface, seed=n)
    legal = random_members(2, math.factorial(n), seed=n)
    found = reading_of(policy, policy.logits, legal)
    reward = log_reward = log_odds = uneven = 0.0
    for b in range(2):
        probabilities = event_probabilities(policy, policy.logits, b)
        inside = [p for c, p in enumerate(probabilities[: math.factorial(n)]) if legal[b, c]]
        z = sum(inside)
        reward -= z / 2
        log_reward -= math.log(z) / 2
        log_odds -= math.log(z / (sum(probabilities) - z)) / 2
        uneven += sum(p / z * math.log(p / z * len(inside)) for p in inside) / 2
    assert found.reward_loss().item() == pytest.approx(reward, abs=1e-12)
    assert found.log_reward_loss().item() == pytest.approx(log_reward, abs=1e-12)
    assert found.log_odds_loss().item() == pytest.approx(log_odds, abs=1e-12)
    assert found.uniformity().item() == pytest.approx(uneven, abs=1e-12)
    leaf = policy.leaf()
    for name in ("reward_loss", "log_reward_loss", "log_odds_loss", "uniformity"):
        assert torch.autograd.gradcheck(
            lambda logits, name=name: getattr(reading_of(policy, logits, legal), name)(),
            leaf,
            fast_mode=True,
        ), name


@pytest.mark.parametrize("ratio", ["trajectory", "orbit", "both_classes"])
@pytest.mark.parametrize("interface", ["pointers", "tokens"])
def test_the_exact_gradient_is_the_mean_over_all_groups_of_samples(ratio, interface):
    """Each ratio has the same mean gradient; they differ in how far single groups are from it."""
    n, size = 3, 2
    policy = RandomPolicy(n, interface, batch=1, seed=5)
    legal = random_members(1, 6, seed=1)
    leaf = policy.leaf()
    behaviour = policy.events(policy.logits)
    at = behaviour.exp()[0].tolist()
    old = reading_of(policy, policy.logits, legal)
    masses = old.masses(old.batch.orbit)
    mean, square = torch.zeros_like(leaf), 0.0
    for group in product(range(len(at)), repeat=size):
        samples = torch.tensor([group])
        padded = torch.cat([legal, legal.new_zeros(1, len(at) - 6)], dim=1)
        rewards = padded.gather(1, samples).double()
        found = reading_of(
            policy,
            leaf,
            legal,
            samples=samples,
            rewards=rewards,
            advantages=leave_one_out_advantage(rewards),
            behaviour=behaviour,
            credit=None if ratio == "trajectory" else old.batch.orbit,
            behaviour_log_mass=None if ratio == "trajectory" else masses.log_inside,
            behaviour_log_failing=old.log_failing if ratio == "both_classes" else None,
        )
        (gradient,) = torch.autograd.grad(found.policy_loss(), leaf)
        weight = math.prod(at[event] for event in group)
        mean += weight * gradient
        square += weight * gradient.square().sum().item()
    (exact,) = torch.autograd.grad(reading_of(policy, leaf, legal).reward_loss(), leaf)
    torch.testing.assert_close(mean, exact, rtol=0, atol=1e-12)
    # The account of the variance says how far, and which part each ratio takes away.
    moments = moments_of(policy.events(leaf)[0], padded[0], [leaf])
    assert moments.signal == pytest.approx(exact.square().sum().item(), rel=1e-9)
    parts = moments.variance(size)
    left = {
        "trajectory": parts.total,
        "orbit": parts.between + parts.within_failures,
        "both_classes": parts.between,
    }
    assert square - moments.signal == pytest.approx(left[ratio], rel=1e-9)
    assert min(parts) > 0


@pytest.mark.parametrize(
    "name", ["exact-log-odds", "exact-log-reward", "both-classes", "uniform-orbit"]
)
def test_a_record_that_nothing_fails_teaches_no_difference_and_no_nan(name):
    some = [replace(record, legal=(True,) * 24) for record in supervised_records(6)]
    state, metrics = train(name, 3, records=some)
    assert all(math.isfinite(value) for each in metrics for value in each.values.values())
    assert all(each.log_odds_loss == 0 for each in metrics)
    assert all(torch.isfinite(p).all() for p in state.model.parameters())
    if name != "uniform-orbit":
        assert metrics[-1].gradient_norm == pytest.approx(0, abs=1e-5)


def test_an_orbit_that_is_all_but_certain_or_impossible_keeps_its_gradient():
    policy = RandomPolicy(3, seed=2)
    legal = random_members(2, 6, seed=3)
    for sign in (1, -1):
        # Some 80 nats between the classes: both masses round to 0 or 1.
        leaf = policy.leaf()
        orders = reading_of(policy, leaf, legal).orders + sign * 80.0 * legal
        found = reading_of(policy, leaf, legal)
        found.__dict__["orders"] = orders
        loss = found.log_odds_loss()
        assert loss.abs() > 70
        (gradient,) = torch.autograd.grad(loss, leaf)
        assert torch.isfinite(gradient).all()
        assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize("n", [3, 4, 5])
@pytest.mark.parametrize("seed", range(3))
def test_evenness_on_legal_prefixes_is_that_of_all_orders(n, seed):
    table, order = random_table(n, seed), random_order(n, seed)
    table.logits.requires_grad_()
    tree = prefix_tree(n, legal_leaves(order))
    rows = torch.tensor([table.tree.row_of[prefix] for prefix in tree.prefixes])
    orbit = LegalPrefixes(legal=legal_moves([tree], [order]), rows=legal_rows([tree], [order]))
    found = orbit.evenness(table.choices[rows][None], torch.tensor(tree.used)[None])
    inside = table.log_probs()[members(order)]
    within = inside - inside.logsumexp(-1)
    expected = -(within.exp() * within).sum()
    assert found.entropy.item() == pytest.approx(expected.item(), abs=1e-12)
    assert found.log_size.item() == pytest.approx(math.log(len(inside)), abs=1e-12)
    one, other = (
        torch.autograd.grad(value.sum(), table.logits, retain_graph=True)[0]
        for value in (found.entropy, expected)
    )
    torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_evenness_of_drawn_paths_comes_to_that_of_all_orders():
    table, order = random_table(5, 4), PartialOrder.of(5, [(0, 1), (2, 3)])
    inside = table.log_probs()[members(order)]
    within = inside - inside.logsumexp(-1)
    expected = -(within.exp() * within).sum().item()
    errors = []
    for count in (16, 4096):
        (drawn,) = sample_orders(
            lambda prefixes: table.next_choices(prefixes),
            [Draw(count=count, scheme="independent", within=[order])],
            num_prompts=1,
            num_operations=[5],
            generator=torch.Generator().manual_seed(count),
        )
        found = [table.tree.path(each) for each in drawn[0]]
        paths = Paths(
            rows=torch.tensor([[rows for rows, _ in found]]),
            slots=torch.tensor([[slots for _, slots in found]]),
        )
        legal = moves_after(order, torch.tensor(table.tree.used))[None]
        used = torch.tensor(table.tree.used)[None]
        log_q = path_terms(table.choices[None], legal, used, paths).log_q
        orbit = MaskedPaths(legal=legal, paths=paths, behaviour_log_q=log_q)
        each = orbit.evenness(table.choices[None], used)
        errors.append(abs(each.entropy.item() - expected))
    assert errors[1] < 0.05
    assert errors[1] < errors[0]
    assert each.log_size.item() == pytest.approx(math.log(len(inside)), abs=0.1)


# Steps at equal states.


def test_step_advantages_by_loops():
    draw = torch.Generator().manual_seed(0)
    rewards = (torch.rand(3, 6, generator=draw) < 0.5).double()
    groups = torch.randint(3, (3, 6, 4), generator=draw)
    found = step_advantages(rewards, groups)
    for b, i, t in product(range(3), range(6), range(4)):
        others = [rewards[b, j].item() for j in range(6) if j != i]
        expected = rewards[b, i].item() - sum(others) / 5
        at = [
            rewards[b, j].item() for j in range(6) if j != i and groups[b, j, t] == groups[b, i, t]
        ]
        expected += rewards[b, i].item() - sum(at) / len(at) if at else 0.0
        assert found[b, i, t].item() == pytest.approx(expected, abs=1e-12)


def brute_states(swaps, prefixes):
    """Prefixes in one class are connected by swaps of neighbours, each with equal steps after it."""
    classes = {prefix: {prefix} for prefix in prefixes}
    for one, other in swaps:
        for prefix in prefixes:
            twin = (*other, *prefix[len(one) :])
            if prefix[: len(one)] == one and twin in classes:
                together = classes[prefix] | classes[twin]
                for each in together:
                    classes[each] = together
    return {prefix: frozenset(found) for prefix, found in classes.items()}


def test_states_are_the_classes_of_certified_swaps():
    num_shared = 0
    for item in encode_items(supervised_records(30), method("step-groups"), seed=0, encode=ENCODE):
        prefixes = sorted({order[:length] for order in all_orders(4) for length in range(3)})
        found, expected = item.states(prefixes), brute_states(item.orbit.swaps, prefixes)
        for one, other in product(prefixes, repeat=2):
            assert (found[one] == found[other]) == (expected[one] == expected[other])
            num_shared += one < other and found[one] == found[other]
    assert num_shared > 30


def test_states_of_longer_prefixes_follow_swaps_in_their_midst():
    """Of five steps, all of which commute: the state is the set of the steps that were done."""
    prefixes = sorted({order[:length] for order in all_orders(5) for length in range(5)})
    swaps = tuple(
        (prefix, (*prefix[:-2], prefix[-1], prefix[-2]))
        for prefix in prefixes
        if len(prefix) > 1 and prefix[-2] < prefix[-1]
    )
    free = OrderList(members=torch.ones(120, dtype=torch.bool), swaps=swaps)
    item = EncodedItem(record_id="", prompt=None, orbit=free, credit=None)
    found = item.states(prefixes)
    for one, other in product(prefixes, repeat=2):
        assert (found[one] == found[other]) == (set(one) == set(other))
    order = PartialOrder.of(5, [(0, 1)])
    found = replace(item, orbit=order).states(prefixes)
    for one, other in product(prefixes, repeat=2):
        same = one == other or (
            set(one) == set(other) and order.allows(one) and order.allows(other)
        )
        assert (found[one] == found[other]) == same


# Scaled rewards, and no clip.


def test_scaled_advantages_are_in_deviations_of_the_group():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]).double()
    found = scaled_by_deviation(leave_one_out_advantage(rewards), rewards)
    # A quarter pass: the deviation with Bessel's correction is a half.
    assert found[0].tolist() == pytest.approx([1 / 0.5001, *[-1 / 3 / 0.5001] * 3])
    assert found[1].tolist() == [0.0] * 4


def test_a_clip_of_zero_clips_nothing():
    draw = torch.Generator().manual_seed(1)
    log_ratio, advantages = torch.randn(2, 3, 5, generator=draw).double().unbind()
    expected = -(log_ratio.exp() * advantages).mean().item()
    assert clipped_loss(log_ratio, advantages, 0).item() == pytest.approx(expected)
    assert clip_fraction(log_ratio, advantages, 0) == 0
    assert clip_fraction(log_ratio, advantages, 0.2) > 0
