"""What policies that write steps as text know of which depend on which, read from their probabilities of all orders.

    python research/benchmarks/written/relations.py

For the tasks that an experiment's runs are evaluated on: a pair of steps is an edge if one stands before the other in
every order that works, all orders replayed. A policy takes it for one if it puts one before the other in three of four
orders, by the probability of their texts; ``vcrt relations`` reads policies over pointers in the same way. Each run
keeps these probabilities, from before it was trained by a method and from after. The threshold of shared words is
fitted on the very pairs that it is scored on, to its favour. It needs what ``experiment.py`` needs.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from experiment import FOLDS, METHODS, RESULTS, Size, load, verifier
from task_relations import pairs_of

from vcrt_research.relation_predictors import by_policy, by_shared_words
from vcrt_research.relation_scores import (
    LabelledPair,
    Prediction,
    best_threshold,
    relation_scores,
)
from vcrt_train.policy.reference import fetched_folder

#: By environment and kind of source, the tasks that were evaluated on, and all pairs of their steps.
Tests: TypeAlias = Mapping[str, tuple[list[dict[str, Any]], list[LabelledPair]]]
#: Runs by their method.
Runs: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]


def main() -> None:
    """Score the runs of each fold, and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folds", nargs="*", default=list(FOLDS), choices=list(FOLDS))
    parser.add_argument("--backbone", type=Path, default=fetched_folder("smollm2-135m"))
    parser.add_argument("--build", type=Path, default=Path("build/written"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    report: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for fold in options.folds:
        runs = read(options.results / fold)
        if not runs:
            continue
        names = next(iter(runs.values()))[0]["orders"]["before"]
        known |= {name: test(name, options) for name in names if name not in known}
        report[fold] = {name: scores(name, runs, known) for name in names}
    path = options.results / "relations.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    for line in table(report):
        print(line)


def read(folder: Path) -> Runs:
    """The runs of a fold that kept the probabilities of orders, with the seeds of which every method has one."""
    found: dict[str, dict[int, dict[str, Any]]] = {method: {} for method in METHODS}
    for path in sorted(folder.glob("*.json.gz")):
        one = json.loads(gzip.decompress(path.read_bytes()))
        if one.get("orders", {}).get("before"):
            found[one["method"]][one["seed"]] = one
    shared = set.intersection(*(set(some) for some in found.values()))
    return {
        method: [some[seed] for seed in sorted(shared)] for method, some in found.items() if shared
    }


def test(name: str, options: argparse.Namespace) -> tuple[list[dict[str, Any]], list[LabelledPair]]:
    """The tasks of a test, and the pairs of their steps."""
    environment, _, kind = name.partition("/")
    rows = load(environment, options, Size())[kind]
    replaying = verifier(environment)
    pairs = [
        pair
        for number, row in enumerate(rows)
        for pair in pairs_of(f"{name}/{number}", row, replaying)
    ]
    return rows, pairs


def scores(name: str, runs: Runs, tests: Tests) -> dict[str, Any]:
    """What each method's policies know of a test's pairs, beside the words that steps share and beside the start."""
    rows, pairs = tests[name]
    keys = [f"{name}/{number}" for number in range(len(rows))]
    texts = {
        key: [text for text, _, _ in row["task"]["steps"]]
        for key, row in zip(keys, rows, strict=True)
    }
    words = by_shared_words(pairs, texts)
    found = {"shared words": told(pairs, words, best_threshold(pairs, words), probable=False)}
    # The runs of a seed have one start.
    starts = {run["seed"]: run for some in runs.values() for run in some}
    for method, when, some in (
        ("form alone", "before", list(starts.values())),
        *((method, "after", list(some)) for method, some in runs.items()),
    ):
        predictions = [
            prediction
            for run in some
            for prediction in by_policy(
                pairs, dict(zip(keys, run["orders"][when][name], strict=True))
            )
        ]
        found[method] = told(pairs * len(some), predictions, 0.5, probable=True)
        found[method]["runs"] = len(some)
    return found


def told(
    pairs: Sequence[LabelledPair],
    predictions: Sequence[Prediction],
    threshold: float,
    *,
    probable: bool,
) -> dict[str, Any]:
    """The scores of predictions, as JSON."""
    return asdict(relation_scores(pairs, predictions, threshold=threshold, probabilities=probable))


def table(report: Mapping[str, Any]) -> Iterator[str]:
    """The scores as a table, a block for each fold and test."""
    for fold, tests in report.items():
        for name, predictors in tests.items():
            yield ""
            yield (
                f"| fold {fold}: {name} | F1 of edges | AUROC | missed | superfluous | turned"
                " | calibration error |"
            )
            yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
            for predictor, one in predictors.items():
                commuting = one["pairs"] - one["edges"]
                error = one["calibration"]
                yield (
                    f"| {predictor} | {spread(one['f1'])} | {spread(one['auroc'])}"
                    f" | {one['missed'] / one['edges']:.0%} of edges"
                    f" | {one['superfluous'] / commuting:.0%} of commuting"
                    f" | {one['turned'] / max(1, one['directed']):.0%}"
                    f" | {'' if error is None else f'{error:.2f}'} |"
                )


def spread(estimate: Mapping[str, float] | None) -> str:
    """A value with its interval."""
    if estimate is None:
        return ""
    return f"{estimate['value']:.2f} [{estimate['low']:.2f}, {estimate['high']:.2f}]"


if __name__ == "__main__":
    main()
