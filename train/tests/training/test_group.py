"""Updates whose prompts are scored in parts or shared among real processes: the same as by one process at once."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import distributed_training
from configs import resolved as config
from training_fixtures import ENCODE, answering_model, supervised_records, tiny_model
from vcrt_train.protocol.source_validation import RATE, VARIANCE
from vcrt_train.training.batch_scores import shares
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import METHODS, method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.update import new_state, trainable_parameters, update

HERE = Path(__file__).parents[3] / "tests" / "support"
#: What two ways to add up float32 numbers may differ by, relative to 1.
CLOSE = 1e-6


@given(st.integers(1, 40), st.integers(1, 9), st.none() | st.integers(1, 50))
def test_every_prompt_is_scored_once_and_every_process_does_as_much(prompts, processes, size):
    found = shares(prompts, processes, size)
    assert len(found) == processes
    assert len({tuple(map(len, parts)) for parts in found}) == 1
    rows = [row for parts in found for part in parts for row in part]
    assert rows == list(range(len(rows)))
    assert prompts <= len(rows) < prompts + processes
    assert all(1 <= len(part) <= (size or len(rows)) for parts in found for part in parts)


def trained(name, *, part, updates=2, prompts=3, model=None):
    """Weights and metrics after some updates on three prompts each."""
    chosen, model = method(name), model or tiny_model()
    items = encode_items(supervised_records(7), chosen, seed=0, encode=ENCODE)
    frozen = orbit_log_masses(model, items, interface=chosen.interface)
    state = new_state(model, config(learning_rate=1e-3), seed=0)
    metrics = []
    for index in range(updates):
        pick = [(prompts * index + offset) % len(items) for offset in range(prompts)]
        metrics.append(
            update(
                state,
                [items[i] for i in pick],
                frozen[pick],
                method=chosen,
                config=config(prompts_at_a_time=part),
            ).to_json()
        )
    return {n: p.detach().clone() for n, p in trainable_parameters(model).items()}, metrics


def assert_close(found, expected):
    weights, metrics = found
    other_weights, other_metrics = expected
    for line, other in zip(metrics, other_metrics, strict=True):
        # Shards hold no gradient of which an account could be given.
        assert {*other} - {*line} <= {*VARIANCE.values()}
        assert {*line} <= {*other}
        for name, value in line.items():
            assert value == pytest.approx(other[name], rel=1e-4, abs=1e-5), name
    assert weights.keys() == other_weights.keys()
    apart = torch.cat([(weights[n] - other_weights[n]).abs().flatten() for n in weights])
    # AdamW divides by the gradient's own size: where that is all rounding, so is a little of the step of 1e-3.
    assert apart.quantile(0.999) <= CLOSE
    assert apart.max() <= 20 * CLOSE


@pytest.mark.parametrize("name", METHODS)
def test_parts_change_nothing(name):
    model = answering_model if method(name).interface == "tokens" else tiny_model
    at_once = trained(name, part=None, model=model())
    for part in (1, 2):
        assert_close(trained(name, part=part, model=model()), at_once)
    # The comparison can fail: another part of the records gives other weights.
    other, _ = trained(name, part=1, prompts=2, model=model())
    assert any(not torch.allclose(other[n], at_once[0][n], atol=CLOSE) for n in other)


def test_parts_bound_the_graph(monkeypatch):
    from vcrt_train.training import batch_trees as module

    most = []
    original = module.score_orders

    def watched(model, prompts, **options):
        most.append((len(prompts), torch.is_grad_enabled()))
        return original(model, prompts, **options)

    monkeypatch.setattr(module, "score_orders", watched)
    trained("vcrt", part=2, updates=1)
    # Two epochs: both parts without gradient, then both with it.
    assert most == [(2, False), (1, False), (2, True), (1, True)] * 2


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_part_holds_a_prompt(wrong):
    with pytest.raises(ValueError, match=r"memory\.prompts_at_a_time is not possible"):
        config(prompts_at_a_time=wrong)


def launched(tmp_path, processes, mode, stop, name="vcrt"):
    """Train up to update ``stop``: alone in this process, two in those of a launcher with gloo."""
    if processes == 1:
        distributed_training.trained(tmp_path, mode, stop, name)
    else:
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        script = [str(HERE / "distributed_training.py"), str(tmp_path), mode, str(stop), name]
        done = subprocess.run(
            [*launcher, "--nproc-per-node", str(processes), *script],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr[-3000:]
    from safetensors.torch import load_file

    last = max((tmp_path / "run").glob("update-*"))
    metrics = json.loads((last / "metrics.json").read_text())
    return load_file(last / "weights.safetensors"), metrics


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one process comes to, by the name of the method."""
    return cache(lambda name: launched(tmp_path_factory.mktemp(name), 1, "replicas", 6, name))


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "name"), [("replicas", "vcrt"), ("shards", "contrastive")])
def test_two_processes_train_as_one(alone, tmp_path, mode, name):
    found = launched(tmp_path / "two", 2, mode, 6, name)
    assert_close(found, alone(name))
    assert [line["update"] for line in found[1] if RATE in line] == [2, 4, 6]


@pytest.mark.nightly
def test_a_run_resumes_with_another_number_of_processes(alone, tmp_path):
    launched(tmp_path / "other", 2, "shards", 2)
    launched(tmp_path / "other", 1, "replicas", 4)
    assert_close(launched(tmp_path / "other", 2, "replicas", 6), alone("vcrt"))
