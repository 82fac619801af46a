"""One VCRT update of the paper's two language models on a GPU: time, memory, and how far both are from the floor.

    make bench-gpu
    python research/benchmarks/gpu/gpu_update.py --model qwen3.5-2b --updates 12 --output gpu_update.json

The models have the shapes of ``gpu_shapes.py`` and random weights in bfloat16, with the paper's LoRA (rank 64), 2
prompts x 8 samples x 2 optimiser steps an update. Weights decide nothing here: every update does the same work. Parts,
in this order, each written to the JSON as soon as it is done, so that a time limit loses nothing:

- ``check``: the backend beside the naive one on this model, as before any training.
- ``ours``: update after update, from synchronised device to synchronised device, after a warm-up; median and quartiles,
  peak memory.
- ``floors``: bytes and FLOPs counted (``gpu_costs.py`` says how), the time that the device's peaks allow, our share of
  it, and tokens through the model forward a second.
- ``profile``: where an update's time goes, with the device synchronised around each part; it is a little slower so.
  With prompts in parts or checkpoints, ``backward`` includes scoring again.
- ``kernels`` (GPU alone): how long the device is busy and how many kernels it runs in an update. ``between`` then says
  what lies between the floor and us: what an update takes beyond the busy time is Python and launches, what the busy
  time takes beyond the floor is kernels.
- ``naive``: the same update with every order as a sequence of its own.
- ``trl``: TRL's GRPOTrainer on the same model and prompts (2 prompts x 8 samples x 4 tokens, 2 steps), if it is there.

``--device meta --peaks H200`` counts and gives the floors of that device without having one.

On a lent GPU, where a command has a time limit and the machine is bare: bring or install torch and
``pip install -e '.[bench]'``, run one model a command, and choose with ``--parts`` what fits; a later command adds its
model to the same file. Certified records need dm-clrs and half a minute; without it, and with
``--prompts random``, prompts are random tokens, about as many as a record of four steps has (an estimate).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from gpu_costs import PEAKS, Peak, update_costs
from gpu_prompts import certified_items, random_items
from gpu_results import Results, commit, machine, versions
from gpu_shapes import SHAPES, parameter_counts, random_model
from gpu_timing import Stopwatch, measured, peak_memory, summary, synchronise

import vcrt_train.training.batch_scores
import vcrt_train.training.update
from vcrt.errors import VcrtError
from vcrt_train.config_files import load_config, settings_names
from vcrt_train.policy.adapters import with_adapters
from vcrt_train.policy.backends import choose_backend
from vcrt_train.policy.causal_model import unwrapped
from vcrt_train.policy.prefix_tree import order_tree
from vcrt_train.policy.scoring import tree_depth
from vcrt_train.policy.self_check import self_check
from vcrt_train.training.methods import method
from vcrt_train.training.orbit_masses import orbit_log_masses
from vcrt_train.training.update import new_state, update

PROMPTS, SAMPLES, EPOCHS, TOKENS = 2, 8, 2, 4
#: The settings of models that have no preset.
SETTINGS = "qwen3.5-2b"
PARTS = ("check", "ours", "floors", "profile", "kernels", "naive", "trl")
#: What an update should take on one H200 at most, in milliseconds.
GOAL_MS = 500.0


class Ours:
    """Training with VCRT, one update a call."""

    def __init__(self, model: Any, items: list[Any], options: Any, backend: str) -> None:
        self.method, self.items = method("vcrt"), items
        self.frozen = orbit_log_masses(
            model, items, interface="pointers", backend=backend, batch_size=PROMPTS
        )
        self.config = load_config(
            settings=SETTINGS,
            overrides={
                "sampling.samples_per_prompt": SAMPLES,
                "schedule.epochs_per_update": EPOCHS,
                "model.scoring": backend,
                "memory.prompts_at_a_time": options.prompts_at_a_time,
            },
        ).resolved()
        self.state = new_state(model, self.config, seed=0)

    def drawn(self, number: int) -> list[int]:
        """The items of an update."""
        first = PROMPTS * number
        return [index % len(self.items) for index in range(first, first + PROMPTS)]

    def __call__(self) -> None:
        rows = self.drawn(self.state.update_index)
        update(
            self.state,
            [self.items[row] for row in rows],
            self.frozen[rows],
            method=self.method,
            config=self.config,
        )


def profile(ours: Ours, options: Any, device: torch.device) -> dict[str, Any]:
    """Milliseconds and share of each part of an update, means."""
    watch, module = Stopwatch(device), vcrt_train.training.update
    scores = vcrt_train.training.batch_scores.BatchScores
    parts = [
        (module, "score_batch", "forward"),
        (module, "objective", "objective"),
        (scores, "pull_back", "backward"),
        (module, "get_total_norm", "optimizer: gradient norm"),
        (ours.state.optimizer, "step", "optimizer: AdamW"),
    ]
    with ExitStack() as stack:
        for owner, name, label in parts:
            function = getattr(owner, name)
            stack.enter_context(patch.object(owner, name, wrapped(watch, label, function)))
        total = watch.around("total", ours)
        for _ in range(options.updates):
            total()
    everything = watch.spent.pop("total")
    watch.spent["rest: sampling, freezing, the objective's gradient, metrics"] = everything - sum(
        watch.spent.values()
    )
    return {
        "total_ms": 1e3 * everything / options.updates,
        "parts": {
            label: {"ms": 1e3 * spent / options.updates, "share": spent / everything}
            for label, spent in sorted(watch.spent.items(), key=lambda pair: -pair[1])
        },
    }


def wrapped(watch: Stopwatch, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function, so that it also works as a method."""
    timed = watch.around(label, function)
    return lambda *args, **kwargs: timed(*args, **kwargs)


