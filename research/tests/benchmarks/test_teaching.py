"""What teaches the form of an answer says nothing of which orders work, unless it is asked to."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "written"))

from teaching import BATCH, form_batches

ROWS = [{"prompt": f"task {number}", "completion": f"a{number}\nb\nc"} for number in range(30)]


def test_every_trace_is_seen_once_an_epoch_with_its_own_steps():
    batches = form_batches(ROWS, 4, np.random.default_rng(0))
    assert [len(batch) for batch in batches] == [BATCH] * 15
    pairs = list(chain.from_iterable(batches))
    for epoch in range(4):
        own = dict(pairs[30 * epoch : 30 * (epoch + 1)])
        assert sorted(own) == sorted(row["prompt"] for row in ROWS)
        for row in ROWS:
            assert sorted(own[row["prompt"]].split("\n")) == row["completion"].split("\n")
    assert [prompt for prompt, _ in pairs[:30]] != [prompt for prompt, _ in pairs[30:60]]


def test_no_order_of_steps_is_preferred():
    batches = form_batches(ROWS, 100, np.random.default_rng(0))
    orders = Counter(
        "".join(step[0] for step in text.split("\n")) for _, text in chain.from_iterable(batches)
    )
    assert len(orders) == 6
    # 500 of 3,000 each; five standard deviations.
    assert all(abs(count - 500) < 103 for count in orders.values())


def test_orders_that_work_are_drawn_alike_and_no_other_is():
    works = [[0, 1, 2], [2, 0, 1]]
    rows = [row | {"works": works} for row in ROWS]
    batches = form_batches(rows, 100, np.random.default_rng(0), any_order=False)
    orders = Counter(
        "".join(step[0] for step in text.split("\n")) for _, text in chain.from_iterable(batches)
    )
    assert set(orders) == {"abc", "cab"}
    # 1,500 of 3,000 each; five standard deviations.
    assert abs(orders["abc"] - 1500) < 137


def test_the_same_draws_give_the_same_batches():
    one, again, other = (form_batches(ROWS, 2, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert one == again
    assert one != other
