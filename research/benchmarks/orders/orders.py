"""What is an order worth? Eighteen methods on small backbones, ten seeds, in calls that can be interrupted.

    git clone . build/frozen && cd build/frozen
    python research/benchmarks/orders/orders.py --settings hard --minutes 120
    python research/benchmarks/orders/orders_tables.py

``PLAN.md`` has the question and the analysis, written before the first run. A seed of a setting is an experiment of its
own: a plan, one run of every method on every fold, one evaluation of everything held out. What is finished lies in
``research/benchmarks/results/orders/SETTING/seed-N.json.gz``: scores of every item, curves, machine, versions, commit.
It is not made again; a seed that was interrupted goes on if its folder is still there, and begins anew elsewhere. Plans
hold the hash of the library's source: run this in a tree that nobody edits. ``--output`` of its own and an empty
``--results`` make all again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))

from gpu_results import commit, machine, versions

from vcrt.records.dataset import open_dataset, read_audit
from vcrt_train.config_files import load_config
from vcrt_train.policy.reference import instructions
from vcrt_train.protocol.experiment import (
    create_experiment,
    open_experiment,
    read_finished_run,
)
from vcrt_train.protocol.planning import frozen_plan
from vcrt_train.protocol.scores import read_scores
from vcrt_train.protocol.source_validation import VARIANCE
from vcrt_train.training.methods import PAPER_METHODS

RESULTS = Path(__file__).parents[1] / "results" / "orders"
FOLDS = ("clrs", "lean", "proofwriter")
SCHEMAS = "--schemas clrs lean proofwriter"
#: By dataset, the options of ``vcrt certify``.
DATASETS = {
    "paper": f"{SCHEMAS} --episodes 100",
    "hard": f"{SCHEMAS} --preset several --relations reduced --commutations omitted --distractors 2 --episodes 100",
    "six": f"{SCHEMAS} --preset posets6 --episodes 50",
    "eight": f"{SCHEMAS} --preset posets8 --episodes 50",
}
EXACT = ("exact-reward", "exact-log-reward", "exact-log-odds")
CLIPPED = (
    "canonical-grpo",
    "orbit-grpo",
    "both-classes",
    "vcrt",
    "no-orbit",
    "no-anti",
    "scaled-grpo",
    "step-groups",
    "uniform-orbit",
)
ALL = (
    *PAPER_METHODS,
    *("orbit-grpo", "both-classes", "margin-alone", *EXACT),
    *("orbit-commutation", "orbit-retention", "orbit-action-kl"),
    *("scaled-grpo", "step-groups", "uniform-orbit"),
)
CORE = (
    *("canonical-grpo", "orbit-grpo", "vcrt", "no-orbit"),
    *("margin-alone", "exact-reward", "exact-log-odds", "scaled-grpo"),
)
#: The parts of a curve: means over so many equal stretches of a run.
STRETCHES = 20
CURVES = ("orbit_mass", "mean_reward", "clip_fraction", "gradient_norm")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is trained: methods on a dataset, with settings beside the library's."""

    dataset: str
    methods: tuple[str, ...] = ALL
    seeds: int = 10
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def overrides(self) -> dict[str, Any]:
        """The settings of every run."""
        updates = self.settings.get("schedule.updates", 200)
        return {
            "schedule.updates": updates,
            "schedule.checkpoints": [updates // 4, updates // 2, updates],
            # At every fourth of them the variance of the gradient is accounted for.
            "schedule.validate_every": updates // 16,
            **self.settings,
        }


LONG = {"model.backbone": "embedded-long"}
WITHOUT_TOKENS = tuple(name for name in ALL if name != "outcome-grpo")
SETTINGS = {
    "hard": Setting(dataset="hard"),
    "paper": Setting(dataset="paper"),
    "hard-one-epoch": Setting(
        dataset="hard",
        methods=(*CLIPPED, "margin-alone", *EXACT),
        settings={"schedule.updates": 400, "schedule.epochs_per_update": 1},
    ),
    "hard-unclipped": Setting(dataset="hard", methods=CLIPPED, settings={"objective.clip": 0.0}),
    "six": Setting(dataset="six", methods=WITHOUT_TOKENS, settings=LONG),
    "eight": Setting(dataset="eight", methods=WITHOUT_TOKENS, settings=LONG),
    "hard-slow": Setting(
        dataset="hard", methods=CORE, seeds=5, settings={"optimiser.learning_rate": 3e-4}
    ),
    "hard-fast": Setting(
        dataset="hard", methods=CORE, seeds=5, settings={"optimiser.learning_rate": 3e-3}
    ),
}


def called(arguments: str, seconds: float) -> bool:
    """Run a command of vcrt; return whether it ended in time, else it is interrupted."""
    print(f"{time.strftime('%H:%M:%S')} vcrt {arguments}", flush=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "vcrt", *arguments.split()], stdout=subprocess.DEVNULL
    )
    try:
        status = process.wait(timeout=max(seconds, 0.1))
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.send_signal(signal.SIGINT)
        process.wait()
        return False
    if status:
        raise SystemExit(status)
    return True


