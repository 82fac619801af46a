"""Orbit mass, advantage, ratio and clipped loss against plain-Python recomputation."""

import math

import pytest
import torch

from objective_oracle import (
    GRID,
    RandomPolicy,
    event_probabilities,
    orbit_log_ratio,
    random_members,
)
from vcrt.orders import all_orders
from vcrt_train.objective.losses import (
    MAX_LOG_RATIO,
    clip_fraction,
    clipped_loss,
    leave_one_out_advantage,
    trajectory_log_ratio,
)
from vcrt_train.objective.orbit_mass import orbit_log_mass

CLIP = 0.2


@pytest.mark.parametrize(("n", "interface"), GRID)
def test_orbit_mass_is_the_summed_probability_of_its_orders(n, interface):
    policy = RandomPolicy(n, interface, batch=3, seed=n)
    num_orders = math.factorial(n)
    members = random_members(3, num_orders, seed=n)
    found = orbit_log_mass(policy.events(policy.logits)[:, :num_orders], members)
    for b in range(3):
        probabilities = event_probabilities(policy, policy.logits, b)[:num_orders]
        expected = sum(
            p for p, inside in zip(probabilities, members[b].tolist(), strict=True) if inside
        )
        assert math.exp(found[b].item()) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("n", "interface"), GRID)
def test_gradient_is_the_posterior_weighted_mean_of_trajectory_scores(n, interface):
    policy = RandomPolicy(n, interface, batch=1, seed=10 + n)
    num_orders = math.factorial(n)
    members = random_members(1, num_orders, seed=n)
    leaf = policy.leaf()
    log_mass = orbit_log_mass(policy.events(leaf)[:, :num_orders], members)
    (found,) = torch.autograd.grad(log_mass.sum(), leaf)

    expected = torch.zeros_like(leaf)
    probabilities = event_probabilities(policy, policy.logits, 0)
    inside = [column for column in range(num_orders) if members[0, column]]
    mass = sum(probabilities[column] for column in inside)
    for column in inside:
        (score,) = torch.autograd.grad(policy.events(leaf)[0, column], leaf)
        expected += probabilities[column] / mass * score
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_gradient_agrees_with_finite_differences():
    policy = RandomPolicy(3, batch=2, seed=3)
    members = random_members(2, 6, seed=5)
    assert torch.autograd.gradcheck(
        lambda logits: orbit_log_mass(policy.events(logits), members), policy.leaf()
    )


def test_empty_set_has_mass_zero_and_gradient_zero():
    log_probs = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log().requires_grad_()
    found = orbit_log_mass(log_probs, torch.tensor([[False, False], [True, False]]))
    assert found[0] == -math.inf
    found.exp().sum().backward()
    torch.testing.assert_close(log_probs.grad, torch.tensor([[0.0, 0.0], [0.25, 0.0]]))


def test_tiny_masses_are_not_lost_to_rounding():
    log_probs = torch.tensor([[0.0, -60.0, -61.0]])
    found = orbit_log_mass(log_probs, torch.tensor([[False, True, True]]))
    assert found.item() == pytest.approx(-60 + math.log1p(math.exp(-1)), abs=1e-4)


def test_members_must_have_the_shape_of_the_orders():
    with pytest.raises(ValueError, match="must have the shape"):
        orbit_log_mass(torch.zeros(2, 6), torch.ones(6, dtype=torch.bool))


def test_advantage_is_the_reward_minus_the_mean_of_the_others():
    rewards = torch.tensor([[1.0, 0.0, 0.0, 1.0, 0.5], [1.0, 1.0, 1.0, 1.0, 1.0]])
    found = leave_one_out_advantage(rewards)
    for b, group in enumerate(rewards.tolist()):
        for i, reward in enumerate(group):
            others = [r for j, r in enumerate(group) if j != i]
            assert found[b, i].item() == pytest.approx(reward - sum(others) / len(others))
    assert (found[1] == 0).all()


def test_advantage_needs_a_second_sample():
    with pytest.raises(ValueError, match="at least 2"):
        leave_one_out_advantage(torch.ones(2, 1))


def _old_and_new(n, interface, batch=2):
    policy = RandomPolicy(n, interface, batch=batch, seed=n)
    moved = RandomPolicy(n, interface, batch=batch, seed=100 + n)
    return policy, policy.logits, policy.logits + 0.3 * moved.logits


@pytest.mark.parametrize(("n", "interface"), GRID)
def test_ratio_is_the_orbits_for_successes_and_the_events_own_for_failures(n, interface):
    policy, old, new = _old_and_new(n, interface)
    num_orders = math.factorial(n)
    orbit = random_members(2, num_orders, seed=n)
    num_events = num_orders + (interface == "tokens")
    samples = torch.arange(num_events).expand(2, -1)
    padded = torch.cat([orbit, torch.zeros(2, num_events - num_orders, dtype=torch.bool)], dim=1)
    successes = padded.gather(1, samples)
    found = orbit_log_ratio(
        policy.events(new), policy.events(old), samples, successes=successes, orbit=orbit
    )
    for b in range(2):
        before = event_probabilities(policy, old, b)
        after = event_probabilities(policy, new, b)
        inside = [column for column in range(num_orders) if orbit[b, column]]
        for event in range(num_events):
            if event in inside:
                expected = sum(after[c] for c in inside) / sum(before[c] for c in inside)
            else:
                expected = after[event] / before[event]
            assert math.exp(found[b, event].item()) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("n", "interface"), GRID)
