"""The planned analysis of what an order is worth, of all seeds that are there: `PLAN.md` says which numbers and why.

    python research/benchmarks/orders/orders_tables.py

writes ``research/benchmarks/results/orders/tables.md``. A setting of which a seed is missing is read only with
``--unfinished``, and says so.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from orders import FOLDS, RESULTS, SETTINGS

from vcrt_train.protocol.crossed import crossed_interval, runs_interval
from vcrt_train.protocol.scores import passes_array
from vcrt_train.protocol.source_validation import VARIANCE
from vcrt_train.protocol.statistics import Interval
from vcrt_train.training.methods import method as method_of

#: The planned differences, each of the first method minus the second, in the order of the plan.
DIFFERENCES = (
    ("orbit-grpo", "canonical-grpo"),
    ("vcrt", "no-orbit"),
    ("both-classes", "orbit-grpo"),
    ("margin-alone", "canonical-grpo"),
    ("vcrt", "margin-alone"),
    ("no-orbit", "margin-alone"),
    ("exact-reward", "canonical-grpo"),
    ("exact-log-odds", "exact-reward"),
    ("exact-log-reward", "exact-reward"),
    ("margin-alone", "exact-log-odds"),
    ("no-anti", "orbit-grpo"),
    ("orbit-commutation", "orbit-grpo"),
    ("orbit-retention", "orbit-grpo"),
    ("orbit-action-kl", "orbit-grpo"),
    ("scaled-grpo", "canonical-grpo"),
    ("step-groups", "canonical-grpo"),
    ("uniform-orbit", "orbit-grpo"),
)
#: The setting whose differences are tested together.
FIRST = "hard"
#: Two methods are equal if the whole interval of their difference is within so much of zero.
MARGIN = 0.05
FROZEN_VIEW = "pointers, sorted"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The seeds of a setting that are there."""

    name: str
    seeds: tuple[Mapping[str, Any], ...]

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods in the order of the setting."""
        return SETTINGS[self.name].methods

    @property
    def updates(self) -> list[int]:
        """The updates after which runs were scored."""
        return list(SETTINGS[self.name].overrides["schedule.checkpoints"])

    def passes(self, method: str, update: int | None = None) -> dict[str, Any]:
        """Passes ``[seeds, items]`` by fold, after an update or the last one."""
        found = {}
        for fold in FOLDS:
            rows = []
            for seed in self.seeds:
                name = f"{method}/{fold}/{seed['seed']}"
                scores = seed["scores"]
                is_last = update in (None, self.updates[-1])
                of = scores["runs"][name] if is_last else scores["checkpoints"][name][str(update)]
                rows.append(passes_array(of["held_out"]).astype(float))
            found[fold] = np.array(rows)
        return found

    def of_runs(
        self, method: str, value: Callable[[Mapping[str, Any], str], float]
    ) -> dict[str, Any]:
        """A number of each run: ``[seeds]`` by fold."""
        return {
            fold: [value(seed, f"{method}/{fold}/{seed['seed']}") for seed in self.seeds]
            for fold in FOLDS
        }

    @property
    def sources(self) -> dict[str, list[str]]:
        """The source of each held-out item by fold."""
        found: dict[str, list[str]] = self.seeds[0]["sources"]
        return found


def finished(results: Path, *, unfinished: bool) -> list[Finished]:
    """Read the settings of which all seeds are there, or some."""
    found = []
    for name, setting in SETTINGS.items():
        places = [results / name / f"seed-{seed}.json.gz" for seed in range(setting.seeds)]
        there = [place for place in places if place.exists()]
        if len(there) >= 2 and (unfinished or len(there) == len(places)):
            seeds = tuple(json.loads(gzip.decompress(place.read_bytes())) for place in there)
            for what in ("root_hash", "config", "definitions", "code"):
                if any(seed[what] != seeds[0][what] for seed in seeds):
                    raise SystemExit(f"{name}: seeds differ in {what}")
            found.append(Finished(name=name, seeds=seeds))
    return found


def rate(of: Finished, method: str, update: int | None = None) -> Interval:
    """The macro pass rate of a method with its interval over runs and items."""
    return crossed_interval(of.passes(method, update), sources=of.sources, within=(0.0, 1.0))


def difference(of: Finished, method: str, minus: str, level: float = 0.95) -> Interval:
    """The macro difference of two methods' pass rates, paired by seed and item."""
    one, other = of.passes(method), of.passes(minus)
    paired = {fold: one[fold] - other[fold] for fold in FOLDS}
    return crossed_interval(paired, sources=of.sources, level=level)


