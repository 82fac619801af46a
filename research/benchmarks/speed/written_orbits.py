"""Time of one update on completions that a model wrote: ours beside TRL's GRPOTrainer, in turn, on the same ones.

    python research/benchmarks/speed/written_orbits.py --backbone FOLDER --output FILE

FOLDER is a language model; it needs TRL. Both trainers get the same completions of the same prompts (no sampling): 2
prompts, 8 completions each, of which half solve the task in one of their orders, 2 optimiser steps, LoRA of rank 64,
bfloat16. Of each update the time between the callbacks ``on_step_begin`` and ``on_step_end`` counts. ``orbits`` credits
orbits and has the margin; ``orbits, estimated`` scores at most three orders of each kind for a completion; ``orbits, no
margin`` credits orbits alone; ``singletons`` scores samples alone, by the tree.
Then what is scored, in tokens, and what a worker needs to judge and to certify a completion.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from itertools import permutations
from pathlib import Path
from statistics import median

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

sys.path.insert(0, str(Path(__file__).parents[1] / "gpu"))
sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))

from gpu_results import commit, machine, versions
from own_task import Dressing

from vcrt.replay.completion_judge import CompletionJudge
from vcrt_train.integrations.trl import OrbitGRPOConfig, OrbitGRPOTrainer
from vcrt_train.integrations.written_orbits import OrbitLimits, written_orbit
from vcrt_train.policy.prefix_tree import token_tree
from vcrt_train.policy.reference import instructions
from vcrt_train.randomness import generator

CLOTHES = [["socks", "shoes", "shirt", "jacket"], ["trousers", "belt", "hat", "scarf"]]
SAMPLES, EPOCHS = 8, 2
SETTINGS = {
    "orbits": {"orbit_alpha": 0.1},
    "orbits, estimated": {"orbit_alpha": 0.1, "orbit_max_members": 3},
    "orbits, no margin": {"orbit_alpha": 0.0},
    "singletons": {"orbit_alpha": 0.0, "orbit_max_members": 1},
}


def written(clothes):
    """Eight completions: four that work, four that do not."""
    orders = ["\n".join(order) for order in permutations(clothes)]
    with CompletionJudge(Dressing) as judge:
        judge.begin([{"clothes": clothes}] * len(orders), orders)
        good = [judgement.success for judgement in judge.finish()]
    works = [text for text, is_good in zip(orders, good, strict=True) if is_good]
    fails = [text for text, is_good in zip(orders, good, strict=True) if not is_good]
    return works[: SAMPLES // 2] + fails[: SAMPLES // 2]


class Watch(TrainerCallback):
    """Seconds of each optimiser step."""

    def __init__(self):
        self.seconds = []

    def on_step_begin(self, *_, **__):
        self.began = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.seconds.append(time.perf_counter() - self.began)


def trained(name, folder, rows, completions, tokenizer, updates):
    """Seconds of each update of one trainer."""

    def rollout(prompts, trainer):
        texts = [completions[prompt[-1]["content"]] for prompt in prompts]
        numbers = dict.fromkeys(completions, 0)
        chosen = []
        for prompt, own in zip(prompts, texts, strict=True):
            key = prompt[-1]["content"]
            chosen.append([*tokenizer(own[numbers[key]])["input_ids"], tokenizer.eos_token_id])
            numbers[key] += 1
        ids = [
            tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=False)
            for prompt in prompts
        ]
        return {"prompt_ids": ids, "completion_ids": chosen, "logprobs": None}

    def reward(completions, clothes, **_):
        return [float(i % SAMPLES < SAMPLES // 2) for i in range(len(completions))]

    common = {
        "output_dir": tempfile.mkdtemp(),
        "use_cpu": True,
        "bf16": True,
        "learning_rate": 1e-6,
        "per_device_train_batch_size": len(CLOTHES) * SAMPLES,
        "num_generations": SAMPLES,
        "num_iterations": EPOCHS,
        "max_completion_length": 32,
        "max_steps": EPOCHS * updates,
        "gradient_checkpointing": False,
        "beta": 0.0,
        "report_to": "none",
        "disable_tqdm": True,
        "logging_steps": 1000,
        "shuffle_dataset": False,
    }
    watch = Watch()
    given = {
        "train_dataset": Dataset.from_list(rows),
        "peft_config": LoraConfig(
            r=64, lora_alpha=128, target_modules="all-linear", task_type="CAUSAL_LM"
        ),
        "callbacks": [watch],
        "processing_class": tokenizer,
        "rollout_func": rollout,
    }
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    if name == "TRL":
        trainer = GRPOTrainer(model, reward, GRPOConfig(**common, loss_type="grpo"), **given)
    else:
        settings = OrbitGRPOConfig(**common, **SETTINGS[name])
        trainer = OrbitGRPOTrainer(model, args=settings, environment=Dressing, **given)
    trainer.train()
    steps = watch.seconds
    return [sum(steps[k : k + EPOCHS]) for k in range(EPOCHS, len(steps), EPOCHS)]


def scored_tokens(rows, completions, tokenizer):
    """Tokens that a forward pass sees in an update's epoch: TRL's rows, and our trees."""
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]  # noqa: E731
    end, counts = tokenizer.eos_token_id, {"TRL": 0, **dict.fromkeys(SETTINGS, 0)}
    spent = {"judging": [], "certifying": []}
    with CompletionJudge(Dressing, max_illegal=24) as judge:
        for row in rows:
            prompt = tokenizer.apply_chat_template(
                row["prompt"], add_generation_prompt=True, return_dict=False
            )
            texts = completions[row["prompt"][-1]["content"]]
            judge.begin([{"clothes": row["clothes"]}] * len(texts), texts)
            samples = [(*encode(text), end) for text in texts]
            longest = max(map(len, samples))
            counts["TRL"] += len(texts) * (len(prompt) + longest)
            every = {name: set(samples) for name in SETTINGS}
            for sample, judgement in zip(samples, judge.finish(), strict=True):
                spent["judging"].append(judgement.judging_s)
                if judgement.success:
                    spent["certifying"].append(judgement.certifying_s)
                for name, own in SETTINGS.items():
                    most = own.get("orbit_max_members", 24)
                    found = written_orbit(
                        tuple(prompt),
                        sample,
                        judgement,
                        encode=encode,
                        ends=[end],
                        limits=OrbitLimits(
                            max_length=32,
                            max_members=most,
                            max_illegal=most if own["orbit_alpha"] else 0,
                        ),
                        draw=generator(0, "windows"),
                    )
                    every[name].update(found.candidates.completions)
            for name, some in every.items():
                counts[name] += len(prompt) + token_tree(sorted(some)).num_rows - 1
    return counts, {name: median(values) for name, values in spent.items()}


def main():
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokenizer = AutoTokenizer.from_pretrained(options.backbone)
    rows = [
        {
            "prompt": [{"role": "user", "content": f"In which order? {', '.join(clothes)}"}],
            "clothes": clothes,
        }
        for clothes in CLOTHES
    ]
    completions = {row["prompt"][0]["content"]: written(row["clothes"]) for row in rows}
    names = ["TRL", *SETTINGS]
    seconds = {name: [] for name in names}
    for turn in range(options.turns):
        for name in names:
            seconds[name] += trained(name, options.backbone, rows, completions, tokenizer, 2)
            print(
                f"turn {turn + 1} of {options.turns}: {name} {seconds[name][-1]:.2f} s", flush=True
            )
    tokens, spent = scored_tokens(rows, completions, tokenizer)
    value = {
        "seconds": seconds,
        "median_seconds": {name: median(values) for name, values in seconds.items()},
        "times_faster_than_trl": {
            name: median(a / b for a, b in zip(seconds["TRL"], seconds[name], strict=True))
            for name in SETTINGS
        },
        "tokens_of_an_epoch": tokens,
        "worker_seconds_of_a_completion": spent,
        "threads": options.threads,
        "machine": machine(torch.device("cpu")) | {"instructions": instructions()},
        "versions": versions(),
        "commit": commit(),
    }
    options.output.write_text(json.dumps(value, indent=1) + "\n")
    print(json.dumps({k: value[k] for k in list(value)[1:5]}, indent=1))


if __name__ == "__main__":
    main()