def kernels(ours: Ours, device: torch.device) -> dict[str, Any]:
    """How busy the device is in one update, and with what."""
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as record:
        ours()
        synchronise(device)
    rows = [
        event
        for event in record.key_averages()
        if event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation
    ]
    rows.sort(key=lambda event: -event.self_device_time_total)
    return {
        "busy_ms": sum(event.self_device_time_total for event in rows) / 1e3,
        "launches": sum(event.count for event in rows),
        "longest": [
            {
                "name": event.key[:120],
                "ms": event.self_device_time_total / 1e3,
                "count": event.count,
            }
            for event in rows[:20]
        ],
    }


def floors(
    model: Any,
    prompts: list[Any],
    backend: str,
    median_ms: float | None,
    options: Any,
    device: torch.device,
) -> dict[str, Any]:
    """What an update costs by count, what the device's peaks allow, and which share of that ``median_ms`` reaches."""
    count = prompts[0].num_operations
    costs = update_costs(
        model,
        prompts,
        order_tree(count, tree_depth(count, "pointers")),
        backend=backend,
        epochs=EPOCHS,
        part_size=options.prompts_at_a_time,
        checkpointing=options.checkpointing,
    )
    peak, source = peak_of(options, device)
    flops, moved = sum(costs.flops.values()), sum(costs.bytes.values())
    found = {
        "flops": flops,
        "flops_by_part": dict(costs.flops),
        "flops_by_number_format": dict(costs.flops_by_precision),
        "bytes": moved,
        "bytes_by_part": dict(costs.bytes),
        "tokens_forward": costs.tokens,
        "peaks": {"source": source, **(asdict(peak) if peak else {})},
        "floor": costs.floors(peak) if peak else None,
    }
    if median_ms is None:
        return found
    seconds = median_ms / 1e3
    return {
        **found,
        "tokens_a_second": costs.tokens / seconds,
        "teraflops_a_second": flops / seconds / 1e12,
        "terabytes_a_second": moved / seconds / 1e12,
        "share_of_roofline": found["floor"]["roofline_ms"] / median_ms if peak else None,
    }


def between(found: dict[str, Any]) -> dict[str, float] | None:
    """What lies between the floor and an update's time, in milliseconds; None without a GPU's numbers."""
    floor = (found.get("floors") or {}).get("floor")
    busy = (found.get("kernels") or {}).get("busy_ms")
    median = (found.get("ours") or {}).get("median_ms")
    if not floor or busy is None or median is None:
        return None
    return {
        "floor_ms": floor["roofline_ms"],
        "kernels_beyond_the_floor_ms": busy - floor["roofline_ms"],
        "python_and_launches_ms": median - busy,
        "update_ms": median,
    }


def peak_of(options: Any, device: torch.device) -> tuple[Peak | None, str]:
    """The device's peaks and where they are from."""
    given = (options.peak_half_tflops, options.peak_single_tflops, options.peak_bandwidth)
    if all(value is not None for value in given):
        half, single, bandwidth = given
        return Peak(half_tflops=half, single_tflops=single, bandwidth_tb_s=bandwidth), "options"
    if options.peaks:
        return PEAKS[options.peaks], f"NVIDIA's data sheet for {options.peaks}, by option"
    if device.type != "cuda":
        return None, "none: not a GPU, and no --peak options"
    name = torch.cuda.get_device_name(device)
    for key, peak in PEAKS.items():
        if all(word in name for word in key.split()):
            return peak, f"NVIDIA's data sheet for {key}; the device is {name}"
    return None, f"none: {name} is not in the table, give the --peak options"


def adapted_model(options: Any, device: torch.device) -> Any:
    """The model with the paper's adapters, on the device."""
    settings = load_config(
        settings=options.model if options.model in settings_names() else SETTINGS
    ).resolved()
    formats = {"bfloat16": torch.bfloat16, "float32": torch.float32}
    # A preset that leaves the format to the machine gets what a GPU computes in.
    dtype = formats.get(options.dtype or settings.model.dtype, torch.bfloat16)
    model = random_model(SHAPES[options.model], dtype, device)
    model = with_adapters(
        model,
        rank=options.rank or settings.adapter.rank,
        scale=settings.adapter.scale,
        dropout=settings.adapter.dropout,
        seed=0,
    )
    if options.checkpointing:
        unwrapped(model).gradient_checkpointing_enable()
    return model


