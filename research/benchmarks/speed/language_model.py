"""Time of one update of a pretrained language model: ours, TRL's GRPOTrainer and naive scoring, in turn in one process.

    python research/benchmarks/speed/language_model.py --backbone FOLDER --dtype bfloat16 --output FILE

FOLDER is a locked folder of a language model. Each trains a copy of the same model with LoRA of rank 64, on the same
certified records: 2 prompts, 8 answers each, 4 tokens an answer, 2 optimiser steps. TRL generates its answers, scores
them, and takes two losses, through PEFT's own adapters; of its time only what lies between the callbacks
``on_step_begin`` and ``on_step_end`` counts. ``naive`` is our update with each of the 24 orders as a sequence of its
own. A turn is one update of each; times are medians over turns, ratios medians of turns' ratios.

The floor: the FLOPs of an update as ``research/benchmarks/gpu/gpu_costs.py`` counts them, at the rate of this machine's
matrix products, which is measured between the turns: every product of an update's two epochs with the model's own
weights, one after another, with nothing between them. Then where the time of an update goes, by kind of operation.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import quantiles

import torch
from peft.tuners.lora import Linear

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))

from gpu_costs import update_costs
from gpu_results import commit, machine, versions
from gpu_trl import trl_seconds
from update import certified_records

from vcrt_train.config import LANGUAGE_MODEL_LEARNING_RATE, RunConfig
from vcrt_train.policy.adapters import with_adapters
from vcrt_train.policy.backbone import load_backbone
from vcrt_train.policy.kernels.adapted_linear import AdaptedLinear
from vcrt_train.policy.kernels.fused_norm import own_class
from vcrt_train.policy.prefix_tree import order_tree
from vcrt_train.policy.reference import backbone_reference, instructions
from vcrt_train.policy.scoring import tree_depth
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.update import new_state, update

PROMPTS, SAMPLES, TOKENS, EPOCHS, RANK, SCALE = 2, 8, 4, 2, 64, 2.0
#: By what a profiler's name of an operation contains, the kind of it; the first that fits.
KINDS = {
    "mm": "matrix products",
    "_linear": "matrix products",
    "attention": "attention",
    "softmax": "attention",
    "adamw": "AdamW",
    "copy_": "copies and casts",
    "norm": "gradient norm",
}


class Ours:
    """Training of the method ``vcrt``, one update a call."""

    def __init__(self, model, items, backend):
        self.items, self.method = items, method("vcrt")
        given = RunConfig().override(
            {
                "adapter.rank": RANK,
                "optimiser.learning_rate": LANGUAGE_MODEL_LEARNING_RATE,
                "sampling.samples_per_prompt": SAMPLES,
                "sampling.prompts_per_update": PROMPTS,
                "schedule.epochs_per_update": EPOCHS,
                "model.scoring": backend,
            }
        )
        self.config = given.resolved()
        self.frozen = orbit_log_masses(model, items, interface="pointers", batch_size=PROMPTS)
        self.state = new_state(model, self.config, seed=0)

    def __call__(self):
        first = PROMPTS * self.state.update_index
        drawn = [index % len(self.items) for index in range(first, first + PROMPTS)]
        update(
            self.state,
            [self.items[index] for index in drawn],
            self.frozen[drawn],
            method=self.method,
            config=self.config,
        )


class Products:
    """The matrix products of one update, with the model's own weights and nothing between them."""

    def __init__(self, model, tokens):
        self.layers, self.flops = [], 0.0
        with torch.no_grad():
            for module in model.modules():
                if not hasattr(module, "lora_A"):
                    continue
                weight = module.get_base_layer().weight
                a, b = (
                    part["default"].weight.to(weight.dtype)
                    for part in (module.lora_A, module.lora_B)
                )
                x, above = (torch.randn(tokens, n).to(weight.dtype) for n in weight.shape[::-1])
                self.layers.append((weight.detach(), a, b, x, above))
                self.flops += EPOCHS * tokens * (4.0 * weight.numel() + 6 * (a.numel() + b.numel()))

    @torch.no_grad()
    def __call__(self):
        for _ in range(EPOCHS):
            for weight, a, b, x, _ in self.layers:
                x @ weight.t()
                (x @ a.t()) @ b.t()
            for weight, a, b, x, above in reversed(self.layers):
                through = above @ b
                above @ weight
                through @ a
                through.t() @ x
                above.t() @ through


def as_its_users_have_it(model):
    """Give the adapters PEFT's own forward pass, and the model its own norms and the library's usual attention."""
    for module in model.modules():
        module.__class__ = own_class(module)
        if isinstance(module, AdaptedLinear):
            module.__class__ = Linear
    model.get_base_model().set_attn_implementation("sdpa")


