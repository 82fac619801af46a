"""Time of one update: VCRT, GRPO through the pointer interface and TRL's GRPOTrainer, in turn in one process.

    make bench-update
    python research/benchmarks/speed/update.py --turns 40 --output research/benchmarks/results/update.json

All three train a model of their own with the embedded backbone's weights on the same prompts: 2 prompts, 8 samples
each, 4 tokens a sample, 2 optimiser steps, one thread. TRL does what it needs (generation, old log-probabilities, two
losses). A turn is a few updates in a row, as in training, where each finds the caches as its like left them; a time is
that of a turn divided by its updates. Of TRL's time only what lies between the callbacks ``on_step_begin`` and
``on_step_end`` counts. Then scoring by tree, forward and backward, beside two other ways: ``sequences``
scores each of the 24 orders as a sequence of its own, all prompts in one batch, as one would without a tree; ``naive``
is the library's oracle, which already leaves out sequences that differ in forced choices only. Then where the time of
an update goes, and a whole run of 400 updates.

Everything is measured twice, as wall-clock time and as CPU time of this process: other work on the machine stretches
the first much more than the second. Ratios are medians over turns, so that both sides of each had the same neighbours.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import tempfile
import time
import warnings
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import quantiles
from unittest.mock import patch

import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerFast, Qwen3Config, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import vcrt
import vcrt_train.training.run
import vcrt_train.training.update
from vcrt.datasets.freezing import make_dataset
from vcrt.orders import all_orders
from vcrt.records.dataset import load_items
from vcrt.replay.config import sampled, select_schemas
from vcrt_train.config import EMBEDDED_LEARNING_RATE, RunConfig, SamplingConfig, ScheduleConfig
from vcrt_train.policy.backbone import blank_model, load_backbone
from vcrt_train.policy.scoring import score_orders
from vcrt_train.policy.tokenizer import PADDING, encode_record
from vcrt_train.training.batch_scores import BatchScores
from vcrt_train.training.items import encode_items
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.run import train_run
from vcrt_train.training.update import new_state, update

PROMPTS, SAMPLES, TOKENS, EPOCHS = 2, 8, 4, 2
LIBRARIES = ("torch", "transformers", "trl", "accelerate")


def certified_records(per_environment):
    """Supervised records of CLRS and ProofWriter, alternating."""
    schemas = select_schemas(("clrs", "proofwriter"))
    counts = {name: -(-per_environment // len(some)) for name, some in schemas.items()}
    with tempfile.TemporaryDirectory() as folder:
        dataset = make_dataset(sampled(schemas, counts, seed=0), Path(folder) / "dataset", jobs=1)
        by_environment = [load_items(dataset, name) for name in schemas]
    return [item.supervised for pair in zip(*by_environment, strict=False) for item in pair]


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def now():
    return [clock() for clock in CLOCKS.values()]


def since(began):
    return [clock() - start for clock, start in zip(CLOCKS.values(), began, strict=True)]


def timed(function):
    began = now()
    function()
    return since(began)


def summary(times):
    """Milliseconds by each clock: median and quartiles of the turns."""
    row = {}
    for name, column in zip(CLOCKS, zip(*times, strict=True), strict=True):
        quartiles = [round(1e3 * value, 3) for value in quantiles(column, n=4)]
        row[f"{name}_ms"], row[f"{name}_ms_quartiles"] = quartiles[1], quartiles[::2]
    return row


def ratios(slow, fast):
    """How many times longer ``slow`` took, turn by turn: median and quartiles."""
    row = {}
    for index, name in enumerate(CLOCKS):
        quartiles = quantiles([s[index] / f[index] for s, f in zip(slow, fast, strict=True)], n=4)
        quartiles = [round(value, 2) for value in quartiles]
        row[name], row[f"{name}_quartiles"] = quartiles[1], quartiles[::2]
    return row


class Ours:
    """Training of one of the methods, one update a call."""

    def __init__(self, name, records):
        backbone = load_backbone()
        self.method = method(name)
        self.items = encode_items(
            records, self.method, seed=0, encode=partial(encode_record, backbone.tokenizer)
        )
        self.frozen = orbit_log_masses(backbone.model, self.items, interface=self.method.interface)
        self.config = RunConfig(
            sampling=SamplingConfig(samples_per_prompt=SAMPLES),
            schedule=ScheduleConfig(epochs_per_update=EPOCHS),
        ).resolved()
        self.state = new_state(backbone.model, self.config, seed=0)

    def __call__(self):
        first = PROMPTS * self.state.update_index
        drawn = [index % len(self.items) for index in range(first, first + PROMPTS)]
        return update(
            self.state,
            [self.items[index] for index in drawn],
            self.frozen[drawn],
            method=self.method,
            config=self.config,
        )


class Turns(TrainerCallback):
    """Times the turns of TRL, and after each gives the others theirs."""

    def __init__(self, others, block, warm_up):
        self.others, self.block, self.warm_up = others, block, warm_up
        self.times = {"trl": [], **{name: [] for name in others}}
        self.began, self.steps = None, []

    def on_step_begin(self, args, state, control, **kwargs):
        self.began = now()

    def on_step_end(self, args, state, control, **kwargs):
        self.steps.append(since(self.began))
        if len(self.steps) < EPOCHS * self.block:
            return
        turn = {"trl": [sum(column) / self.block for column in zip(*self.steps, strict=True)]}
        self.steps = []
        index = state.global_step // (EPOCHS * self.block)
        # Neither of the others is always the one that comes after TRL.
        for name in sorted(self.others, reverse=bool(index % 2)):
            began = now()
            for _ in range(self.block):
                self.others[name]()
            turn[name] = [spent / self.block for spent in since(began)]
        if index > self.warm_up:
            for name, spent in turn.items():
                self.times[name].append(spent)


def beside_trl(records, num_turns, block, warm_up, *, compiled=False):
    """The times of all three, turn by turn, and the mean length of TRL's answers."""
    backbone = load_backbone()
    encoded = Ours("canonical-grpo", records).items
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backbone.tokenizer.backend_tokenizer,
        pad_token=PADDING,
        # TRL wants an end of sequence; this is the one word that no answer needs.
        eos_token=PADDING,
        padding_side="left",
    )
    words = {index: word for word, index in tokenizer.get_vocab().items()}
    rows = [
        {"prompt": " ".join(words[t] for t in item.prompt.token_ids), "item": index}
        for index, item in enumerate(encoded)
    ]
    for row, item in zip(rows, encoded, strict=True):
        assert tokenizer(row["prompt"])["input_ids"] == list(item.prompt.token_ids)
    legal = [
        {
            tuple(item.prompt.pointer_ids[slot] for slot in order)
            for order, flag in zip(
                all_orders(item.prompt.num_operations), item.orbit.members, strict=True
            )
            if flag
        }
        for item in encoded
    ]
    lengths = []

    def reward(completion_ids, item, **kwargs):
        lengths.extend(map(len, completion_ids))
        return [
            float(tuple(ids) in legal[index])
            for ids, index in zip(completion_ids, item, strict=True)
        ]

    others = {"vcrt": Ours("vcrt", records), "grpo": Ours("canonical-grpo", records)}
    if compiled:
        others["vcrt_compiled"] = Ours("vcrt", records)
        others["vcrt_compiled"].state.model.compile()
    turns = Turns(others, block, warm_up)
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=backbone.model,
            reward_funcs=reward,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
            callbacks=[turns],
            args=GRPOConfig(
                output_dir=folder,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                per_device_train_batch_size=PROMPTS * SAMPLES,
                num_generations=SAMPLES,
                num_iterations=EPOCHS,
                max_completion_length=TOKENS,
                max_steps=EPOCHS * block * (num_turns + warm_up),
                shuffle_dataset=False,
                learning_rate=EMBEDDED_LEARNING_RATE,
                lr_scheduler_type="constant",
                weight_decay=0.0,
                max_grad_norm=1.0,
                beta=0.0,
                epsilon=0.2,
                loss_type="grpo",
                scale_rewards="none",
                logging_strategy="no",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
            ),
        )
        trainer.train()
    return turns.times, sum(lengths) / len(lengths)


