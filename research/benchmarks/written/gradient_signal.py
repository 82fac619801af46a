"""How many samples is it worth to credit an orbit? The spread of gradients from groups of samples, at fixed policies.

    python research/benchmarks/written/gradient_signal.py --seeds 0 1 2

A policy answers a task with groups of eight samples, and the gradient of each group is taken in three ways: with a
sample's own probability (GRPO), with that of its orbit where it solves the task (Orbit-GRPO), and, as the most that
orders can give, with the expectation of the reward over all orders of its steps, each judged by itself. All three have
one expectation, so that they differ in their spread alone: n groups by one are worth n times the ratio of the spreads
by another. Log-probabilities and gradients are those of TRL's loss before the first step of an update, where ratios are
1 and nothing is clipped; adapters are all that has a gradient. Squares of norms are taken of all their entries.

Policies are those of ``experiment.py``, whose folder of adapters it reads: after the form alone, which is made if it is
missing, and after training by a method, as whose runs left them (``--methods``). Each policy's numbers are written to
``research/benchmarks/results/written/gradient_signal`` as soon as they are whole. It ends with the table of what
is there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiment import (
    DEVICE,
    FOLDS,
    MAX_ANSWER,
    METHODS,
    RESULTS,
    Size,
    Start,
    model_options,
    parsed,
    prepare,
    start,
)
from gpu_results import commit, machine, versions  # its folder is on the path by `experiment`
from group_gradients import ESTIMATORS, Group, Sample, Spread, spread_of, surrogates, worth
from peft import set_peft_model_state_dict
from safetensors.torch import load_file

from vcrt.orders import all_orders
from vcrt.randomness import derive_seed
from vcrt.replay.completion_judge import CompletionJudge
from vcrt_train.policy.reference import instructions
from vcrt_train.policy.text_scoring import score_texts
from vcrt_train.randomness import generator

#: The fold whose policies are looked at, and the name of those that were taught the form alone.
FOLD, FORM = "tools", "form"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A policy, and what answers its tasks."""

    begin: Start
    judge: CompletionJudge
    size: Size

    def judged(self, row: Mapping[str, Any], texts: Sequence[str]) -> list[Any]:
        """What becomes of each answer to a task."""
        tasks, names = [json.dumps(row["task"])] * len(texts), [row["environment"]] * len(texts)
        self.judge.begin(tasks, texts, names)
        return self.judge.finish()

    def group(self, row: Mapping[str, Any], prompt: list[int], seed: int) -> Group:
        """A group of samples of a task, each with all orders of its steps."""
        tokenizer = self.begin.tokenizer
        end = tokenizer.eos_token_id
        draw = torch.Generator(DEVICE)
        draw.manual_seed(seed)
        answers = self.begin.sampler(
            [prompt], each=self.size.samples, most=MAX_ANSWER, ends=[end], draw=draw
        )
        found = self.judged(
            row, [tokenizer.decode(ids[: ids.index(end)] if end in ids else ids) for ids in answers]
        )
        texts: dict[tuple[int, ...], int] = {}
        samples = []
        for ids, judgement in zip(map(tuple, answers), found, strict=True):
            own = texts.setdefault(ids, len(texts))
            legal, illegal = set[int](), set[int]()
            segments = judgement.segments
            is_whole = segments is not None and 2 <= judgement.num_steps <= 4
            if is_whole and (*self._tokens(segments.text(segments.reference)), end) == ids:
                orders = [segments.text(order) for order in all_orders(judgement.num_steps)]
                for text, other in zip(orders, self.judged(row, orders), strict=True):
                    place = texts.setdefault((*self._tokens(text), end), len(texts))
                    (legal if other.success else illegal).add(place)
            samples.append(
                Sample(own, judgement.success, tuple(sorted(legal)), tuple(sorted(illegal - legal)))
            )
        return Group(tuple(texts), tuple(samples))

    def _tokens(self, text: str) -> list[int]:
        found: list[int] = self.begin.tokenizer(text, add_special_tokens=False)["input_ids"]
        return found


