"""The account of the gradient's variance: against enumeration, against listing, and at the ends of the scale."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch

from objective_oracle import RandomPolicy
from sampled_training import EXACT, poset_record
from training_fixtures import ENCODE, same_tensors, supervised_records, tiny_model, weights
from vcrt.partial_orders import PartialOrder
from vcrt_train.policy.scoring import score_orders
from vcrt_train.training.gradient_variance import GradientMoments, gradient_moments, moments_of
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import method

PARTS = ("between", "within_successes", "within_failures")


def items_of(records, name="canonical-grpo"):
    return encode_items(records, method(name), seed=0, encode=ENCODE)


def scores_of(model, item, interface):
    """The score of each answer as a row, its probability, and whether it passes."""
    found = score_orders(model, [item.prompt], interface=interface)
    events = found.order_log_probs[0]
    if found.malformed_log_prob is not None:
        events = torch.cat([events, found.malformed_log_prob])
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for event in events:
        parts = torch.autograd.grad(event, parameters, retain_graph=True, allow_unused=True)
        rows.append(torch.cat([p.flatten() for p in parts if p is not None]).double())
    legal = item.listed.members
    passes = torch.cat([legal, legal.new_zeros(len(events) - len(legal))])
    return torch.stack(rows), events.detach().double().exp(), passes


def by_enumeration(rows, at, passes, size):
    """The variance of a group's gradient under each ratio, over all groups."""
    z = float(at[passes].sum())
    inside = (at * passes) @ rows / z
    outside = (at * ~passes) @ rows / (1 - z)
    found = dict.fromkeys(("trajectory", "orbit", "both"), 0.0)
    for group in product(range(len(at)), repeat=size):
        rewards = [float(passes[e]) for e in group]
        gradients = dict.fromkeys(found, 0.0)
        for event, reward in zip(group, rewards, strict=True):
            advantage = reward - (sum(rewards) - reward) / (size - 1)
            alone = {"trajectory": (), "orbit": (True,), "both": (True, False)}
            for name, shared in alone.items():
                score = (inside if reward else outside) if bool(reward) in shared else rows[event]
                gradients[name] = gradients[name] + advantage * score / size
        chance = math.prod(float(at[e]) for e in group)
        for name, gradient in gradients.items():
            found[name] += chance * float(torch.as_tensor(gradient).square().sum())
    signal = float((z * inside).square().sum())
    return signal, {name: value - signal for name, value in found.items()}


@pytest.mark.parametrize("interface", ["pointers", "tokens"])
@pytest.mark.parametrize("number", range(2))
def test_each_ratio_takes_its_part_away(interface, number):
    model, item = tiny_model(), items_of(supervised_records(number + 1))[number]
    before = weights(model)
    found = gradient_moments(model, item, interface=interface)
    rows, at, passes = scores_of(model, item, interface)
    at = at / at.sum()
    signal, variances = by_enumeration(rows, at, passes, 2)
    parts = found.variance(2)
    assert found.p == pytest.approx(float(at[passes].sum()), rel=1e-5)
    assert found.signal == pytest.approx(signal, rel=1e-3)
    assert parts.total == pytest.approx(variances["trajectory"], rel=1e-3)
    without = parts.total - parts.within_successes
    assert without == pytest.approx(variances["orbit"], rel=1e-3)
    assert parts.between == pytest.approx(variances["both"], rel=1e-2)
    # The model is as it was, and has no gradient.
    assert same_tensors(weights(model), before)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_the_number_of_successes_is_all_that_is_left_between_the_classes(size):
    """Two answers: nothing lies within a class, so the variance is that of k (G - k)."""
    logit = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    events = torch.stack([torch.nn.functional.logsigmoid(s * logit) for s in (1, -1)])
    found = moments_of(events, torch.tensor([True, False]), [logit])
    p = torch.sigmoid(logit).item()
    # The gradient of the log-odds is 1.
    assert found.odds == pytest.approx(1)
    assert found.signal == pytest.approx((p * (1 - p)) ** 2)
    assert (found.within_successes, found.within_failures) == (0, 0)
    first = second = 0.0
    for group in product([True, False], repeat=size):
        k = sum(group)
        value, chance = k * (size - k) / (size * (size - 1)), p**k * (1 - p) ** (size - k)
        first, second = first + chance * value, second + chance * value**2
    assert first == pytest.approx(p * (1 - p))
    parts = found.variance(size)
    assert parts.between == pytest.approx(second - first**2)
    assert parts.shares() == {"between": 1.0, "within_successes": 0.0, "within_failures": 0.0}


