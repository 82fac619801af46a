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
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
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
from transformers import AutoTokenizer

from vcrt.config import RunConfig
from vcrt.environments.contract import Environment, Episode, Operation, Provenance, ReplayRequest
from vcrt.environments.registry import load_environment
from vcrt.orders import all_orders
from vcrt.policy.catalogue import fetched_folder
from vcrt.policy.evaluation_mode import evaluation_mode
from vcrt.policy.number_format import instructions, number_format
from vcrt.policy.text_scoring import score_texts
from vcrt.protocol.relation_predictors import by_policy, by_shared_words
from vcrt.protocol.relation_scores import (
    LabelledPair,
    Prediction,
    best_threshold,
    relation_scores,
)


def pairs_of(name: str, row: Mapping[str, Any], environment: Environment) -> list[LabelledPair]:
    """Every pair of a task's steps, by a replay of every order."""
    task = row["task"]
    episode = Episode(
        environment=environment.name,
        schema=task["schema"],
        initial=task["initial"],
        operations=tuple(
            Operation(signature=signature, payload=payload)
            for _, payload, signature in task["steps"]
        ),
        provenance=Provenance(source=task["source"], generator="written task", seed=0),
    )
    orders = all_orders(episode.num_operations)
    ends = environment.replay([ReplayRequest(episode, order) for order in orders])
    works = [
        order
        for order, end in zip(orders, ends, strict=True)
        if end.terminal_hash == ends[0].terminal_hash
    ]
    found = []
    for first, second in combinations(range(episode.num_operations), 2):
        sides = {order.index(first) < order.index(second) for order in works}
        found.append(
            LabelledPair(
                episode_id=name,
                source=task["source"],
                first=first,
                second=second,
                kind="commutes" if len(sides) == 2 else "precedes",
                forward=None if len(sides) == 2 else sides.pop(),
            )
        )
    return found


@torch.no_grad()
def probabilities(model: Any, tokenizer: Any, row: Mapping[str, Any]) -> list[float]:
    """The probability of each order's text, the end token included, by column of ``all_orders``."""
    steps = [text for text, _, _ in row["task"]["steps"]]
    texts = ["\n".join(steps[place] for place in order) for order in all_orders(len(steps))]
    ids = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in texts]
    (found,) = score_texts(model, [tokenizer(row["prompt"])["input_ids"]], [ids], backend="tree")
    totals = torch.stack([one.log_probs.double().sum() for one in found])
    return torch.softmax(totals, 0).tolist()


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
