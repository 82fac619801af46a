"""Fill research/at-length.md from research/benchmarks/results/at_length.json: tables and findings between markers.

Prose is by hand.

    python research/benchmarks/length/at_length_page.py            # write what stands between the markers
    python research/benchmarks/length/at_length_page.py --check    # fail if something else stands there

A difference is called shown if its 95% interval over runs and items (:mod:`vcrt_train.protocol.crossed`) leaves out
zero. Where a result kept the answers to single items, the interval is computed from them here; where it kept a
percentile bootstrap over runs and items alone, which is too narrow, that is printed under this name and decides
nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcrt_train.protocol.crossed import crossed_interval

ROOT = Path(__file__).resolve().parents[3]
RESULT = ROOT / "research" / "benchmarks" / "results" / "at_length.json"
#: Results with the planned comparison, made at other times with other draws.
OTHERS = "at_length_*.json"
PAGE = ROOT / "research" / "at-length.md"
FOLDS = {"clrs": "CLRS", "lean": "Lean", "proofwriter": "ProofWriter"}
Part = Mapping[str, Any]
#: The planned comparison's quantities, in percent, by their names in a run's results.
QUANTITIES = {
    "passes": "pass rate",
    "mass": "mass of legal orders",
    "entropy": "entropy of legal orders",
}


#: What may be said of a difference, in the order in which it is said.
FINDINGS = (
    "Shown",
    "Not shown",
    "Not decided, bootstrap beside zero",
    "Not decided, bootstrap with zero in it",
)


def rate(one: Part | None) -> str:
    """A rate in percent with its interval over runs and items, or the bootstrap that was kept instead."""
    if one is None:
        return ""
    low, high = ends(one)
    return f"{100 * one['value']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def change(one: Part) -> str:
    """A difference in points with its interval as of a rate."""
    low, high = ends(one)
    return f"{100 * one['value']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def is_shown(one: Part) -> bool:
    """Whether the interval over runs and items leaves out zero; a bootstrap shows nothing."""
    return bool(one.get("over_runs")) and leaves_out_zero(one)


def leaves_out_zero(one: Part) -> bool:
    """Whether the interval does, whichever it is."""
    low, high = ends(one)
    return bool(low > 0 or high < 0)


def ends(one: Part) -> list[float]:
    """The ends of the interval that there is."""
    return one.get("runs_and_items") or one["bootstrap_over_runs_and_items"]


def steps(name: str) -> str:
    """``posets8`` as ``8``."""
    return name.removeprefix("posets")


def rows(*cells: list[str]) -> str:
    """A table in Markdown; the first row is its head."""
    head, *body = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([head, "| " + " | ".join(["---"] * len(cells[0])) + " |", *body])


def ordinary(result: Part) -> list[Part]:
    """The parts of the method table: all but those of a comparison of their own."""
    return [part for part in result["parts"].values() if not part["settings"]["planned"]]


def rates(result: Part) -> str:
    """Pass rates of every method on every test set."""
    table = [["trained on", "tested on", "method", *FOLDS.values(), "macro"]]
    for part in ordinary(result):
        own = steps(part["settings"]["suite"])
        for test_set, cells in part["test_sets"].items():
            chance = [f"{100 * cells['random_order']:.2g}"]
            table.append([own, steps(test_set), "random order", "", "", "", *chance])
            for name, row in {"frozen": cells["frozen"], **cells["methods"]}.items():
                found = [row["folds"].get(fold) for fold in FOLDS]
                folds = ["" if one is None else f"{100 * one['value']:.1f}" for one in found]
                shown = "before training" if name == "frozen" else f"`{name}`"
                table.append([own, steps(test_set), shown, *folds, rate(row["macro"])])
    return rows(*table)


def differences(result: Part) -> str:
    """Every reported difference, with whether it is shown."""
    table = [["trained on", "tested on", "difference", "points", "shown"]]
    for part in ordinary(result):
        own = steps(part["settings"]["suite"])
        for test_set, cells in part["test_sets"].items():
            for name, found in cells["differences"].items():
                macro = found["macro"]
                if macro is not None:
                    shown = "yes" if is_shown(macro) else "no"
                    if "over_runs" not in macro:
                        shown = "not decided"
                    name = name.replace("Frozen backbone", "before training")
                    table.append([own, steps(test_set), name, change(macro), shown])
    return rows(*table)


def measures(result: Part) -> str:
    """Pass rate, mass of the legal orders and their entropy, where they were measured."""
    columns = [
        "pass rate (%)",
        "mass of legal orders (%)",
        "entropy of legal orders (% of the largest)",
    ]
    table = [["part", "method", *columns]]
    for name, part in result["parts"].items():
        found = part["measures"] or {}
        cells = part["test_sets"][part["settings"]["suite"]]
        passes = {"frozen": cells["frozen"], **cells["methods"]}
        for method, row in found.items():
            if method == "difference":
                continue
            if part["runs"] and method != "frozen":
                told = [rate(pooled([part], quantity, (method,))) for quantity in QUANTITIES]
            else:
                told = [rate(passes[method]["macro"]), rate(row["mass"]), rate(row["entropy"])]
            shown = "before training" if method == "frozen" else f"`{method}`"
            table.append([name, shown, *told])
    return rows(*table)


def findings(result: Part) -> str:
    """What the intervals say, in sentences."""
    lines = []
    for part in ordinary(result):
        own = steps(part["settings"]["suite"])
        for test_set, cells in part["test_sets"].items():
            there = f"Trained on {own} steps and tested on {steps(test_set)}"
            told: dict[str, list[str]] = {}
            for name, found in cells["differences"].items():
                first, _, other = name.partition(" minus ")
                if found["macro"] is not None and other != "Frozen backbone":
                    words = f"`{first}` minus `{other}` {change(found['macro'])} points"
                    told.setdefault(_finding(found["macro"]), []).append(words)
            before = cells["frozen"]["macro"]
            best = max(cells["methods"], key=lambda name: cells["methods"][name]["macro"]["value"])
            lines.append(
                f"{there}: {rate(before)} before training, at best {rate(cells['methods'][best]['macro'])} (`{best}`)."
                + "".join(f" {what}: {'; '.join(told[what])}." for what in FINDINGS if what in told)
            )
    return "\n".join(f"- {line}" for line in lines)


def _finding(macro: Part) -> str:
    if "over_runs" in macro:
        return FINDINGS[0] if is_shown(macro) else FINDINGS[1]
    return FINDINGS[2] if leaves_out_zero(macro) else FINDINGS[3]


def orbit(result: Part) -> str:
    """The one planned comparison, each time that it was made, and over the runs of all times."""
    made = [result, *(json.loads(path.read_text()) for path in sorted(RESULT.parent.glob(OTHERS)))]
    parts = [part for one in made for part in one["parts"].values() if part["settings"]["planned"]]
    parts.sort(key=lambda part: str(part["opening"]["opened_at"]))
    table = [["time", "runs a fold", "commit", *QUANTITIES.values()]]
    for number, part in enumerate(parts, start=1):
        commits = ", ".join(map(_short, part["commits"]))
        row = [told(_planned([part], quantity)) for quantity in QUANTITIES]
        table.append([str(number), str(part["settings"]["runs"]), commits, *row])
    if len(parts) > 1:
        runs = sum(part["settings"]["runs"] for part in parts)
        row = [told(_planned(parts, quantity)) for quantity in QUANTITIES]
        table.append(["all", str(runs), "", *row])
    return rows(*table)


def told(one: Part) -> str:
    """A difference, in bold if it is shown."""
    return f"**{change(one)}**" if is_shown(one) else change(one)


def _planned(parts: Sequence[Part], quantity: str) -> Part:
    return pooled(parts, quantity, parts[0]["settings"]["planned"])


def pooled(parts: Sequence[Part], quantity: str, methods: Sequence[str]) -> Part:
    """One method, or the first minus the second, over the runs of several parts: the mean and its interval."""
    folds: dict[str, list[NDArray[np.float64]]] = {}
    for part in parts:
        for name in part["runs"]:
            method, fold, seed = name.split("/")
            if method == methods[0]:
                values = [
                    np.array([float(x) for x in part["runs"][f"{one}/{fold}/{seed}"][quantity]])
                    for one in methods
                ]
                folds.setdefault(fold, []).append(
                    values[0] if len(values) == 1 else values[0] - values[1]
                )
    within = (-1.0 if len(methods) > 1 else 0.0, 1.0)
    interval = crossed_interval({f: np.array(v) for f, v in folds.items()}, within=within)
    return {
        "value": interval.estimate,
        "runs_and_items": [interval.low, interval.high],
        "over_runs": interval.over_runs,
    }


def _short(commit: str | None) -> str:
    return f"`{(commit or 'unknown')[:12]}`"


def machine(result: Part) -> str:
    """Where and from what it was measured."""
    suites = ", ".join(
        f"{name} `{one['root_hash'][:12]}`" for name, one in result["suites"].items()
    )
    plans = ", ".join(
        f"{name} `{part['plan_hash'][:12]}`" for name, part in result["parts"].items()
    )
    cpu = sum(part["training_cpu_seconds"] for part in result["parts"].values())
    commits = dict.fromkeys(c for part in result["parts"].values() for c in part["commits"])
    return (
        f"`research/benchmarks/results/at_length.json`: {result['machine']['cores']} cores "
        f"({result['machine']['processor']}), {result['seconds'] / 60:.0f} minutes "
        f"and {cpu / 60:.0f} minutes of processor time for training; PyTorch {result['versions']['torch']}; commit "
        f"{', '.join(_short(one) for one in commits)}. Suites: {suites}. Plans: {plans}."
    )


def figure(result: Part) -> str:
    """The picture, which is drawn from the same result."""
    return (
        "![Held-out pass rate against the steps of the test items, for VCRT and Canonical-GRPO trained on the tests' "
        "own length and trained on four steps, and for the backbone before training.](../docs/figures/at-length.svg)"
    )


FILLED = {
    "findings": findings,
    "figure": figure,
    "rates": rates,
    "differences": differences,
    "measures": measures,
    "orbit": orbit,
    "machine": machine,
}


def filled(page: str, result: Part) -> str:
    """The page with every marked place filled."""
    for name, made in FILLED.items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
        if not pattern.search(page):
            raise SystemExit(f"research/at-length.md has no place {start}")
        text = f"{start}\n\n{made(result)}\n\n{end}"
        page = pattern.sub(lambda _, text=text: text, page)
    return page


def main() -> None:
    """Write the page, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    page = PAGE.read_text(encoding="utf-8")
    made = filled(page, json.loads(RESULT.read_text(encoding="utf-8")))
    if check and made != page:
        sys.exit(
            "research/at-length.md is not what python research/benchmarks/length/at_length_page.py writes"
        )
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
