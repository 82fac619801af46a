"""How often the intervals hold the true difference, on simulated runs and items with a known answer.

    python research/benchmarks/statistics/coverage.py --output research/benchmarks/results/coverage.json

Two methods are scored on the same items of three folds (or of one) by several runs each. Item ``i`` has a difficulty,
run ``r`` of a method on a fold has an effect, and run ``r`` passes item ``i`` with probability ``Phi(level + effect +
difficulty)``, everything normal, so that both true differences are known in closed form: for exactly these runs (given
their effects) and for new runs (averaged over effects). Where items share sources, each method is besides better at
some sources than at others. The intervals are the library's; the share of repetitions in which they hold the truth is a
coverage, and its own interval is the exact binomial one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import scipy
from scipy.special import ndtr, ndtri

import vcrt
from vcrt.errors import VcrtError
from vcrt.processes import in_fresh_processes
from vcrt_train.protocol.crossed import crossed_interval
from vcrt_train.protocol.statistics import (
    hierarchical_bootstrap,
    paired_bootstrap,
    paired_differences,
    proportion_interval,
)
from vcrt_train.randomness import generator

#: Over runs and items (the one that decides), and the percentile bootstraps over items and over runs and items.
INTERVALS = ("crossed", "paired", "hierarchical")
TARGETS = ("these_runs", "new_runs")
#: Population pass rates of the method and of the baseline by fold.
LEVELS = {
    "middle": ((0.95, 0.58, 0.75), (0.66, 0.56, 0.71)),
    "both 0.99": ((0.99, 0.99, 0.99), (0.99, 0.99, 0.99)),
    "1.00 and 0.99": ((1.0, 1.0, 1.0), (0.99, 0.99, 0.99)),
    "both 1.00": ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
}
RUN_EFFECTS = (0.0, 0.2, 0.5)
ITEM_SD = 1.0
#: The standard deviation of how well a method does on a source, in probits, and items of one source.
SOURCE_EFFECT, ITEMS_OF_SOURCE = 0.7, 10
#: Repetitions that one piece of work holds.
CHUNK = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One simulated design.

    ``run_effect`` and ``source_effect`` are standard deviations of runs and sources, in probits. A single fold is the
    last of the level's.
    """

    level: str
    run_effect: float
    num_items: int
    num_runs: int
    num_folds: int = 3
    items_of_source: int = 1
    source_effect: float = 0.0


def cells():
    """Every design: each level with three runs; then macro and fold with 2 to 10 runs, and with shared sources."""
    for num_items in (2500, 100):
        for level in LEVELS:
            for effect in RUN_EFFECTS if level != "both 1.00" else RUN_EFFECTS[:1]:
                yield Cell(level=level, run_effect=effect, num_items=num_items, num_runs=3)
    # With more runs nearly every item is a column of its own, which is slow with many items.
    for num_folds in (3, 1):
        for num_runs in (2, 3, 5, 10):
            for effect in (0.2, 0.5):
                if (num_folds, num_runs) != (3, 3):
                    yield Cell(
                        level="middle",
                        run_effect=effect,
                        num_items=100,
                        num_runs=num_runs,
                        num_folds=num_folds,
                    )
    for num_folds in (3, 1):
        for num_runs in (3, 10):
            yield Cell(
                level="middle",
                run_effect=0.2,
                num_items=200,
                num_runs=num_runs,
                num_folds=num_folds,
                items_of_source=ITEMS_OF_SOURCE,
                source_effect=SOURCE_EFFECT,
            )


def rates(cell):
    """``[methods, folds]``: the population pass rates."""
    return np.array(LEVELS[cell.level])[:, -cell.num_folds :]


def item_variance(cell):
    """The variance of items for one method and run, that of the answer itself included."""
    return 1.0 + ITEM_SD**2 + cell.source_effect**2


def thresholds(cell):
    """``[methods, folds]``: the probits at which the population pass rates are those of the level."""
    spread = math.sqrt(item_variance(cell) + cell.run_effect**2)
    return spread * ndtri(rates(cell))


def rates_of_runs(cell, at, effects):
    """The pass rate of runs over all items there could be, given the runs' effects."""
    return ndtr((at + effects) / math.sqrt(item_variance(cell)))


def true_difference(cell):
    """The macro difference of new runs."""
    first, second = rates(cell)
    return float((first - second).mean())


