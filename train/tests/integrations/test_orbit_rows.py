"""The rows of orbits and their weights, by hand and against the orbit's own ratio."""

from __future__ import annotations

import math

import pytest
import torch

from vcrt.errors import MalformedInputError
from vcrt_train.integrations.orbit_rows import Sample, orbit_rows, row_advantages, row_weights

ORBIT = ((1, 2), (2, 1), (1, 3, 2))
SAMPLES = (
    Sample(group="a", completion=(3,)),
    Sample(group="a", completion=(2, 1), orbit=ORBIT),
    Sample(group="b", completion=(2, 1), orbit=ORBIT),
    # The same orbit, listed in another order.
    Sample(group="a", completion=(1, 2), orbit=ORBIT[::-1]),
    Sample(group="a", completion=(2, 1), orbit=ORBIT),
    Sample(group="a", completion=(3,)),
)
OLD = torch.tensor([-1.0, -2.0, -3.0, -4.0, -2.5, -3.5, -0.5, -1.0]).double()
ADVANTAGES = torch.tensor([-1.0, 0.5, 0.25, 0.5, 0.75, -1.0]).double()


def test_samples_of_a_group_share_the_rows_of_their_orbit():
    rows = orbit_rows(SAMPLES)
    assert rows.completions == ((3,), *ORBIT, *ORBIT, (3,))
    assert rows.sources == (0, 1, 1, 1, 2, 2, 2, 5)
    assert rows.drawn == (0, 3, 1, -1, -1, 2, -1, 5)
    assert rows.events == (0, 1, 1, 1, 2, 2, 2, 3)
    assert rows.event_of_sample == (0, 1, 2, 1, 1, 3)
    assert rows.num_events == 4


def test_weights_are_shares_of_the_mass():
    weights = row_weights(orbit_rows(SAMPLES), OLD)
    expected = [1.0]
    for part in (OLD[1:4], OLD[4:7]):
        masses = [math.exp(x) for x in part.tolist()]
        expected += [mass / sum(masses) for mass in masses]
    assert weights.tolist() == pytest.approx([*expected, 1.0])
    assert weights[0] == weights[7] == 1
    # However small the probabilities: long completions underflow by themselves.
    assert torch.allclose(row_weights(orbit_rows(SAMPLES), OLD - 2000), weights)


def test_terms_of_the_rows_are_those_of_the_samples():
    """Advantage times ratio, averaged: over rows as over samples whose ratio is their orbit's."""
    rows = orbit_rows(SAMPLES)
    draw = torch.Generator().manual_seed(0)
    new = OLD + torch.randn(8, generator=draw)
    values = row_advantages(rows, ADVANTAGES, row_weights(rows, OLD))
    parts = [slice(0, 1), slice(1, 4), slice(4, 7), slice(1, 4), slice(1, 4), slice(7, 8)]
    ratios = torch.stack([(new[p].logsumexp(0) - OLD[p].logsumexp(0)).exp() for p in parts])
    expected = (ratios * ADVANTAGES).mean()
    assert ((new - OLD).exp() * values).mean().item() == pytest.approx(expected.item())
    filled = row_advantages(rows, ADVANTAGES, row_weights(rows, OLD), num_rows=12)
    assert torch.allclose(filled, values * 12 / 8)


def test_samples_alone_have_their_own_advantages():
    rows = orbit_rows([Sample(group=0, completion=(1,)), Sample(group=0, completion=(1,))])
    assert rows.drawn == (0, 1)
    values = row_advantages(rows, torch.tensor([0.3, -0.3]), row_weights(rows, torch.zeros(2)))
    assert values.tolist() == torch.tensor([0.3, -0.3]).tolist()


def test_no_samples_are_no_rows():
    rows = orbit_rows([])
    assert (rows.events, rows.num_events) == ((), 0)


@pytest.mark.parametrize(
    ("orbit", "words"),
    [
        ((), "empty orbit"),
        (((1, 3), (3, 1)), "does not hold its sample"),
        (((1, 2), (1, 2)), "occurs twice"),
    ],
)
def test_an_orbit_holds_its_sample(orbit, words):
    with pytest.raises(MalformedInputError, match=words):
        Sample(group=0, completion=(1, 2), orbit=orbit)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (2, 0.5, "event 1"),
        (7, 0.9, "event 3"),
        (0, torch.nan, "no numbers"),
    ],
)
def test_weights_add_up_to_one(place, value, words):
    rows = orbit_rows(SAMPLES)
    weights = row_weights(rows, OLD)
    weights[place] = value
    with pytest.raises(MalformedInputError, match=words):
        row_advantages(rows, ADVANTAGES, weights)


def test_negative_weights_are_refused_whatever_their_sum():
    rows = orbit_rows([Sample(group=0, completion=(1,), orbit=((1,), (2,)))])
    with pytest.raises(MalformedInputError, match="row 1"):
        row_advantages(rows, torch.ones(1), torch.tensor([1.5, -0.5]))


def test_shapes_are_checked():
    rows = orbit_rows(SAMPLES)
    with pytest.raises(MalformedInputError, match=r"\(8,\): one for each row"):
        row_weights(rows, OLD[1:])
    with pytest.raises(MalformedInputError, match=r"\(6,\): one for each sample"):
        row_advantages(rows, ADVANTAGES[1:], row_weights(rows, OLD))
    with pytest.raises(MalformedInputError, match="no numbers"):
        row_weights(rows, OLD.masked_fill(torch.arange(8) == 3, -torch.inf))