def timed(function):
    """Seconds of one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def turns(models, items, tokens, options):
    """Seconds of each turn, by what was run in it."""
    others = {
        "vcrt": Ours(models["vcrt"], items, "auto"),
        "naive": Ours(models["naive"], items, "naive"),
        "products": Products(models["vcrt"], tokens),
    }
    times = {name: [] for name in others}

    def take_turns():
        # None of the others is always the one that comes after TRL.
        for name in sorted(others, reverse=bool(len(times["vcrt"]) % 2)):
            times[name].append(timed(others[name]))
        print(
            f"turn {len(times['vcrt'])} of {options.turns + options.warm_up}: "
            + ", ".join(f"{name} {column[-1]:.2f} s" for name, column in times.items()),
            flush=True,
        )

    times["trl"] = trl_seconds(
        models["trl"],
        items,
        updates=options.turns,
        warm_up=options.warm_up,
        sizes=(PROMPTS, SAMPLES, EPOCHS, TOKENS),
        synchronise=lambda: None,
        on_cpu=True,
        after_update=take_turns,
    )
    return others, {name: column[-options.turns :] for name, column in times.items()}


def quartiles(values):
    """Median and quartiles."""
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return {"median": round(middle, 4), "quartiles": [round(low, 4), round(high, 4)]}


def profile(ours):
    """Milliseconds of an update by kind of operation, and by the longest operations."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        ours()
    rows = found.key_averages()
    kinds = Counter()
    for row in rows:
        named = (kind for part, kind in KINDS.items() if part in row.key)
        kinds[next(named, "elementwise and the rest")] += row.self_cpu_time_total / 1e3
    longest = sorted(rows, key=lambda row: -row.self_cpu_time_total)[:12]
    return {
        "ms_by_kind": {kind: round(spent, 1) for kind, spent in kinds.most_common()},
        "longest": {
            row.key[:80]: {"ms": round(row.self_cpu_time_total / 1e3, 1), "calls": row.count}
            for row in longest
        },
    }


def main():
    """Take turns, then count and profile, and write all of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", required=True)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    load_before = os.getloadavg()[0]
    backbone = load_backbone(backbone_reference(options.backbone, dtype=options.dtype))
    items = encode_items(certified_records(8), method("vcrt"), seed=0, encode=backbone.encode)
    models = {"vcrt": with_adapters(backbone.model, rank=RANK, scale=SCALE, seed=0)}
    models |= {name: copy.deepcopy(models["vcrt"]) for name in ("naive", "trl")}
    as_its_users_have_it(models["trl"])
    prompts = [item.prompt for item in items[:PROMPTS]]
    tree = order_tree(4, tree_depth(4, "pointers"))
    tokens = PROMPTS * (max(len(prompt.token_ids) for prompt in prompts) + tree.num_rows - 1)
    others, times = turns(models, items, tokens, options)
    costs = update_costs(models["vcrt"], prompts, tree, backend="tree", epochs=EPOCHS)
    flops, rates = (
        sum(costs.flops.values()),
        [others["products"].flops / s for s in times["products"]],
    )
    floors = [flops / rate for rate in rates]
    result = {
        "what": "one update of 2 prompts x 8 answers x 4 tokens, 2 optimiser steps, LoRA of rank 64; seconds",
        "machine": machine(torch.device("cpu")) | {"instructions": instructions()},
        "versions": versions(),
        "commit": commit(),
        "backbone": {"name": backbone.name, "digest": backbone.digest, "dtype": options.dtype},
        "threads": options.threads,
        "turns": options.turns,
        "prompt_tokens": sorted({len(item.prompt.token_ids) for item in items}),
        "seconds": {name: quartiles(column) for name, column in times.items()},
        "trl_over_vcrt": quartiles(
            [t / v for t, v in zip(times["trl"], times["vcrt"], strict=True)]
        ),
        "naive_over_vcrt": quartiles(
            [n / v for n, v in zip(times["naive"], times["vcrt"], strict=True)]
        ),
        "floor": {
            "flops": flops,
            "flops_by_part": dict(costs.flops),
            "bytes": sum(costs.bytes.values()),
            "gigaflops_a_second": quartiles([rate / 1e9 for rate in rates]),
            "seconds": quartiles(floors),
            "vcrt_over_floor": quartiles(
                [v / f for v, f in zip(times["vcrt"], floors, strict=True)]
            ),
        },
        "profile_of_a_vcrt_update": profile(others["vcrt"]),
        "load": {"before": round(load_before, 2), "after": round(os.getloadavg()[0], 2)},
    }
    print(json.dumps(result, indent=2))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