def run_sd(cell):
    """The standard deviation of the runs' pass rates in points, the mean over methods and folds."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    found = rates_of_runs(cell, thresholds(cell)[..., np.newaxis], cell.run_effect * nodes)
    weights = weights / weights.sum()
    mean = (found * weights).sum(axis=-1, keepdims=True)
    return float(100 * np.sqrt(((found - mean) ** 2 * weights).sum(axis=-1)).mean())


def sources(cell):
    """The source of each item, the same for every fold."""
    return np.arange(cell.num_items) // cell.items_of_source


def draw(cell, rng):
    """The paired differences ``[runs, items]`` by fold, and the macro difference of exactly these runs."""
    differences, truths = {}, []
    for fold, at in enumerate(thresholds(cell).T):
        difficulty = ITEM_SD * rng.standard_normal(cell.num_items)
        effects = cell.run_effect * rng.standard_normal((2, cell.num_runs, 1))
        of_source = rng.standard_normal((2, 1, sources(cell)[-1] + 1)) * cell.source_effect
        difficulty = difficulty + of_source[..., sources(cell)]
        chances = ndtr(at[:, np.newaxis, np.newaxis] + effects + difficulty)
        first, second = rng.random(chances.shape) < chances
        differences[f"fold{fold}"] = paired_differences(first, second)
        first, second = rates_of_runs(cell, at[:, np.newaxis, np.newaxis], effects)
        truths.append(float((first - second).mean()))
    return differences, float(np.mean(truths))


def repeat(cell, first, count, num_resamples, seed):
    """Hits ``[intervals, targets]`` and summed widths ``[intervals]`` of some repetitions."""
    hits = np.zeros((len(INTERVALS), len(TARGETS)), dtype=int)
    widths = np.zeros(len(INTERVALS))
    names = (cell.level, str(cell.run_effect), cell.num_items, cell.num_runs)
    names += (cell.num_folds, cell.items_of_source)
    for repetition in range(first, first + count):
        rng = generator(seed, "coverage", *names, repetition)
        differences, these_runs = draw(cell, rng)
        found = (
            crossed_interval(differences, sources=dict.fromkeys(differences, sources(cell))),
            paired_bootstrap(differences, rng, num_resamples),
            hierarchical_bootstrap(differences, rng, num_resamples),
        )
        for row, interval in enumerate(found):
            widths[row] += interval.high - interval.low
            for column, truth in enumerate((these_runs, true_difference(cell))):
                # The ends are sums of floats: a difference of exactly zero must count as held.
                hits[row, column] += interval.low - 1e-12 <= truth <= interval.high + 1e-12
    return hits, widths


def result_row(cell, hits, widths, repetitions):
    """A design with the coverage of each interval for each target, each with its own 95% interval."""
    coverage = {
        name: {
            target: {
                "held": int(hits[row, column]),
                "share": round(hits[row, column] / repetitions, 4),
                "interval": [
                    round(end, 4)
                    for end in proportion_interval(int(hits[row, column]), repetitions)
                ],
            }
            for column, target in enumerate(TARGETS)
        }
        for row, name in enumerate(INTERVALS)
    }
    return {
        **asdict(cell),
        "true_difference_points": round(100 * true_difference(cell), 4),
        "run_sd_points": round(run_sd(cell), 3),
        "mean_width_points": {
            name: round(float(100 * widths[row] / repetitions), 3)
            for row, name in enumerate(INTERVALS)
        },
        "coverage": coverage,
    }


def simulate(cell, repetitions, num_resamples, seed=0):
    """One row of the results, in this process."""
    return result_row(cell, *repeat(cell, 0, repetitions, num_resamples, seed), repetitions)


def _work(arguments):
    return repeat(*arguments)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=500, help="of each design")
    parser.add_argument("--resamples", type=int, default=500, help="of each interval")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.repetitions % CHUNK:
        parser.error(f"--repetitions must be a multiple of {CHUNK}")
    designs = list(cells())
    work = [
        (cell, first, CHUNK, options.resamples, options.seed)
        for cell in designs
        for first in range(0, options.repetitions, CHUNK)
    ]
    began = time.monotonic()
    done = in_fresh_processes(_work, work, jobs=options.jobs, error=VcrtError)
    rows = []
    for cell in designs:
        parts = [next(done) for _ in range(options.repetitions // CHUNK)]
        hits, widths = (sum(part[k] for part in parts) for k in (0, 1))
        rows.append(result_row(cell, hits, widths, options.repetitions))
        print(json.dumps(rows[-1]), flush=True)
    print(f"{time.monotonic() - began:.0f} s")
    result = {
        "what": "share of simulated experiments whose 95% interval holds the true difference of two methods",
        "versions": {
            "vcrt": vcrt.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "python": platform.python_version(),
        },
        "repetitions": options.repetitions,
        "resamples": options.resamples,
        "seed": options.seed,
        "level": 0.95,
        "item_sd_probits": ITEM_SD,
        "pass_rates": {name: list(map(list, rates)) for name, rates in LEVELS.items()},
        "cells": rows,
    }
    if options.output is not None:
        options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
