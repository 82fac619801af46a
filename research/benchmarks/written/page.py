"""Print the tables of the experiment on written traces, from whichever runs are in research/benchmarks/results/written.

    python research/benchmarks/written/page.py

Pass rates are of the most probable answer, in percent, on tasks that were not trained on, whose sources were or were
not: of tool calls alone, of the environments that other folds trained on, and of those that they held out. Differences
to GRPO are paired by run and item, with 95% intervals over runs and items (:mod:`vcrt_train.protocol.crossed`; sources
are clusters). How a policy did while it trained is the share of its samples, of tasks seen for the first time, that
solved their task; a run's mean is set against that of GRPO with the same seed, thus the same tasks, with a 95% t
interval over runs.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.special import stdtrit

from vcrt_train.protocol.crossed import crossed_interval
from vcrt_train.protocol.statistics import Interval

RESULTS = Path(__file__).parents[1] / "results" / "written"
METHODS = ("grpo", "orbit", "orbit-margin", "augmentation")
#: What there is a table of each: folds that hold nothing out, and what the others trained on and held out.
ALONE = {"tools": "tool calls alone", "theories": "proofs that are found"}
KNOWN, NEW = "known sources", "new sources"
PARTS = (
    *((alone, kind) for alone in ALONE.values() for kind in (KNOWN, NEW)),
    *(("trained", kind) for kind in (KNOWN, NEW)),
    ("held out", None),
)
#: What a fold is named after that holds it out.
ENVIRONMENTS = ("clrs", "proofwriter", "bfcl")
#: Updates whose samples are taken together, and parts of the time that GRPO's runs took.
BLOCK, PARTS_OF_TIME = 10, 4
Runs = Mapping[str, Mapping[str, Mapping[int, Any]]]


def runs() -> dict[str, dict[str, dict[int, Any]]]:
    """Each run that is there, by fold, method and seed."""
    found: dict[str, dict[str, dict[int, Any]]] = {}
    for path in sorted(RESULTS.glob("*/*.json.gz")):
        one = json.loads(gzip.decompress(path.read_bytes()))
        found.setdefault(one["fold"], {}).setdefault(one["method"], {})[one["seed"]] = one
    return found


def scored(some: Mapping[int, Any], names: Sequence[str], when: str) -> np.ndarray:
    """``[runs, items]``: whether the items of these environments are solved."""
    return np.array(
        [
            [passed for name in names for passed in one["scores"][when][name]]
            for _, one in sorted(some.items())
        ]
    )


def part_of(fold: str, part: tuple[str, str | None], one: Any) -> list[str]:
    """The tests of a fold's run that belong to a part of the tables: those of an environment held out are all alike."""
    where, sources = part
    kinds = {"known": KNOWN, "new": NEW}
    found = []
    for name in one["sources"]:
        environment, _, kind = name.partition("/")
        trains = "held out" if environment == fold else "trained"
        is_there = where == (trains if fold in ENVIRONMENTS else ALONE[fold])
        if is_there and sources in (None, kinds[kind]):
            found.append(name)
    return found


def interval(by_fold: Mapping[str, Any], sources: Mapping[str, Any], least: float = 0.0) -> str:
    """A mean over folds in percent, with its interval; ``least`` is the least that it can be."""
    found: Interval = crossed_interval(by_fold, sources=sources, within=(least, 1.0))
    return f"{100 * found.estimate:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]" + (
        "" if found.over_runs else " (one run)"
    )


def in_every_method(some: Mapping[str, Mapping[int, Any]]) -> list[int]:
    """The seeds that every method of a fold has a run of."""
    return sorted(set.intersection(*(set(some.get(name, ())) for name in METHODS)))


def rates(found: Runs) -> Iterator[str]:
    """Pass rates before and after, over the folds that have every method."""
    seeds = {fold: in_every_method(some) for fold, some in found.items()}
    yield f"Folds with runs of every method: {', '.join(filter(seeds.get, seeds)) or 'none yet'}"
    for part in PARTS:
        shared = {
            fold: some
            for fold, some in seeds.items()
            if some and part_of(fold, part, found[fold]["grpo"][some[0]])
        }
        if not shared:
            continue
        yield ""
        yield f"| {', '.join(filter(None, part))} | runs | before | after | after minus before | minus GRPO |"
        yield "| --- | ---: | ---: | ---: | ---: | ---: |"
        for method in METHODS:
            scores: dict[str, dict[str, Any]] = {
                name: {} for name in ("before", "after", "gain", "minus")
            }
            sources = {}
            for fold, some in shared.items():
                own = {seed: found[fold][method][seed] for seed in some}
                base = {seed: found[fold]["grpo"][seed] for seed in some}
                one = own[some[0]]
                names = part_of(fold, part, one)
                sources[fold] = [source for name in names for source in one["sources"][name]]
                for when in ("before", "after"):
                    scores[when][fold] = scored(own, names, when)
                scores["gain"][fold] = scores["after"][fold] - scores["before"][fold]
                scores["minus"][fold] = scores["after"][fold] - scored(base, names, "after")
            told = [interval(scores[name], sources) for name in ("before", "after")]
            told.append(interval(scores["gain"], sources, -1.0))
            told.append("" if method == "grpo" else interval(scores["minus"], sources, -1.0))
            count = sum(map(len, shared.values()))
            yield f"| {method} | {count} | {' | '.join(told)} |"