def mean_mass(seed: Mapping[str, Any], name: str) -> float:
    """The mean probability of the orbit over a run."""
    return float(np.mean(seed["curves"][name]["orbit_mass"]))


def verdict(interval: Interval) -> str:
    """What a planned difference shows."""
    if interval.low > 0 or interval.high < 0:
        return "shown"
    if interval.low >= -MARGIN and interval.high <= MARGIN:
        return "equal within five points"
    return "not shown"


def written(interval: Interval, scale: float = 100, *, signed: bool = False) -> str:
    """Write ``71.6 [68.0, 75.2]``."""
    form = "{:+.1f} [{:+.1f}, {:+.1f}]" if signed else "{:.1f} [{:.1f}, {:.1f}]"
    return form.format(
        *(scale * one + 0.0 for one in (interval.estimate, interval.low, interval.high))
    )


def lines_of(of: Finished) -> Iterable[str]:
    """Write the tables of a setting."""
    setting = SETTINGS[of.name]
    folds = [
        passes_array(of.seeds[0]["scores"]["frozen"][FROZEN_VIEW][f]["held_out"]) for f in FOLDS
    ]
    before = 100 * float(np.mean([each.mean() for each in folds]))
    first, second, last = of.updates
    seeds = f"{len(of.seeds)} of {setting.seeds} seeds"
    yield f"## {of.name}\n"
    yield (
        f"{seeds}, {len(folds[0])} items a fold; before training {before:.1f}. 95% intervals over runs and items, "
        "of the orbit's probability over seeds.\n"
    )
    yield (
        f"| method | after {first} | after {second} | after {last} | orbit's probability over the run | pass@1 | "
        "pass@16 | evenness | clipped |"
    )
    yield "| --- | " + "---: | " * 8
    for method in of.methods:
        masses = runs_interval(of.of_runs(method, mean_mass), within=(0.0, 1.0))
        spreads = [
            seed["scores"]["runs"][f"{method}/{fold}/{seed['seed']}"]["spread"]
            for seed in of.seeds
            for fold in FOLDS
        ]
        pass_at = [100 * float(np.mean([s["pass_at"][k] for s in spreads])) for k in ("1", "16")]
        even = [s["evenness"] for s in spreads if s["evenness"] is not None]
        clipped = np.mean(
            list(
                of.of_runs(
                    method, lambda s, n: float(np.mean(s["curves"][n]["clip_fraction"]))
                ).values()
            )
        )
        cells = [
            *(written(rate(of, method, update)) for update in of.updates),
            written(masses),
            *(f"{one:.1f}" for one in pass_at),
            f"{100 * float(np.mean(even)):.1f}" if even else "n/a",
            f"{100 * float(clipped):.1f}" if "policy_loss" in method_of(method).terms else "n/a",
        ]
        yield f"| `{method}` | {' | '.join(cells)} |"
    level = 1 - 0.05 / len(DIFFERENCES) if of.name == FIRST else 0.95
    asked = [pair for pair in DIFFERENCES if {*pair} <= {*of.methods}]
    heading = f"{100 * level:.2f}% interval" if of.name == FIRST else "95% interval"
    yield f"\n| difference | points, {heading} | | seeds above zero |"
    yield "| --- | ---: | --- | ---: |"
    for method, minus in asked:
        found = difference(of, method, minus, level)
        one, other = of.passes(method), of.passes(minus)
        by_seed = np.mean([(one[fold] - other[fold]).mean(1) for fold in FOLDS], axis=0)
        above = f"{int((by_seed > 0).sum())} of {len(by_seed)}"
        yield f"| `{method}` - `{minus}` | {written(found, signed=True)} | {verdict(found)} | {above} |"
    yield "\n| method | variance between classes | within successes | within failures |"
    yield "| --- | ---: | ---: | ---: |"
    for method in of.methods:
        parts = []
        for name in VARIANCE.values():
            shares = [
                share
                for fold in FOLDS
                for seed in of.seeds
                for share in seed["curves"][f"{method}/{fold}/{seed['seed']}"][name]
            ]
            parts.append(f"{100 * float(np.mean(shares)):.0f}" if shares else "n/a")
        yield f"| `{method}` | {' | '.join(parts)} |"
    yield ""


def main() -> None:
    """Write the tables of all finished settings."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--unfinished", action="store_true", help="also settings with some seeds")
    options = parser.parse_args()
    found = finished(options.results, unfinished=options.unfinished)
    text = "\n".join(line for of in found for line in lines_of(of))
    heading = "# What an order is worth\n\nMade by `orders_tables.py`, as planned beside it in `PLAN.md`.\n\n"
    (options.results / "tables.md").write_text(heading + text)
    print(text)


if __name__ == "__main__":
    main()
