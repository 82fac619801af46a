"""The estimators of the benchmark have one expectation, and only what credits more orders spreads less."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "written"))

from group_gradients import ESTIMATORS, Sample, Spread, spread_of, surrogates, worth

#: Six orders of three steps, of which three solve the task; two orders of others, of which none does; a text alone.
LEGAL, ILLEGAL, OTHERS, ALONE = (0, 2, 5), (1, 3, 4), (6, 7), 8
SAMPLES = [
    *(Sample(text, text in LEGAL, LEGAL, ILLEGAL) for text in range(6)),
    *(Sample(text, False, (), OTHERS) for text in OTHERS),
    Sample(ALONE, False),
]


def groups():
    """Every group of two samples, with its chance, and the gradient of each estimator."""
    logits = torch.linspace(-1, 1.5, 9, dtype=torch.float64).sin().requires_grad_()
    log_probs = logits.log_softmax(0)
    solving = log_probs[list(LEGAL)].exp().sum()
    (truth,) = torch.autograd.grad(solving, logits, retain_graph=True)
    chances = log_probs.detach().exp()
    found = []
    for one, other in product(SAMPLES, repeat=2):
        losses = surrogates(log_probs, [one, other])
        gradients = {
            name: -torch.autograd.grad(loss, logits, retain_graph=True)[0]
            for name, loss in losses.items()
        }
        found.append((float(chances[one.text] * chances[other.text]), gradients))
    return truth, found


def test_all_estimators_have_the_gradient_of_the_chance_to_solve_the_task():
    truth, found = groups()
    for name in ESTIMATORS:
        mean = sum(chance * gradients[name] for chance, gradients in found)
        torch.testing.assert_close(mean, truth, rtol=0, atol=1e-15)


def test_what_credits_more_orders_spreads_less():
    truth, found = groups()
    spread = {
        name: sum(
            chance * float((gradients[name] - truth).square().sum()) for chance, gradients in found
        )
        for name in ESTIMATORS
    }
    assert spread["grpo"] > 1.05 * spread["orbit"] > 1.05**2 * spread["expected"]


def test_a_spread_is_of_groups_and_of_pairs_of_them():
    rows = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0]])
    one = spread_of(dict.fromkeys(ESTIMATORS, rows), 5)
    assert one.square["grpo"] == pytest.approx((1 + 9 + 4) / 3)
    assert one.product["orbit"] == pytest.approx(2 * 3 / 6)
    assert Spread.from_json(one.to_json()) == one


def test_worth_is_the_ratio_of_variances():
    def task(grpo, orbit, expected, mean):
        squares = dict(zip(ESTIMATORS, (grpo, orbit, expected), strict=True))
        return Spread(squares, dict.fromkeys(ESTIMATORS, mean), 1)

    tasks = [task(5.0, 3.0, 2.0, 1.0), task(9.0, 7.0, 3.0, 1.0)]
    assert worth(tasks) == {"orbit": 1.5, "expected": 4.0}
    value, low, high = worth(tasks, intervals=True)["orbit"]
    assert (value, low, high) == pytest.approx((1.5, 8 / 6, 2.0))
