"""Print what the runs that a rule ended have shown (``PLAN.md``), from research/benchmarks/results/written/until.

    python research/benchmarks/written/until.py

Shares of samples are of tasks seen for the first time while the policy trained; differences are paired by seed, thus by
tasks, with t intervals over seeds. Tests are greedy answers after the run, where it ended, with crossed intervals over
seeds and items (:mod:`vcrt_train.protocol.crossed`; sources are clusters).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np
from page import runs, scored, solved
from scipy.special import stdtrit

from vcrt_train.protocol.crossed import crossed_interval

FOLD = "until"
METHODS = ("grpo", "orbit", "all-orders", "orbit-margin", "all-orders-margin")
#: Pairs of methods whose difference was planned.
PLANNED = (*((name, "grpo") for name in METHODS[1:]), ("all-orders", "orbit"))
#: Updates that every run has, those that are looked at together, and the share that they are to solve.
COMMON, LAST, SHARE = 40, 10, 0.7
Runs = Mapping[str, Mapping[int, Any]]


def first_samples(one: Any) -> float:
    """The share of the samples of the updates that every run has."""
    return float(solved(one)[:COMMON].mean())


def samples_until(one: Any) -> tuple[int, bool]:
    """Samples until the last updates first solved the share, and whether they ever did."""
    size = one["size"]["prompts"] * one["size"]["samples"]
    shares = solved(one)
    for count in range(LAST, len(shares) + 1):
        if shares[count - LAST : count].mean() >= SHARE:
            return count * size, True
    return one["size"]["updates"] * size, False


def t_interval(values: Sequence[float], level: float) -> tuple[float, float, float]:
    """A mean with its interval; infinitely wide for a single value."""
    each = np.array(values, dtype=float)
    if len(each) < 2:
        return float(each.mean()), -np.inf, np.inf
    half = stdtrit(len(each) - 1, (1 + level) / 2) * each.std(ddof=1) / len(each) ** 0.5
    return float(each.mean()), float(each.mean() - half), float(each.mean() + half)


def shared(found: Runs) -> list[int]:
    """The seeds of which every method has a run."""
    return sorted(set.intersection(*(set(found.get(name, ())) for name in METHODS)))


def lines(found: Runs) -> Iterator[str]:
    """The planned tables."""
    seeds = shared(found)
    yield f"Seeds with every method: {', '.join(map(str, seeds)) or 'none'}"
    if not seeds:
        return
    own = {name: [found[name][seed] for seed in seeds] for name in METHODS}
    level = 1 - 0.05 / len(PLANNED)
    yield ""
    yield (
        "| method | solved of the first 640 samples | samples until 70% of the last 160 | beside GRPO "
        "| never | updates |"
    )
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    base = [samples_until(one)[0] for one in own["grpo"]]
    for name in METHODS:
        counts = [samples_until(one) for one in own[name]]
        ratio = median(mine / theirs for (mine, _), theirs in zip(counts, base, strict=True))
        yield (
            f"| {name} | {100 * np.mean([first_samples(one) for one in own[name]]):.1f} | "
            f"{median(count for count, _ in counts):.0f} | {ratio:.2f} | "
            f"{sum(not ever for _, ever in counts)} | {median(len(one['log']) for one in own[name]):.0f} |"
        )
    yield ""
    yield (
        f"| difference | first 640 samples, points, {100 * level:.0f}% over seeds "
        "| known sources, after, 95% | new sources, after, 95% |"
    )
    yield "| --- | ---: | ---: | ---: |"
    for one, other in PLANNED:
        pairs = zip(own[one], own[other], strict=True)
        mean, low, high = t_interval(
            [100 * (first_samples(mine) - first_samples(theirs)) for mine, theirs in pairs], level
        )
        cells = [f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"]
        for test in ("bfcl/known", "bfcl/new"):
            after = [
                scored({seed: found[name][seed] for seed in seeds}, [test], "after")
                for name in (one, other)
            ]
            interval = crossed_interval(
                {FOLD: after[0] - after[1]},
                sources={FOLD: own[one][0]["sources"][test]},
                within=(-1.0, 1.0),
            )
            cells.append(
                f"{100 * interval.estimate:+.1f} [{100 * interval.low:+.1f}, {100 * interval.high:+.1f}]"
            )
        yield f"| {one} - {other} | {' | '.join(cells)} |"


def main() -> None:
    """Print all."""
    print("\n".join(lines(runs().get(FOLD, {}))))


if __name__ == "__main__":
    main()