@pytest.mark.parametrize("value", [True, False])
def test_a_policy_that_always_passes_or_never_has_no_variance_and_no_nan(value):
    policy = RandomPolicy(3, batch=1, seed=0)
    leaf = policy.leaf()
    events = policy.events(leaf)[0]
    found = moments_of(events, torch.full((6,), value), [leaf])
    assert found.p == pytest.approx(1 if value else 0)
    assert (found.odds, found.signal) == (0, 0)
    assert found.variance(8) == (0, 0, 0)
    assert found.variance(8).shares() is None
    legal = torch.tensor([True, False, True, False, False, True])
    for sign in (1, -1):
        # 800 nats apart: the smaller class has no probability left.
        leaf = (400.0 * sign * torch.where(legal, 1.0, -1.0)).double().requires_grad_()
        found = moments_of(leaf.log_softmax(-1), legal, [leaf])
        parts = found.variance(8)
        assert (parts.total, found.signal) == (0, 0)
        assert all(math.isfinite(x) for x in (found.p, found.odds, *parts))
    # The other class has no answer that can happen.
    log_half = torch.full((2,), math.log(0.5), dtype=torch.float64, requires_grad=True)
    never = torch.full((2,), -torch.inf, dtype=torch.float64)
    passes = torch.tensor([value, value, not value, not value])
    found = moments_of(torch.cat([log_half, never]), passes, [log_half])
    assert (found.p, found.odds, found.signal) == (float(value), 0, 0)
    assert found.variance(8) == (0, 0, 0)


def test_all_orders_legal_and_one_order_in_a_class():
    model, (item,) = tiny_model(), items_of(supervised_records(1))
    everything = replace(item.orbit, members=torch.ones(24, dtype=torch.bool))
    found = gradient_moments(model, replace(item, orbit=everything))
    assert (found.p, found.odds, found.within_failures) == (1, 0, 0)
    assert found.variance(8) == (0, 0, 0)
    single = replace(item.orbit, members=torch.arange(24) == 5)
    found = gradient_moments(model, replace(item, orbit=single))
    assert found.within_successes == pytest.approx(0, abs=1e-6 * found.within_failures)
    with pytest.raises(ValueError, match="at least 2 samples"):
        found.variance(1)


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_record_of_one_step_has_no_variance(is_listed):
    record = poset_record(0, num_operations=1)
    model, (item,) = tiny_model(), items_of([record.listed() if is_listed else record])
    found = gradient_moments(model, item)
    assert (found.p, found.odds, found.within_successes, found.within_failures) == (1, 0, 0, 0)
    assert found.variance(8) == (0, 0, 0)


def test_an_answer_that_cannot_happen_adds_nothing():
    leaf = torch.tensor([0.3, -0.2, 0.1], dtype=torch.float64, requires_grad=True)
    passes = torch.tensor([True, False, False])
    usual = moments_of(leaf.log_softmax(-1), passes, [leaf])
    never = torch.cat([leaf, torch.tensor([-torch.inf], dtype=torch.float64)]).log_softmax(-1)
    found = moments_of(never, torch.tensor([True, False, False, True]), [leaf])
    assert found == pytest.approx(usual)


@pytest.mark.slow
def test_samples_come_to_what_listing_gives():
    """Of four steps both ways are open: the partial order, or all of its orders."""
    record = poset_record(3, num_operations=4, share=0.4)
    assert record.order.pairs
    model = tiny_model()
    (listed,), (drawn,) = items_of([record.listed()]), items_of([record])
    exact = gradient_moments(model, listed)
    found = [
        gradient_moments(model, drawn, num_samples=16, seed=seed, config=EXACT)
        for seed in range(200)
    ]
    assert all(each.p == pytest.approx(exact.p, rel=1e-5) for each in found)
    for name in ("odds", "within_successes", "within_failures"):
        values = [v for each in found if (v := getattr(each, name)) is not None]
        assert len(values) > 150
        mean = sum(values) / len(values)
        error = (sum((v - mean) ** 2 for v in values) / len(values) ** 2) ** 0.5
        assert abs(mean - getattr(exact, name)) < 4 * error
        assert error < 0.2 * getattr(exact, name)
    again = gradient_moments(model, drawn, num_samples=16, seed=7, config=EXACT)
    assert again == found[7]
    more = gradient_moments(model, drawn, num_samples=512, config=EXACT)
    assert more.variance(8).total == pytest.approx(exact.variance(8).total, rel=0.1)


def test_what_too_few_samples_show_is_not_known():
    (item,) = items_of([poset_record(1)])
    found = gradient_moments(tiny_model(), item, num_samples=2, config=EXACT)
    assert None in (found.within_successes, found.within_failures)
    assert found.odds is None
    assert found.signal is None
    assert found.variance(8) is None
    free = replace(item, orbit=PartialOrder.of(6, []))
    found = gradient_moments(tiny_model(), free, num_samples=8, config=EXACT)
    assert found.p == pytest.approx(1)
    assert found.odds == 0
    assert found.variance(8).total == pytest.approx(0, abs=1e-6 * found.within_successes)


def test_estimates_below_zero_have_no_shares():
    parts = GradientMoments(p=0.5, odds=-1.0, within_successes=0.0, within_failures=0.0)
    assert parts.variance(3).shares() is None
