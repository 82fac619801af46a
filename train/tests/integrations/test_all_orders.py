"""A sample credited with what all orders of its steps would earn: exact against enumeration."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from vcrt.replay.completions import Judgement, Segments, block_of_orders
from vcrt_train.integrations.orbit_credit import (
    Candidates,
    expected_losses,
    expected_rewards,
    expected_weights,
    tabulate,
)
from vcrt_train.integrations.written_orbits import OrbitLimits, written_orbit
from vcrt_train.randomness import generator

#: Six texts in three sets of steps: both kinds, failures alone, a text alone.
SETS = ((0, 1, 2), (3, 4), (5,))
SOLVING = frozenset({0, 2, 5})


def spread(logits, scale, others):
    """By text: its probability, its own gradient, and that of all orders of its steps, at given policies."""
    policy = logits.log_softmax(-1)
    found = []
    for own in SETS:
        candidates = Candidates(
            prompt=(0,),
            orbit=tuple((k,) for k in own if k in SOLVING),
            illegal=tuple((k,) for k in own if k not in SOLVING),
        )
        order = [text[0] for text in candidates.completions]
        for text in own:
            reward = scale * (text in SOLVING)
            (plain,) = torch.autograd.grad(
                -(reward - others) * policy[text], logits, retain_graph=True
            )
            masses = tabulate([candidates], policy[order]).log_masses
            expected = expected_rewards(masses.detach())
            weights = expected_weights(expected, torch.tensor([others], dtype=torch.float64), scale)
            loss = expected_losses(masses, masses.detach(), weights, low=0.2, high=0.2)
            (whole,) = torch.autograd.grad(loss.sum(), logits, retain_graph=True)
            found.append((policy[text].exp().detach(), plain, whole, text, own))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_mean_over_the_steps_orders_of_what_single_samples_have(seed):
    draw = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(6, generator=draw, dtype=torch.float64)).requires_grad_()
    others = float(torch.rand(1, generator=draw, dtype=torch.float64))
    found = spread(logits, 1.5, others)
    by_text = {text: (chance, plain, whole) for chance, plain, whole, text, _ in found}
    for own in SETS:
        total = sum(by_text[text][0] for text in own)
        mean = sum(by_text[text][0] / total * by_text[text][1] for text in own)
        for text in own:
            torch.testing.assert_close(by_text[text][2], mean, atol=1e-12, rtol=1e-9)
    # The same expectation, that of the gradient of the expected reward, and less spread.
    expectations = [sum(chance * each[k] for chance, *each in found) for k in (0, 1)]
    torch.testing.assert_close(expectations[0], expectations[1], atol=1e-12, rtol=1e-9)
    reward = -1.5 * sum(logits.softmax(-1)[k] for k in SOLVING)
    (gradient,) = torch.autograd.grad(reward, logits)
    torch.testing.assert_close(expectations[1], gradient, atol=1e-12, rtol=1e-9)
    squares = [sum(chance * each[k].square().sum() for chance, *each in found) for k in (0, 1)]
    assert squares[1] < squares[0]


def test_each_kind_is_clipped_by_itself():
    old = torch.tensor([[0.3, 0.1], [0.2, 0.2], [0.0, 0.5]], dtype=torch.float64).log()
    ratios = torch.tensor([[1.5, 1.1], [0.5, 0.7], [1.0, 2.0]], dtype=torch.float64)
    new = (old + ratios.log()).requires_grad_()
    weights = torch.tensor([[0.4, -0.2], [0.3, -0.3], [0.0, -0.6]], dtype=torch.float64)
    loss = expected_losses(new, old, weights, low=0.2, high=0.3)
    assert loss.tolist() == pytest.approx(
        [
            -(0.4 * 1.3 - 0.2 * 1.1),  # too likely and good: clipped
            -(0.3 * 0.5 - 0.3 * 0.8),  # too unlikely and bad: clipped
            0.6 * 2.0,
        ]
    )
    loss.sum().backward()
    assert new.grad.isfinite().all()
    assert new.grad[0, 0] == new.grad[1, 1] == new.grad[2, 0] == 0
    assert new.grad[0, 1] == pytest.approx(0.2 * 1.1)


END = 0
STEPS = ("aaaaaa", "bbbbb", "cccc", "ddd")


def encode(text):
    return [ord(letter) for letter in text]


def tokens(order):
    return (*encode("\n".join(STEPS[step] for step in order)), END)


def solves(order):
    return order.index(0) < order.index(1)


def orbit_of(
    completion, judged, *, moved, between="", encode=encode, ends=(END,), draw=0, **limits
):
    """What is scored of a completion whose orders were judged."""
    judgement = Judgement(
        failure=None if judged[0][1] else "too early",
        num_steps=len(moved),
        segments=Segments(fixed=("", *[between] * (len(moved) - 1), ""), moved=moved),
        judged=judged,
    )
    return written_orbit(
        (7,),
        completion,
        judgement,
        encode=encode,
        ends=ends,
        limits=OrbitLimits(**{"max_length": 99} | limits),
        draw=generator(draw, "window"),
        all_orders=True,
    )


def candidates_of(written, *, draw=0, most=24, number=4, **limits):
    orders = block_of_orders(number, most=most, draw=generator(draw, "block"))
    turned = [tuple(written[step] for step in order) for order in orders]
    return orbit_of(
        tokens(written),
        tuple(zip(orders, map(solves, turned), strict=True)),
        moved=tuple(STEPS[step] for step in written),
        between="\n",
        draw=draw,
        **limits,
    )


@pytest.mark.parametrize("most", [24, 6, 1])
@pytest.mark.parametrize("max_tokens", [8192, 100, 40, 10, 1])
def test_texts_are_divided_by_what_they_are_credited_with(most, max_tokens):
    for draw in range(6):
        found = {
            written: candidates_of(written, draw=draw, most=most, max_tokens=max_tokens)
            for written in permutations(range(4))
        }
        named = {tokens(written): one for written, one in found.items()}
        for written, one in found.items():
            own = one.candidates
            assert tokens(written) in (own.orbit if solves(written) else own.illegal)
            for member in own.completions:
                assert named[member] == one
            assert one.is_partial is (len(own.completions) < 24)
            if max_tokens == 8192:
                assert len(own.completions) == most


def test_the_tokens_that_are_scored_have_a_limit():
    sizes = []
    for max_tokens in (8192, 130, 60, 30, 1):
        own = candidates_of((0, 1, 2, 3), max_tokens=max_tokens).candidates
        beginnings = {text[:count] for text in own.completions for count in range(1, len(text))}
        assert len(beginnings) <= max(2 * max_tokens, len(tokens((0, 1, 2, 3))))
        sizes.append(len(own.completions))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 24
    assert sizes[-1] == 1


ONE_SOLVES = (((0, 1), True), ((1, 0), False))


def test_orders_that_are_too_long_to_be_sampled_do_not_count():
    """A tokenizer may need more tokens for one order than for another."""
    found = orbit_of(
        (ord("x"), END),
        ONE_SOLVES,
        moved=("a", "b"),
        encode=lambda text: [ord("x")] if text == "ab" else [ord("y")] * 9,
        max_length=5,
    )
    assert found.candidates == Candidates(prompt=(7,), orbit=((ord("x"), END),))
    assert found.is_partial


def test_orders_in_which_an_end_token_arises_do_not_count():
    """A tokenizer may merge two letters over the edge of steps into a token that ends a text."""
    found = orbit_of(
        (3, 4, END),
        ONE_SOLVES,
        moved=("a", "b"),
        encode=lambda text: [3, 4] if text == "ab" else [9, 5],
        ends=(END, 9),
    )
    assert found.candidates.completions == ((3, 4, END),)
    assert found.is_partial


def test_equal_steps_leave_nothing_out():
    both = (((0, 1), True), ((1, 0), True))
    found = orbit_of((*encode("a\na"), END), both, moved=("a", "a"), between="\n")
    assert len(found.candidates.orbit) == 1
    assert not found.is_partial


@pytest.mark.parametrize(
    ("completion", "reason"),
    [((), "cut_off"), (tokens((0, 1))[:-1], "cut_off"), ((5, END), "tokens")],
)
def test_a_text_of_unknown_tokens_stands_for_itself(completion, reason):
    judged = (((0, 1), False), ((1, 0), True))
    found = orbit_of(completion, judged, moved=STEPS[:2], between="\n")
    assert (found.missed, found.candidates.completions) == (reason, ())
