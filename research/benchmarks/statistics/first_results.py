"""What to expect of a first training: pass rate against source items and updates, with the embedded backbone.

    python research/benchmarks/statistics/first_results.py

Certifies 100 episodes of each of the 15 default schemas (two minutes of one core, in ``--work``), and trains ``vcrt``
on so many source items, drawn at random, of the environments that are not held out. Every environment is held out in
turn, with three seeds; each run draws its own source items and its own 200 held-out items. After some of the updates:
the greedy pass rate on those, and in how many of ten draws of the pointers the record of ``docs/train.md`` is kept by
the greedy order. An interval is a t interval over the nine runs. What is finished is read, what was interrupted goes
on. Ten minutes of one core after the certification. Not covered: other methods, settings, presets and models.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from scipy.stats import t as student

import vcrt
import vcrt_train
from vcrt.storage import write_file
from vcrt_train.config import RunConfig, ScheduleConfig
from vcrt_train.protocol.decision import Policy
from vcrt_train.protocol.evaluation import encoded, greedy_passes
from vcrt_train.protocol.splits import source_split
from vcrt_train.randomness import generator
from vcrt_train.training.checkpoint import load_weights
from vcrt_train.training.methods import method
from vcrt_train.training.run import train_run
from vcrt_train.training.run_directory import checkpoint_path

ROOT = Path(__file__).parents[3]
RESULT = ROOT / "research" / "benchmarks" / "results" / "first_results.json"
PAGE = ROOT / "docs" / "train.md"
EPISODES = 100
SOURCE_ITEMS = (40, 100, 300, 900)
UPDATES = (100, 200, 400, 800)
SEEDS = (0, 1, 2)
HELD_OUT_ITEMS = 200
RECORD_DRAWS = 10
METHOD = "vcrt"


def page_record() -> dict[str, Any]:
    """The record that ``docs/train.md`` asks about."""
    (text,) = re.findall(r"^```json\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    record: dict[str, Any] = json.loads(text)
    return record


def run(dataset: vcrt.Dataset, fold: str, num_items: int, seed: int) -> dict[str, Any]:
    """One training run, scored after each of ``UPDATES``."""
    chosen, backbone, record = method(METHOD), vcrt_train.load_backbone(), page_record()
    others = [vcrt.load_items(dataset, name) for name in dataset.environments if name != fold]
    pool, held_out = source_split(others, 0.1, 0).training, vcrt.load_items(dataset, fold)
    draw = generator(seed, "first results", fold, num_items)
    source = [pool[i] for i in draw.permutation(len(pool))[:num_items]]
    asked = [held_out[i] for i in draw.permutation(len(held_out))[:HELD_OUT_ITEMS]]
    ready = encoded(backbone, asked, chosen, 0)
    began = time.process_time()
    points = []
    with tempfile.TemporaryDirectory() as folder:
        finished = train_run(
            RunConfig(schedule=ScheduleConfig(updates=UPDATES[-1], checkpoints=UPDATES)).resolved(),
            chosen,
            backbone,
            [item.supervised for item in source],
            Path(folder) / "run",
            seed=seed,
            encode_seed=0,
        )
        for update in UPDATES:
            path = checkpoint_path(finished.directory, update)
            load_weights(
                backbone.model, path, identity="", expected_digest=finished.digests[update]
            )
            passes = greedy_passes(backbone.model, asked, ready, chosen)
            policy = Policy(
                backbone=backbone,
                model=backbone.model,
                method=chosen,
                backend="auto",
                run=None,
                update=update,
                checkpoint=None,
            )
            kept = [vcrt_train.decide(policy, record, seed=n).greedy for n in range(RECORD_DRAWS)]
            points.append(
                {
                    "update": update,
                    "pass_rate": passes.count("1") / len(passes),
                    "record_kept": sum(one is not None and one.is_legal for one in kept),
                }
            )
    return {
        "fold": fold,
        "source_items": num_items,
        "seed": seed,
        "points": points,
        "cpu_seconds": round(time.process_time() - began, 1),
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95% t interval of a mean of shares, within 0 and 1."""
    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return max(0.0, fmean(values) - half), min(1.0, fmean(values) + half)


def _points(result: Mapping[str, Any], num_items: int, update: int) -> list[Mapping[str, Any]]:
    return [
        point
        for one in result["runs"]
        if one["source_items"] == num_items
        for point in one["points"]
        if point["update"] == update
    ]


def _cell(result: Mapping[str, Any], num_items: int, update: int) -> str:
    rates = [point["pass_rate"] for point in _points(result, num_items, update)]
    low, high = interval(rates)
    return f"{100 * fmean(rates):.0f} [{100 * low:.0f}, {100 * high:.0f}]"


def page_table(result: Mapping[str, Any]) -> str:
    """The table of ``docs/train.md``."""
    settings = result["settings"]
    updates = settings["updates"]
    lines = [
        "| source items | " + " | ".join(f"{n} updates" for n in updates) + " |",
        "| ---: |" + " ---: |" * len(updates),
    ]
    for num_items in settings["source_items"]:
        cells = " | ".join(_cell(result, num_items, update) for update in updates)
        lines.append(f"| {num_items} | {cells} |")
    return "\n".join(lines)


def record_kept(result: Mapping[str, Any], num_items: int, update: int) -> tuple[int, int]:
    """In how many asked draws the greedy order kept the page's record, and of how many."""
    points = _points(result, num_items, update)
    return sum(point["record_kept"] for point in points), RECORD_DRAWS * len(points)


def main() -> None:
    """Certify, train what is missing, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("build/first-results"))
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = options.work / "data"
    dataset = (
        vcrt.open_dataset(data) if data.exists() else vcrt.certify(data, episodes=EPISODES, jobs=1)
    )
    runs = []
    for num_items in SOURCE_ITEMS:
        for fold in dataset.environments:
            for seed in SEEDS:
                path = options.work / f"{num_items}-{fold}-{seed}.json"
                if not path.exists():
                    done = run(dataset, fold, num_items, seed)
                    write_file(path, json.dumps(done).encode())
                    print(json.dumps(done), flush=True)
                runs.append(json.loads(path.read_bytes()))
    result = {
        "settings": {
            "method": METHOD,
            "episodes": EPISODES,
            "root_hash": dataset.manifest.root_hash,
            "source_items": SOURCE_ITEMS,
            "updates": UPDATES,
            "seeds": SEEDS,
            "held_out_items": HELD_OUT_ITEMS,
            "record": page_record(),
            "record_draws": RECORD_DRAWS,
        },
        "torch": torch.__version__,
        "runs": runs,
    }
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
