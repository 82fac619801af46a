"""What does an update cost by each method? Seconds of a few updates in turn, on a machine without other work.

    python research/benchmarks/written/cost.py

All methods go on from the model that was taught the form (``experiment.py`` makes it, fold ``until``, seed 0), on the
same tasks, turn by turn; the first update of a turn is left out. It writes
``research/benchmarks/results/written/cost.json`` and prints medians, and their ratio to GRPO's.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

from experiment import (
    DEVICE,
    RESULTS,
    Size,
    model_options,
    parsed,
    prepare,
    start,
    trainer_of,
)
from gpu_results import commit, machine, versions  # its folder is on the path by `experiment`
from until import FOLD, METHODS

from vcrt_train.policy.reference import instructions

#: What a log says of an update: seconds of it, of a worker for a sample, of waiting for a sample, tokens of a sample.
COSTS = ("step_time", "orbit/certifying_s", "orbit/waited_s", "orbit/tokens")


def turn(method: str, options: argparse.Namespace, updates: int) -> list[dict[str, float]]:
    """The costs of some updates by a method, the first left out."""
    prepare(options)
    size = Size(updates=updates + 1)
    trainer = trainer_of(start(FOLD, 0, options, size), FOLD, method, 0, options, size)
    trainer.train()
    log = [row for row in trainer.state.log_history if "loss" in row]
    return [{name: float(row.get(name, 0.0)) for name in COSTS} for row in log[1:]]


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--output", type=Path, default=RESULTS / "cost.json")
    model_options(parser, threads=2)
    options = parsed(parser)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in METHODS}
    for number in range(options.turns):
        for name in METHODS:
            print(f"turn {number + 1} of {options.turns}: {name}", flush=True)
            found[name] += turn(name, options, options.updates)
    value: dict[str, Any] = {
        "updates": found,
        "machine": machine(DEVICE) | {"instructions": instructions()},
        "threads": options.threads,
        "dtype": options.dtype,
        "versions": versions(),
        "commit": commit(),
    }
    options.output.write_text(json.dumps(value, indent=1) + "\n")
    base = median(one["step_time"] for one in found["grpo"])
    for name, some in found.items():
        cells = {cost: median(one[cost] for one in some) for cost in COSTS}
        print(
            f"{name}: {cells['step_time']:.2f} s an update ({cells['step_time'] / base:.2f} of GRPO's), "
            f"a worker {1000 * cells['orbit/certifying_s']:.0f} ms a sample, waited "
            f"{1000 * cells['orbit/waited_s']:.0f} ms, {cells['orbit/tokens']:.0f} tokens a sample"
        )


if __name__ == "__main__":
    main()
