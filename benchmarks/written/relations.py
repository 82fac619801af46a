"""What a policy that writes steps as text knows of which depend on which, read from its probabilities of all orders.

    python benchmarks/written/relations.py --fold tools

For the tasks that an experiment's runs are evaluated on: a pair of steps is an edge if one stands before the other in
every order that works, all orders replayed. A policy takes it for one if it puts one before the other in three of four
orders, by the probability of their texts; ``vcrt relations`` reads policies over pointers in the same way. Read from
the adapters that ``experiment.py`` left in its build folder: after the form was taught, and after each run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from experiment import (
    DEVICE,
    FOLDS,
    METHODS,
    RANK,
    RESULTS,
    TESTS,
    Size,
    adapted,
    load,
    taught,
)
from gpu_results import commit, machine, versions
from peft import set_peft_model_state_dict
from safetensors.torch import load_file
from task_relations import pairs_of, probabilities
from transformers import AutoTokenizer

from vcrt.config import RunConfig
from vcrt.environments.registry import load_environment
from vcrt.policy.catalogue import fetched_folder
from vcrt.policy.evaluation_mode import evaluation_mode
from vcrt.policy.number_format import instructions, number_format
from vcrt.protocol.relation_predictors import by_policy, by_shared_words
from vcrt.protocol.relation_scores import (
    LabelledPair,
    Prediction,
    best_threshold,
    relation_scores,
)


def main() -> None:
    """Score whichever runs left an adapter."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fold", default="tools", choices=list(FOLDS))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--backbone", type=Path, default=fetched_folder("smollm2-135m"))
    parser.add_argument("--build", type=Path, default=Path("build/written"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    settings = {"model.backbone": str(options.backbone), "adapter.rank": RANK}
    options.dtype = number_format(RunConfig().override(settings)).dtype
    tokenizer = AutoTokenizer.from_pretrained(options.backbone)
    given = {name: load(name, options, Size()) for name in FOLDS[options.fold]}
    rows, pairs = dict[str, Any](), dict[str, list[LabelledPair]]()
    for environment, splits in given.items():
        for kind in TESTS:
            for number, row in enumerate(splits[kind]):
                key = f"{environment}/{kind}/{number}"
                rows[key] = row
                pairs[key] = pairs_of(key, row, load_environment(environment))
    every = [pair for some in pairs.values() for pair in some]
    texts = {key: [text for text, _, _ in row["task"]["steps"]] for key, row in rows.items()}
    words = by_shared_words(every, texts)
    found = {"shared words": told(every, words, best_threshold(every, words), probable=False)}
    by_method: dict[str, list[Path]] = {
        "form": [taught(options.fold, seed, given, options, Size()) for seed in options.seeds]
    }
    for method in METHODS:
        folders = [options.build / f"run-{options.fold}-{method}-{s}" for s in options.seeds]
        by_method[method] = [one for one in folders if (one / "adapter_config.json").exists()]
    for method, folders in by_method.items():
        predictions = list[Prediction]()
        for folder in folders:
            model = adapted(options, 0)
            set_peft_model_state_dict(model, load_file(folder / "adapter_model.safetensors"))
            with evaluation_mode(model):
                said = {key: probabilities(model, tokenizer, row) for key, row in rows.items()}
            predictions += by_policy(every, said)
            print(f"{folder.name}: scored", flush=True)
        if folders:
            found[method] = told([*every] * len(folders), predictions, 0.5, probable=True)
            found[method]["runs"] = len(folders)
    report = {
        "fold": options.fold,
        "predictors": found,
        "machine": machine(DEVICE) | {"instructions": instructions()},
        "dtype": options.dtype,
        "versions": versions(),
        "commit": commit(),
    }
    path = options.results / f"relations-{options.fold}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    for name, one in found.items():
        print(f"{name}: {one}")


def told(
    pairs: Sequence[LabelledPair],
    predictions: Sequence[Prediction],
    threshold: float,
    *,
    probable: bool,
) -> dict[str, Any]:
    """The scores of predictions, as JSON."""
    scores = relation_scores(pairs, predictions, threshold=threshold, probabilities=probable)
    return asdict(scores)


if __name__ == "__main__":
    main()
