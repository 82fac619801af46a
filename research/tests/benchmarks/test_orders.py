"""What an order is worth: the settings fit together, and the analysis tells what is shown, equal and neither."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from vcrt_train.protocol.statistics import Interval
from vcrt_train.training.methods import METHODS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "orders"
sys.path.insert(0, str(BENCHMARKS))

import orders  # noqa: E402
import orders_tables  # noqa: E402

PLAN = (BENCHMARKS / "PLAN.md").read_text()


def test_the_settings_are_the_planned_ones():
    assert {*orders.ALL} <= {*METHODS}
    assert len(orders.ALL) == len({*orders.ALL}) == 18
    for name, setting in orders.SETTINGS.items():
        assert f"`{name}`" in PLAN
        assert setting.dataset in orders.DATASETS
        assert {*setting.methods} <= {*orders.ALL}
        assert (
            setting.overrides["schedule.checkpoints"][-1] == setting.overrides["schedule.updates"]
        )
    assert len({*orders_tables.DIFFERENCES}) == 17
    assert "0.05/17" in PLAN
    assert all({*pair} <= {*orders.ALL} for pair in orders_tables.DIFFERENCES)
    # Everything that is trained takes part in a difference, but for what only replicates the paper.
    compared = {name for pair in orders_tables.DIFFERENCES for name in pair}
    assert {*orders.ALL} - compared == {"outcome-grpo", "shuffled-orbit"}


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (0.01, 0.2, "shown"),
        (-0.2, -0.01, "shown"),
        (-0.04, 0.05, "equal within five points"),
        (-0.06, 0.02, "not shown"),
        (0.0, 0.3, "not shown"),
    ],
)
def test_what_an_interval_shows(low, high, said):
    interval = Interval(estimate=(low + high) / 2, low=low, high=high, over_runs=True)
    assert orders_tables.verdict(interval) == said


def seed_of(number, rates, items=60):
    """A finished seed in which each method passes its share of the items, drawn anew for each seed."""
    draw = np.random.default_rng(number)
    runs, curves = {}, {}
    for method, rate in rates.items():
        for fold in orders.FOLDS:
            name = f"{method}/{fold}/{number}"
            passes = "".join("01"[int(x)] for x in draw.random(items) < rate)
            spread = {"items": items, "pass_at": {"1": rate, "16": 1.0}, "evenness": 0.5}
            runs[name] = {"held_out": passes, "retention": "1", "spread": spread}
            logged = ("orbit_mass", "clip_fraction", *orders_tables.VARIANCE.values())
            curves[name] = {key: [rate, rate] for key in logged}
    passes = {fold: {"held_out": "01" * (items // 2), "retention": "1"} for fold in orders.FOLDS}
    return {
        "seed": number,
        **{key: {} for key in ("root_hash", "config", "definitions", "code")},
        "sources": {fold: [str(n) for n in range(items)] for fold in orders.FOLDS},
        "scores": {
            "runs": runs,
            "checkpoints": {name: {"50": run, "100": run} for name, run in runs.items()},
            "frozen": {orders_tables.FROZEN_VIEW: passes},
        },
        "curves": curves,
    }


@pytest.fixture
def results(tmp_path):
    """All seeds of the first setting, in which the margin alone is far ahead and all others are alike."""
    rates = dict.fromkeys(orders.ALL, 0.5) | {"margin-alone": 0.9}
    place = tmp_path / "hard"
    place.mkdir()
    for number in range(10):
        text = json.dumps(seed_of(number, rates)).encode()
        (place / f"seed-{number}.json.gz").write_bytes(gzip.compress(text))
    return tmp_path


def test_the_tables_say_what_was_planned(results, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["orders_tables.py", "--results", str(results)])
    orders_tables.main()
    text = (results / "tables.md").read_text()
    assert "10 of 10 seeds, 60 items a fold; before training 50.0" in text
    assert "99.71% interval" in text
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if "` - `" in line}
    assert len(rows) == 17
    ahead = rows["`margin-alone` - `canonical-grpo`"]
    assert "| shown | 10 of 10 |" in ahead
    assert "+4" in ahead
    behind = rows["`vcrt` - `margin-alone`"]
    assert "| shown | 0 of 10 |" in behind
    assert "shown" not in rows["`orbit-grpo` - `canonical-grpo`"].replace("not shown", "")


def test_a_setting_that_is_not_whole_is_not_read(results):
    (results / "hard" / "seed-9.json.gz").unlink()
    assert orders_tables.finished(results, unfinished=False) == []
    (part,) = orders_tables.finished(results, unfinished=True)
    assert len(part.seeds) == 9
    value = json.loads(gzip.decompress((results / "hard" / "seed-0.json.gz").read_bytes()))
    other = gzip.compress(json.dumps({**value, "root_hash": "another"}).encode())
    (results / "hard" / "seed-0.json.gz").write_bytes(other)
    with pytest.raises(SystemExit, match="seeds differ in root_hash"):
        orders_tables.finished(results, unfinished=True)