def missing(name: str, seed: int, output: Path, jobs: str) -> Iterable[str]:
    """The commands that a seed of a setting still needs, each asked for when those before it are done."""
    setting = SETTINGS[name]
    dataset, experiment = output / "data" / setting.dataset, output / name / f"seed-{seed}"
    if not (dataset / "manifest.json").exists():
        yield f"certify {DATASETS[setting.dataset]} --output {dataset}"
    if not (dataset / "agreement.json").exists():
        yield f"verify {dataset}"
    if not experiment.exists():
        whole = frozen_plan(
            dataset,
            methods=setting.methods,
            held_out=FOLDS,
            runs=setting.seeds,
            config=load_config(overrides=setting.overrides),
            seed=0,
        )
        orders = {f"{fold}/{seed}": whole.episode_order_hashes[f"{fold}/{seed}"] for fold in FOLDS}
        only = whole.model_copy(update={"seeds": (seed,), "episode_order_hashes": orders})
        create_experiment(only, experiment)
    if not (experiment / "scores.json").exists():
        yield f"train {experiment}{jobs}"
        yield f"evaluate {experiment}{jobs}"


def curve_of(log: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """The means of some logged values over stretches of a run, and the shares of the variance at its validations."""
    lines = list(log)
    size = math.ceil(len(lines) / STRETCHES)
    parts = [lines[start : start + size] for start in range(0, len(lines), size)]
    found = {
        name: [round(sum(line[name] for line in part) / len(part), 5) for part in parts]
        for name in CURVES
    }
    for name in VARIANCE.values():
        found[name] = [round(line[name], 5) for line in lines if name in line]
    return found


def keep(name: str, seed: int, output: Path, results: Path, seconds: float) -> None:
    """Keep what a finished seed has shown."""
    experiment = open_experiment(output / name / f"seed-{seed}")
    plan = experiment.plan
    dataset = open_dataset(output / "data" / SETTINGS[name].dataset)
    value = {
        "setting": name,
        "seed": seed,
        "plan_hash": plan.plan_hash,
        "root_hash": plan.root_hash,
        "config": plan.config.to_json(),
        "definitions": plan.definitions,
        "code": plan.code,
        "commit": commit(),
        "machine": machine(torch.device("cpu")) | {"instructions": instructions()},
        "versions": versions(),
        "seconds_of_the_last_call": round(seconds),
        "sources": {fold: [row["source"] for row in read_audit(dataset, fold)] for fold in FOLDS},
        "scores": read_scores(experiment).model_dump(mode="json"),
        "curves": {
            run.name: curve_of(read_finished_run(experiment, run).metrics) for run in plan.runs
        },
    }
    place = results / name / f"seed-{seed}.json.gz"
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_suffix(".partial")
    partial.write_bytes(gzip.compress(json.dumps(value).encode(), mtime=0))
    partial.rename(place)


def main() -> None:
    """Go on with each setting, seed by seed, until all are finished or time is up."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("build/orders"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--jobs", type=int, help="runs beside each other; as many as cores")
    parser.add_argument("--minutes", type=float, default=1e6, help="interrupt after so many")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    ends = time.monotonic() + 60 * options.minutes
    jobs = "" if options.jobs is None else f" --jobs {options.jobs}"
    try:
        for name in options.settings:
            for seed in range(SETTINGS[name].seeds):
                if (options.results / name / f"seed-{seed}.json.gz").exists():
                    continue
                began = time.monotonic()
                for command in missing(name, seed, options.output, jobs):
                    if not called(command, ends - time.monotonic()):
                        raise KeyboardInterrupt
                keep(name, seed, options.output, options.results, time.monotonic() - began)
    except KeyboardInterrupt:
        print("interrupted: give the same call again")
        raise SystemExit(130) from None
    print("all done")


if __name__ == "__main__":
    main()
