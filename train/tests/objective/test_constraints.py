"""Commutation, retention, action KL and their penalties against plain-Python recomputation."""

import math
from itertools import permutations

import pytest
import torch

from objective_oracle import GRID, RandomPolicy, event_probabilities, next_choice, order_probability
from vcrt_train.objective.losses import (
    action_kl,
    commutation_loss,
    dual_step,
    penalties,
    retention_loss,
)
from vcrt_train.objective.orbit_mass import orbit_log_mass


def _swaps(n):
    """Every (prefix + ab, prefix + ba) with a < b, whatever remains."""
    return [
        (prefix, (*prefix[:-2], prefix[-1], prefix[-2]))
        for length in range(2, n)
        for prefix in permutations(range(n), length)
        if prefix[-2] < prefix[-1]
    ]


def _index(policy, batch):
    rows = policy.tree.row_of
    return torch.tensor(
        [[b, rows[ab], rows[ba]] for b in range(batch) for ab, ba in _swaps(policy.n)]
    )


def _js(policy, b, ab, ba):
    distributions = []
    for prefix in (ab, ba):
        weights = [
            p
            for slot, p in enumerate(next_choice(policy, policy.logits, b, prefix))
            if slot not in prefix
        ]
        distributions.append([w / sum(weights) for w in weights])
    divergence = 0.0
    for p, q in zip(*distributions, strict=True):
        middle = (p + q) / 2
        divergence += 0.5 * p * math.log(p / middle) + 0.5 * q * math.log(q / middle)
    return divergence


@pytest.mark.parametrize("interface", ["pointers", "tokens"])
@pytest.mark.parametrize("n", [3, 4])
def test_commutation_is_the_mean_js_divergence_over_remaining_slots(n, interface):
    policy = RandomPolicy(n, interface, seed=30 + n)
    expected = [_js(policy, b, ab, ba) for b in range(2) for ab, ba in _swaps(n)]
    histories = _index(policy, 2)
    found = commutation_loss(policy.choice_log_probs(policy.logits), histories, policy.used)
    assert found.item() == pytest.approx(sum(expected) / len(expected), rel=1e-10, abs=1e-15)
    assert found.item() == 0 if n == 3 else found.item() > 0.01


@pytest.mark.parametrize("interface", ["pointers", "tokens"])
def test_commutation_gradient_agrees_with_finite_differences(interface):
    policy = RandomPolicy(4, interface, batch=1, seed=8)
    histories = _index(policy, 1)
    assert torch.autograd.gradcheck(
        lambda logits: commutation_loss(policy.choice_log_probs(logits), histories, policy.used),
        policy.leaf(),
        fast_mode=True,
    )


def test_commutation_is_bounded_by_log_two_with_finite_gradients():
    policy = RandomPolicy(4, seed=9, scale=60.0)
    leaf = policy.logits.float().requires_grad_()
    one_by_one = [
        commutation_loss(policy.choice_log_probs(leaf), history[None], policy.used)
        for history in _index(policy, 2)
    ]
    values = torch.stack(one_by_one)
    assert values.max().item() == pytest.approx(math.log(2), abs=1e-3)
    assert (values >= -1e-6).all()
    assert (values <= math.log(2) + 1e-6).all()
    values.sum().backward()
    assert torch.isfinite(leaf.grad).all()


def test_commutation_does_not_see_which_swap_came_first_and_vanishes_for_equal_rows():
    policy = RandomPolicy(4, seed=10)
    choices = policy.choice_log_probs(policy.logits)
    histories = _index(policy, 2)
    forward = commutation_loss(choices, histories, policy.used)
    backward = commutation_loss(choices, histories[:, [0, 2, 1]], policy.used)
    torch.testing.assert_close(forward, backward)
    same = commutation_loss(choices, histories[:, [0, 1, 1]], policy.used)
    assert same.abs() < 1e-15


def test_commutation_weighs_prompts_by_their_swaps():
    policy = RandomPolicy(4, seed=3)
    choices = policy.choice_log_probs(policy.logits)
    swaps = _index(policy, 2)
    one, other = swaps[swaps[:, 0] == 0][:1], swaps[swaps[:, 0] == 1][:3]
    apart = [commutation_loss(choices, some, policy.used) for some in (one, other)]
    together = commutation_loss(choices, torch.cat([one, other]), policy.used)
    torch.testing.assert_close(together, (1 * apart[0] + 3 * apart[1]) / 4)
    assert not torch.isclose(together, (apart[0] + apart[1]) / 2)


def test_commutation_without_histories_is_zero():
    policy = RandomPolicy(2, seed=1)
    empty = torch.zeros(0, 3, dtype=torch.long)
    assert commutation_loss(policy.choice_log_probs(policy.logits), empty, policy.used) == 0


