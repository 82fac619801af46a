"""The GPU benchmark on tiny models of the CPU: its JSON, and its counted FLOPs beside PyTorch's own count."""

import json
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu"
sys.path.insert(0, str(BENCHMARKS))

import gpu_costs  # noqa: E402
import gpu_update  # noqa: E402

from vcrt_train.policy.prefix_tree import order_tree  # noqa: E402
from vcrt_train.policy.scoring import tree_depth  # noqa: E402

torch.set_num_threads(1)
#: What is left out of the count: the padding of convolutions and their weights' part in the backward pass.
TOLERANCE = 0.01
TREE = order_tree(4, tree_depth(4, "pointers"))


def options(*more):
    fixed = ["--device", "cpu", "--dtype", "float32", "--rank", "8", "--prompts", "random"]
    sizes = ["--lengths", "20", "24", "--updates", "2", "--warm-up", "1", "--records", "2"]
    return gpu_update.options_from([*fixed, *sizes, *more])


@pytest.mark.slow
def test_one_command_writes_every_part(tmp_path):
    place = tmp_path / "results" / "gpu_update.json"
    peaks = ["--peak-half-tflops", "2", "--peak-single-tflops", "1", "--peak-bandwidth", "0.1"]
    parts = ["--parts", "check", "ours", "floors", "profile", "kernels", "naive"]
    place.parent.mkdir()
    place.write_text('{"earlier": {}}')
    gpu_update.run(options("--model", "tiny", "--output", str(place), *peaks, *parts))
    found = json.loads(place.read_text())
    assert sorted(found) == ["earlier", "tiny-auto"]
    found = found["tiny-auto"]
    assert not [name for name, part in found.items() if "failed" in str(part)[:12]]
    assert found["backend"] == "fork"
    assert found["check"]["difference"] < 1e-4
    assert found["shape"]["published"] == {}
    assert found["shape"]["assumed"]["hidden_size"] == 64
    assert found["parameters"]["total"] > found["parameters"]["trainable"] > 0
    assert found["prompts"]["tokens"] == [20, 24]
    lower, upper = found["ours"]["quartiles_ms"]
    assert 0 < lower <= found["ours"]["median_ms"] <= upper
    assert found["ours"]["peak_memory_bytes"] is None
    floor = found["floors"]["floor"]
    assert floor["roofline_ms"] == max(floor["memory_ms"], floor["compute_ms"]) > 0
    assert found["floors"]["share_of_roofline"] == pytest.approx(
        floor["roofline_ms"] / found["ours"]["median_ms"]
    )
    # Both epochs: the prompts, and 12 tails of 2 tokens behind each.
    assert found["floors"]["tokens_forward"] == 2 * (20 + 24 + 2 * 12 * 2)
    shares = [part["share"] for part in found["profile"]["parts"].values()]
    assert sum(shares) == pytest.approx(1)
    measured = {"forward", "backward", "optimizer: gradient norm", "optimizer: AdamW"}
    assert measured < set(found["profile"]["parts"])
    assert found["kernels"] == {"skipped": "not a GPU"}
    assert found["naive"]["times_ours"] > 0
    assert found["commit"]
    assert found["versions"]["torch"] == version("torch")
    assert found["between"] is None


@pytest.mark.slow
def test_captured_updates_are_measured_likewise(tmp_path):
    peaks = ["--peak-half-tflops", "2", "--peak-single-tflops", "1", "--peak-bandwidth", "0.1"]
    parts = ["--parts", "check", "ours", "floors", "profile"]
    place = tmp_path / "gpu_update.json"
    how = ["--model", "tiny-dense", "--backend", "captured", "--output", str(place)]
    with pytest.warns(UserWarning, match="only CUDA has graphs"):
        gpu_update.run(options(*how, *peaks, *parts))
    found = json.loads(place.read_text())["tiny-dense-captured"]
    assert not [name for name, part in found.items() if "failed" in str(part)[:12]]
    assert found["backend"] == "captured"
    # Both epochs: two prompts as long as the longer one, and 16 nodes behind each.
    assert found["floors"]["tokens_forward"] == 2 * 2 * (24 + 16)


def test_what_lies_between_the_floor_and_an_update():
    found = {
        "ours": {"median_ms": 100.0},
        "floors": {"floor": {"roofline_ms": 10.0}},
        "kernels": {"busy_ms": 30.0},
    }
    parts = gpu_update.between(found)
    assert parts["kernels_beyond_the_floor_ms"] == 20
    assert parts["python_and_launches_ms"] == 70
    assert gpu_update.between({**found, "kernels": {"failed": "no profiler"}}) is None


def test_floors_follow_from_counts_and_peaks():
    costs = gpu_costs.Costs(
        flops={"linear": 3e12},
        flops_by_precision={"half": 2e12, "single": 1e12},
        bytes={"linear": 4e12},
        tokens=1,
    )
    peak = gpu_costs.Peak(half_tflops=1000.0, single_tflops=50.0, bandwidth_tb_s=4.0)
    assert costs.floors(peak) == pytest.approx(
        {
            "memory_ms": 1000.0,
            "compute_ms": 22.0,
            "compute_if_all_half_ms": 3.0,
            "roofline_ms": 1000.0,
        }
    )


def test_a_part_that_fails_leaves_the_others(tmp_path):
    place = tmp_path / "gpu_update.json"
    results = gpu_update.Results(place, "one")
    with results.part("ours"):
        raise torch.OutOfMemoryError("no memory")
    results.put("naive", 1)
    found = json.loads(place.read_text())["one"]
    assert found == {"ours": {"failed": "OutOfMemoryError: no memory"}, "naive": 1}


@pytest.mark.parametrize(
    ("model", "backend", "more"),
    [
        ("tiny", "fork", []),
        ("tiny", "naive", []),
        ("tiny-dense", "tree", []),
        ("tiny-dense", "tree", ["--prompts-at-a-time", "1"]),
        ("tiny-dense", "tree", ["--checkpointing"]),
    ],
)
@pytest.mark.slow
def test_counted_flops_agree_with_pytorch(model, backend, more):
    chosen = options("--model", model, *more)
    device = torch.device("cpu")
    adapted = gpu_update.adapted_model(chosen, device)
    items, _ = gpu_update.prompts_for(chosen, adapted)
    ours = gpu_update.Ours(adapted, items, chosen, backend)
    # PyTorch has no formula for the CPU's fused attention, nor one for sums in place.
    in_place = {torch.ops.aten.addmm_: lambda own, a, b, **_: 2 * a[0] * a[1] * b[1]}
    counter = FlopCounterMode(display=False, custom_mapping=in_place)
    with sdpa_kernel(SDPBackend.MATH), counter:
        ours()
    costs = gpu_costs.update_costs(
        adapted,
        [item.prompt for item in items],
        TREE,
        backend=backend,
        part_size=chosen.prompts_at_a_time,
        checkpointing=chosen.checkpointing,
    )
    # Nor has it one for triangular solves.
    found = sum(n for part, n in costs.flops.items() if "triangular" not in part)
    ratio = found / counter.get_total_flops()
    # What a checkpointed layer computes again includes products that the count leaves out (1.5% of the tiny model).
    tolerance = 2 * TOLERANCE if chosen.checkpointing else TOLERANCE
    assert ratio == pytest.approx(1, abs=tolerance)