def larger_model():
    """A random Qwen3 with the embedded vocabulary: 4 layers, width 256."""
    config = Qwen3Config(
        vocab_size=len(load_backbone().tokenizer),
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    return blank_model(config).eval()


def by_sequences(model, prompts, interface):
    """``[B, n!]``: the log-probability of every order as a sequence of its own, for prompts of one length."""
    (num_operations,) = {prompt.num_operations for prompt in prompts}
    orders = torch.tensor(all_orders(num_operations))
    pointers = torch.tensor([prompt.pointer_ids for prompt in prompts])
    answers = pointers[:, orders]
    contexts = torch.tensor([prompt.token_ids for prompt in prompts])[:, None]
    contexts = contexts.expand(-1, len(orders), -1)
    logits = model(
        input_ids=torch.cat([contexts, answers[..., :-1]], dim=-1).flatten(0, 1),
        use_cache=False,
        logits_to_keep=num_operations,
    ).logits.unflatten(0, answers.shape[:2])
    if interface == "pointers":
        logits = logits.gather(-1, pointers[:, None, None].expand(*logits.shape[:3], -1))
        used = torch.nn.functional.one_hot(orders, num_operations).cumsum(1).bool()
        used = torch.nn.functional.pad(used[:, :-1], (0, 0, 1, 0), value=False)
        logits, answers = logits.masked_fill(used, -torch.inf), orders.expand(len(prompts), -1, -1)
    return logits.log_softmax(-1).gather(-1, answers[..., None]).sum((-2, -1))


def scored(way, model, prompts, interface):
    if way == "sequences":
        return by_sequences(model, prompts, interface)
    return score_orders(model, prompts, interface=interface, backend=way).order_log_probs


WAYS = ("tree", "naive", "sequences")


def tree_beside_naive(prompts, turns):
    """Forward and backward of all ways to score all orders, by model, interface and number of prompts."""
    rows = []
    models = {"embedded (3 layers, width 64)": load_backbone().model}
    models["random Qwen3 (4 layers, width 256)"] = larger_model()
    for model_name, model in models.items():
        for interface in ("pointers", "tokens"):
            for num_prompts in (PROMPTS, 8 * PROMPTS):

                def once(way, count=num_prompts, model=model, interface=interface):
                    model.zero_grad()
                    scores = scored(way, model, prompts[:count], interface)
                    scores[:, ::2].logsumexp(-1).sum().backward()
                    return scores.detach()

                first, *others = [once(way) for way in WAYS]
                assert all(torch.allclose(first, other, atol=1e-4) for other in others)
                times = {way: [] for way in WAYS}
                for _ in range(turns if num_prompts == PROMPTS else max(2, turns // 8)):
                    for way, column in times.items():
                        column.append(timed(partial(once, way)))
                rows.append(
                    {
                        "model": model_name,
                        "interface": interface,
                        "prompts": num_prompts,
                        **{name: summary(column) for name, column in times.items()},
                        **{
                            f"{way}_over_tree": ratios(times[way], times["tree"])
                            for way in WAYS[1:]
                        },
                    }
                )
    return rows


class Stopwatch:
    """CPU milliseconds spent in the calls that it wraps, by label."""

    def __init__(self):
        self.spent = {}

    def around(self, label, function):
        def call(*args, **kwargs):
            began = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[label] = self.spent.get(label, 0.0) + time.process_time() - began

        return call


def profile(ours, num_updates):
    """CPU milliseconds and share of each part of an update, means over ``num_updates``."""
    watch, module = Stopwatch(), vcrt_train.training.update
    state = ours.state
    parts = [
        (state.model, "forward", "model forward"),
        (module, "score_batch", "scoring, the model's forward included"),
        (module, "objective", "objective"),
        (torch.Tensor, "backward", "backward of the objective"),
        (BatchScores, "pull_back", "backward of the model"),
        (module, "get_total_norm", "gradient norm"),
        (state.optimizer, "step", "AdamW"),
    ]
    with ExitStack() as stack:
        for owner, name, label in parts:
            wrapped = watch.around(label, getattr(owner, name))
            stack.enter_context(patch.object(owner, name, wrapped))
        total = watch.around("total", ours)
        for _ in range(num_updates):
            total()
    spent = watch.spent
    spent["scoring beside the model"] = spent.pop(parts[1][2]) - spent["model forward"]
    everything = spent.pop("total")
    spent["sampling, freezing, metrics, dual step"] = everything - sum(spent.values())
    rows = {
        label: {"ms": round(1e3 * value / num_updates, 3), "share": round(value / everything, 3)}
        for label, value in sorted(spent.items(), key=lambda pair: -pair[1])
    }
    return {"total_ms": round(1e3 * everything / num_updates, 3), "parts": rows}


def whole_run(records):
    """A run of the default length: how much of it is updates."""
    watch, config = Stopwatch(), RunConfig().resolved()
    updates = watch.around("updates", vcrt_train.training.run.update)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(vcrt_train.training.run, "update", updates),
    ):
        backbone = load_backbone()
        wall, cpu = timed(
            lambda: train_run(
                config,
                method("vcrt"),
                backbone,
                records,
                Path(folder) / "run",
                seed=0,
                encode_seed=0,
            )
        )
    return {
        "updates": config.schedule.updates,
        "wall_s": round(wall, 2),
        "cpu_s": round(cpu, 2),
        "share_of_updates": round(watch.spent["updates"] / cpu, 3),
    }


def commit():
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=40, help="of all three")
    parser.add_argument("--block", type=int, default=5, help="updates in a turn")
    parser.add_argument("--warm-up", type=int, default=4, help="turns that do not count")
    parser.add_argument("--scoring-turns", type=int, default=24)
    parser.add_argument(
        "--compiled",
        action="store_true",
        help="VCRT with torch.compile as well; needs a C++ compiler",
    )
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", category=FutureWarning)
    load_before = os.getloadavg()[0]
    records = certified_records(24)
    gc.collect()
    gc.freeze()
    times, answer_length = beside_trl(
        records, options.turns, options.block, options.warm_up, compiled=options.compiled
    )
    ours = Ours("vcrt", records)
    for _ in range(options.block * options.warm_up):
        ours()
    result = {
        "what": "one update of 2 prompts x 8 samples x 4 tokens, 2 optimiser steps, embedded backbone; "
        "medians over turns, in one process on one thread",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "versions": {"vcrt": vcrt.__version__, **{name: version(name) for name in LIBRARIES}},
        "commit": commit(),
        "turns": options.turns,
        "updates_in_a_turn": options.block,
        "prompt_tokens": sorted({len(item.prompt.token_ids) for item in ours.items}),
        "trl_answer_tokens": answer_length,
        "update": {name: summary(column) for name, column in times.items()},
        **{
            f"trl_over_{name}": ratios(times["trl"], times[name]) for name in times if name != "trl"
        },
        "cpu_profile_of_a_vcrt_update": profile(ours, options.block * options.turns),
        "scoring_forward_and_backward": tree_beside_naive(
            [item.prompt for item in ours.items], options.scoring_turns
        ),
        "whole_run": whole_run(records),
        "load": {"before": round(load_before, 2), "after": round(os.getloadavg()[0], 2)},
    }
    print(json.dumps(result, indent=2))
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