def test_trajectory_ratio_is_the_events_own(n, interface):
    policy, old, new = _old_and_new(n, interface)
    before, after = (event_probabilities(policy, logits, 1) for logits in (old, new))
    samples = torch.arange(len(before)).expand(2, -1)
    found = trajectory_log_ratio(policy.events(new), policy.events(old), samples)
    for event in range(len(before)):
        assert math.exp(found[1, event].item()) == pytest.approx(after[event] / before[event])


def test_ratio_does_not_depend_on_the_sampled_representative():
    policy, old, new = _old_and_new(4, "pointers", batch=1)
    orbit = random_members(1, 24, seed=1)
    members = orbit[0].nonzero().T
    found = orbit_log_ratio(
        policy.events(new),
        policy.events(old),
        members,
        successes=torch.ones_like(members, dtype=torch.bool),
        orbit=orbit,
    )
    assert len(set(found[0].tolist())) == 1


@pytest.mark.parametrize("n", [2, 3, 4])
def test_singleton_orbits_reduce_to_the_trajectory_ratio(n):
    policy, old, new = _old_and_new(n, "pointers")
    chosen = torch.tensor([[0], [len(all_orders(n)) - 1]])
    orbit = torch.zeros(2, math.factorial(n), dtype=torch.bool).scatter(1, chosen, True)
    arguments = (policy.events(new), policy.events(old), chosen)
    found = orbit_log_ratio(*arguments, successes=torch.ones_like(chosen).bool(), orbit=orbit)
    torch.testing.assert_close(found, trajectory_log_ratio(*arguments))


def test_mass_moved_inside_the_orbit_leaves_its_ratio_at_one():
    old = torch.tensor([[0.1, 0.3, 0.2, 0.4]], dtype=torch.float64).log()
    new = torch.tensor([[0.35, 0.05, 0.2, 0.4]], dtype=torch.float64).log()
    samples = torch.tensor([[0, 1, 2]])
    orbit = torch.tensor([[True, True, False, False]])
    found = orbit_log_ratio(
        new, old, samples, successes=torch.tensor([[True, True, False]]), orbit=orbit
    )
    torch.testing.assert_close(found, torch.zeros(1, 3, dtype=torch.float64))
    assert trajectory_log_ratio(new, old, samples)[0, 0] > 1


def test_equal_policies_have_log_ratio_exactly_zero():
    policy = RandomPolicy(4, seed=2)
    events = policy.events(policy.logits).float()
    samples = torch.arange(24).expand(2, -1)
    orbit = random_members(2, 24, seed=3)
    found = orbit_log_ratio(events, events.clone(), samples, successes=orbit, orbit=orbit)
    assert (found == 0).all()


def test_an_impossible_event_that_nobody_sampled_does_no_harm():
    new = torch.tensor([[-0.1, -2.4, -torch.inf]], requires_grad=True)
    found = trajectory_log_ratio(new, new.detach(), torch.tensor([[0, 1]]))
    found.sum().backward()
    assert found.tolist() == [[0, 0]]
    assert new.grad.tolist() == [[1, 1, 0]]


def _brute_clipped(log_ratio, advantages):
    terms, stopped = [], 0
    for x, a in zip(log_ratio.flatten().tolist(), advantages.flatten().tolist(), strict=True):
        rho = math.exp(x)
        terms.append(min(rho * a, min(max(rho, 1 - CLIP), 1 + CLIP) * a))
        stopped += (a > 0 and rho > 1 + CLIP) or (a < 0 and rho < 1 - CLIP)
    return -sum(terms) / len(terms), stopped / len(terms)


def test_clipped_loss_and_clip_fraction():
    generator = torch.Generator().manual_seed(4)
    log_ratio = 0.4 * torch.randn(5, 8, generator=generator, dtype=torch.float64)
    advantages = torch.randn(5, 8, generator=generator, dtype=torch.float64)
    advantages[0] = 0
    loss, fraction = _brute_clipped(log_ratio, advantages)
    assert clipped_loss(log_ratio, advantages, CLIP).item() == pytest.approx(loss, rel=1e-12)
    assert clip_fraction(log_ratio, advantages, CLIP).item() == pytest.approx(fraction)
    assert 0 < fraction < 1
    assert torch.autograd.gradcheck(
        lambda x: clipped_loss(x, advantages, CLIP), log_ratio.clone().requires_grad_()
    )


def test_clip_fraction_counts_exactly_the_samples_without_gradient():
    generator = torch.Generator().manual_seed(5)
    log_ratio = (0.4 * torch.randn(4, 8, generator=generator)).requires_grad_()
    advantages = torch.randn(4, 8, generator=generator)
    clipped_loss(log_ratio, advantages, CLIP).backward()
    silent = (log_ratio.grad == 0).float().mean()
    assert clip_fraction(log_ratio, advantages, CLIP).item() == pytest.approx(silent.item())


def test_first_step_gradient_is_minus_the_mean_advantage_weighted_score():
    advantages = torch.tensor([[0.5, -1.0]])
    log_ratio = torch.zeros(1, 2, requires_grad=True)
    clipped_loss(log_ratio, advantages, CLIP).backward()
    torch.testing.assert_close(log_ratio.grad, -advantages / 2)


def test_huge_ratios_stay_finite():
    log_ratio = torch.tensor([[500.0, -500.0]], requires_grad=True)
    loss = clipped_loss(log_ratio, torch.tensor([[-1.0, 1.0]]), CLIP)
    loss.backward()
    assert loss.item() == pytest.approx(math.exp(MAX_LOG_RATIO) / 2, rel=1e-5)
    assert torch.isfinite(log_ratio.grad).all()
