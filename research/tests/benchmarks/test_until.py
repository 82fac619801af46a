"""The rule that ends runs of written traces, and what is read from them, on made-up runs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "written"))

import until
from ending import Rule


def made(method, seed, shares):
    draw = np.random.default_rng([seed, len(method)])
    return {
        "fold": "until",
        "method": method,
        "seed": seed,
        "size": {"prompts": 2, "samples": 8, "updates": 60},
        "log": [{"reward": share} for share in shares],
        "sources": {name: list("aabbcc") for name in ("bfcl/known", "bfcl/new")},
        "scores": {
            "after": {
                name: draw.integers(2, size=6).tolist() for name in ("bfcl/known", "bfcl/new")
            }
        },
    }


def test_a_run_ends_by_its_last_updates_alone_and_not_too_early():
    rule = Rule(least=4, last=2, share=0.75)
    assert not rule.ends([1.0, 1.0, 1.0])
    assert rule.ends([0.0, 0.0, 0.5, 1.0])
    assert not rule.ends([1.0, 1.0, 0.5, 0.9])
    assert rule.ends([0.0, 0.0, 0.0, 0.0, 0.75, 0.75])


def test_samples_are_counted_until_the_share_is_reached():
    rising = [0.1 * min(k, 8) for k in range(60)]
    # Ten updates solve 70% first where they are 3 to 12: the mean of 0.3 to 0.8, 0.8, 0.8, 0.8, 0.8.
    reached = next(
        count for count in range(10, 61) if np.mean(rising[count - 10 : count]) >= 0.7 - 1e-12
    )
    assert until.samples_until(made("grpo", 0, rising)) == (16 * reached, True)
    assert until.samples_until(made("grpo", 0, [0.6] * 60)) == (960, False)


def test_tables_pair_seeds_and_leave_out_those_that_lack_a_method():
    found = {
        method: {
            seed: made(method, seed, [0.4 + 0.1 * place + 0.01 * seed] * 45) for seed in range(5)
        }
        for place, method in enumerate(until.METHODS)
    }
    del found["orbit"][3]
    text = "\n".join(until.lines(found))
    assert "every method: 0, 1, 2, 4" in text
    assert "| orbit | 51.8 |" in text
    assert "| all-orders - orbit | +10.0 [+10.0, +10.0] |" in text
    assert "| all-orders-margin - grpo | +40.0 [+40.0, +40.0] |" in text
    assert "| grpo | 41.8 | 960 | 1.00 | 4 | 45 |" in text
    assert "none" in "\n".join(until.lines({}))


def test_the_interval_is_students():
    mean, low, high = until.t_interval([1.0, 2.0, 4.0], 0.95)
    assert (mean, low, high) == pytest.approx((7 / 3, 7 / 3 - 3.7947, 7 / 3 + 3.7947), abs=1e-3)