def prompts_for(options: Any, model: Any) -> tuple[list[Any], str]:
    """Encoded items, and in words what they are."""
    vocabulary = model.get_input_embeddings().num_embeddings
    why = ""
    if options.prompts == "certified":
        try:
            return certified_items(options.records, vocabulary), (
                "certified CLRS records as text, by a byte-level tokenizer made on the spot"
            )
        except (ImportError, VcrtError) as error:
            why = f"; certified records cannot be made here: {error}"
    items = random_items(options.records, vocabulary, options.lengths)
    return items, f"random tokens, with an orbit of 12 of 24 orders{why}"


def run(options: Any) -> dict[str, Any]:
    """All parts that were asked for; returns what was written."""
    device = torch.device(options.device)
    key = "-".join(
        [options.model, options.backend]
        + ["checkpointing"] * options.checkpointing
        + [f"parts-of-{options.prompts_at_a_time}"] * bool(options.prompts_at_a_time)
    )
    results = Results(options.output, key)
    results.put("what", "one update: 2 prompts x 8 samples x 2 optimiser steps, paper's LoRA")
    results.put("machine", machine(device))
    results.put("versions", versions())
    results.put("commit", commit())
    results.put(
        "options", {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
    )
    results.put("shape", SHAPES[options.model].to_json())
    model = adapted_model(options, device)
    results.put("parameters", parameter_counts(model))
    items, what = prompts_for(options, model)
    lengths = [len(item.prompt.token_ids) for item in items]
    longest = max(lengths) + TOKENS
    backend = choose_backend(model, options.backend, longest=longest)
    results.put("prompts", {"what": what, "tokens": lengths})
    results.put("backend", backend)
    measure(results, model, items, backend, options, device)
    return results.mine


def measure(
    results: Results, model: Any, items: list[Any], backend: str, options: Any, device: torch.device
) -> None:
    """The parts that were asked for, in the order of PARTS."""
    wanted = set(options.parts)
    prompts = [item.prompt for item in items[:PROMPTS]]
    if "check" in wanted and device.type != "meta":
        with results.part("check"):
            check = self_check(
                model, prompts, interface="pointers", backend=backend, gradients=False
            )
            results.put("check", asdict(check))
    if device.type == "meta":
        results.put("floors", floors(model, prompts, backend, None, options, device))
        return
    ours = Ours(model, items, options, backend)
    if "ours" in wanted:
        with results.part("ours"):
            found = measured(ours, options, device)
            results.put("ours", {**found, "goal_ms": GOAL_MS})
    median = results.mine.get("ours", {}).get("median_ms")
    if "floors" in wanted:
        with results.part("floors"):
            results.put("floors", floors(model, prompts, backend, median, options, device))
    if "profile" in wanted:
        with results.part("profile"):
            results.put("profile", profile(ours, options, device))
    if "kernels" in wanted:
        with results.part("kernels"):
            if device.type == "cuda":
                results.put("kernels", kernels(ours, device))
            else:
                results.put("kernels", {"skipped": "not a GPU"})
        results.put("between", between(results.mine))
    # Its optimiser's moments must not count as the memory of what follows.
    del ours
    if "naive" in wanted:
        with results.part("naive"):
            naive = measured(Ours(model, items, options, "naive"), options, device)
            times = naive["median_ms"] / median if median else None
            results.put("naive", {**naive, "times_ours": times})
    if "trl" in wanted:
        with results.part("trl"):
            results.put("trl", beside_trl(model, items, options, device, median))


def beside_trl(
    model: Any, items: list[Any], options: Any, device: torch.device, median: float | None
) -> dict[str, Any]:
    """TRL's update on the same model and prompts, or why it was skipped."""
    try:
        from gpu_trl import trl_seconds
    except ImportError as error:
        return {"skipped": f"not installed: {error}"}
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    seconds = trl_seconds(
        model,
        items,
        updates=options.updates,
        warm_up=options.warm_up,
        sizes=(PROMPTS, SAMPLES, EPOCHS, TOKENS),
        synchronise=partial(synchronise, device),
        on_cpu=device.type == "cpu",
    )
    found = {**summary(seconds), "peak_memory_bytes": peak_memory(device)}
    return {**found, "times_ours": found["median_ms"] / median if median else None}


def options_from(arguments: list[str] | None = None) -> Any:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SHAPES, default="qwen3.5-2b")
    ways = ("auto", "tree", "fork", "naive", "captured")
    parser.add_argument("--backend", choices=ways, default="auto")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--prompts-at-a-time", type=int)
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), help="the preset's if left out")
    parser.add_argument("--rank", type=int, help="of LoRA; the preset's if left out")
    parser.add_argument("--prompts", choices=("certified", "random"), default="certified")
    parser.add_argument("--lengths", type=int, nargs="+", default=[56, 60], help="random prompts")
    parser.add_argument("--records", type=int, default=4)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--peaks", choices=PEAKS, help="of this device; the found one's if left out"
    )
    parser.add_argument("--peak-half-tflops", type=float)
    parser.add_argument("--peak-single-tflops", type=float)
    parser.add_argument("--peak-bandwidth", type=float, help="TB/s")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(arguments)
    if options.updates < 2:
        parser.error("--updates must be at least 2, for quartiles")
    return options


if __name__ == "__main__":
    run(options_from())
