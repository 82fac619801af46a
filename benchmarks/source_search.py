"""Choose hyper-parameters on source items only, with the same effort for every method.

    vcrt certify --output runs/search-data --seed 1 --episodes 40 && vcrt verify runs/search-data
    python benchmarks/source_search.py runs/search-data runs/search benchmarks/results/source_search.json

Half of each fold's source items are trained on and the other half are scored; the held-out environment of a fold is
never opened. The dataset must be another one than that of the experiment. Each candidate is one experiment.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
from pathlib import Path
from statistics import mean

import torch
import transformers

import vcrt
from vcrt.objective.total import ObjectiveConfig
from vcrt.policy.backbone import load_backbone
from vcrt.protocol.evaluation import score_items
from vcrt.protocol.experiment import (
    create_experiment,
    load_sources,
    open_experiment,
    planned_backbone,
    planned_dataset,
    read_finished_run,
    train,
)
from vcrt.protocol.plan import make_plan
from vcrt.records.dataset import open_dataset, require_agreement
from vcrt.training.checkpoint import load_checkpoint
from vcrt.training.methods import METHODS, method
from vcrt.training.run import RunConfig
from vcrt.training.update import new_state

LEARNING_RATES = (1e-4, 3e-4, 1e-3, 3e-3)
ALPHAS = (0.1,)


def candidates(names):
    """Each method with each learning rate; the weight of the margin only where the method has one."""
    for name, rate in itertools.product(names, LEARNING_RATES):
        for alpha in ALPHAS if METHODS[name].margin else ALPHAS[:1]:
            yield name, rate, alpha


def source_pass_rates(experiment):
    """The share of greedy passes on the scored source items, by held-out environment."""
    torch.set_num_threads(1)
    plan = experiment.plan
    dataset = planned_dataset(plan)
    rates = {}
    for run in plan.runs:
        backbone = planned_backbone(plan)
        config = plan.run_config
        state = new_state(backbone.model, seed=run.seed, learning_rate=config.learning_rate)
        finished = read_finished_run(experiment, run)
        load_checkpoint(state, finished.checkpoint, identity=plan.identity(run))
        items = load_sources(plan, dataset, run.held_out).retention
        passes = score_items(backbone, items, method(run.method), plan.seed)
        rates.setdefault(run.held_out, []).append(passes.count("1") / len(passes))
    return {fold: mean(values) for fold, values in rates.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", type=Path)
    parser.add_argument("experiments", type=Path, help="folder for one experiment a candidate")
    parser.add_argument("result", type=Path)
    parser.add_argument("--methods", nargs="+", default=["canonical-grpo", "vcrt"])
    parser.add_argument("--updates", type=int, default=400)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    dataset = open_dataset(options.dataset)
    require_agreement(dataset)
    digest = load_backbone("embedded").digest
    rows = []
    for name, rate, alpha in candidates(options.methods):
        path = options.experiments / f"{name}-{rate:g}-{alpha:g}"
        if not path.exists():
            plan = make_plan(
                dataset,
                backbone="embedded",
                backbone_digest=digest,
                methods=(name,),
                seeds=tuple(range(options.runs)),
                retention_share=0.5,
                run=RunConfig(
                    num_updates=options.updates,
                    learning_rate=rate,
                    objective=ObjectiveConfig(alpha=alpha),
                ),
            )
            create_experiment(plan, path)
        experiment = open_experiment(path)
        train(experiment, jobs=options.jobs, resume=True)
        rates = source_pass_rates(experiment)
        rows.append(
            {
                "method": name,
                "learning_rate": rate,
                "alpha": alpha if METHODS[name].margin else None,
                "source_pass_rate": rates,
                "mean": mean(rates.values()),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    result = {
        "dataset_root_hash": dataset.manifest.root_hash,
        "backbone_digest": digest,
        "updates": options.updates,
        "runs": options.runs,
        "versions": {
            "vcrt": vcrt.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "machine": f"{platform.machine()}, {options.jobs} worker processes",
        "candidates": rows,
    }
    options.result.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
