"""Training on estimated orbit masses beside training on exact ones, at six operations.

    python research/benchmarks/length/estimated_training.py --output research/benchmarks/results/estimated_training.json

The embedded backbone, records of random partial orders with one to three pairs (made here, anonymous as always; no
environment), the method ``vcrt``. After every tenth update the exact mass of the legal orders and the greedy pass rate
on records that no run trains on. Equal seeds see equal records in equal order.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vcrt.partial_orders import PartialOrder
from vcrt.records.policy_view import PointerRelation, PolicyRecord, RelationType
from vcrt.records.supervision import PosetRecord
from vcrt_train.config import EstimatorConfig, OptimiserConfig, RunConfig
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.scoring import greedy_orders
from vcrt_train.randomness import generator
from vcrt_train.training.items import EncodedItem, encode_items
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.update import new_state, update

EXACT = EstimatorConfig(max_legal_prefixes=10_000)
WAYS = {
    "exact": EXACT,
    "8 paths": EstimatorConfig(max_legal_prefixes=0, num_paths=8),
    "32 paths": EstimatorConfig(max_legal_prefixes=0, num_paths=32),
}
KINDS: tuple[RelationType, ...] = ("precedes", "conflicts")


def a_record(num_operations: int, number: int) -> PosetRecord:
    """A record with one to three random pairs and what follows from them."""
    draw = generator(0, "estimated training", num_operations, number)
    names = [int(name) for name in draw.permutation(num_operations)]
    every = [(a, b) for a in range(num_operations) for b in range(a + 1, num_operations)]
    chosen = draw.choice(len(every), int(draw.integers(1, 4)), replace=False)
    pairs = [(names[every[k][0]], names[every[k][1]]) for k in chosen]
    order = PartialOrder.of(num_operations, pairs)
    pointers = tuple(sorted(int(p) for p in draw.permutation(8)[:num_operations]))
    relations = sorted(
        PointerRelation(a, b, KINDS[int(draw.integers(len(KINDS)))]) for a, b in order.pairs
    )
    record = PolicyRecord(
        record_id=f"{num_operations}/{number}", pointers=pointers, relations=tuple(relations)
    )
    return PosetRecord(record=record, order=order)


def scored(model: Any, items: Sequence[EncodedItem]) -> dict[str, float]:
    """The exact orbit mass and the greedy pass rate."""
    masses = orbit_log_masses(model, items, interface="pointers", config=EXACT, seed=0).exp()
    answers = greedy_orders(model, [item.prompt for item in items], interface="pointers")
    passed = [
        order is not None and item.is_legal(order)
        for item, order in zip(items, answers, strict=True)
    ]
    return {"orbit_mass": float(masses.mean()), "pass_rate": float(np.mean(passed))}


def run(way: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One training run with its curve."""
    chosen, backbone = method("vcrt"), load_backbone()
    n = options.operations
    records = [a_record(n, number) for number in range(options.records + options.held_back)]
    items = encode_items(records, chosen, seed=0, encode=backbone.encode)
    training, held_back = items[: options.records], items[options.records :]
    frozen = orbit_log_masses(backbone.model, training, interface="pointers", config=EXACT, seed=0)
    config = RunConfig(
        estimator=WAYS[way], optimiser=OptimiserConfig(learning_rate=options.learning_rate)
    ).resolved()
    state = new_state(backbone.model, config, seed=seed)
    order = generator(seed, "order").permutation(np.tile(np.arange(len(training)), 20))
    curve = [{"update": 0, **scored(backbone.model, held_back)}]
    errors, shares, seconds = [], [], 0.0
    for index in range(options.updates):
        pick = order[2 * index : 2 * index + 2].tolist()
        began = time.process_time()
        done = update(
            state,
            [training[i] for i in pick],
            frozen[pick],
            method=chosen,
            config=config,
        ).to_json()
        seconds += time.process_time() - began
        errors.append(done["orbit_log_mass_error"])
        shares.append(done["effective_path_share"])
        if (index + 1) % 10 == 0:
            curve.append({"update": index + 1, **scored(backbone.model, held_back)})
    return {
        "way": way,
        "seed": seed,
        "curve": curve,
        "mean_log_mass_error": float(np.mean(errors)),
        "mean_effective_path_share": float(np.mean(shares)),
        "milliseconds_an_update": 1000 * seconds / options.updates,
    }


def main() -> None:
    """Train every way with every seed and write the curves."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--operations", type=int, default=6)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--records", type=int, default=200)
    parser.add_argument("--held-back", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    options = parser.parse_args()
    every = [(way, seed) for seed in range(options.seeds) for way in WAYS]
    runs = []
    with ProcessPoolExecutor(
        options.jobs, get_context("spawn"), torch.set_num_threads, (1,)
    ) as pool:
        for done in pool.map(run, *zip(*every, strict=True), repeat(options)):
            runs.append(done)
            print(json.dumps({**done, "curve": done["curve"][-1]}), flush=True)
    settings = {n: value for n, value in vars(options).items() if n not in ("output", "jobs")}
    result = {"settings": settings, "torch": torch.__version__, "runs": runs}
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
