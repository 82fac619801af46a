"""Fill docs/at-length.md from benchmarks/results/at_length.json: tables and findings between markers, prose is by hand.

    python benchmarks/at_length_page.py            # write what stands between the markers
    python benchmarks/at_length_page.py --check    # fail if something else stands there

A difference is called shown if its 95% interval over runs and items leaves out zero.
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

from vcrt.protocol.statistics import hierarchical_bootstrap
from vcrt.randomness import generator

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "at_length.json"
#: Results with the planned comparison alone, made at other times with other draws.
OTHERS = "at_length_orbit_*.json"
PAGE = ROOT / "docs" / "at-length.md"
FOLDS = {"clrs": "CLRS", "lean": "Lean", "proofwriter": "ProofWriter"}
Part = Mapping[str, Any]
#: The planned comparison's quantities, in percent, by their names in a run's results.
QUANTITIES = {
    "passes": "pass rate",
    "mass": "mass of legal orders",
    "entropy": "entropy of legal orders",
}


def rate(one: Part | None) -> str:
    """A rate in percent with its interval over runs and items."""
    if one is None:
        return ""
    low, high = one["runs_and_items"]
    return f"{100 * one['value']:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def change(one: Part) -> str:
    """A difference in points with its interval over runs and items."""
    low, high = one["runs_and_items"]
    return f"{100 * one['value']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def is_shown(one: Part) -> bool:
    """Whether the interval over runs and items leaves out zero."""
    low, high = one["runs_and_items"]
    return bool(low > 0 or high < 0)


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
            if method != "difference":
                shown = "before training" if method == "frozen" else f"`{method}`"
                both = [rate(row["mass"]), rate(row["entropy"])]
                table.append([name, shown, rate(passes[method]["macro"]), *both])
    return rows(*table)


def findings(result: Part) -> str:
    """What the intervals say, in sentences."""
    lines = []
    for part in ordinary(result):
        own = steps(part["settings"]["suite"])
        for test_set, cells in part["test_sets"].items():
            there = f"Trained on {own} steps and tested on {steps(test_set)}"
            told = {True: [], False: []}
            for name, found in cells["differences"].items():
                first, _, other = name.partition(" minus ")
                if found["macro"] is not None and other != "Frozen backbone":
                    words = f"`{first}` minus `{other}` {change(found['macro'])} points"
                    told[is_shown(found["macro"])].append(words)
            before = cells["frozen"]["macro"]
            best = max(cells["methods"], key=lambda name: cells["methods"][name]["macro"]["value"])
            lines.append(
                f"{there}: {rate(before)} before training, at best {rate(cells['methods'][best]['macro'])} (`{best}`)."
                + (f" Shown: {'; '.join(told[True])}." if told[True] else "")
                + (f" Not shown: {'; '.join(told[False])}." if told[False] else "")
            )
    return "\n".join(f"- {line}" for line in lines)


def orbit(result: Part) -> str:
    """The one planned comparison, each time that it was made, and over the runs of all times."""
    made = [result, *(json.loads(path.read_text()) for path in sorted(RESULT.parent.glob(OTHERS)))]
    parts = [part for one in made for part in one["parts"].values() if part["settings"]["planned"]]
    parts.sort(key=lambda part: str(part["opening"]["opened_at"]))
    table = [["time", "runs a fold", "commit", *QUANTITIES.values()]]
    for number, part in enumerate(parts, start=1):
        pair = " minus ".join(part["settings"]["planned"])
        (cells,) = [c for name, c in part["test_sets"].items() if name == part["settings"]["suite"]]
        found = {"passes": cells["differences"][pair]["macro"], **part["measures"]["difference"]}
        commits = ", ".join(map(_short, part["commits"]))
        row = [told(found[quantity]) for quantity in QUANTITIES]
        table.append([str(number), str(part["settings"]["runs"]), commits, *row])
    if len(parts) > 1:
        runs = sum(part["settings"]["runs"] for part in parts)
        row = [told(pooled(parts, quantity)) for quantity in QUANTITIES]
        table.append(["all", str(runs), "", *row])
    return rows(*table)


def told(one: Part) -> str:
    """A difference, in bold if it is shown."""
    return f"**{change(one)}**" if is_shown(one) else change(one)


def pooled(parts: Sequence[Part], quantity: str) -> Part:
    """The planned difference over the runs of several parts, with its interval over runs and items."""
    folds: dict[str, list[NDArray[np.float64]]] = {}
    for part in parts:
        first, second = part["settings"]["planned"]
        for name, run in part["runs"].items():
            method, fold, seed = name.split("/")
            if method == first:
                other = part["runs"][f"{second}/{fold}/{seed}"]
                one, two = (np.array([float(x) for x in r[quantity]]) for r in (run, other))
                folds.setdefault(fold, []).append(one - two)
    scores = {fold: np.array(some) for fold, some in folds.items()}
    interval = hierarchical_bootstrap(scores, generator(0, "at length", "pooled", quantity))
    value = float(np.mean([one.mean() for one in scores.values()]))
    return {"value": value, "runs_and_items": [interval.low, interval.high]}


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
        f"`benchmarks/results/at_length.json`: {result['machine']['cores']} cores "
        f"({result['machine']['processor']}), {result['seconds'] / 60:.0f} minutes "
        f"and {cpu / 60:.0f} minutes of processor time for training; PyTorch {result['versions']['torch']}; commit "
        f"{', '.join(_short(one) for one in commits)}. Suites: {suites}. Plans: {plans}."
    )


def figure(result: Part) -> str:
    """The picture, which is drawn from the same result."""
    return (
        "![Held-out pass rate against the steps of the test items, for VCRT and Canonical-GRPO trained on the tests' "
        "own length and trained on four steps, and for the backbone before training.](figures/at-length.svg)"
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
            raise SystemExit(f"docs/at-length.md has no place {start}")
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
        sys.exit("docs/at-length.md is not what python benchmarks/at_length_page.py writes")
    PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
