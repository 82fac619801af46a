"""Time of one update against the number of operations, exact and estimated.

    python research/benchmarks/speed/update_cost.py --output research/benchmarks/results/update_cost.json

A small Qwen3 of random weights on the CPU, prompts of random tokens as long as a record with six directed relations,
two prompts and eight samples an update. Every cell is timed in turn in each round; medians over rounds of processor
time. The exact way is left out where a record has more legal prefixes than ``--max-rows``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from vcrt.partial_orders import PartialOrder, num_legal_prefixes
from vcrt_train.config import EstimatorConfig, OptimiserConfig, ResolvedConfig, RunConfig
from vcrt_train.policy.causal_model import Prompt
from vcrt_train.randomness import generator
from vcrt_train.training.items import EncodedItem
from vcrt_train.training.methods import method
from vcrt_train.training.update import TrainerState, new_state, update

VOCABULARY = 96
RELATIONS = 6


def a_model() -> Qwen3ForCausalLM:
    """A dense model of the embedded backbone's shape."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    return Qwen3ForCausalLM(config).eval()


def an_item(num_operations: int, number: int) -> EncodedItem:
    """A prompt of random tokens and a partial order from a few random pairs."""
    draw = generator(0, "update cost", num_operations, number)
    names = [int(name) for name in draw.permutation(num_operations)]
    every = [(a, b) for a in range(num_operations) for b in range(a + 1, num_operations)]
    chosen = draw.choice(len(every), min(RELATIONS, len(every) // 2), replace=False)
    pairs = [(names[every[k][0]], names[every[k][1]]) for k in chosen]
    order = PartialOrder.of(num_operations, pairs)
    length = 4 + num_operations + 4 * RELATIONS
    prompt = Prompt(
        token_ids=tuple(int(token) for token in draw.integers(64, VOCABULARY, length)),
        pointer_ids=tuple(range(num_operations)),
    )
    return EncodedItem(record_id=str(number), prompt=prompt, orbit=order, credit=order)


def one(state: TrainerState, items: list[EncodedItem], config: ResolvedConfig) -> float:
    """Processor seconds of one update."""
    began = time.process_time()
    update(
        state,
        items,
        torch.full((len(items),), -1.0),
        method=method("vcrt"),
        config=config,
    )
    return time.process_time() - began


def main() -> None:
    """Time all cells in turn and write the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--operations", type=int, nargs="+", default=[5, 6, 8, 10, 12, 16])
    parser.add_argument("--paths", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--max-rows", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    cells: list[dict[str, Any]] = []
    for n in options.operations:
        items = [an_item(n, number) for number in range(2)]
        rows = [num_legal_prefixes(item.orbit, n - 2, options.max_rows) for item in items]
        ways = {
            f"{k} paths": EstimatorConfig(max_legal_prefixes=0, num_paths=k) for k in options.paths
        }
        if None not in rows:
            ways["exact"] = EstimatorConfig(max_legal_prefixes=options.max_rows)
        for way, estimator in ways.items():
            given = RunConfig(estimator=estimator, optimiser=OptimiserConfig(learning_rate=1e-4))
            config = given.resolved()
            cells.append(
                {
                    "operations": n,
                    "way": way,
                    "legal_prefixes": rows,
                    "state": new_state(a_model(), config, seed=0),
                    "items": items,
                    "config": config,
                    "seconds": [],
                }
            )
    for turn in range(options.rounds + 1):
        for cell in cells:
            seconds = one(cell["state"], cell["items"], cell["config"])
            if turn:
                cell["seconds"].append(round(seconds, 4))
    kept = [
        {
            **{name: cell[name] for name in ("operations", "way", "legal_prefixes", "seconds")},
            "median_seconds": statistics.median(cell["seconds"]),
        }
        for cell in cells
    ]
    for cell in kept:
        print(json.dumps(cell), flush=True)
    result = {"torch": torch.__version__, "rounds": options.rounds, "cells": kept}
    options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