def test_retention_is_the_mean_decline_in_probability():
    policy = torch.tensor([0.5, 0.2, 0.9], dtype=torch.float64).log().requires_grad_()
    frozen = torch.tensor([0.6, 0.5, 0.4], dtype=torch.float64).log()
    assert retention_loss(policy, frozen).item() == pytest.approx((0.1 + 0.3 - 0.5) / 3)
    assert torch.autograd.gradcheck(lambda x: retention_loss(x, frozen), policy)


@pytest.mark.parametrize(("n", "interface"), GRID)
def test_action_kl_is_exact_over_all_events(n, interface):
    policy = RandomPolicy(n, interface, seed=40 + n)
    moved = policy.logits + 0.5 * RandomPolicy(n, interface, seed=50 + n).logits
    expected = 0.0
    for b in range(2):
        before = event_probabilities(policy, policy.logits, b)
        after = event_probabilities(policy, moved, b)
        expected += sum(p * math.log(p / q) for p, q in zip(before, after, strict=True)) / n / 2
    behaviour = policy.events(policy.logits)
    assert action_kl(behaviour, policy.events(moved), n).item() == pytest.approx(expected)
    assert action_kl(behaviour, behaviour, n).item() == 0


@pytest.mark.parametrize("n", [2, 3, 4])
def test_action_kl_is_the_visited_kl_of_the_choices_divided_by_their_number(n):
    policy = RandomPolicy(n, seed=60 + n, batch=1)
    moved = policy.logits + 0.5 * RandomPolicy(n, seed=70 + n, batch=1).logits
    total = 0.0
    for length in range(n):
        for prefix in permutations(range(n), length):
            reach = order_probability(policy, policy.logits, 0, prefix)
            before = next_choice(policy, policy.logits, 0, prefix)
            after = next_choice(policy, moved, 0, prefix)
            total += reach * sum(
                p * math.log(p / q) for p, q in zip(before, after, strict=True) if p > 0
            )
    found = action_kl(policy.events(policy.logits), policy.events(moved), n - 1 or 1)
    assert found.item() == pytest.approx(total / (n - 1 or 1))


def test_action_kl_gradient_and_impossible_events():
    policy = RandomPolicy(3, seed=5)
    behaviour = policy.events(RandomPolicy(3, seed=6).logits)
    assert torch.autograd.gradcheck(
        lambda logits: action_kl(behaviour, policy.events(logits), 2), policy.leaf()
    )
    new = torch.tensor([[0.5, 0.5, 0.0]]).log().requires_grad_()
    old = torch.tensor([[0.25, 0.75, 0.0]]).log()
    loss = action_kl(old, new, 1)
    loss.backward()
    assert loss.item() == pytest.approx(0.25 * math.log(0.5) + 0.75 * math.log(1.5))
    assert new.grad.tolist() == [[-0.25, -0.75, 0]]


@pytest.mark.parametrize("value", [-0.4, 0.01, 0.0499, 0.0501, 0.3])
@pytest.mark.parametrize("dual", [0.0, 0.7, 12.0])
def test_penalty_and_dual_step(value, dual):
    cap, mu = 0.05, 10.0
    leaf = torch.tensor(value, dtype=torch.float64, requires_grad=True)
    (found,) = penalties(leaf[None], [cap], [dual], mu)
    slack = dual + mu * (value - 0.05)
    expected = (slack**2 - dual**2) / (2 * mu) if slack > 0 else -(dual**2) / (2 * mu)
    assert found.item() == pytest.approx(expected, abs=1e-12)
    found.backward()
    # The slope of the penalty is the next multiplier: that is what makes the dual step an ascent step.
    assert dual_step(value, cap, dual, mu) == pytest.approx(leaf.grad.item(), abs=1e-12)
    assert dual_step(value, cap, dual, mu) == pytest.approx(max(0.0, slack))


def test_dual_steps_solve_a_small_constrained_problem():
    # Minimise (x - 1)^2 subject to x <= 0.3: x = 0.3 with multiplier 1.4.
    cap, mu, dual = 0.3, 10.0, 0.0
    x = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    for _ in range(30):
        for _ in range(50):
            loss = (x - 1) ** 2 + penalties(x[None], [cap], [dual], mu)[0]
            (slope,) = torch.autograd.grad(loss, x)
            with torch.no_grad():
                x -= 0.05 * slope
        dual = dual_step(x.item(), cap, dual, mu)
    assert x.item() == pytest.approx(0.3, abs=1e-6)
    assert dual == pytest.approx(1.4, abs=1e-5)


def test_retention_of_orbit_masses_never_sees_moves_inside_the_orbit():
    frozen = torch.tensor([[0.1, 0.4, 0.5]], dtype=torch.float64).log()
    moved = torch.tensor([[0.4, 0.1, 0.5]], dtype=torch.float64).log()
    orbit = torch.tensor([[True, True, False]])
    decline = retention_loss(orbit_log_mass(moved, orbit), orbit_log_mass(frozen, orbit))
    assert abs(decline.item()) < 1e-15