def spreads(asked: Asked, seed: int, num_tasks: int, num_groups: int) -> Iterator[Spread]:
    """How gradients spread on each of so many tasks that the policies were trained on, from so many groups each."""
    model, rows = asked.begin.model, asked.begin.given[FOLDS[FOLD][0]]["train"]
    parameters = [one for one in model.parameters() if one.requires_grad]
    asked.begin.sampler.follow(model)
    model.train()
    for number in generator(seed, "gradient signal").permutation(len(rows))[:num_tasks].tolist():
        row = rows[number]
        prompt = asked.begin.tokenizer([row["prompt"]])["input_ids"][0]
        gradients: dict[str, list[torch.Tensor]] = {name: [] for name in ESTIMATORS}
        solved = 0
        for count in range(num_groups):
            group = asked.group(row, prompt, derive_seed(seed, "group", number, count) % 2**63)
            solved += sum(sample.solved for sample in group.samples)
            (scores,) = score_texts(model, [prompt], [list(group.texts)], backend="tree")
            losses = surrogates(torch.stack([one.log_probs.sum() for one in scores]), group.samples)
            for name, loss in losses.items():
                some = torch.autograd.grad(loss, parameters, retain_graph=True)
                gradients[name].append(torch.cat([one.float().flatten() for one in some]))
        yield spread_of({name: torch.stack(some) for name, some in gradients.items()}, solved)


def measured(policy: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """The spreads of one policy."""
    prepare(options)
    size = Size()
    begin = start(FOLD, seed, options, size)
    if policy != FORM:
        adapter = options.build / f"run-{FOLD}-{policy}-{seed}" / "adapter_model.safetensors"
        set_peft_model_state_dict(begin.model, load_file(adapter))
    found = list[Spread]()
    with CompletionJudge(begin.readers) as judge:
        asked = Asked(begin=begin, judge=judge, size=size)
        for one in spreads(asked, seed, options.tasks, options.groups):
            found.append(one)
            print(
                f"{time.strftime('%H:%M:%S')} {policy} {seed}, task {len(found)}: {worth(found)}",
                flush=True,
            )
    return {
        "policy": policy,
        "seed": seed,
        "samples": size.samples,
        "groups": options.groups,
        "tasks": [one.to_json() for one in found],
        "machine": machine(DEVICE) | {"instructions": instructions()},
        "dtype": options.dtype,
        "versions": versions(),
        "commit": commit(),
    }


def table(folder: Path) -> Iterator[str]:
    """What the estimators are worth beside GRPO, by policy, with 95% intervals over tasks."""
    yield "| policy | seeds | tasks | samples that solve | " + " | ".join(ESTIMATORS[1:]) + " |"
    yield "| --- | ---: | ---: | ---: |" + " ---: |" * (len(ESTIMATORS) - 1)
    for policy in (FORM, *METHODS):
        runs = [
            json.loads(path.read_text()) for path in sorted(folder.glob(f"{policy}-[0-9]*.json"))
        ]
        if not runs:
            continue
        every = [Spread.from_json(one) for run in runs for one in run["tasks"]]
        share = np.mean(
            [
                one.solved / run["groups"] / run["samples"]
                for run in runs
                for one in map(Spread.from_json, run["tasks"])
            ]
        )
        cells = [
            f"{value:.2f} [{low:.2f}, {high:.2f}]"
            for value, low, high in worth(every, intervals=True).values()
        ]
        yield (
            f"| {policy} | {len(runs)} | {len(every)} | {100 * share:.0f}% | "
            + " | ".join(cells)
            + " |"
        )


def main() -> None:
    """Measure whatever is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--methods", nargs="*", default=[], choices=list(METHODS))
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--results", type=Path, default=RESULTS / "gradient_signal")
    model_options(parser)
    options = parsed(parser)
    options.results.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for policy in (FORM, *options.methods):
            path = options.results / f"{policy}-{seed}.json"
            if not path.exists():
                found = measured(policy, seed, options)
                path.write_text(json.dumps(found, indent=1) + "\n")
    print("\n".join(table(options.results)))


if __name__ == "__main__":
    main()