def solved(one: Any) -> np.ndarray:
    """``[updates]``: the share of samples that solved their task."""
    return np.array([float(row["reward"]) for row in one["log"]])


def paired(some: Mapping[int, Any], base: Mapping[int, Any]) -> str:
    """How much more of all rollouts solved their task than by GRPO, in points, over the seeds that both have."""
    each = np.array(
        [100 * (solved(some[seed]) - solved(base[seed])).mean() for seed in some if seed in base]
    )
    if len(each) < 2:
        return f"{each.mean():+.1f}" if len(each) else ""
    half = stdtrit(len(each) - 1, 0.975) * each.std(ddof=1) / len(each) ** 0.5
    return f"{each.mean():+.1f} [{each.mean() - half:+.1f}, {each.mean() + half:+.1f}]"


def heading(fold: str, methods: Mapping[str, Mapping[int, Any]]) -> str:
    """What a fold is called, and whether its times are of machines that compute differently."""
    formats = {one.get("dtype") for some in methods.values() for one in some.values()}
    told = ALONE.get(fold, f"{fold} held out")
    return told if len(formats) == 1 else f"{told} (times are of different machines)"


def curves(found: Runs) -> Iterator[str]:
    """Samples that solved their task while a policy trained, and what an update took."""
    yield "| solved, in percent, by rollouts | all, minus GRPO | seconds an update | certified in |"
    for fold, methods in found.items():
        yield heading(fold, methods)
        for method, some in methods.items():
            logs = [one["log"] for one in some.values()]
            rewards = np.array([solved(one) for one in some.values()])
            size = next(iter(some.values()))["size"]
            blocks = [
                100 * rewards[:, k : k + BLOCK].mean() for k in range(0, rewards.shape[1], BLOCK)
            ]
            each = size["prompts"] * size["samples"]
            seconds = median(float(row["step_time"]) for log in logs for row in log)
            certifying = median(
                float(row.get("orbit/certifying_s", 0.0)) for log in logs for row in log
            )
            told = ", ".join(
                f"{each * BLOCK * (k + 1)}: {rate:.0f}" for k, rate in enumerate(blocks)
            )
            minus = "" if method == "grpo" else paired(some, methods.get("grpo", {}))
            cost = f"{seconds:.1f} s; {1000 * certifying:.1f} ms a sample"
            yield f"  {method} ({len(logs)} runs): {told}; {minus}; {cost}"


def by_time(found: Runs) -> Iterator[str]:
    """What share of the samples of equal times solved their task: quarters of the time that GRPO's runs took.

    A sample counts where its update ended. Times are those of the runs, whatever else the machine did.
    """
    yield "| solved, in percent, by minutes of training |"
    for fold, methods in found.items():
        seconds = {
            method: [
                np.cumsum([float(row["step_time"]) for row in one["log"]]) for one in some.values()
            ]
            for method, some in methods.items()
        }
        whole = float(np.mean([ends[-1] for ends in seconds["grpo"]]))
        marks = whole * np.arange(1, PARTS_OF_TIME + 1) / PARTS_OF_TIME
        yield heading(fold, methods)
        for method, some in methods.items():
            rewards = np.concatenate([solved(one) for one in some.values()])
            part = np.searchsorted(marks, np.concatenate(seconds[method]))
            told = ", ".join(
                f"{mark / 60:.1f}: {100 * rewards[part == number].mean():.0f}"
                if (part == number).any()
                else ""
                for number, mark in enumerate(marks)
            )
            yield f"  {method}: {told}; {np.mean(part < PARTS_OF_TIME):.0%} of its updates"


def main() -> None:
    """Print all."""
    found = runs()
    for line in (*rates(found), "", *curves(found), "", *by_time(found)):
        print(line)


if __name__ == "__main__":
    main()
