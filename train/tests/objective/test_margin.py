"""The anti-diamond margin against plain-Python recomputation."""

import math

import pytest
import torch

from objective_oracle import GRID, RandomPolicy, event_probabilities, random_members
from vcrt_train.objective.losses import anti_diamond_loss, log_mass_margin

MARGIN = 2.0


@pytest.mark.parametrize(("n", "interface"), GRID)
@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_margin_and_loss(n, interface, scale):
    policy = RandomPolicy(n, interface, batch=4, seed=20 + n, scale=scale)
    num_orders = math.factorial(n)
    legal = random_members(4, num_orders, seed=n)
    orders = policy.events(policy.logits)[:, :num_orders]
    deltas = log_mass_margin(orders, legal)
    losses = anti_diamond_loss(orders, legal, MARGIN)
    for b in range(4):
        probabilities = event_probabilities(policy, policy.logits, b)[:num_orders]
        inside = sum(p for p, ok in zip(probabilities, legal[b].tolist(), strict=True) if ok)
        outside = sum(p for p, ok in zip(probabilities, legal[b].tolist(), strict=True) if not ok)
        delta = math.log(inside) - math.log(outside)
        assert deltas[b].item() == pytest.approx(delta, abs=1e-9)
        assert losses[b].item() == pytest.approx(0.5 * max(0.0, MARGIN - delta) ** 2, abs=1e-9)


def test_gradient_agrees_with_finite_differences_on_both_sides_of_the_margin():
    policy = RandomPolicy(3, batch=6, seed=7, scale=2.0)
    legal = random_members(6, 6, seed=2)
    deltas = log_mass_margin(policy.events(policy.logits), legal)
    assert (deltas < MARGIN).any()
    assert (deltas > MARGIN).any()
    assert torch.autograd.gradcheck(
        lambda logits: anti_diamond_loss(policy.events(logits), legal, MARGIN), policy.leaf()
    )


def test_met_margin_is_silent():
    log_probs = torch.tensor([[0.9, 0.1]]).log().requires_grad_()
    loss = anti_diamond_loss(log_probs, torch.tensor([[True, False]]), MARGIN)
    loss.sum().backward()
    assert loss.item() == 0
    assert (log_probs.grad == 0).all()


def test_illegal_mass_below_single_precision_keeps_its_value_and_gradient():
    logits = torch.tensor([[0.0, -1.0, -22.0, -23.0]], requires_grad=True)
    legal = torch.tensor([[True, True, False, False]])
    log_probs = logits.log_softmax(-1)
    assert 1 - log_probs.exp()[0, :2].sum() < 1e-7
    delta = log_mass_margin(log_probs, legal)
    expected = math.log(1 + math.exp(-1)) - (-22 + math.log1p(math.exp(-1)))
    assert delta.item() == pytest.approx(expected, abs=1e-4)
    anti_diamond_loss(log_probs, legal, 30.0).sum().backward()
    assert torch.isfinite(logits.grad).all()
    assert (logits.grad[0, 2:] > 0).all()


def test_a_record_without_illegal_orders_adds_nothing():
    log_probs = torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log().requires_grad_()
    loss = anti_diamond_loss(log_probs, torch.tensor([[True, True], [True, False]]), MARGIN)
    loss.sum().backward()
    assert loss.tolist() == pytest.approx([0.0, 2.0])
    assert (log_probs.grad[0] == 0).all()
    assert torch.isfinite(log_probs.grad).all()
